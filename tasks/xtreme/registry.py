"""SeqIO tasks `xtreme.{task}.{language}` and mixtures `xtreme.{task}`.

Rows are those of `tasks.tables.registry`. SQuAD's training data is the train split of `xtreme.squad.en`,
`xtreme.xquad.en` and `xtreme.mlqa.en`.
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import seqio

from rembert.errors import UsageError
from tasks.registration import add_mixture, valid_name
from tasks.seqio_vocabulary import RembertVocabulary
from tasks.tables import SPLITS
from tasks.tables.registry import FilesSource, add_language_task, example_columns
from tasks.xtreme import XtremeConfig
from tasks.xtreme.benchmark import TASKS, XtremeTask
from tasks.xtreme.files import XtremeFolder


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
  open_folder = functools.partial(XtremeFolder, data_dir, labels_dir)
  for task in TASKS.values():
    names = {language: valid_name(name, task.name, language) for language in task.languages}
    for language, task_name in names.items():
      source, score = XtremeSource(task, language, open_folder), functools.partial(task.score, language=language)
      add_language_task(task_name, task.kind(config), source, tokens, score, _Task)
    add_mixture(valid_name(name, task.name), dict.fromkeys(names.values(), 1.0))


class _Task(seqio.Task):
  """A task that may have no split, a language whose files are missing: SeqIO's own raises, for whole mixtures too."""

  @property
  def splits(self) -> Sequence[str]:
    return self.source.splits


class XtremeSource(FilesSource):
  """The files of a task in a language, in the folder that a function opens; a split is there if its file is."""

  def __init__(self, task: XtremeTask, language: str, open_folder: Callable[[], XtremeFolder]):
    self._task, self._language, self._open_folder = task, language, open_folder
    super().__init__(splits=())

  @property
  def splits(self) -> Sequence[str]:
    """Splits that have a file; all of the task's as long as no data is named."""
    declared = [split for split in SPLITS if split in self._task_of(split).files]
    try:
      folder = self._open_folder()
    except UsageError:  # which reading raises again
      return declared
    return [split for split in declared if folder.has(self._task_of(split).file(split, self._language))]

  def get_dataset(self, split='train', shuffle=True, seed=None, shard_info=None, **unused) -> tf.data.Dataset:
    """Examples in the order of the file, with their number `example` and `where` they stand, `FILE:LINE`.

    A training file must have labels, others have those that exist; UsageError as `XtremeTask.examples`.
    """
    del shuffle, seed, shard_info, unused  # there is one file
    examples = self._task_of(split).examples(self._open_folder(), split, self._language, needs_labels=split == 'train')
    return tf.data.Dataset.from_tensor_slices(example_columns(self._task.kind(), examples))

  def _task_of(self, split: str) -> XtremeTask:
    """The task whose files those of a split are: XQuAD and MLQA are trained on SQuAD."""
    task = self._task
    return TASKS[task.trained_on] if split == 'train' and task.trained_on and self._language == 'en' else task
