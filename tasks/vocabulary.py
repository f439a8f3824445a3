"""SentencePiece vocabularies with the special ids of the released RemBERT: train one, report what one makes of text.

Layout: [PAD] 0, [UNK] 2, [CLS] 312, [SEP] 313, [MASK] 314 at any size, unused pieces between them, then 256 byte
pieces (a character without a piece of its own becomes its UTF-8 bytes, never [UNK]), then what the unigram model
learnt. Text is not normalised but for white space: every kind of it becomes a space, and several become one. Character
by character, what goes in comes out, and offsets can be trusted.
"""

import argparse
import contextlib
import dataclasses
import io
import itertools
import json
import math
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
import sentencepiece
from etils import epath
from sentencepiece import sentencepiece_model_pb2

from rembert.command_line import command_parser, parse_flags, run_command
from rembert.data.config import SAMPLE
from rembert.data.mixture import sampling_rates
from rembert.errors import Setting, UsageError
from rembert.files import check_output, write_errors, write_whole
from rembert.tokenizer import SPECIAL_PIECES, load_vocabulary
from rembert.tracking.console import Console
from rembert.validation import Count, NotNegative, Range, number
from tasks.corpus.__main__ import add_sources, corpus_or_temporary, show_lost

if TYPE_CHECKING:
  from tasks.corpus.format import Corpus

_BYTES = 256
_SPACES = '\t\n\v\f\r\u0085\u00a0\u2028\u2029\u202f\u3000'
SMALLEST_SIZE = SPECIAL_PIECES['[MASK]'] + 1 + _BYTES + 1
_LONGEST_SENTENCE = 4000  # characters; SentencePiece would skip longer lines without a word


def train_vocabulary(
  texts: Iterable[str], path: epath.PathLike, *, size: int, character_coverage: float = 0.9995, threads: int = 16
) -> None:
  """Trains a unigram vocabulary of exactly `size` pieces on `texts` and writes it to `path` at once.

  Raises:
    UsageError: the text does not support so many pieces, or `size` does not hold the special ones.
  """
  refuse_too_few(size)
  reserved = [piece for piece in range(SPECIAL_PIECES['[MASK]']) if piece not in SPECIAL_PIECES.values()]
  roles = {'pad': '[PAD]', 'unk': '[UNK]', 'bos': '[CLS]', 'eos': '[SEP]'}
  model = io.BytesIO()
  with tempfile.NamedTemporaryFile('w', suffix='.tsv') as rules:
    rules.writelines(f'{ord(character):X}\t20\n' for character in _SPACES)
    rules.flush()
    try:
      sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(
          text[start : start + _LONGEST_SENTENCE] for text in texts for start in range(0, len(text), _LONGEST_SENTENCE)
        ),
        model_writer=model,
        model_type='unigram',
        vocab_size=size,
        character_coverage=character_coverage,
        byte_fallback=True,
        normalization_rule_tsv=rules.name,
        max_sentence_length=_LONGEST_SENTENCE * 4,
        num_threads=threads,
        **{f'{role}_id': SPECIAL_PIECES[piece] for role, piece in roles.items()},
        **{f'{role}_piece': piece for role, piece in roles.items()},
        # Control pieces take the lowest free ids, in order: the gaps, then [MASK]. Text can never produce them.
        control_symbols=[f'[unused{index}]' for index in reserved] + ['[MASK]'],
        minloglevel=2,
      )
    except RuntimeError as error:
      raise _training_error(error, size) from error
  # Without the name of the temporary file of rules: a run is known by the bytes of its vocabulary.
  proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
  proto.normalizer_spec.ClearField('normalization_rule_tsv')
  write_whole(path, proto.SerializeToString(deterministic=True))


def refuse_too_few(size: int) -> None:
  """Raises UsageError where `size` pieces do not hold the special ones."""
  if size < SMALLEST_SIZE:
    raise UsageError(
      f'{size} pieces do not hold the special ids and {_BYTES} bytes',
      where='RemBertConfig.vocab_size, or --size',
      fix=f'at least {SMALLEST_SIZE}',
    )


