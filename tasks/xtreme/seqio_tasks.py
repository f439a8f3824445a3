"""SeqIO tasks `xtreme_{task}.{language}`, over any `tasks.xtreme.task.Task`: what an example of fine-tuning is.

An example is a row for the model: `input_ids`, `token_type_ids` and `labels`, the index of what it was made of
(`example`), its `split`, and whatever else the task's rows hold. The source gives whole rows, because what is read may
become several of them, and because what it is read into, pairs of texts or paragraphs with questions, is the task's own
and no tensor. There is nothing left for preprocessors to do. Rows are ragged columns from the beginning, so that none
of TensorFlow's threads ever calls Python.

A target is `(split, row)`, a prediction the head's logits for that row; the metric is `Task.score`.
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import seqio

from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.pieces import Pieces
from tasks.xtreme.task import Row, Task

SPLITS = ('train', 'dev', 'test')
ROWS_AT_ONCE = 1024
_LABELS_RANK = {'classification': 0, 'tagging': 1, 'qa': 1}  # by head


def task_name(task: str, language: str) -> str:
  """Name of a task of a language in the SeqIO registry."""
  return f'xtreme_{task}.{language}'


class LanguageRows:
  """Examples of a task in a language, read once for each split, and their rows, made for each dataset.

  Args:
    task: of the benchmark.
    folder: of the data.
    language: XTREME's code.
    pieces: the vocabulary.
    max_length: positions in a row, at most.
    config: of the task.
    needs_labels: whether it is an error if there are none.
    max_examples: of a split; the others are left out, see `drawn`. None for all.
  """

  def __init__(
    self,
    task: Task,
    folder: XtremeFolder,
    language: str,
    pieces: Pieces,
    *,
    max_length: int,
    config: XtremeConfig,
    needs_labels: bool,
    max_examples: int | None = None,
  ):
    self.task, self.language, self.config, self._max_examples = task, language, config, max_examples
    self._folder, self._pieces, self._max_length, self._needs_labels = folder, pieces, max_length, needs_labels
    self.examples = functools.cache(self._examples)  # of a split
    self._row_type: type[Row] = Row
    self._is_array: dict[str, bool] = {}  # of the fields of a row

  def _examples(self, split: str) -> Sequence[Any]:
    found = self.task.examples(self._folder, split, self.language, needs_labels=self._needs_labels)
    return drawn(found, self._max_examples)

  def dataset(self, split: str, shuffle_files: bool = False) -> tf.data.Dataset:
    """The rows of a split, one an element."""
    del shuffle_files  # there is one file
    rows = self.task.rows(self.examples(split), self._pieces, max_length=self._max_length, config=self.config)
    # Not the rows themselves: SeqIO's registry keeps what is kept here.
    self._row_type, self._is_array = type(rows[0]), _fields(rows[0])
    columns = {name: _column([getattr(row, name) for row in rows]) for name in self._is_array}
    return tf.data.Dataset.from_tensor_slices({**columns, 'split': np.full(len(rows), split)})

  def row(self, example: Mapping[str, Any]) -> Row:
    """The row that an element of `dataset` stands for."""
    values = {
      name: np.asarray(example[name]) if is_array else example[name].item() for name, is_array in self._is_array.items()
    }
    return self._row_type(**values)

  def score(self, targets: Sequence[tuple[str, Row]], predictions: Sequence[np.ndarray]) -> dict[str, float]:
    """`Task.score` of logits; all rows of one split, in their order. A metric of SeqIO's."""
    (split,) = {split for split, _ in targets}
    examples = self.examples(split)
    rows = [row for _, row in targets]
    predictions = self.task.predictions(examples, rows, predictions, config=self.config)
    return self.task.score(examples, predictions, self.language)

  def target_or_prediction(self, output: Any, *, example: Mapping[str, Any], is_target: bool = False) -> Any:
    """What `score` takes of a row. A postprocessor of SeqIO's."""
    return (example['split'].decode(), self.row(example)) if is_target else np.asarray(output, np.float32)


