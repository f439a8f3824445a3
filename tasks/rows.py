"""Reads sequences of a SeqIO fine-tuning task as NumPy arrays, and scores a model's logits for them.

A fine-tuning task is any SeqIO task or mixture with these output features:

  input_ids: int32 [S'], a sequence with its special tokens, without padding.
  token_type_ids: int32 [S'], optional; default 0.
  labels: int32 of rank 1, −1 for no label; by the head
    classification: [1]
    tagging: [S']
    qa: [2], the first and the last position of the answer
    multiple_choice: [1]; ids and types are [C, S'], where shorter choices end with [PAD]
    regression: [1], float32, NaN for no label
    The size of its vocabulary, a `seqio.PassThroughVocabulary`, is the number of labels; a `LabelVocabulary` names
    them.

Preprocessors get the maximum length as `sequence_length['input_ids']`; SeqIO trims longer sequences. `postprocess_fn`
gets all features of a sequence as `example`. Its first argument is, for a target, the label (classification) or the
labels; for a prediction, the most likely ones: an int, int [S'] or int [2]. Metrics are functions `(targets,
predictions)` of the results, or `(targets, scores)`, where scores are the logits of each sequence: float32 [labels],
[S', labels] or [S', 2].
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio

from rembert.data.finetune_batches import Features, sample_examples
from rembert.errors import UsageError, first_line
from tasks.registration import find

DEV_SPLITS = ('dev', 'validation')

_OWN_FEATURES = ('input_ids', 'token_type_ids', 'labels')
_ROWS_AT_ONCE = 1024


class LabelVocabulary(seqio.PassThroughVocabulary):
  """A vocabulary of label names by id, for the output feature `labels`."""

  def __init__(self, names: Sequence[str]):
    super().__init__(len(names))
    self.names = tuple(names)


def label_names(task: seqio.Task) -> tuple[str, ...]:
  """Names of the labels by id, or the ids as text."""
  vocabulary = task.output_features['labels'].vocabulary
  return getattr(vocabulary, 'names', tuple(str(label) for label in range(vocabulary.vocab_size)))


def tasks_and_rates(name: str) -> list[tuple[seqio.Task, float]]:
  """The tasks of a registered task or mixture, with the rate of each; UsageError if the name is not registered."""
  provider = find(name)
  tasks = seqio.get_subtasks(provider)
  return [(task, provider.get_rate(task) if isinstance(provider, seqio.Mixture) else 1.0) for task in tasks]


def missing_parts(task: seqio.Task, *, is_evaluated: bool, head: str = 'classification') -> list[str]:
  """The requirements of fine-tuning (see the module docstring) that a SeqIO task does not meet."""
  found = []
  for name in ('input_ids', 'labels'):
    feature = task.output_features.get(name)
    if feature is None:
      found.append(f'{task.name} has no output feature {name}')
      continue
    rank = 2 if (name, head) == ('input_ids', 'multiple_choice') else 1
    has_numbers = (name, head) == ('labels', 'regression')
    if feature.rank != rank or not (feature.dtype.is_floating if has_numbers else feature.dtype.is_integer):
      wanted = f'{"numbers" if has_numbers else "integers"} of rank {rank}'
      found.append(f'{task.name}: {name} must be {wanted}, not {feature.dtype.name} of rank {feature.rank}')
  if is_evaluated and not (task.predict_metric_fns or task.score_metric_fns):
    found.append(f'{task.name} has no metric_fns of (targets, scores) or (targets, predictions)')
  return found


# --- reading ----------------------------------------------------------------------------------------------------------


def stream_rows(
  task: seqio.Task,
  split: str,
  head: str,
  *,
  max_length: int,
  max_examples: int | None = None,
  keep_examples: bool = True,
) -> Iterator[Features]:
  """Yields the sequences of a split, in the task's order.

  Args:
    head: one of `rembert.model.heads.TASK_HEADS`.
    max_length: maximum number of ids in a sequence.
    max_examples: maximum number of examples of the source, see `sample_examples`; None for all.
    keep_examples: whether to keep all features, for `targets` and `predictions`.

  Raises:
    UsageError: raised by the task, or labels do not match the ids or the head, or there are no sequences.
  """
  if max_examples is not None:
    task = task.replace(source=_sampled_source(task.source, max_examples))
  lengths = dict.fromkeys(task.output_features, max_length)
  dataset = task.get_dataset(lengths, split=split, shuffle=False, trim_output_features=False, try_in_mem_cache=False)
  found = None
  try:
    for batch in batches(dataset, _ROWS_AT_ONCE):
      kept = [name for name in batch if keep_examples or name in task.output_features]
      columns = {name: elements(batch[name]) for name in kept}
      for found in rows_of(columns, head, max_length, task.name, keep_examples):
        yield found
  except tf.errors.InvalidArgumentError as error:  # an assertion in a preprocessor
    raise UsageError(
      first_line(error), where=f'task {task.name}, split {split}', fix='check the preprocessors'
    ) from error
  if found is None:
    raise UsageError('the split is empty', where=f'task {task.name}, split {split}', fix='check its files')


def batches(dataset: tf.data.Dataset, size: int) -> tf.data.Dataset:
  """Batches a dataset; features of different lengths become ragged."""
  # Ragged elements, such as XTREME's, are batched directly. `ragged_batch` makes elements ragged by a function
  # call for each, which takes several times as long.
  is_dense = lambda spec: isinstance(spec, tf.TensorSpec) and not spec.shape.is_fully_defined()
  return (dataset.ragged_batch if any(map(is_dense, dataset.element_spec.values())) else dataset.batch)(size)


def elements(column: tf.Tensor | tf.RaggedTensor) -> Sequence[Any]:
  """A feature for each sequence of a batch: an array, bytes, a number, or lists if it is ragged itself."""
  if not isinstance(column, tf.RaggedTensor):
    return column.numpy()
  if column.ragged_rank > 1:
    return column.to_list()
  return np.split(column.values.numpy(), column.row_splits.numpy()[1:-1])


def rows_of(
  columns: Mapping[str, Sequence[Any]], head: str, max_length: int, task: str, keep_examples: bool
) -> Iterator[Features]:
  """Converts columns of features to sequences; UsageError if labels do not match the ids or the head."""
  for index, (ids, labels) in enumerate(zip(columns['input_ids'], columns['labels'], strict=True)):
    if head == 'multiple_choice':
      ids = np.asarray(ids, np.int32)
    types = columns['token_type_ids'][index] if 'token_type_ids' in columns else np.zeros_like(ids)
    types = np.asarray(types, ids.dtype)
    size = {'tagging': len(ids), 'qa': 2}.get(head, 1)
    if not len(ids) or types.shape != ids.shape or labels.shape != (size,):
      raise UsageError(
        f'a sequence has {len(ids)} input_ids, {len(types)} token_type_ids and {len(labels)} labels',
        where=f'task {task}, head {head}',
        fix='return as many token_type_ids as input_ids; as many labels as ids (tagging), 2 (qa), or 1 (others)',
      )
    yield Features(
      input_ids=ids[..., :max_length],
      token_type_ids=types[..., :max_length],
      labels=labels[:max_length] if head in ('tagging', 'qa') else labels[0],
      example={name: values[index] for name, values in columns.items()} if keep_examples else {},
    )


def _sampled_source(source: seqio.DataSource, most: int) -> seqio.DataSource:
  """The examples of a source that `sample_examples` chooses; others are not tokenized."""

  def dataset(split: str, shuffle_files: bool) -> tf.data.Dataset:
    del shuffle_files
    examples = source.get_dataset(split=split, shuffle=False)
    count = int(examples.cardinality())
    if count < 0:
      count = int(examples.reduce(np.int64(0), lambda number, _: number + 1))
    is_chosen = np.zeros(count, bool)
    is_chosen[sample_examples(range(count), most)] = True
    flags = tf.data.Dataset.from_tensor_slices(is_chosen)
    return tf.data.Dataset.zip(flags, examples).filter(lambda flag, _: flag).map(lambda _, example: example)

  return seqio.FunctionDataSource(dataset, source.splits, caching_permitted=False)


# --- evaluation -------------------------------------------------------------------------------------------------------
#
# The same as `seqio.Evaluator` does with `postprocess_fn` and `metric_fns`. That class evaluates all tasks at once, but
# a run here resumes after the last language; it writes no predictions; and it requires labels of rank > 0, and logits
# of one shape for all sequences, which here are as long as their sequence.


def targets(task: seqio.Task, rows: Sequence[Features]) -> list[Any]:
  """The targets for `metric_fns`, from each sequence's labels."""
  return [task.postprocess_fn(_scalar(row.labels), example=row.example, is_target=True) for row in rows]