def _training_error(error: RuntimeError, size: int) -> UsageError:
  message = str(error)
  if most := re.search(r'value <= (\d+)', message):
    return UsageError(
      f'the text supports a vocabulary of {int(most[1]):,} pieces at most, not {size:,}',
      where='RemBertConfig.vocab_size, or --size',
      fix=[
        Setting('RemBertConfig.vocab_size', int(most[1])),
        f'or of this command: --size={most[1]}',
        'or more text: more of it, or a larger share (vocabulary.sample_characters, or --characters)',
      ],
    )
  if least := re.search(r'required_chars\. \d+ vs (\d+)', message):
    return UsageError(
      f'a vocabulary of {size:,} pieces cannot hold the characters of the text: that takes {int(least[1]):,}',
      where='RemBertConfig.vocab_size, vocabulary.character_coverage; or --size, --coverage',
      fix=[
        Setting('RemBertConfig.vocab_size', int(least[1])),
        f'or of this command: --size={least[1]}; more leaves room for words',
        'or a lower coverage, 0.995; the rest falls back to bytes',
      ],
    )
  what = f'SentencePiece could not train a vocabulary: {message.splitlines()[-1] if message else error!r}'
  if 'sentences_.empty()' in message:
    what = 'there is no text to train a vocabulary on'
  return UsageError(what, where='the corpus', fix='check that it holds text')


def text_budgets(characters: Mapping[str, int], rates: Mapping[str, float], total: int) -> dict[str, int]:
  """Characters to read of each language for a vocabulary, by sampling rate, at most what there is."""
  return {language: min(characters[language], math.ceil(rate * total)) for language, rate in rates.items()}


def sample_text(
  corpus: 'Corpus',
  characters: Mapping[str, int],
  on_progress: Callable[[float, str], None] = lambda fraction, language: None,
) -> Iterator[str]:
  """Paragraphs to train a vocabulary on: of each language so many characters of its training documents.

  `on_progress` is given the share of all `characters` that is done, 0 to 1, and the language at hand.
  """
  done, total = 0, max(1, sum(characters.values()))
  for language, budget in characters.items():
    taken = 0
    for text in corpus.sample(language, 'train', budget):
      yield from text.split('\n')
      taken += len(text)
      on_progress((done + min(taken, budget)) / total, language)
    done += budget


def train_on_corpus(
  corpus: 'Corpus',
  path: epath.PathLike,
  *,
  rates: Mapping[str, float],
  size: int,
  characters: int,
  character_coverage: float,
  console: Console,
) -> None:
  """Trains a vocabulary on text of every language, as much of each as its sampling rate gives and the corpus has.

  `characters` are those of all languages together; `character_coverage` is the share that get tokens of their own.
  """
  budgets = text_budgets({language: corpus.languages[language].characters for language in rates}, rates, characters)
  texts, taken, began = [], 0, time.monotonic()
  with console.task('sampling text for a vocabulary') as update:

    def tell(fraction: float, language: str) -> None:
      speed = taken / max(time.monotonic() - began, 1e-3)
      update(fraction, f'{language} · {taken / 1e6:.1f}M characters · {speed / 1e6:.1f}M/s')

    for text in sample_text(corpus, budgets, tell):
      texts.append(text)
      taken += len(text)
  short = sum(budgets[language] < math.ceil(rate * characters) for language, rate in rates.items())
  console.say(
    f'{taken:,} characters of {len(budgets)} language(s)'
    + (f', of {characters:,} that were asked for: {short} have no more' if short else '')
  )
  if size > 50_000:  # minutes in which SentencePiece says nothing
    console.say(f'training a vocabulary of {size:,} pieces: some minutes')
  with console.task(f'training a vocabulary of {size:,} pieces'):
    train_vocabulary(texts, path, size=size, character_coverage=character_coverage)


