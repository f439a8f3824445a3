"""Pre-training on SeqIO tasks: checks tasks, and reads their documents from any position of the source.

An example of a pre-training task is `{'targets': ids}`, the ids of one document without special ids, as in T5's own
tasks. Packing and masks come later (`rembert.data`), since they depend on a sequence's position in the run.
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import seqio
from etils import epath

from rembert.data.stream_source import SourcePlace
from rembert.errors import UsageError, first_line, joined
from rembert.tokenizer import SpecialIds

TARGETS = 'targets'
_EXAMPLE = '_source_example'  # the number of the source's example: the reader adds it, preprocessors must keep it
_END = -1  # its value at the end of an epoch
_READ_TOGETHER = 32  # documents per call of an iterator, which costs as much as packing a hundred tokens

# Operations of tf.data that treat each example separately, and keep the order.
_ONE_FOR_ONE = {f'_{name}Dataset' for name in ('Map', 'ParallelMap', 'Prefetch', 'Options')}
_EACH_ALONE = _ONE_FOR_ONE | {
  f'_{name}Dataset' for name in ('Filter', 'FlatMap', 'Unbatch', 'Restructured', 'IgnoreErrors')
}


def features(vocabulary: seqio.Vocabulary) -> dict[str, seqio.Feature]:
  """Output features of a pre-training task."""
  return {TARGETS: seqio.Feature(vocabulary, add_eos=False, dtype=tf.int32)}


def tokenize(dataset: tf.data.Dataset, output_features: Mapping[str, seqio.Feature]) -> tf.data.Dataset:
  """Preprocessor of this project's pre-training tasks: adds `targets`, the ids of `text`; keeps other features."""
  vocabulary = output_features[TARGETS].vocabulary

  def ids(example: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    kept = {name: value for name, value in example.items() if name != 'text'}
    return {**kept, TARGETS: vocabulary.encode_tf(example['text'])}

  return dataset.map(ids, num_parallel_calls=tf.data.AUTOTUNE)


# --- checks of tasks --------------------------------------------------------------------------------------------------


def _unmet_requirements(task: seqio.Task) -> Iterator[str]:
  """The requirements of pre-training that a task does not meet, one line each; reads no data."""
  feature = task.output_features.get(TARGETS)
  if feature is None:
    yield f"no output feature 'targets': it has {', '.join(task.output_features) or 'none'}"
  elif feature.dtype != tf.int32 or feature.rank != 1:
    yield f"'targets' is {feature.dtype.name} of rank {feature.rank}, not int32 of rank 1"
  elif not isinstance(feature.vocabulary, seqio.SentencePieceVocabulary):
    yield f"the vocabulary of 'targets' is a {type(feature.vocabulary).__name__}, not a SentencePieceVocabulary"
  elif extra := feature.vocabulary.extra_ids:
    yield f"the vocabulary of 'targets' has {extra} extra ids, which the model does not have"
  if 'train' not in task.splits:
    yield f"no split 'train': it has {', '.join(task.splits)}"
  if task.requires_caching:
    yield 'it requires caching (CacheDatasetPlaceholder(required=True))'


def check_tasks(tasks: Sequence[seqio.Task]) -> seqio.SentencePieceVocabulary:
  """The common vocabulary of tasks; UsageError, with all problems, if they cannot be pre-trained on together."""
  problems = [f'{task.name}: {"; ".join(lines)}' for task in tasks if (lines := list(_unmet_requirements(task)))]
  if problems:
    raise UsageError(
      f'{len(problems)} SeqIO task(s) cannot be used for pre-training',
      where='\n         '.join(problems[:8] + ['…'] * (len(problems) > 8)),
      fix='give each a train split and output_features={"targets": seqio.Feature(vocabulary, add_eos=False, '
      'dtype=tf.int32)}: docs/guides/seqio.md',
    )
  by_file = {task.output_features[TARGETS].vocabulary.sentencepiece_model_file: task.name for task in tasks}
  if len(by_file) > 1 and len({epath.Path(file).read_bytes() for file in by_file}) > 1:
    raise UsageError(
      'the tasks of the mixture have different vocabularies',
      where='; '.join(f'{name}: {file}' for file, name in by_file.items()),
      fix='use the same vocabulary for the feature targets of all tasks',
    )
  return tasks[0].output_features[TARGETS].vocabulary


def normalized_rates(task_or_mixture: seqio.Task | seqio.Mixture) -> dict[str, float]:
  """Sampling rates of the tasks of a mixture by name, which sum to 1; excludes tasks with a rate of 0.

  UsageError if a rate cannot be computed or is negative, or all are 0.
  """
  if isinstance(task_or_mixture, seqio.Task):
    return {task_or_mixture.name: 1.0}
  mixture, rates = task_or_mixture, {}
  try:
    rates = {task.name: mixture.get_rate(task) for task in mixture.tasks}
    total = math.fsum(rates.values())
    if min(rates.values()) < 0 or not 0 < total < math.inf:
      raise ValueError('rates must be ≥ 0, and one of them > 0')
  except UsageError:
    raise
  except Exception as error:  # also from a user's function
    raise UsageError(
      f'the rates of the mixture {mixture.name!r} cannot be used: {type(error).__name__} {first_line(error)}',
      where=', '.join(f'{name}: {rate}' for name, rate in list(rates.items())[:8]) or mixture.name,
      fix='set valid rates where the mixture is registered, or check the function that returns them',
    ) from error
  return {name: rate / total for name, rate in rates.items() if rate}


# --- documents --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Pipeline:
  """A split of a task that can be read from any example of its source on."""

  # Batches of documents: numbers of the source's examples, counted from `first` [N], and their ids, ragged [N, (L)]. If
  # it skips at the source, a document numbered `_END` follows the last one, and then the documents from `first` again,
  # endlessly.
  documents: tf.data.Dataset
  first: tf.Variable  # the example to start at; an iterator reads it when it starts an epoch
  skips_at_source: bool  # whether `first` may be other than 0
  # iterators that have reached `_END`. Reusing one costs a tenth of creating one.
  at_end: list[Iterator] = dataclasses.field(default_factory=list)


class TaskDocuments:
  """Documents of SeqIO tasks, in the order of their sources: a `rembert.data.stream_source.OpenDocuments`.

  Documents go through the task's own source and preprocessors. If the preprocessors treat each example separately (map,
  filter, flat_map, unbatch), reading resumes by skipping examples of the source; a feature carries their number.
  Preprocessors that combine several examples, or drop that feature after a filter, run from the beginning again, and
  documents that were read before are dropped.

  A dataset is built once per task and split, since iterators differ only in the number of skipped examples. Each
  iterator has one thread, so that a hundred languages leave the cores to the training step.

  Args:
    tasks: tasks by the caller's name.
    special: special ids of the vocabulary; no document may contain one, nor an id from `vocab_size` on.
    sequence_length: for preprocessors that use it, as is `seed`.
    shard: (index, count) of the part of the sources' files to read.
  """

  def __init__(
    self,
    tasks: Mapping[str, seqio.Task],
    *,
    special: SpecialIds,
    vocab_size: int,
    sequence_length: int,
    seed: int,
    shard: tuple[int, int] = (0, 1),
  ):
    self._tasks, self._special, self._vocab_size = dict(tasks), special, vocab_size
    self._shard = seqio.ShardInfo(*shard) if shard[1] > 1 else None
    self._lengths, self._seed = {TARGETS: sequence_length}, seed
    self._pipelines: dict[tuple[str, str], _Pipeline] = {}

  def prepare(self, on_progress: Callable[[float, str], None] = lambda fraction, name: None) -> list[str]:
    """Builds the training datasets; returns the names of those that cannot skip at the source.

    UsageError, for all such tasks, if data cannot be opened, or documents differ from a task's declaration.
    """
    slow, errors = [], []
    for done, name in enumerate(self._tasks):
      on_progress(done / len(self._tasks), name)
      try:
        if not self._pipeline(name, 'train').skips_at_source:
          slow.append(name)
      except UsageError as error:
        errors.append(error)
    if errors:
      raise joined(errors)
    return slow

  def __call__(self, name: str, split: str, place: SourcePlace) -> Iterator[tuple[np.ndarray, SourcePlace]]:
    """Implements `OpenDocuments`; a split that the task lacks is empty."""
    if split not in self._tasks[name].splits:
      return
    pipeline = self._pipeline(name, split)
    if not pipeline.skips_at_source:
      for _, ids in itertools.islice(self._read(name, pipeline, 0), place.document, None):
        yield ids, SourcePlace()
      return
    for number, (example, ids) in enumerate(self._read(name, pipeline, place.example), start=place.document):
      if example > place.example:
        place = SourcePlace(example, number)
      yield ids, place

  def _read(self, name: str, pipeline: _Pipeline, first: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields numbers of the source's examples and ids of their documents, from an example on."""
    read_error = tf.errors.OpError  # generators that are still open at exit outlive the module's globals
    try:
      documents = pipeline.at_end.pop() if pipeline.at_end else iter(pipeline.documents)
      pipeline.first.assign(first)
      for examples, ragged_ids in documents:
        ids = ragged_ids.flat_values.numpy()
        self._check_ids(name, ids)
        several = np.split(ids, ragged_ids.row_splits.numpy()[1:-1])
        for example, document in zip(examples.numpy().tolist(), several, strict=True):
          if example == _END:
            pipeline.at_end.append(documents)
            return
          yield first + example, document
    except read_error as error:
      raise UsageError(
        f'reading a document of SeqIO task {self._tasks[name].name!r} failed: {first_line(error)}',
        where=str(self._tasks[name].source),
        fix='check the files of its source, and its preprocessors',
      ) from error

  def _check_ids(self, name: str, ids: np.ndarray) -> None:
    if not len(ids) or (ids.min() >= self._special.first_piece and ids.max() < self._vocab_size):
      return
    outside = (ids < self._special.first_piece) | (ids >= self._vocab_size)
    if found := sorted(set(ids[outside].tolist()) - {self._special.unknown}):
      raise UsageError(
        f'a document has ids that are special or unknown to the model: {", ".join(map(str, found[:8]))}',
        where=f'SeqIO task {self._tasks[name].name}, feature targets',
        fix=[
          'end the task with the ids of the text only: seqio.Feature(…, add_eos=False), no append_eos, no padding',
          f'and set RemBertConfig.vocab_size ({self._vocab_size}) to the size of its vocabulary',
        ],
      )

  def _pipeline(self, name: str, split: str) -> _Pipeline:
    task = self._tasks[name]
    try:
      if (name, split) not in self._pipelines:
        self._pipelines[name, split] = self._build(task, split)
    except UsageError:
      raise
    except Exception as error:  # from a user's source or preprocessor
      raise UsageError(
        f'the split {split!r} of SeqIO task {task.name!r} cannot be opened: {first_line(error)}',
        where=str(task.source),
        fix='check the files of its source, and its preprocessors',
      ) from error
    return self._pipelines[name, split]

  def _build(self, task: seqio.Task, split: str) -> _Pipeline:
    source = task.source.get_dataset(split, shuffle=False, shard_info=self._shard)
    first = tf.Variable(0, dtype=tf.int64, trainable=False)
    # The function runs at the first step of an iterator, and reads the value that `first` has then.
    examples = tf.data.Dataset.from_tensors(0).flat_map(lambda _: source.skip(first))
    documents = self._numbered(task, examples)
    skips_at_source = documents is not None
    if documents is None:
      with seqio.map_seed_manager(self._seed):
        documents = self._targets(task, functools.reduce(self._apply(task), _preprocessors(task), examples)).enumerate()
    documents = documents.ragged_batch(_READ_TOGETHER)
    if skips_at_source:
      end = (tf.constant([_END], tf.int64), tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int32), [0, 0]))
      documents = documents.concatenate(tf.data.Dataset.from_tensors(end)).repeat()
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    options.experimental_optimization.apply_default_optimizations = False
    return _Pipeline(documents.with_options(options), first, skips_at_source)

  def _numbered(self, task: seqio.Task, dataset: tf.data.Dataset) -> tf.data.Dataset | None:
    """Documents with the numbers of their examples, or None if preprocessors do not keep these."""
    apply, preprocessors = self._apply(task), _preprocessors(task)
    with seqio.map_seed_manager(self._seed):
      while preprocessors and _operations(after := apply(dataset, preprocessors[0]), dataset) <= _ONE_FOR_ONE:
        dataset = after
        del preprocessors[0]
      if not preprocessors:  # document number n is of example number n
        return self._targets(task, dataset).enumerate()
      if not isinstance(dataset.element_spec, dict):
        return None

      def with_number(number: tf.Tensor, example: dict) -> dict:
        return {**example, _EXAMPLE: number}

      examples = dataset.enumerate().map(with_number)
      try:
        documents = functools.reduce(apply, preprocessors, examples)
      except Exception:  # a preprocessor that rejects the feature; it may work without it
        return None
    if not (_operations(documents, examples) <= _EACH_ALONE and _EXAMPLE in _features_of(documents)):
      return None
    return self._targets(task, documents, numbered=True)

  def _apply(self, task: seqio.Task) -> Callable[[tf.data.Dataset, Callable], tf.data.Dataset]:
    arguments = {'sequence_length': self._lengths, 'output_features': task.output_features}
    return lambda dataset, preprocessor: seqio.add_kwargs_to_transform(preprocessor, **arguments)(dataset)

  def _targets(self, task: seqio.Task, dataset: tf.data.Dataset, *, numbered: bool = False) -> tf.data.Dataset:
    found = _features_of(dataset)
    spec = found.get(TARGETS)
    if spec is None or spec.dtype != tf.int32 or spec.shape.rank != 1:
      raise UsageError(
        f"the documents of SeqIO task {task.name!r} have no 'targets' of int32 and rank 1",
        where=f'after its preprocessors: {", ".join(f"{name}: {spec}" for name, spec in found.items())}',
        fix='end the preprocessors with ids: seqio.preprocessors.tokenize, or tasks.pretraining.tokenize',
      )

    def targets(example: Mapping[str, tf.Tensor]) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
      return (example[_EXAMPLE], example[TARGETS]) if numbered else example[TARGETS]

    return dataset.map(targets)


def _preprocessors(task: seqio.Task) -> list[Callable]:
  return [each for each in task.preprocessors if not isinstance(each, seqio.CacheDatasetPlaceholder)]


def _features_of(dataset: tf.data.Dataset) -> dict[str, tf.TypeSpec]:
  return dataset.element_spec if isinstance(dataset.element_spec, dict) else {'one value': dataset.element_spec}


def _operations(dataset: tf.data.Dataset, before: tf.data.Dataset) -> set[str]:
  """Names of the operations between two datasets; another source is an operation without input."""
  found, pending = set(), [dataset]
  while pending:
    dataset = pending.pop()
    if dataset is not before:
      found.add(type(dataset).__name__)
      pending += dataset._inputs()
  return found
