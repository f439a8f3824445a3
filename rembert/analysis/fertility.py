"""Fertility: how many tokens a vocabulary needs for the words and characters of each language.

Scripts without spaces between words have a count per character only; counts of different scripts are not comparable.

`results` of `analysis.json`:

    languages       by code:
      pieces_per_word        null where the script has no spaces
      pieces_per_character
      coverage      fraction of the characters that are in regular tokens, neither bytes nor [UNK]
      byte_fallback, unknown       fractions of the tokens that are single bytes, and [UNK]
"""

from collections.abc import Sequence

import numpy as np
import sentencepiece

from rembert.analysis.context import AnalysisContext, AnalysisResult, Table, format_number
from rembert.errors import UsageError
from rembert.tokenizer import load_vocabulary

# Scripts without spaces between words, where a word count has no meaning.
_WITHOUT_SPACES = frozenset({'bo', 'dz', 'gan', 'ja', 'km', 'lo', 'my', 'shn', 'th', 'wuu', 'yue', 'zh'})
_SPACE = '\N{LOWER ONE EIGHTH BLOCK}'  # in tokens


def has_spaces(language: str) -> bool:
  """Whether a language puts spaces between words, by its code; a script or region in the code is ignored."""
  return language.removeprefix('zh-min-').split('-')[0] not in _WITHOUT_SPACES or language.endswith('-Latn')


class TokenCounter:
  """Counts how often each token of a vocabulary occurs in text, and the characters that it stands for."""

  def __init__(self, processor: sentencepiece.SentencePieceProcessor):
    self._processor = processor
    ids = range(processor.get_piece_size())
    tokens = [processor.id_to_piece(token) for token in ids]
    self._is_byte = np.array([processor.is_byte(token) for token in ids])
    is_special = [processor.is_control(id_) or processor.is_unknown(id_) or processor.is_unused(id_) for id_ in ids]
    # Characters of each token. A character in bytes counts at its first byte: the others have the form 10xxxxxx.
    self._own_characters = np.array([len(token.replace(_SPACE, '')) for token in tokens])
    self._own_characters[self._is_byte | np.array(is_special)] = 0
    self._byte_characters = np.array(
      [is_byte and int(token[3:-1], 16) & 0xC0 != 0x80 for is_byte, token in zip(self._is_byte, tokens, strict=True)]
    )

  def statistics(self, texts: Sequence[str], *, has_spaces: bool = True) -> dict[str, float | None]:
    """Fertility, coverage, byte fallback and unknown tokens, as in `results`; all zero if there is no text.

    Characters are counted without spaces, after the vocabulary's normalisation.
    """
    counts, unknown, unknown_characters = np.zeros(len(self._is_byte), np.int64), self._processor.unk_id(), 0
    for text, ids in zip(texts, self._processor.encode(list(texts)), strict=True):
      if unknown in ids:  # one [UNK] may stand for several characters, which only its surface shows
        surfaces = zip(self._processor.encode(text, out_type=str), ids, strict=True)
        unknown_characters += sum(len(surface.replace(_SPACE, '')) for surface, id_ in surfaces if id_ == unknown)
      counts += np.bincount(np.asarray(ids, np.int64), minlength=len(counts))
    tokens, covered = counts.sum(), counts @ self._own_characters
    characters = covered + counts @ self._byte_characters + unknown_characters
    share = lambda part, whole: float(part / whole) if whole else 0.0
    return {
      'pieces_per_word': share(tokens, sum(len(text.split()) for text in texts)) if has_spaces else None,
      'pieces_per_character': share(tokens, characters),
      'coverage': share(covered, characters),
      'byte_fallback': share(counts[self._is_byte].sum(), tokens),
      'unknown': share(counts[unknown], tokens),
    }


# --- the analysis -----------------------------------------------------------------------------------------------------


def run(context: AnalysisContext) -> AnalysisResult:
  """Measures a vocabulary on text of each language; the module docstring has the results."""
  config, analyze = context.config, context.config.analyze
  analyze.require('text')
  vocabulary = config.vocabulary.path or (context.source().vocabulary if analyze.model else None)
  if vocabulary is None:
    raise UsageError(
      'neither a vocabulary nor a model is set',
      where='vocabulary.path, analyze.model',
      fix=['--gin.vocabulary.path=sentencepiece.model', '--gin.analyze.model=WORKDIR with a vocabulary'],
    )
  processor = load_vocabulary(vocabulary)
  counter = TokenCounter(processor)
  languages = {
    language: counter.statistics(texts, has_spaces=has_spaces(language))
    for language, texts in context.texts('tokenizing')
    if texts
  }
  if not languages:
    raise UsageError('no text found', where=str(analyze.text), fix='name a directory of LL.txt that contain text')
  rows = [
    (
      language,
      format_number(found['pieces_per_word'], 2),
      format_number(found['pieces_per_character'], 3),
      f'{found["coverage"]:.2%}',
      f'{found["byte_fallback"]:.2%}',
      f'{found["unknown"]:.2%}',
    )
    for language, found in sorted(languages.items(), key=lambda item: item[1]['pieces_per_character'] or 0)
  ]
  columns = ('language', '/word', '/character', 'covered', 'bytes', 'unknown')
  return AnalysisResult(
    {'languages': languages},
    {'vocabulary': str(vocabulary), 'pieces': processor.get_piece_size(), 'text': str(analyze.text)},
    [Table('Tokens', columns, rows)],
  )
