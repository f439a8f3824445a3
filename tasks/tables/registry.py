"""SeqIO tasks `NAME.{language}` of tables, and their mixture NAME; and what XTREME's tasks share with them.

An example is a row of a fine-tuning task (`tasks.rows`): what the preprocessors make of it, and the other features of
the example that it comes from.
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import collections
import functools
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio

from rembert.errors import UsageError
from tasks.registration import add_mixture, add_task, remove_ours, valid_name
from tasks.rows import LabelVocabulary
from tasks.seqio_vocabulary import RembertVocabulary
from tasks.tables import SPLITS, DatasetConfig
from tasks.tables.files import Example
from tasks.tables.kinds import KINDS, Kind, Targets
from tasks.xtreme import XtremeConfig, preprocessors

_EXAMPLES_AT_ONCE = 256
_LISTED = 20  # of labels
# Columns that hold a list for each example.
_LISTS = {'words': tf.string, 'tags': tf.int32, 'answers': tf.string, 'starts': tf.int32, 'choices': tf.string}


# --- what tasks of all kinds have in common ---------------------------------------------------------------------------


class FilesSource(seqio.DataSource):
  """Files that are read in Python; a split is one file.

  tf.data's own readers cannot do it: an error names file and line, and quoted fields go over several lines.
  """

  @property
  def supports_arbitrary_sharding(self) -> bool:
    """False: a split is one file."""
    return False

  def list_shards(self, split: str) -> Sequence[str]:
    """The split itself."""
    return [split]


def example_columns(kind: Kind, examples: Sequence[Example], first: int = 0) -> dict[str, Any]:
  """Examples, the first of which has the number `first`, as the features that their preprocessor takes."""
  columns = kind.columns(examples)
  columns['example'] = np.arange(first, first + len(examples), dtype=np.int32)
  columns['where'] = [example.where for example in examples]
  for name, values in columns.items():
    if name in _LISTS:
      flat = tf.constant(list(itertools.chain.from_iterable(values)), _LISTS[name])
      columns[name] = tf.RaggedTensor.from_row_lengths(flat, [len(each) for each in values])
    else:
      columns[name] = tf.constant(values)
  return columns


def add_language_task(
  name: str,
  kind: Kind,
  source: seqio.DataSource,
  vocabulary: RembertVocabulary,
  score: Callable[[Targets, Mapping[int, Any]], Mapping[str, float]],
  task_cls: type[seqio.Task] = seqio.Task,
) -> None:
  """Registers a task whose targets are all features of a row; `score` takes these and predictions by example."""
  choices = getattr(kind, 'choices', 0)
  to_rows: Callable = preprocessors.word_rows if kind.head == 'tagging' else preprocessors.pair_rows
  if choices:
    to_rows = functools.partial(preprocessors.choice_rows, choices=choices)
  elif kind.head == 'qa':
    stride, query = kind.xtreme.doc_stride, kind.xtreme.max_query_length
    to_rows = functools.partial(preprocessors.question_rows, doc_stride=stride, max_query_length=query)
  rank, dtype = 2 if choices else 1, tf.float32 if kind.head == 'regression' else tf.int32
  labels: seqio.Vocabulary = seqio.PassThroughVocabulary({'qa': 2, 'multiple_choice': choices}.get(kind.head, 1))
  if kind.has_names:
    labels = LabelVocabulary(kind.labels)
  feature = functools.partial(seqio.Feature, add_eos=False)

  def metric(targets, scores):
    """Scores by name, 0 to 100, from the logits of all rows of a split."""
    predictions = kind.predict(targets, scores)
    return score(targets, {example: found['prediction'] for example, found in predictions.items()})

  add_task(
    name,
    task_cls=task_cls,
    source=source,
    preprocessors=[to_rows],
    output_features={
      'input_ids': feature(vocabulary, dtype=tf.int32, rank=rank),
      'token_type_ids': feature(seqio.PassThroughVocabulary(2), dtype=tf.int32, rank=rank),
      'labels': feature(labels, dtype=dtype),
    },
    postprocess_fn=_target_or_scores,
    metric_fns=[metric],
  )


def _target_or_scores(output: Any, *, example: Mapping[str, Any], is_target: bool = False) -> Any:
  """All features of a row as its target, logits as they are; a postprocessor of SeqIO's."""
  return example if is_target else np.asarray(output, np.float32)


# --- tables -----------------------------------------------------------------------------------------------------------


