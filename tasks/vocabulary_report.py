"""`tasks.vocabulary report`, what one makes of each language: how much has pieces of its own, how many pieces it takes.

A language whose words fall into many pieces fills its rows with little text; one whose characters fall back to bytes is
hardly read at all. Both are seen here, before anything is trained.
"""

import argparse
import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rembert.command_line import parse_flags, run_command
from rembert.data.config import SAMPLE
from rembert.errors import UsageError
from rembert.files import check_output, write_errors, write_whole
from rembert.tracking.console import Console
from rembert.validation import Count, NotNegative, number
from tasks.corpus.__main__ import add_sources, corpus_or_temporary
from tasks.vocabulary import load_vocabulary

if TYPE_CHECKING:
  import sentencepiece

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

  def __init__(self, processor: 'sentencepiece.SentencePieceProcessor'):
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
  processor: 'sentencepiece.SentencePieceProcessor', texts: Iterable[tuple[str, Iterable[str]]]
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


def _show(console: Console, title: str, statistics: Mapping[str, PieceStatistics]) -> None:
  text = lambda value, spec: '' if value is None else format(value, spec)
  rows = [
    (name, *(text(getattr(counts, field), spec) for _, field, spec in _COLUMNS)) for name, counts in statistics.items()
  ]
  console.table(title, ('', *(heading for heading, _, _ in _COLUMNS)), rows)


def main(argv: Sequence[str]) -> int:
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
  from tasks.corpus.documents import CorpusConfig

  if options.output:
    check_output(options.output, '--output')
  console = Console()
  processor = load_vocabulary(options.vocabulary)
  config = CorpusConfig(held_out=options.held_out or 0, min_characters=1 if options.text else 100)
  with corpus_or_temporary(options, config, console) as corpus:
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
  _show(console, f'{options.vocabulary}: {pieces:,} pieces, {own:,} of text', of_language | {'all': whole})
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
