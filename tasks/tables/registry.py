"""SeqIO tasks `NAME.{language}` of tables, and their mixture NAME."""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import collections
import functools
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio

from rembert.errors import UsageError
from tasks.registration import add_mixture, add_task, remove_ours, valid_name
from tasks.seqio_vocabulary import RembertVocabulary
from tasks.tables.config import SPLITS, DatasetConfig
from tasks.tables.kinds import KINDS
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.preprocessors import choice_rows
from tasks.xtreme.registry import as_tensors, output_features, preprocessor_of, target_or_scores
from tasks.xtreme.task import Targets

_EXAMPLES_AT_ONCE = 256


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
    count = 0
    for example in self.kind.read(file, needs_labels=self.needs_labels(split)):
      self.kind.check_known(example)
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

  def describe(self) -> str:
    """What was found in the training files, in a line: labels and how often each occurs."""
    names = [f'{label} {self.label_counts[label]:,.0f}' for label in self.kind.labels]
    return f'{len(names)} labels: ' + ', '.join(names) if names else f'{self.config.kind}, without names of labels'


def _label_order(label: str) -> tuple:
  """Whole numbers by their value, then names by their code points."""
  digits = label.removeprefix('-')
  return (0, int(label), label) if digits.isascii() and digits.isdecimal() else (1, 0, label)


class TableTask(seqio.Task):
  """The SeqIO task of one language of tables; `tables` and `language` are set by `add_tables`."""

  tables: Tables
  language: str

  def baseline(self, targets: Targets) -> dict[str, float] | None:
    """See `Tables.baseline`."""
    return self.tables.baseline(targets, self.language)

  def prediction_lines(self, targets: Targets, scores: Sequence[np.ndarray]) -> str:
    """A JSON object a line for each example: where it stands, its texts, and its prediction."""
    lines, written = [], set()
    predictions = self.tables.kind.predict(targets, scores)
    for target in targets:
      example = int(target['example'])
      if example not in written:
        texts = {
          name: value.decode() for name, value in target.items() if isinstance(value, bytes) and name != 'context'
        }
        lines.append(json.dumps({**texts, **predictions[example]}, ensure_ascii=False) + '\n')
        written.add(example)
    return ''.join(lines)


class _TableSource(seqio.DataSource):
  """The files of a language, which are read as they are needed: a million examples take no more memory than a few."""

  def __init__(self, tables: Tables, language: str):
    self._tables = tables
    self._files = {split: files[language] for split in SPLITS if language in (files := tables.config.files(split))}
    super().__init__(tuple(self._files), num_input_examples={s: tables.examples[s, language] for s in self._files})

  @property
  def supports_arbitrary_sharding(self) -> bool:
    """False: a split is one file."""
    return False

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
    kind = self._tables.kind
    examples = kind.read(self._files[split], needs_labels=self._tables.needs_labels(split))
    first = 0
    while chunk := list(itertools.islice(examples, _EXAMPLES_AT_ONCE)):
      numbers = np.arange(first, first + len(chunk), dtype=np.int32)
      yield as_tensors({**kind.columns(chunk), 'example': numbers, 'where': [each.where for each in chunk]})
      first += len(chunk)


def add_tables(tables: Tables, *, vocabulary: str | os.PathLike | None = None, name: str | None = None) -> None:
  """Registers a SeqIO task for each language of tables, and their mixture; see `add_table`."""
  name, kind = name or tables.config.name, tables.kind
  choices, names = getattr(kind, 'choices', 0), kind.labels if kind.has_names else None
  to_rows = functools.partial(choice_rows, choices=choices) if choices else preprocessor_of(kind.head, kind.xtreme)
  remove_ours(name)
  rates: dict[str, seqio.MixtureRate] = {}
  for language in dict.fromkeys(language for _, language in tables.examples):
    task_name = valid_name(name, language)
    task = add_task(
      task_name,
      task_cls=TableTask,
      source=_TableSource(tables, language),
      preprocessors=[to_rows],
      output_features=output_features(kind.head, names, RembertVocabulary(vocabulary), choices=choices),
      postprocess_fn=target_or_scores,
      metric_fns=[_metric(tables, language)],
    )
    task.tables, task.language = tables, language
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


def _metric(tables: Tables, language: str):
  def scores_of_table(targets, scores):
    """Scores by name, 0 to 100, from the logits of all rows of a split."""
    predictions = tables.kind.predict(targets, scores)
    return tables.scores(targets, {example: found['prediction'] for example, found in predictions.items()}, language)

  return scores_of_table


def task_language(name: str) -> str:
  """The language of a registered task of tables."""
  return seqio.TaskRegistry.get(name).language
