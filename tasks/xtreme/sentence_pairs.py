"""Pairs of sentences and the relation between them: what XNLI and PAWS-X have in common.

Files are `TASK/SPLIT-LANGUAGE.tsv`, written by Python's csv writer: sentence TAB sentence, in train and dev TAB label;
fields with a quote, a tab or a line break in them stand in quotes, quotes in them are doubled, lines end with CRLF.
XTREME itself reads them with quoting switched off, so that its models see the outer quotes and the doubled ones; here
the texts are read as they were before they were written. A test file has no third column, or else it counts; gold
labels are one a line in `labels/TASK/test-LANGUAGE.tsv`.
"""

import csv
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rembert.errors import UsageError
from tasks.metrics.labels import accuracy
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.files import known_label, labels_lines, labels_missing, most_frequent, same_columns, text_lines
from tasks.xtreme.task import IGNORED, Targets, XtremeTask, no_score


@dataclasses.dataclass(frozen=True)
class PairExample:
  """Two texts, either of which may be empty, and their label; None is unknown. `where` is `FILE:LINE` of its first."""

  first: str
  second: str
  label: str | None
  where: str


class SentencePairs(XtremeTask):
  """A task whose examples are two texts and a label."""

  head = 'classification'
  scores = ('accuracy',)

  def read(self, path: epath.Path, split: str, gold_file: epath.Path, needs_labels: bool) -> list[PairExample]:
    """Pairs of a file; UsageError as `examples`, or if there are not as many gold labels as pairs."""
    table = list(_table(path))
    columns = same_columns(table, (2, 3), 'sentence TAB sentence, in train and dev TAB label')
    known = lambda label, where: known_label(label, self.labels, where)
    examples = [
      PairExample(row[0], row[1], known(row[2], where) if columns == 3 else None, where) for row, where in table
    ]
    if not needs_labels or columns == 3:
      return examples
    if split != 'test':
      raise labels_missing(examples[0].where, 'it takes three columns: sentence, sentence, label')
    gold = labels_lines(gold_file, path)
    if len(gold) != len(examples):
      raise UsageError(
        f'{len(gold)} gold labels for {len(examples)} pairs',
        where=f'{gold[-1].where} and {examples[-1].where}, where they end',
        fix=f'one line in {gold_file} for each pair in {path}',
      )
    return [dataclasses.replace(example, label=known(*line)) for example, line in zip(examples, gold, strict=True)]

  def columns(self, examples: Sequence[PairExample]) -> dict[str, Any]:
    """Columns `first`, `second` and `labels`, of which each example has one."""
    index = {label: number for number, label in enumerate(self.labels)} | {None: IGNORED}
    return {
      'first': [example.first for example in examples],
      'second': [example.second for example in examples],
      'labels': np.array([[index[example.label]] for example in examples], np.int32),
    }

  def predict(self, targets: Targets, scores: Sequence[np.ndarray], config: XtremeConfig) -> dict[int, str]:
    """The label with the highest score for each example; scores are [labels]."""
    rows = zip(targets, scores, strict=True)
    return {int(target['example']): self.labels[int(np.argmax(logits))] for target, logits in rows}

  def score(self, targets: Targets, predictions: Mapping[int, str], language: str) -> dict[str, float]:
    """`accuracy`, 0 to 100."""
    for target in targets:
      if target['labels'][0] == IGNORED:
        raise no_score(target)
    gold = [self.labels[target['labels'][0]] for target in targets]
    return {'accuracy': accuracy(gold, [predictions[int(target['example'])] for target in targets])}

  def baseline(self, train: Sequence[PairExample], targets: Targets) -> dict[int, str]:
    """The most frequent label of `train` for every example."""
    label = most_frequent((example.label for example in train), self.labels)
    return {int(target['example']): label for target in targets}

  def file_text(self, predictions: Mapping[int, str], targets: Targets, count: int) -> str:
    """A label a line, in the order of the examples."""
    return ''.join(f'{predictions[example]}\n' for example in range(count))


def _table(path: epath.Path) -> Iterator[tuple[list[str], str]]:
  """Rows of a file, and where each begins."""
  lines = text_lines(path, allows_carriage_returns=True)
  # csv counts the lines that it has taken: a quoted field may go over several. CRLF within one becomes LF.
  reader = csv.reader((f'{line.text}\n' for line in lines), delimiter='\t', strict=True)
  taken = 0
  try:
    for row in reader:
      yield row, lines[taken].where
      taken = reader.line_num
  except csv.Error as error:
    raise UsageError(
      f'not as a csv writer writes it: {error}',
      where=lines[taken].where,
      fix='a field that begins with a quote stands in quotes, and quotes in it are doubled: "He said ""no""."',
    ) from None