class Tables:
  """The tables of a configuration, each read once and found to be right; see `DatasetConfig` for the arguments.

  Args:
    config: which files and columns.
    xtreme: how questions are divided into windows, and answered.
    labels: of a model that is evaluated; by default those of the training files.

  Attributes:
    kind: reads examples and scores predictions.
    label_counts: sums over the labels of training examples, by which the baseline predicts.
    examples: of each split and language.

  Raises:
    UsageError: a file is missing or breaks a rule; with FILE:LINE.
  """

  def __init__(self, config: DatasetConfig, *, xtreme: XtremeConfig | None = None, labels: Sequence[str] | None = None):
    assert config.kind is not None
    self.config = config
    self.kind = KINDS[config.kind](config, labels or (), xtreme)
    self.label_counts: dict[str, float] = collections.defaultdict(float)
    self.examples: dict[tuple[str, str], int] = {}
    for split in SPLITS:
      for language, file in config.files(split).items():
        self.examples[split, language] = self._check(file, split)
      if split == 'train' and self.kind.has_names and labels is None:
        self.kind = KINDS[config.kind](config, sorted(self.label_counts, key=_label_order), xtreme)

  def _check(self, file: str, split: str) -> int:
    """The number of examples of a file, whose labels are counted for training."""
    count, labels = 0, frozenset(self.kind.labels)
    for example in self.kind.read(file, needs_labels=self.needs_labels(split)):
      names = self.kind.names(example.label) if labels and example.label is not None else ()
      if unknown := [name for name in names if name not in labels]:
        known = ', '.join(self.kind.labels[:_LISTED]) + (' …' if len(self.kind.labels) > _LISTED else '')
        what = f'unknown label {unknown[0]!r}'
        raise UsageError(what, where=example.where, fix=f'the labels of the training file are {known}')
      if split == 'train' and example.label is not None:
        for name, value in self.kind.counts(example.label).items():
          self.label_counts[name] += value
      count += 1
    if not count:
      raise UsageError('a file without examples', where=file, fix=f'another file: dataset.{split}')
    return count

  def needs_labels(self, split: str) -> bool:
    """Whether every example of a split has to have a label."""
    return split != 'test' and self.config.label is not None

  def baseline(self, targets: Targets, language: str) -> dict[str, float] | None:
    """Scores of predictions without reading; None if no training examples were read."""
    trained = sum(count for (split, _), count in self.examples.items() if split == 'train')
    if not trained:
      return None
    return self.scores(targets, self.kind.baseline(self.label_counts, trained, targets), language)

  def scores(self, targets: Targets, predictions: Mapping[int, Any], language: str) -> dict[str, float]:
    """Scores of predictions, 0 to 100; UsageError for an example without a label."""
    gold = self.kind.gold(targets)
    return self.kind.score([*gold.values()], [predictions[example] for example in gold], language)

  def prediction_lines(self, targets: Targets, scores: Sequence[np.ndarray]) -> str:
    """A JSON object a line for each example: where it stands, its texts, and its prediction."""
    predictions, lines = self.kind.predict(targets, scores), {}
    for target in targets:
      if (example := int(target['example'])) not in lines:
        texts = {name: text.decode() for name, text in target.items() if isinstance(text, bytes) and name != 'context'}
        lines[example] = json.dumps({**texts, **predictions[example]}, ensure_ascii=False) + '\n'
    return ''.join(lines.values())

  def describe(self) -> str:
    """What was found in the training files, in a line: labels and how often each occurs."""
    names = [f'{label} {self.label_counts[label]:,.0f}' for label in self.kind.labels]
    return f'{len(names)} labels: ' + ', '.join(names) if names else f'{self.config.kind}, without names of labels'


def _label_order(label: str) -> tuple:
  """Whole numbers by their value, then names by their code points."""
  digits = label.removeprefix('-')
  return (0, int(label), label) if digits.isascii() and digits.isdecimal() else (1, 0, label)


class _TableSource(FilesSource):
  """The files of a language, which are read as they are needed: a million examples take no more memory than a few."""

  def __init__(self, tables: Tables, language: str):
    self.tables = tables
    self._files = {split: files[language] for split in SPLITS if language in (files := tables.config.files(split))}
    super().__init__(tuple(self._files), num_input_examples={s: tables.examples[s, language] for s in self._files})

  def list_shards(self, split: str) -> Sequence[str]:
    """The file."""
    return [self._files[split]]

  def get_dataset(self, split='train', shuffle=True, seed=None, shard_info=None, **unused) -> tf.data.Dataset:
    """Examples in the order of the file, with their number `example` and `where` they stand."""
    del shuffle, seed, shard_info, unused  # there is one file
    chunks = functools.partial(self._chunks, split)
    spec = {}
    for name, value in next(chunks()).items():
      is_ragged = isinstance(value, tf.RaggedTensor)
      shape = [None, None] if is_ragged else [None, *value.shape[1:]]
      spec[name] = (tf.RaggedTensorSpec if is_ragged else tf.TensorSpec)(shape, value.dtype)
    return tf.data.Dataset.from_generator(chunks, output_signature=spec).unbatch()

  def _chunks(self, split: str) -> Iterator[dict[str, Any]]:
    kind, first = self.tables.kind, 0
    examples = kind.read(self._files[split], needs_labels=self.tables.needs_labels(split))
    while chunk := list(itertools.islice(examples, _EXAMPLES_AT_ONCE)):
      yield example_columns(kind, chunk, first)
      first += len(chunk)


def add_tables(tables: Tables, *, vocabulary: str | os.PathLike | None = None, name: str | None = None) -> None:
  """Registers a SeqIO task for each language of tables, and their mixture; see `add_table`."""
  name = name or tables.config.name
  remove_ours(name)
  rates: dict[str, seqio.MixtureRate] = {}
  for language in dict.fromkeys(language for _, language in tables.examples):
    task_name, source = valid_name(name, language), _TableSource(tables, language)
    score = functools.partial(tables.scores, language=language)
    add_language_task(task_name, tables.kind, source, RembertVocabulary(vocabulary), score)
    rates[task_name] = tables.examples.get(('train', language), 1)
  add_mixture(name, rates)


def add_table(
  *,
  kind: str,
  vocabulary: str | os.PathLike | None = None,
  name: str = 'own',
  labels: Sequence[str] | None = None,
  **files_and_columns: Any,
) -> Tables:
  """Registers `NAME.{language}` and the mixture NAME of tables; the rates are the numbers of training examples.

  Args:
    kind: see `DatasetConfig`.
    vocabulary: a `sentencepiece.model`; None is the file that `REMBERT_VOCABULARY` names.
    name: of the mixture.
    labels: by index; by default those of the training files, in the order of their code points, or of numbers.
    **files_and_columns: `train`, `dev`, `test`, and names of columns, as in `DatasetConfig`.

  Raises:
    UsageError: a file is missing or breaks a rule, or another module has registered the name.
  """
  tables = Tables(DatasetConfig(kind=kind, name=name, **files_and_columns), labels=labels)
  add_tables(tables, vocabulary=vocabulary)
  return tables