def language_task(source: LanguageRows, vocabulary_size: int) -> seqio.Task:
  """The SeqIO task. It has all of `SPLITS`; one that there is no file of is a UsageError once it is read."""
  labels = len(source.task.labels)
  feature = functools.partial(seqio.Feature, add_eos=False, dtype=tf.int32)
  return seqio.Task(
    task_name(source.task.name, source.language),
    source=seqio.FunctionDataSource(source.dataset, splits=SPLITS),
    preprocessors=[],
    output_features={
      'input_ids': feature(seqio.PassThroughVocabulary(vocabulary_size)),
      'token_type_ids': feature(seqio.PassThroughVocabulary(2)),
      'labels': feature(seqio.PassThroughVocabulary(labels), rank=_LABELS_RANK[source.task.head]),
    },
    postprocess_fn=source.target_or_prediction,
    metric_fns=[source.score],
  )


def register(source: LanguageRows, vocabulary_size: int) -> seqio.Task:
  """Adds `language_task` to SeqIO's registry, in place of any of that name."""
  task = language_task(source, vocabulary_size)
  if task.name in seqio.TaskRegistry.names():
    seqio.TaskRegistry.remove(task.name)
  seqio.TaskRegistry.add_provider(task.name, task)
  return task


def read_rows(
  task: Task,
  folder: XtremeFolder,
  split: str,
  language: str,
  pieces: Pieces,
  *,
  max_length: int,
  config: XtremeConfig,
  needs_labels: bool,
  max_examples: int | None = None,
) -> tuple[list[Any], list[Row]]:
  """Examples of a split and the rows that its SeqIO task makes of them, all at once and in their order.

  Args:
    task: of the benchmark.
    folder: of the data.
    split: `train`, `dev` or `test`.
    language: XTREME's code.
    pieces: the vocabulary.
    max_length: positions in a row, at most.
    config: of the task.
    needs_labels: whether it is an error if there are none.
    max_examples: how many at most, see `drawn`; None for all.

  Raises:
    UsageError: see `Task.examples` and `Task.rows`.
  """
  source = LanguageRows(
    *(task, folder, language, pieces),
    max_length=max_length,
    config=config,
    needs_labels=needs_labels,
    max_examples=max_examples,
  )
  dataset = register(source, len(pieces)).get_dataset(
    sequence_length=None, split=split, shuffle=False, trim_output_features=False
  )
  rows = []
  for batch in dataset.ragged_batch(ROWS_AT_ONCE):
    columns = {name: _elements(column) for name, column in batch.items()}
    rows += [source.row(dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]
  return list(source.examples(split)), rows


def drawn(examples: Sequence[Any], most: int | None) -> Sequence[Any]:
  """At most so many of the examples, in their order: the same ones in every run, so that seeds and models compare."""
  if most is None or most >= len(examples):
    return examples
  chosen = np.random.default_rng(0).permutation(len(examples))[:most]
  return [examples[index] for index in sorted(chosen.tolist())]


# --- rows as columns --------------------------------------------------------------------------------------------------


def _fields(row: Row) -> dict[str, bool]:
  """Whether a field is an array, of those that have a value; one that is None is None in all rows of a task."""
  values = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
  return {name: isinstance(value, np.ndarray) for name, value in values.items() if value is not None}


def _column(values: Sequence[Any]) -> np.ndarray | tf.RaggedTensor:
  """Scalars as they are, arrays one behind the other with the length of each."""
  arrays = [np.asarray(value) for value in values]
  if arrays[0].ndim == 0:
    return np.stack(arrays)
  return tf.RaggedTensor.from_row_lengths(np.concatenate(arrays), [len(array) for array in arrays])


def _elements(column: tf.Tensor | tf.RaggedTensor) -> Sequence[np.ndarray]:
  if isinstance(column, tf.RaggedTensor):
    return np.split(column.values.numpy(), column.row_splits.numpy()[1:-1])
  return column.numpy()
