"""XTREME's tasks with training examples, from `benchmark.json`; `tasks.xtreme.retrieval` has the other two."""

from collections.abc import Callable

from rembert.errors import UsageError
from tasks.xtreme.config import BENCHMARK, LANGUAGES
from tasks.xtreme.question_answering import QuestionAnswering
from tasks.xtreme.sentence_pairs import SentencePairs
from tasks.xtreme.tagging import Tagging
from tasks.xtreme.task import XtremeTask

_KINDS: dict[str, Callable[..., XtremeTask]] = {
  'pairs': SentencePairs,
  'tagging': Tagging,
  'questions': QuestionAnswering,
}

TASKS: dict[str, XtremeTask] = {
  name: _KINDS[entry['kind']](
    name=name,
    languages=LANGUAGES[name],
    labels=tuple(entry.get('labels', '').split()),
    files=entry['files'],
    absent=entry.get('absent', {}),
    trained_on=entry.get('trained_on'),
  )
  for name, entry in BENCHMARK.items()
  if entry['kind'] in _KINDS
}


def get_task(name: str) -> XtremeTask:
  """The task of that name; UsageError for another name, and for a retrieval task, which has no head."""
  if name in TASKS:
    return TASKS[name]
  if name in LANGUAGES:
    raise UsageError(
      f'{name} is retrieval: it has no training, the embeddings of a trained model are evaluated',
      where=f'task {name!r}',
      fix=f'for fine-tuning: one of {", ".join(TASKS)}',
    )
  raise UsageError(f'unknown task {name!r}', where='xtreme.task', fix=f'one of {", ".join(TASKS)}')
