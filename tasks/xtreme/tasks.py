"""The tasks that something is learned for, by name."""

import importlib

from rembert.errors import UsageError
from tasks.xtreme.config import RETRIEVAL, TASKS
from tasks.xtreme.task import Task

NAMES = tuple(name for name in TASKS if name not in RETRIEVAL)


def get_task(name: str) -> Task:
  """The task of that name: `TASK` of the module `tasks.xtreme.NAME`, imported now.

  Raises:
    UsageError: another name. Retrieval, `tatoeba` and `bucc2018`, is no `Task`: nothing is learned, so there are no
      labels, rows or outputs of a head.
  """
  if name in RETRIEVAL:
    raise UsageError(
      f'{name} is retrieval: nothing is learned for it, it is judged by the embeddings of a trained model',
      where=f'task {name!r}',
      fix=f'to learn something: one of {", ".join(NAMES)}',
    )
  if name not in NAMES:
    raise UsageError(f'unknown task {name!r}', where='xtreme.task', fix=f'one of {", ".join(NAMES)}')
  return importlib.import_module(f'tasks.xtreme.{name}').TASK
