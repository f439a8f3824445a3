"""SentencePiece vocabularies with the special ids of the released RemBERT: train one, check one.

Layout: [PAD] 0, [UNK] 2, [CLS] 312, [SEP] 313, [MASK] 314 at any size, unused pieces between them, then 256 byte
pieces (a character without a piece of its own becomes its UTF-8 bytes, never [UNK]), then what the unigram model
learnt. Text is not normalised but for white space: every kind of it becomes a space, and several become one. Character
by character, what goes in comes out, and offsets can be trusted.
"""

import argparse
import contextlib
import io
import math
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import numpy as np
import sentencepiece
from etils import epath
from sentencepiece import sentencepiece_model_pb2

from rembert.command_line import parse_flags, run_command
from rembert.data.config import SAMPLE
from rembert.data.masking import SpecialIds
from rembert.data.mixture import sampling_rates
from rembert.errors import UsageError
from rembert.files import check_output, is_remote, why_unreachable, write_whole
from rembert.tracking.console import Console
from rembert.validation import Count, NotNegative, Range, number
from tasks.corpus.__main__ import add_sources, corpus_or_temporary

if TYPE_CHECKING:
  from tasks.corpus.format import Corpus

SPECIAL_PIECES = {'[PAD]': 0, '[UNK]': 2, '[CLS]': 312, '[SEP]': 313, '[MASK]': 314}
_BYTES = 256
_SPACES = '\t\n\v\f\r\u0085\u00a0\u2028\u2029\u202f\u3000'
SMALLEST_SIZE = SPECIAL_PIECES['[MASK]'] + 1 + _BYTES + 1
_LONGEST_SENTENCE = 4000  # characters; SentencePiece would skip longer lines without a word
_ALTERNATIVE = 'train one on your corpus: --gin.vocabulary.path=None, or python -m tasks.vocabulary --help'


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
        f'--gin.RemBertConfig.vocab_size={most[1]}, or --size={most[1]}',
        'or more text: more of it, or a larger share (vocabulary.sample_characters, or --characters)',
      ],
    )
  if least := re.search(r'required_chars\. \d+ vs (\d+)', message):
    return UsageError(
      f'a vocabulary of {size:,} pieces cannot hold the characters of the text: that takes {int(least[1]):,}',
      where='RemBertConfig.vocab_size, vocabulary.character_coverage; or --size, --coverage',
      fix=[
        f'--gin.RemBertConfig.vocab_size={least[1]}, or --size={least[1]}; more leaves room for words',
        'or a lower coverage, 0.995; the rest falls back to bytes',
      ],
    )
  what = f'SentencePiece could not train a vocabulary: {message.splitlines()[-1] if message else error!r}'
  if 'sentences_.empty()' in message:
    what = 'there is no text to train a vocabulary on'
  return UsageError(what, where='the corpus', fix='check that it holds text')


def _read(path: epath.Path) -> bytes | Exception:
  """The file, or why it cannot be read: no file, no network, no permission; each file system has its own exceptions."""
  if reason := why_unreachable(str(path)):
    return ConnectionError(reason)
  if is_remote(path):  # through TensorFlow, whose file systems log every attempt
    from tasks.tensorflow_import import without_chatter
  with without_chatter() if is_remote(path) else contextlib.nullcontext():
    try:
      return path.read_bytes()
    except Exception as error:
      return error


def load_vocabulary(path: epath.PathLike) -> sentencepiece.SentencePieceProcessor:
  """Loads any SentencePiece model; UsageError if there is no such file, or it is none."""
  path = epath.Path(path)
  content = _read(path)
  if isinstance(content, Exception):
    reason = type(content).__name__ if not str(content) else str(content).splitlines()[0]
    raise UsageError(
      f'the vocabulary cannot be read: {reason}', where=f'vocabulary.path = {path}', fix=_ALTERNATIVE
    ) from content
  processor = sentencepiece.SentencePieceProcessor()
  try:
    processor.LoadFromSerializedProto(content)
  except RuntimeError as error:
    raise UsageError('not a SentencePiece model', where=str(path), fix=_ALTERNATIVE) from error
  return processor


def check_vocabulary(path: epath.PathLike, vocab_size: int) -> SpecialIds:
  """Loads a vocabulary and returns its special ids.

  Raises:
    UsageError: no such file, not a SentencePiece model, special ids missing, or more pieces than `vocab_size`.
  """
  processor = load_vocabulary(path)
  ids = {piece: processor.piece_to_id(piece) for piece in SPECIAL_PIECES}
  if wrong := [
    f'{piece} is {found}, not {SPECIAL_PIECES[piece]}' for piece, found in ids.items() if found != SPECIAL_PIECES[piece]
  ]:
    raise UsageError(
      f'the vocabulary has other special ids than RemBERT: {", ".join(wrong)}', where=str(path), fix=_ALTERNATIVE
    )
  if processor.get_piece_size() > vocab_size:
    raise UsageError(
      f'the vocabulary has {processor.get_piece_size()} pieces, the model {vocab_size}',
      where=f'RemBertConfig.vocab_size, {path}',
      fix=f'--gin.RemBertConfig.vocab_size={processor.get_piece_size()}',
    )
  return SpecialIds()


def begins_word(path: epath.PathLike, vocab_size: int) -> np.ndarray:
  """Whether a piece begins a word, for whole-word masking; bool [`vocab_size`].

  Ordinary pieces do with `▁`, SentencePiece's sign for the space before. Special and unused ones always do, and ids
  that the vocabulary does not reach. Bytes never do: they are characters within a word, or follow a `▁` of their own.
  """
  proto = sentencepiece_model_pb2.ModelProto.FromString(epath.Path(path).read_bytes())
  types = sentencepiece_model_pb2.ModelProto.SentencePiece.Type
  in_words = (types.NORMAL, types.USER_DEFINED, types.BYTE)
  begins_V = np.ones(vocab_size, bool)
  begins_V[: len(proto.pieces)] = [p.piece.startswith('▁') or p.type not in in_words for p in proto.pieces]
  return begins_V


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
    from tasks import vocabulary_report

    return vocabulary_report.main(argv[1:])
  parser = argparse.ArgumentParser(
    prog='python -m tasks.vocabulary',
    description='Train a SentencePiece vocabulary on a corpus. Of dumps, plain text or a TFDS dataset, one is made in '
    'a temporary directory first; python -m tasks.corpus makes one that other commands read as well.',
    epilog='examples\n  python -m tasks.vocabulary --corpus=corpus --size=32000 --output=v.model\n'
    '  python -m tasks.vocabulary --dumps=dumps/ --languages=de,el,th --size=32000 --output=v.model\n'
    '  what one makes of each language:\n    python -m tasks.vocabulary report --help\n\n'
    'what it takes: 250,300 pieces from 44 million characters of 119 languages, two cores: 2 min, 1.8 GB of memory',
    formatter_class=argparse.RawDescriptionHelpFormatter,
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


def _train(options: argparse.Namespace) -> None:
  from tasks.corpus.documents import CorpusConfig

  console = Console()
  refuse_too_few(options.size)
  check_output(options.output, '--output', overwrite=options.overwrite)  # now, not after minutes of training
  config = CorpusConfig(held_out=0, min_characters=1 if options.text else 100)
  with corpus_or_temporary(options, config, console) as corpus:
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


if __name__ == '__main__':
  raise SystemExit(main())