def main(argv: list[str] | None = None) -> int:
  """The command line: trains one, or reports on one where the first word is `report`."""
  argv = sys.argv[1:] if argv is None else argv
  if argv[:1] == ['report']:
    return report_main(argv[1:])
  parser = command_parser(
    'tasks.vocabulary',
    'Train a SentencePiece vocabulary on a corpus. Of dumps, plain text or a TFDS dataset, one is made in '
    'a temporary directory first; python -m tasks.corpus makes one that other commands read as well.',
    'examples\n  python -m tasks.vocabulary --corpus=corpus --size=32000 --output=v.model\n'
    '  python -m tasks.vocabulary --dumps=dumps/ --languages=de,el,th --size=32000 --output=v.model\n'
    '  what one makes of each language:\n    python -m tasks.vocabulary report --help\n\n'
    'what it takes: 250,300 pieces from 44 million characters of 119 languages, two cores: 2 min, 1.8 GB of memory',
  )
  add_sources(parser, default=SAMPLE)
  parser.add_argument(
    '--size', type=number(Count), required=True, help=f'pieces, special ones included; {SMALLEST_SIZE} or more'
  )
  parser.add_argument('--alpha', type=number(NotNegative), default=0.5, help='smoothing of the languages (default 0.5)')
  parser.add_argument(
    '--coverage',
    type=number(Annotated[float, Range(above=0, most=1)]),
    default=0.9995,
    help='share of characters with own pieces',
  )
  parser.add_argument('--characters', type=number(Count), default=50_000_000, help='how much text to train on')
  parser.add_argument('--output', required=True, help='the file to write')
  parser.add_argument('--overwrite', action='store_true', help='replace the file that is there')
  options, _ = parse_flags(parser, argv)
  return run_command('tasks.vocabulary', lambda: _train(options))


def _corpus(
  options: argparse.Namespace, held_out: float, console: Console
) -> 'contextlib.AbstractContextManager[Corpus]':
  from tasks.corpus.documents import CorpusConfig

  config = CorpusConfig(held_out=held_out, min_characters=1 if options.text else 100)
  return corpus_or_temporary(options, config, console)


def _train(options: argparse.Namespace) -> None:
  console = Console()
  refuse_too_few(options.size)
  check_output(options.output, '--output', overwrite=options.overwrite)  # now, not after minutes of training
  with _corpus(options, 0, console) as corpus:
    show_lost(console, corpus.lost)
    sentences = {language: counts.sentences for language, counts in corpus.languages.items()}
    rates = sampling_rates(sentences, options.alpha)
    train_on_corpus(
      corpus,
      options.output,
      rates=rates,
      size=options.size,
      characters=options.characters,
      character_coverage=options.coverage,
      console=console,
    )
  console.say(f'{options.size:,} pieces from {len(rates)} language(s): {options.output}')


# --- what a vocabulary makes of each language -------------------------------------------------------------------------
#
# A language whose words fall into many pieces fills its rows with little text; one whose characters fall back to bytes
# is hardly read at all. Both are seen here, before anything is trained.

# Scripts that put no blank between words: a word count would say nothing.
_WITHOUT_SPACES = frozenset({'bo', 'dz', 'gan', 'ja', 'km', 'lo', 'my', 'shn', 'th', 'wuu', 'yue', 'zh'})

_BLANK = '\N{LOWER ONE EIGHTH BLOCK}'  # what stands for a space inside pieces
_DOCUMENTS_AT_ONCE = 256


@dataclasses.dataclass(frozen=True)
class PieceStatistics:
  """What a vocabulary makes of some text. Characters are counted without blanks, after the vocabulary's normalisation.

  Attributes:
    coverage: share of the characters that lie in pieces of the vocabulary's own, neither bytes nor [UNK].
    pieces_per_word: pieces for each word, None where the script puts no blanks between words.
    byte_fallback: share of the pieces that are single bytes.
    unknown: share of the pieces that are [UNK].
    used: share of the vocabulary's own pieces that occur.
  """

  documents: int
  words: int
  characters: int
  pieces: int
  coverage: float
  pieces_per_word: float | None
  pieces_per_character: float
  byte_fallback: float
  unknown: float
  used: float


