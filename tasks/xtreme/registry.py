"""SeqIO tasks `xtreme.{task}.{language}` and mixtures `xtreme.{task}`.

An example is a row of a fine-tuning task (`tasks.rows`): what the preprocessors make of it, and the other features of
the example that it comes from. SQuAD's training data is the train split of `xtreme.squad.en`, `xtreme.xquad.en` and
`xtreme.mlqa.en`.
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import functools
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import seqio

from rembert.errors import UsageError
from tasks.registration import add_mixture, add_task, valid_name
from tasks.rows import LabelVocabulary
from tasks.seqio_vocabulary import RembertVocabulary
from tasks.xtreme import preprocessors
from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.files import XtremeFolder
from tasks.xtreme.task import XtremeTask

# Columns that hold a list for each example.
_LISTS = {'words': tf.string, 'tags': tf.int32, 'answers': tf.string, 'starts': tf.int32, 'choices': tf.string}


def add_xtreme(
  *,
  data_dir: str | os.PathLike | None = None,
  labels_dir: str | os.PathLike | None = None,
  vocabulary: str | os.PathLike | None = None,
  name: str = 'xtreme',
  **answers: Any,
) -> None:
  """Registers XTREME's tasks with training examples in all their languages; no file is touched before a task is used.

  Args:
    data_dir: root of the data, with a folder for each task, in XTREME's `download/` layout. None is the folder that
      the environment variable `XTREME_DATA_DIR` names when it is first read.
    labels_dir: gold labels of test files that come without; None is `labels/` under `data_dir`.
    vocabulary: a `sentencepiece.model`; None is the file that `REMBERT_VOCABULARY` names.
    name: first part of the tasks' names.
    **answers: `doc_stride`, `max_query_length`, `n_best` and `max_answer_length` of `XtremeConfig`.

  Raises:
    UsageError: a number that is not ≥ 1, or another module has registered one of the names.
  """
  config = XtremeConfig(**answers)
  tokens = RembertVocabulary(vocabulary)
  for task in TASKS.values():
    names = {language: valid_name(name, task.name, language) for language in task.languages}
    for language, task_name in names.items():
      add_task(
        task_name,
        task_cls=_Task,
        source=XtremeSource(task, language, functools.partial(XtremeFolder, data_dir, labels_dir)),
        preprocessors=[preprocessor_of(task.head, config)],
        output_features=output_features(task.head, task.labels or None, tokens),
        postprocess_fn=target_or_scores,
        metric_fns=[_metric(task, language, config)],
      )
    add_mixture(valid_name(name, task.name), dict.fromkeys(names.values(), 1.0))


class _Task(seqio.Task):
  """A task that may have no split, a language whose files are missing: SeqIO's own raises, for whole mixtures too."""

  @property
  def splits(self) -> Sequence[str]:
    return self.source.splits


class XtremeSource(seqio.DataSource):
  """The files of a task in a language, in the folder that a function opens; a split is there if its file is.

  A file is read in Python, once for each dataset, and becomes columns of tensors. tf.data's own readers cannot do it:
  an error names file and line, gold labels of a test file are in a second one, and quoted fields go over several lines.
  """

  def __init__(self, task: XtremeTask, language: str, open_folder: Callable[[], XtremeFolder]):
    self._task, self._language, self._open_folder = task, language, open_folder
    super().__init__(splits=())

  @property
  def splits(self) -> Sequence[str]:
    """Splits that have a file; all of the task's as long as no data is named."""
    declared = [split for split in ('train', 'dev', 'test') if split in self._task_of(split).files]
    try:
      folder = self._open_folder()
    except UsageError:  # which reading raises again
      return declared
    return [split for split in declared if folder.has(self._task_of(split).file(split, self._language))]

  @property
  def supports_arbitrary_sharding(self) -> bool:
    """False: a split is one file."""
    return False

  def list_shards(self, split: str) -> Sequence[str]:
    """The split itself."""
    return [split]

  def get_dataset(
    self, split: str = 'train', shuffle: bool = True, seed: int | None = None, shard_info=None, **unused
  ) -> tf.data.Dataset:
    """Examples in the order of the file, with their number `example` and `where` they stand, `FILE:LINE`.

    A training file must have labels, others have those that exist; UsageError as `XtremeTask.examples`.
    """
    del shuffle, seed, shard_info, unused  # there is one file
    needs_labels = True if split == 'train' else None
    examples = self._task_of(split).examples(self._open_folder(), split, self._language, needs_labels=needs_labels)
    return tf.data.Dataset.from_tensor_slices(example_columns(self._task, examples))

  def _task_of(self, split: str) -> XtremeTask:
    """The task whose files those of a split are: XQuAD and MLQA are trained on SQuAD."""
    task = self._task
    return TASKS[task.trained_on] if split == 'train' and task.trained_on and self._language == 'en' else task


def example_columns(task: XtremeTask, examples: Sequence[Any]) -> dict[str, tf.Tensor | tf.RaggedTensor]:
  """Examples of a task as the features that its preprocessor takes."""
  columns = {
    **task.columns(examples),
    'example': np.arange(len(examples), dtype=np.int32),
    'where': [example.where for example in examples],
  }
  return as_tensors(columns)


def as_tensors(columns: Mapping[str, Any]) -> dict[str, tf.Tensor | tf.RaggedTensor]:
  """Columns, with a value or a list for each example, as tensors; those of lists are ragged."""
  found = {}
  for name, values in columns.items():
    if name in _LISTS:
      flat = tf.constant(list(itertools.chain.from_iterable(values)), _LISTS[name])
      found[name] = tf.RaggedTensor.from_row_lengths(flat, [len(each) for each in values])
    else:
      found[name] = tf.constant(values)
  return found


def preprocessor_of(head: str, config: XtremeConfig) -> Callable[..., tf.data.Dataset]:
  """What makes rows of a head of examples."""
  if head == 'qa':
    stride, query = config.doc_stride, config.max_query_length
    return functools.partial(preprocessors.question_rows, doc_stride=stride, max_query_length=query)
  return preprocessors.word_rows if head == 'tagging' else preprocessors.pair_rows


def output_features(
  head: str, labels: Sequence[str] | None, vocabulary: RembertVocabulary, *, choices: int = 0
) -> dict[str, seqio.Feature]:
  """Output features of a task; `labels` are names, if there are any, and `choices` those of multiple choice."""
  rank = 2 if head == 'multiple_choice' else 1
  size = {'qa': 2, 'multiple_choice': choices}.get(head, 1)
  feature = functools.partial(seqio.Feature, add_eos=False)
  return {
    'input_ids': feature(vocabulary, dtype=tf.int32, rank=rank),
    'token_type_ids': feature(seqio.PassThroughVocabulary(2), dtype=tf.int32, rank=rank),
    'labels': feature(
      LabelVocabulary(labels) if labels is not None else seqio.PassThroughVocabulary(size),
      dtype=tf.float32 if head == 'regression' else tf.int32,
    ),
  }


def target_or_scores(output: Any, *, example: Mapping[str, Any], is_target: bool = False) -> Any:
  """All features of a row as its target, logits as they are; a postprocessor of SeqIO's."""
  return example if is_target else np.asarray(output, np.float32)


def _metric(task: XtremeTask, language: str, config: XtremeConfig):
  def official_scores(targets, scores):
    """Scores by name, 0 to 100, as XTREME's `evaluate.py` computes them, from the logits of all rows of a split."""
    return task.score(targets, task.predict(targets, scores, config), language)

  return official_scores
