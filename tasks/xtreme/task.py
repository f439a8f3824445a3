"""What a task of XTREME is: examples from files, rows for a model, predictions from its outputs, files and scores."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.pieces import Pieces

IGNORED = -1  # the label of a position, or of a span, that is not learned


@dataclasses.dataclass(frozen=True)
class Row:
  """What a model is given at once, not yet padded: S ids, at most as many as was asked for.

  Attributes:
    example: index of the example it belongs to. One example may have several rows, one after the other.
    input_ids: [S], with [CLS] and [SEP].
    token_type_ids: [S], 0 for the first text and 1 for the second.
    labels: int32; of a head for classification [] (scalar), for tagging [S], for questions [2], first and last position
      of the answer. `IGNORED` where there is none.
  """

  example: int
  input_ids: np.ndarray
  token_type_ids: np.ndarray
  labels: np.ndarray


class Task(Protocol):
  """One task of the benchmark; an example and a prediction are of types of the task's own.

  Attributes:
    name: folder of its data, `xnli`.
    head: the model's, see `rembert.model.heads.HEADS`.
    languages: that XTREME judges it in.
    labels: of the head, by index; () where the head has none of its own (`qa`).
    scores: names of what `score` returns; checkpoints are chosen by the first.
    suffix: of its files of predictions, `tsv` or `json`.
  """

  name: str
  head: str
  languages: tuple[str, ...]
  labels: tuple[str, ...]
  scores: tuple[str, ...]
  suffix: str

  def examples(self, folder: XtremeFolder, split: str, language: str, *, needs_labels: bool) -> list[Any]:
    """Reads a split of a language.

    Raises:
      UsageError: no such file, an entry that is not as it should be (with file and line), or no labels where they are
        needed.
    """

  def rows(self, examples: Sequence[Any], pieces: Pieces, *, max_length: int, config: XtremeConfig) -> list[Row]:
    """What a model is given for `examples`, in their order. Nothing is lost that an answer or a tag depends on."""

  def predictions(
    self, examples: Sequence[Any], rows: Sequence[Row], outputs: Sequence[np.ndarray], *, config: XtremeConfig
  ) -> list[Any]:
    """One prediction an example.

    Args:
      examples: as they were read.
      rows: what `rows` made of them.
      outputs: the head's logits for each row, float32: [labels], [S, labels] or [S, 2].
      config: of the task.
    """

  def score(self, examples: Sequence[Any], predictions: Sequence[Any], language: str) -> dict[str, float]:
    """Scores by name, 0 to 100, as XTREME's `evaluate.py` defines them. UsageError where an example has no label."""

  def baseline(self, train: Sequence[Any], examples: Sequence[Any]) -> list[Any]:
    """Predictions of somebody who knows how often each label stands in `train` and reads nothing of `examples`."""

  def file_text(self, examples: Sequence[Any], predictions: Sequence[Any]) -> str:
    """The file of predictions, in the layout and the order that XTREME's `evaluate.py` expects."""