class PieceCounter:
  """Counts how often each piece of a vocabulary occurs; counters of several languages add up."""

  def __init__(self, processor: sentencepiece.SentencePieceProcessor):
    self._processor = processor
    ids = range(processor.get_piece_size())
    pieces = [processor.id_to_piece(piece) for piece in ids]
    self._is_byte = np.array([processor.is_byte(piece) for piece in ids])
    is_special = [
      processor.is_control(piece) or processor.is_unknown(piece) or processor.is_unused(piece) for piece in ids
    ]
    self.is_own = ~self._is_byte & ~np.array(is_special)
    # A character in bytes is counted at its first one: the others look like 10xxxxxx.
    self._begins_character = np.array(
      [is_byte and int(piece[3:-1], 16) & 0xC0 != 0x80 for is_byte, piece in zip(self._is_byte, pieces, strict=True)]
    )
    self._length = np.array([len(piece.replace(_BLANK, '')) for piece in pieces])
    self.counts = np.zeros(len(pieces), np.int64)
    self.documents = self.words = self.unknown_characters = 0

  def add_texts(self, texts: Sequence[str]) -> None:
    """Counts some documents."""
    unknown = self._processor.unk_id()
    for text, ids in zip(texts, self._processor.encode(list(texts)), strict=True):
      self.documents += 1
      self.words += len(text.split())
      if unknown in ids:  # one [UNK] may stand for several characters: only its surface tells
        surfaces = self._processor.encode(text, out_type=str)
        shown = (surface for surface, piece in zip(surfaces, ids, strict=True) if piece == unknown)
        self.unknown_characters += sum(len(surface.replace(_BLANK, '')) for surface in shown)
      self.counts += np.bincount(np.asarray(ids, np.int64), minlength=len(self.counts))

  def add(self, other: 'PieceCounter') -> None:
    """Adds what another counter of the same vocabulary has counted."""
    self.counts += other.counts
    self.documents += other.documents
    self.words += other.words
    self.unknown_characters += other.unknown_characters

  def statistics(self, *, has_spaces: bool = True) -> PieceStatistics:
    """The counts as rates; all zero of an empty text."""
    pieces = int(self.counts.sum())
    own_characters = int((self.counts * self._length)[self.is_own].sum())
    characters = own_characters + int(self.counts[self._begins_character].sum()) + self.unknown_characters
    share = lambda part, whole: float(part / whole) if whole else 0.0
    return PieceStatistics(
      documents=self.documents,
      words=self.words,
      characters=characters,
      pieces=pieces,
      coverage=share(own_characters, characters),
      pieces_per_word=share(pieces, self.words) if has_spaces else None,
      pieces_per_character=share(pieces, characters),
      byte_fallback=share(self.counts[self._is_byte].sum(), pieces),
      unknown=share(self.counts[self._processor.unk_id()], pieces),
      used=share((self.counts[self.is_own] > 0).sum(), self.is_own.sum()),
    )


def has_spaces(language: str) -> bool:
  """Whether a language puts blanks between its words; by its code, whatever script or region comes after."""
  return language.removeprefix('zh-min-').split('-')[0] not in _WITHOUT_SPACES or language.endswith('-Latn')


def report(
  processor: sentencepiece.SentencePieceProcessor, texts: Iterable[tuple[str, Iterable[str]]]
) -> tuple[dict[str, PieceStatistics], PieceStatistics]:
  """Statistics of each language's texts, and of all together; languages without text are left out."""
  of_language, whole = {}, PieceCounter(processor)
  for language, documents in texts:
    counter, left = PieceCounter(processor), iter(documents)
    while some := list(itertools.islice(left, _DOCUMENTS_AT_ONCE)):
      counter.add_texts(some)
    if counter.documents:
      of_language[language] = counter.statistics(has_spaces=has_spaces(language))
      whole.add(counter)
  return of_language, whole.statistics(has_spaces=False)