def predictions(task: seqio.Task, rows: Sequence[Features], scores: Sequence[np.ndarray], head: str) -> list[Any]:
  """The predictions for `metric_fns`, from each sequence's most likely labels."""
  most_likely = lambda logits: logits[0] if head == 'regression' else np.argmax(logits, 0 if head == 'qa' else -1)
  return [
    task.postprocess_fn(_scalar(most_likely(logits)), example=row.example, is_target=False)
    for row, logits in zip(rows, scores, strict=True)
  ]


def _scalar(labels: np.ndarray) -> Any:
  return labels.item() if labels.ndim == 0 else labels


def metrics(task: seqio.Task, rows: Sequence[Features], scores: Sequence[np.ndarray], head: str) -> dict[str, float]:
  """All values of the task's `metric_fns`, in order; `scores` are the logits of each sequence, float32."""
  found: dict[str, Any] = {}
  wanted = targets(task, rows)
  if task.predict_metric_fns:
    of_model = predictions(task, rows, scores, head)
    for metric in task.predict_metric_fns:
      found |= metric(wanted, of_model)
  for metric in task.score_metric_fns:
    found |= metric(wanted, scores)
  return {name: float(getattr(value, 'value', value)) for name, value in found.items()}


def prediction_lines(task: seqio.Task, rows: Sequence[Features], scores: Sequence[np.ndarray], head: str) -> str:
  """A line of JSON per sequence: its features that are numbers or texts, and its `prediction`.

  Without a `postprocess_fn` the prediction is the name of a label, the names for all positions, the first and last
  position, the index of a choice, or a number.
  """
  names = label_names(task) if head in ('classification', 'tagging') and task.postprocessor is None else None
  lines = []
  for row, prediction in zip(rows, predictions(task, rows, scores, head), strict=True):
    if names:
      prediction = names[prediction] if head == 'classification' else [names[label] for label in prediction]
    facts = {name: value for name, value in row.example.items() if np.ndim(value) == 0 and name not in _OWN_FEATURES}
    lines.append(json.dumps({**facts, 'prediction': prediction}, ensure_ascii=False, default=_plain) + '\n')
  return ''.join(lines)


def _plain(value: Any) -> Any:
  """Converts values for JSON: TensorFlow's texts are bytes, its numbers NumPy's."""
  if isinstance(value, bytes):
    return value.decode(errors='replace')
  return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
