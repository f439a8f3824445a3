"""Sentences of words with a tag each: what PAN-X and UDPOS have in common.

Files are `TASK/SPLIT-LANGUAGE.tsv`: in train and dev a word TAB its tag a line, in test the word alone; gold tags of
test are in `labels/TASK/test-LANGUAGE.tsv`, one a line. If a test file has a second column, that counts. A blank line
ends a sentence, as in XTREME's `evaluate.py`: two in succession have a sentence of no words between them.

A word may be the empty string: XTREME's preprocessing of PAN-X leaves some, as lines that begin with the TAB.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from etils import epath

from rembert.errors import UsageError
from tasks.metrics.chunks import chunk_scores
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.gold_labels import known_label, labels_lines, labels_missing, most_frequent, require_labels
from tasks.xtreme.layout import Line, XtremeFolder
from tasks.xtreme.pieces import Pieces
from tasks.xtreme.task import IGNORED, Row
from tasks.xtreme.text_lines import same_columns, text_lines


@dataclasses.dataclass(frozen=True)
class Sentence:
  """Words and their tags, as many; None is unknown. `where` is `FILE:LINE` of its first word."""

  words: tuple[str, ...]
  tags: tuple[str, ...] | None
  where: str


@dataclasses.dataclass(frozen=True)
class WordsRow(Row):
  """A row of some words of a sentence, in their order.

  Attributes:
    first_pieces: [W] int32, the position of each word's first piece, which tags are read from.
  """

  first_pieces: np.ndarray


@dataclasses.dataclass(frozen=True)
class WordTask:
  """A `tasks.xtreme.task.Task` of tagging; a prediction is a tuple of as many tags as there are words."""

  name: str
  languages: tuple[str, ...]
  labels: tuple[str, ...]
  head: str = 'tagging'
  scores: tuple[str, ...] = ('f1', 'precision', 'recall')
  suffix: str = 'tsv'

  def examples(self, folder: XtremeFolder, split: str, language: str, *, needs_labels: bool) -> list[Sentence]:
    """Reads a split of a language. Without `needs_labels` gold tags are what the file itself has.

    Raises:
      UsageError: no such file, a line that is no word, an unknown tag, no tags where they are needed, or sentences that
        do not have as many tags as words.
    """
    path = folder.file(self.name, f'{split}-{language}.tsv')
    sentences = list(_sentences(path, self.labels))
    if not needs_labels or _has_tags(sentences):
      return sentences
    if split != 'test':
      raise labels_missing(_first_word(sentences).where, 'two columns: word, tag')
    gold_file = folder.labels_file(self.name, language, 'tsv')
    gold = list(_blocks(labels_lines(gold_file, path)))
    _check_counts(gold, gold_file, sentences, path)
    return [
      dataclasses.replace(sentence, tags=tuple(known_label(line.text, self.labels, line.where) for line in block.lines))
      for sentence, block in zip(sentences, gold, strict=True)
    ]

  def rows(
    self, examples: Sequence[Sentence], pieces: Pieces, *, max_length: int, config: XtremeConfig
  ) -> list[WordsRow]:
    """`[CLS] words [SEP]`: a word's tag is the label of its first piece, everything else is `IGNORED`.

    Words are turned into pieces one by one, as XTREME does it, so each begins with the piece of a word's beginning. A
    word that is white space or gives no pieces becomes [UNK]. As many words as fit make a row, and the rest of the
    sentence the next, with nothing shared between the two; XTREME's preprocessing splits at the same places. Only a
    word that is longer than a row loses pieces, its last; XTREME makes [UNK] of it. A sentence of no words has no row.
    """
    del config
    room = max_length - 2
    if room < 1:
      raise UsageError('a row has no room for a word', where=f'a row of {max_length} positions', fix='at least 3')
    encoded: dict[str, list[int]] = {}  # the same words come again and again
    rows = []
    for index, sentence in enumerate(examples):
      for word in sentence.words:
        if word not in encoded:
          encoded[word] = word_pieces(word, pieces)[:room]
      labels = [self.labels.index(tag) for tag in sentence.tags] if sentence.tags else [IGNORED] * len(sentence.words)
      lengths = [len(encoded[word]) for word in sentence.words]
      for begin, end in spans_that_fit(lengths, room):
        words = [encoded[word] for word in sentence.words[begin:end]]
        rows.append(_row(index, words, labels[begin:end], pieces))
    return rows

  def predictions(
    self,
    examples: Sequence[Sentence],
    rows: Sequence[WordsRow],
    outputs: Sequence[np.ndarray],
    *,
    config: XtremeConfig,
  ) -> list[tuple[str, ...]]:
    """The tag with the highest logit at each word's first piece; outputs are [S, labels] float32, one for each row."""
    del config
    tags: list[list[str]] = [[] for _ in examples]
    for row, output in zip(rows, outputs, strict=True):
      tags[row.example] += [self.labels[label] for label in np.argmax(output[row.first_pieces], axis=-1)]
    for sentence, found in zip(examples, tags, strict=True):
      if len(found) != len(sentence.words):
        raise ValueError(f'{len(found)} tags for the {len(sentence.words)} words of {sentence.where}')
    return [tuple(found) for found in tags]

  def score(
    self, examples: Sequence[Sentence], predictions: Sequence[Sequence[str]], language: str
  ) -> dict[str, float]:
    """`f1`, `precision` and `recall` over chunks, 0 to 100. UsageError where a sentence has no tags."""
    del language
    gold = [sentence.tags for sentence in examples]
    require_labels(examples, gold)
    return chunk_scores(gold, predictions)

  def baseline(self, train: Sequence[Sentence], examples: Sequence[Sentence]) -> list[tuple[str, ...]]:
    """The most frequent tag of `train` for every word. Where that is O, as for PAN-X, there are no chunks: F1 is 0."""
    require_labels(train, [sentence.tags for sentence in train])
    tag = most_frequent((tag for sentence in train for tag in sentence.tags), self.labels)
    return [(tag,) * len(sentence.words) for sentence in examples]

  def file_text(self, examples: Sequence[Sentence], predictions: Sequence[Sequence[str]]) -> str:
    """A tag a line and a blank line between sentences, in the order of the examples."""
    blocks = [''.join(f'{tag}\n' for tag in tags) for _, tags in zip(examples, predictions, strict=True)]
    # A last sentence of no words is there only by the blank line behind it.
    return '\n'.join(blocks) + ('\n' if blocks[-1:] == [''] else '')