# Columns of the table: heading, field of `PieceStatistics`, format.
_COLUMNS = (
  ('texts', 'documents', ','),
  ('characters', 'characters', ','),
  ('covered', 'coverage', '.2%'),
  ('/word', 'pieces_per_word', '.2f'),
  ('/char', 'pieces_per_character', '.3f'),
  ('bytes', 'byte_fallback', '.2%'),
  ('unknown', 'unknown', '.2%'),
  ('used', 'used', '.1%'),
)


def _show_statistics(console: Console, title: str, statistics: Mapping[str, PieceStatistics]) -> None:
  text = lambda value, spec: '' if value is None else format(value, spec)
  rows = [
    (name, *(text(getattr(counts, field), spec) for _, field, spec in _COLUMNS)) for name, counts in statistics.items()
  ]
  console.table(title, ('', *(heading for heading, _, _ in _COLUMNS)), rows)


def report_main(argv: Sequence[str]) -> int:
  """The command line behind `report`."""
  parser = argparse.ArgumentParser(
    prog='python -m tasks.vocabulary report',
    description='What a vocabulary makes of each language.',
    epilog='columns: covered, characters in pieces of their own; /word and /char, pieces for each; bytes and unknown, '
    'shares of the pieces; used, share of the vocabulary',
  )
  parser.add_argument('--vocabulary', required=True, help='a SentencePiece model')
  add_sources(parser, default=SAMPLE)
  parser.add_argument(
    '--held_out',
    type=number(NotNegative),
    help='only documents that a run with this data.held_out never trains on (default: those to train on)',
  )
  parser.add_argument(
    '--characters', type=number(Count), default=1_000_000, help='text of each language (default 1,000,000)'
  )
  parser.add_argument('--output', help='also write it all as JSON')
  options, _ = parse_flags(parser, argv)
  return run_command('tasks.vocabulary report', lambda: _report(options))


def _report(options: argparse.Namespace) -> None:
  if options.output:
    check_output(options.output, '--output')
  console = Console()
  processor = load_vocabulary(options.vocabulary)
  with _corpus(options, options.held_out or 0, console) as corpus:
    share = corpus.recipe['held_out']
    if options.held_out not in (None, share):
      raise UsageError(
        f'the corpus holds out a share of {share}, not {options.held_out}',
        where=f'--held_out={options.held_out}, {corpus.folder}',
        fix=f'--held_out={share}; or leave it out, for the documents to train on',
      )
    split = 'train' if options.held_out is None else 'validation'

    def texts() -> Iterator[tuple[str, Iterable[str]]]:
      with console.task('reading') as update:
        for number, language in enumerate(corpus.languages):
          update(number / len(corpus.languages), language)
          yield language, corpus.sample(language, split, options.characters)

    of_language, whole = report(processor, texts())
  if not of_language:
    raise UsageError('there is no text to report on', where=str(corpus.folder), fix='a larger --held_out, or none')
  pieces, own = processor.get_piece_size(), int(PieceCounter(processor).is_own.sum())
  _show_statistics(console, f'{options.vocabulary}: {pieces:,} pieces, {own:,} of text', of_language | {'all': whole})
  if left_out := [language for language in corpus.languages if language not in of_language]:
    console.say(f'no text: {", ".join(left_out)}')
  if options.output:
    content = {
      'vocabulary': options.vocabulary,
      'pieces': pieces,
      'own_pieces': own,
      'held_out': options.held_out,
      'languages': {language: dataclasses.asdict(counts) for language, counts in of_language.items()},
      'all': dataclasses.asdict(whole),
    }
    with write_errors('the report', options.output):
      write_whole(options.output, json.dumps(content, indent=1))


if __name__ == '__main__':
  raise SystemExit(main())
