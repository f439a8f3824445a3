"""The tasks of XTREME, from `benchmark.json`: languages, labels and files of each.

`tasks.xtreme.registry` makes SeqIO tasks of those that are learned. Of the two retrieval tasks, for which nothing is
learned, `tasks.xtreme.retrieval` says how they are solved.
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any

from rembert.errors import UsageError
from tasks.xtreme.question_answering import QuestionAnswering
from tasks.xtreme.sentence_pairs import SentencePairs
from tasks.xtreme.tagging import Tagging
from tasks.xtreme.task import XtremeTask

_TABLE: dict[str, dict[str, Any]] = json.loads(pathlib.Path(__file__).with_suffix('.json').read_text('utf-8'))
_KINDS: dict[str, Callable[..., XtremeTask]] = {
  'pairs': SentencePairs,
  'tagging': Tagging,
  'questions': QuestionAnswering,
}


def _task(name: str, entry: dict[str, Any]) -> XtremeTask:
  return _KINDS[entry['kind']](
    name=name,
    languages=LANGUAGES[name],
    labels=tuple(entry.get('labels', '').split()),
    files=entry['files'],
    absent=entry.get('absent', {}),
    trained_on=entry.get('trained_on'),
  )


# Languages that XTREME evaluates each task in (`TASK2LANGS` of its evaluate.py), retrieval included.
LANGUAGES: dict[str, tuple[str, ...]] = {name: tuple(entry['languages'].split()) for name, entry in _TABLE.items()}
# Paths of a split's files under the root of the data, with `{language}`; examples are counted in the first.
FILES: dict[str, dict[str, list[str]]] = {
  name: {split: [files] if isinstance(files, str) else files for split, files in entry['files'].items()}
  for name, entry in _TABLE.items()
}
# Languages by what a task's published files call them.
PUBLISHED_NAMES: dict[str, dict[str, str]] = {name: entry.get('published_names', {}) for name, entry in _TABLE.items()}
# Tasks that are learned.
TASKS: dict[str, XtremeTask] = {name: _task(name, entry) for name, entry in _TABLE.items() if entry['kind'] in _KINDS}


def get_task(name: str) -> XtremeTask:
  """The learned task of that name; UsageError for another name, and for a retrieval task, which has no head."""
  if name in TASKS:
    return TASKS[name]
  if name in LANGUAGES:
    raise UsageError(
      f'{name} is retrieval: nothing is learned for it, it is judged by the embeddings of a trained model',
      where=f'task {name!r}',
      fix=f'to learn something: one of {", ".join(TASKS)}',
    )
  raise UsageError(f'unknown task {name!r}', where='xtreme.task', fix=f'one of {", ".join(TASKS)}')