def word_pieces(word: str, pieces: Pieces) -> list[int]:
  """Ids of a word by itself, at least one."""
  return (pieces.ids(word) if word.strip() else []) or [pieces.special.unknown]


def spans_that_fit(lengths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
  """Begin and end of stretches of neighbours, each as long as `room` allows; no length may be more than that."""
  begin = filled = 0
  for index, length in enumerate(lengths):
    if filled + length > room:
      yield begin, index
      begin, filled = index, 0
    filled += length
  if begin < len(lengths):
    yield begin, len(lengths)


def _row(example: int, words: Sequence[Sequence[int]], labels: Sequence[int], pieces: Pieces) -> WordsRow:
  ids = [pieces.special.cls, *(piece for word in words for piece in word), pieces.special.sep]
  first_pieces = np.cumsum([1, *(len(word) for word in words)], dtype=np.int32)[:-1]
  row_labels = np.full(len(ids), IGNORED, np.int32)
  row_labels[first_pieces] = labels
  return WordsRow(
    example=example,
    input_ids=np.array(ids, np.int32),
    token_type_ids=np.zeros(len(ids), np.int32),
    labels=row_labels,
    first_pieces=first_pieces,
  )


# --- files ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Block:
  """Lines up to a blank one, and where they begin."""

  lines: tuple[Line, ...]
  where: str


def _blocks(lines: Sequence[Line]) -> Iterator[_Block]:
  block: list[Line] = []
  for line in lines:
    if line.text.strip(' \t'):
      block.append(line)
    else:
      yield _Block(tuple(block), (block or [line])[0].where)
      block = []
  if block:
    yield _Block(tuple(block), block[0].where)


def _sentences(path: epath.Path, labels: Sequence[str]) -> Iterator[Sentence]:
  """Sentences of a file whose lines all have one column, or all two."""
  blocks = list(_blocks(text_lines(path)))
  table = [(line.text.split('\t'), line.where) for block in blocks for line in block.lines]
  if not table:
    raise UsageError('a file without words', where=f'{path}:1', fix='fetch it again')
  columns = same_columns(table, (1, 2), 'word, in train and dev TAB tag')
  rows = iter(table)
  for block in blocks:
    words = list(itertools.islice(rows, len(block.lines)))
    tags = tuple(known_label(row[1], labels, where) for row, where in words) if columns == 2 else None
    yield Sentence(tuple(row[0] for row, _ in words), tags, block.where)


def _has_tags(sentences: Sequence[Sentence]) -> bool:
  return sentences[0].tags is not None


def _first_word(sentences: Sequence[Sentence]) -> Sentence:
  return next(sentence for sentence in sentences if sentence.words)


def _check_counts(gold: Sequence[_Block], gold_file: epath.Path, sentences: Sequence[Sentence], path: epath.Path):
  for block, sentence in zip(gold, sentences, strict=False):
    if len(block.lines) != len(sentence.words):
      raise UsageError(
        f'a sentence of {len(sentence.words)} words with {len(block.lines)} gold tags',
        where=f'{block.where}, for {sentence.where}',
        fix=f'a tag in {gold_file} for each word in {path}, blank lines at the same places',
      )
  if len(gold) != len(sentences):
    raise UsageError(
      f'gold tags of {len(gold)} sentences for {len(sentences)}',
      where=f'{gold[-1].where} and {sentences[-1].where}, where the last ones begin',
      fix=f'blank lines in {gold_file} at the same places as in {path}',
    )
