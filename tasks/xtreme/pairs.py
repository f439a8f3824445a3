"""Pairs of sentences and what relation they stand in: what XNLI and PAWS-X have in common.

Files are `TASK/SPLIT-LANGUAGE.tsv`, written by Python's csv writer: sentence TAB sentence, in train and dev TAB label;
fields with a quote, a tab or a line break in them stand in quotes, quotes in them are doubled, lines end with CRLF.
XTREME itself reads them with quoting switched off, so that its models see the outer quotes and the doubled ones; here
the texts are read as they were before they were written. A test file has no third column, or else it counts; gold
labels are one a line in `labels/TASK/test-LANGUAGE.tsv`.
"""

import csv
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from etils import epath

from rembert.errors import UsageError
from tasks.metrics.accuracy import accuracy
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.gold_labels import known_label, labels_lines, labels_missing, most_frequent, require_labels
from tasks.xtreme.layout import Line, XtremeFolder
from tasks.xtreme.pieces import Pieces
from tasks.xtreme.task import IGNORED, Row
from tasks.xtreme.text_lines import same_columns, text_lines

_COLUMNS = 'three columns: sentence, sentence, label'


@dataclasses.dataclass(frozen=True)
class PairExample:
  """Two texts, either of which may be empty, and their label; None is unknown. `where` is `FILE:LINE` of its first."""

  first: str
  second: str
  label: str | None
  where: str


@dataclasses.dataclass(frozen=True)
class PairTask:
  """A `tasks.xtreme.task.Task` of pairs; predictions are labels. Attributes as there."""

  name: str
  languages: tuple[str, ...]
  labels: tuple[str, ...]
  head: str = 'classification'
  scores: tuple[str, ...] = ('accuracy',)
  suffix: str = 'tsv'

  def examples(self, folder: XtremeFolder, split: str, language: str, *, needs_labels: bool) -> list[PairExample]:
    """Reads a split of a language. Without `needs_labels` gold labels are what the file itself has.

    Raises:
      UsageError: no such file, a line that is no pair, an unknown label, no labels where they are needed, or not as
        many as there are pairs.
    """
    path = folder.file(self.name, f'{split}-{language}.tsv')
    table = list(_table(path))
    columns = same_columns(table, (2, 3), 'sentence TAB sentence, in train and dev TAB label')
    examples = [
      PairExample(*row[:2], known_label(row[2], self.labels, where) if columns == 3 else None, where)
      for row, where in table
    ]
    if not needs_labels or columns == 3:
      return examples
    if split != 'test':
      raise labels_missing(examples[0].where, _COLUMNS)
    gold_file = folder.labels_file(self.name, language, 'tsv')
    gold = labels_lines(gold_file, path)
    _check_counts(gold, gold_file, examples, path)
    return [
      dataclasses.replace(example, label=known_label(line.text, self.labels, line.where))
      for example, line in zip(examples, gold, strict=True)
    ]

  def rows(
    self, examples: Sequence[PairExample], pieces: Pieces, *, max_length: int, config: XtremeConfig
  ) -> list[Row]:
    """One row a pair: `[CLS] first [SEP] second [SEP]`, of type 0 to the first [SEP] and of type 1 behind it.

    A pair that is too long loses pieces at the ends of its texts, see `kept_pieces`.
    """
    del config
    room = max_length - 3
    if room < 2:
      raise UsageError('a row has no room for a pair', where=f'a row of {max_length} positions', fix='at least 5')
    rows = []
    special = pieces.special
    for index, example in enumerate(examples):
      first, second = pieces.ids(example.first), pieces.ids(example.second)
      kept_first, kept_second = kept_pieces(len(first), len(second), room)
      ids = [special.cls, *first[:kept_first], special.sep, *second[:kept_second], special.sep]
      label = IGNORED if example.label is None else self.labels.index(example.label)
      rows.append(
        Row(
          example=index,
          input_ids=np.array(ids, np.int32),
          token_type_ids=np.repeat(np.array([0, 1], np.int32), (kept_first + 2, kept_second + 1)),
          labels=np.array(label, np.int32),
        )
      )
    return rows

  def predictions(
    self, examples: Sequence[PairExample], rows: Sequence[Row], outputs: Sequence[np.ndarray], *, config: XtremeConfig
  ) -> list[str]:
    """The label with the highest logit; outputs are [labels] float32, one for each row."""
    del config
    if len(examples) != len(rows):
      raise ValueError(f'{len(rows)} rows of {len(examples)} pairs')
    found = {row.example: self.labels[int(np.argmax(output))] for row, output in zip(rows, outputs, strict=True)}
    return [found[index] for index in range(len(examples))]

  def score(self, examples: Sequence[PairExample], predictions: Sequence[str], language: str) -> dict[str, float]:
    """`accuracy`, 0 to 100. UsageError where an example has no label."""
    del language
    gold = [example.label for example in examples]
    require_labels(examples, gold)
    return {'accuracy': accuracy(gold, predictions)}

  def baseline(self, train: Sequence[PairExample], examples: Sequence[PairExample]) -> list[str]:
    """The most frequent label of `train` for every example."""
    require_labels(train, [example.label for example in train])
    return [most_frequent((example.label for example in train), self.labels)] * len(examples)

  def file_text(self, examples: Sequence[PairExample], predictions: Sequence[str]) -> str:
    """A label a line, in the order of the examples."""
    return ''.join(f'{prediction}\n' for _, prediction in zip(examples, predictions, strict=True))


def kept_pieces(first: int, second: int, room: int) -> tuple[int, int]:
  """How many of the `first` and `second` pieces of two texts stay, `room` at most together.

  The longer loses its last piece until both fit; of two as long as each other it is the second that loses. BERT does so
  (`_truncate_seq_pair` of its run_classifier.py), and XTREME by way of Hugging Face's tokenizers.
  """
  if first + second <= room:
    return first, second
  # Both are cut to half, and the odd piece is the first's; but what a short one leaves of its half is the other's.
  kept_first = min(first, max(room - room // 2, room - second))
  return kept_first, room - kept_first


def _table(path: epath.Path) -> Iterator[tuple[list[str], str]]:
  """Rows of a file, and where each begins."""
  lines = text_lines(path, allows_carriage_returns=True)
  # csv counts the lines that it has taken: a quoted field may go over several. CRLF within one becomes LF.
  reader = csv.reader((f'{line.text}\n' for line in lines), delimiter='\t', strict=True)
  while True:
    taken = reader.line_num
    try:
      row = next(reader, None)
    except csv.Error as error:
      raise UsageError(
        f'not as a csv writer writes it: {error}',
        where=lines[taken].where,
        fix='a field that begins with a quote stands in quotes, and quotes in it are doubled: "He said ""no""."',
      ) from None
    if row is None:
      return
    yield row, lines[taken].where


def _check_counts(gold: Sequence[Line], gold_file: epath.Path, examples: Sequence[PairExample], path: epath.Path):
  if len(gold) != len(examples):
    raise UsageError(
      f'{len(gold)} gold labels for {len(examples)} pairs',
      where=f'{gold[-1].where} and {examples[-1].where}, where they end',
      fix=f'one line in {gold_file} for each pair in {path}',
    )
