"""A token store from SeqIO: the documents of any task or mixture, through its own source and preprocessors."""

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from etils import epath

from rembert.command_line import import_modules
from rembert.data.batches import SourcePlace
from rembert.data.packing import PackingConfig
from rembert.data.token_store import SPLITS, TokenStore
from rembert.errors import UsageError
from rembert.tracking.console import Console
from tasks.corpus import flags as corpus_flags
from tasks.token_store.shards import Counts, DocumentShard, StoreConfig
from tasks.vocabulary import check_vocabulary, load_vocabulary

if TYPE_CHECKING:
  import seqio

  from tasks.corpus.runner import BeamRunner


@dataclasses.dataclass(frozen=True)
class TaskShard(DocumentShard):
  """Files of the source of the SeqIO task called `name`, tokenized by the task itself.

  Attributes:
    modules: to import first: they register the task.
    config: of the store.
  """

  modules: tuple[str, ...]
  config: StoreConfig

  def documents(self) -> Iterator[np.ndarray]:
    """See `DocumentShard`."""
    register(self.modules)
    from tasks import registration
    from tasks.pretraining import TaskDocuments

    documents = TaskDocuments(
      {self.name: registration.find(self.name)},
      special=self.config.special,
      vocab_size=self.config.vocab_size,
      sequence_length=self.config.sequence_length,
      seed=0,
      shard=(self.index, self.total),
    )
    for ids, _ in documents(self.name, self.split, SourcePlace()):
      yield ids


def register(modules: Sequence[str]) -> None:
  """Registers this project's tasks, and those of modules."""
  import_modules(modules)
  import tasks.mixtures  # noqa: F401


def make_mixture_store(options: argparse.Namespace, runner: 'BeamRunner', console: Console) -> TokenStore:
  """The store of `--mixture`: its languages are the tasks, and its rates go into the manifest.

  Raises:
    UsageError: nothing of that name, tasks that cannot be pre-trained on, or options that belong to a corpus.
  """
  register(options.module)
  from tasks import pretraining, registration
  from tasks.token_store.__main__ import write_store

  # isort: split
  import seqio

  corpus_flags.refuse_making_flags(options, f'--mixture={options.mixture}', 'a corpus, and the tasks read their own')
  if options.languages:
    raise UsageError(
      'a mixture has tasks of its own', where=f'--languages={options.languages}', fix='leave --languages out'
    )
  mixture = registration.find(options.mixture)
  tasks_by_name = {task.name: task for task in seqio.get_subtasks(mixture)}
  file = pretraining.check_tasks(list(tasks_by_name.values())).sentencepiece_model_file
  if options.vocabulary and epath.Path(options.vocabulary).read_bytes() != epath.Path(file).read_bytes():
    raise UsageError(
      'the tasks have another vocabulary',
      where=f'--vocabulary={options.vocabulary}; {file}',
      fix='leave --vocabulary out: a store has that of its tasks',
    )
  config = StoreConfig(
    folder=options.output,
    vocab_size=load_vocabulary(file).get_piece_size(),
    sequence_length=options.sequence_length,
    packing=PackingConfig(options.one_document_a_row, options.short_rows),
    special=check_vocabulary(file, sys.maxsize),
  )
  rates = pretraining.normalized_rates(mixture)
  shards = {name: _shards_of(tasks_by_name[name], tuple(options.module), config) for name in rates}
  counts = {name: Counts(sentences=0, characters=0, lost={}) for name in rates}
  recipe = {'mixture': options.mixture, 'rates': rates}
  return write_store(
    shards, counts, config, file, recipe, runner, console, group_mb=options.group_mb, more={'rates': rates}
  )


def _shards_of(task: 'seqio.Task', modules: tuple[str, ...], config: StoreConfig) -> list[TaskShard]:
  """A shard of the store for each file of the task's source."""
  found = []
  for split in SPLITS:
    files = task.source.list_shards(split) if split in task.splits else []
    sizes = [epath.Path(file).stat().length if epath.Path(file).exists() else 0 for file in files]
    found += [TaskShard(task.name, split, index, len(files), size, modules, config) for index, size in enumerate(sizes)]
  return found
