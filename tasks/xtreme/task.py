"""What a task of XTREME with training examples is: files, examples, predictions from logits, scores, a baseline."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from etils import epath

from rembert.errors import UsageError
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.files import MissingFileError, MissingLabelsError, XtremeFolder

IGNORED = -1  # the label where nothing is to be predicted

Targets = Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class XtremeTask(abc.ABC):
  """A task of XTREME.

  Methods take `targets`, the rows of a split and language as dicts of features with the number of their `example`, and
  predictions by that number.

  Attributes:
    head: of the model.
    scores: names of the scores; checkpoints are chosen by the first.
    suffix: of its files of predictions and gold labels.
    name: also the folder of its data.
    languages: in which XTREME evaluates it.
    labels: of the head, by index; () for `qa`.
    files: path of each split under the root of the data, with `{language}`.
    absent: why the task does not have a split, and what to do.
    trained_on: the task whose English training examples are its own; None if it has a training set.
  """

  head: ClassVar[str]
  scores: ClassVar[tuple[str, ...]]
  suffix: ClassVar[str] = 'tsv'

  name: str
  languages: tuple[str, ...]
  labels: tuple[str, ...]
  files: Mapping[str, str]
  absent: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
  trained_on: str | None = None

  def file(self, split: str, language: str) -> str:
    """Path of a file under the root of the data; UsageError if the task does not have that split or language."""
    if split not in self.files:
      what, fix = self.absent[split]
      raise UsageError(what, where=f'xtreme.split, task {self.name}', fix=fix)
    if language not in self.languages:
      raise UsageError(
        f'{self.name} is not in {language!r}',
        where='xtreme.languages, xtreme.train_language',
        fix=f'one of {", ".join(self.languages)}',
      )
    return self.files[split].format(language=language)

  def examples(self, folder: XtremeFolder, split: str, language: str, *, needs_labels: bool | None) -> list[Any]:
    """Reads a split of a language.

    Args:
      folder: of the data.
      split: `train`, `dev` or `test`.
      language: XTREME's code.
      needs_labels: whether it is an error if there are no gold labels; None reads those that exist.

    Raises:
      UsageError: no such file, a wrong entry (with file and line), or no labels where they are needed.
    """
    if needs_labels is None:
      try:
        return self.examples(folder, split, language, needs_labels=True)
      except MissingLabelsError:
        return self.examples(folder, split, language, needs_labels=False)
    gold_file = folder.labels_file(self.name, language, self.suffix)
    return self.read(folder.file(self.file(split, language)), split, gold_file, needs_labels)

  def count(self, folder: XtremeFolder, split: str, language: str) -> tuple[int, int | None]:
    """Examples of a file, and gold labels of a test file, None if there are none; raises as `examples`."""
    if split != 'test':
      return len(self.examples(folder, split, language, needs_labels=True)), None
    try:
      count = len(self.examples(folder, split, language, needs_labels=True))
    except MissingLabelsError:
      return len(self.examples(folder, split, language, needs_labels=False)), None
    return count, count

  def has_data(self, folder: XtremeFolder, split: str, languages: Sequence[str] | None = None) -> bool:
    """Whether there are files of a split in any of the languages, by default in any of the task's, that can be read."""
    for language in languages or self.languages:
      try:
        return bool(self.examples(folder, split, language, needs_labels=False))
      except MissingFileError:
        continue
    return False

  @abc.abstractmethod
  def read(self, path: epath.Path, split: str, gold_file: epath.Path, needs_labels: bool) -> list[Any]:
    """Reads a file, see `examples`; labels of a test file may stand in it, or in `gold_file`."""

  @abc.abstractmethod
  def columns(self, examples: Sequence[Any]) -> dict[str, Any]:
    """Columns of the SeqIO source, one value or one list for each example."""

  @abc.abstractmethod
  def predict(self, targets: Targets, scores: Sequence[np.ndarray], config: XtremeConfig) -> dict[int, Any]:
    """Predictions from the logits of each row."""

  @abc.abstractmethod
  def score(self, targets: Targets, predictions: Mapping[int, Any], language: str) -> dict[str, float]:
    """Scores as XTREME's `evaluate.py` defines them, 0 to 100; UsageError for an example without gold labels."""

  @abc.abstractmethod
  def baseline(self, train: Sequence[Any], targets: Targets) -> dict[int, Any]:
    """Predictions from the frequencies of labels in training examples alone."""

  @abc.abstractmethod
  def file_text(self, predictions: Mapping[int, Any], targets: Targets, count: int) -> str:
    """The file of predictions for `count` examples that `evaluate.py` expects."""


def no_score(target: Mapping[str, Any]) -> UsageError:
  """For a row of an example that has no gold labels."""
  return UsageError(
    'there is no score without gold labels',
    where=target['where'].decode(),
    fix='put them into labels/TASK/test-LANGUAGE, see tasks.xtreme.files',
  )
