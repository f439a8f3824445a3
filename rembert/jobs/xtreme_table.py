"""The leaderboard row of a model next to the paper's, and one task by language: as text, JSON and Markdown.

A star marks a mean over fewer languages or tasks than the benchmark has; the lines below the table name what is
missing. Averages of the paper's rows are those that it prints.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from rembert.files import write_whole
from rembert.jobs.xtreme_results import (
  CATEGORIES,
  FAIR,
  PAPER,
  QUESTIONS,
  RETRIEVAL,
  TASKS,
  LeaderboardRow,
  TaskSummary,
)
from rembert.tracking.console import Console

NAMES = {
  **{'xnli': 'XNLI', 'pawsx': 'PAWS-X', 'udpos': 'POS', 'panx': 'NER', 'xquad': 'XQuAD', 'mlqa': 'MLQA'},
  **{'tydiqa': 'TyDi QA', 'squad': 'SQuAD', 'tatoeba': 'Tatoeba', 'bucc2018': 'BUCC'},
  **{'sentence_pair': 'pairs', 'structured': 'structured', 'question_answering': 'questions'},
  **{'average': 'Avg', 'task_mean': 'Avg_task'},
}
# The cells of a row: tasks, each category after its own, averages.
COLUMNS = (
  *tuple(name for category, tasks in CATEGORIES.items() for name in (*tasks, category)),
  'average',
  'task_mean',
)


def cell(row: LeaderboardRow, column: str, missing: str = '–') -> str:
  """The score of a task, or an average; questions as exact match/F1.

  Args:
    row: of a model.
    column: of `COLUMNS`, or a task of retrieval.
    missing: what stands for a score that there is not.
  """
  if column in row.stated:
    return f'{row.stated[column]:.1f}'
  if column in (*CATEGORIES, 'average', 'task_mean'):
    average = row.averages()[column]
    return missing if average.value is None else f'{average.value:.1f}' + '*' * average.is_partial
  found = row.scores.get(column)
  if found is None:
    return missing
  text = f'{found.score:.1f}' + '*' * found.is_partial
  if column in QUESTIONS:
    text = f'{missing if found.exact_match is None else f"{found.exact_match:.1f}"}/{text}'
  return text


def show(console: Console, row: LeaderboardRow, beside: Sequence[LeaderboardRow] = FAIR) -> None:
  """Prints a row next to others, and what is missing in it. A terminal has no room for five."""
  console.table('XTREME', *_table(row, beside))
  for line in (*remarks(row), *_remarks_on_printed(beside)):
    console.say(line)


def markdown(row: LeaderboardRow, beside: Sequence[LeaderboardRow] = PAPER) -> str:
  """The same as Markdown."""
  lines = [f'- {line}' for line in (*remarks(row), *_remarks_on_printed(beside))]
  return '\n'.join([*_markdown_table(*_table(row, beside)), '', *lines]).rstrip() + '\n'


def write(row: LeaderboardRow, folder: epath.PathLike, tasks: Mapping[str, TaskSummary] | None = None) -> None:
  """Writes `xtreme.json` and `xtreme.md`: the row, and the tasks language by language."""
  tasks = tasks or {}
  content = as_json(row) | {'tasks': {task: dataclasses.asdict(summary) for task, summary in tasks.items()}}
  parts = [markdown(row), *(task_markdown(task, summary) for task, summary in tasks.items())]
  write_whole(epath.Path(folder) / 'xtreme.json', json.dumps(content, indent=2, ensure_ascii=False) + '\n')
  write_whole(epath.Path(folder) / 'xtreme.md', '\n'.join(parts))


def as_json(row: LeaderboardRow) -> dict[str, Any]:
  """The same as JSON: `scores`, `averages` with what they are over, `missing` with the reasons."""
  return {
    'name': row.name,
    'scores': {task: dataclasses.asdict(score) | {'value': row.value(task)} for task, score in row.scores.items()},
    'averages': {
      name: {'value': average.value, 'over': list(average.over), 'is_partial': average.is_partial}
      for name, average in row.averages().items()
    },
    'missing': {task: row.why_missing(task) for task in TASKS if row.why_missing(task)},
  }


def remarks(row: LeaderboardRow) -> list[str]:
  """What limits a comparison: missing tasks, missing languages, averages that lack them."""
  lines = [f'{NAMES[task]} is missing: {row.why_missing(task)}' for task in TASKS if row.why_missing(task)]
  for task, score in row.scores.items():
    if score.is_partial:
      lines.append(f'* {NAMES[task]}: {score.languages} of {score.of} languages, not comparable')
  for name, average in row.averages().items():
    if average.is_partial and average.value is not None:
      parts = 'categories' if name == 'average' else 'tasks'
      over = f'over {len(average.over)} of {len(average.of)} {parts}'
      if len(average.over) == len(average.of):
        over = f'over {parts} of which parts are missing'
      lines.append(f'* {NAMES[name]}: {over}, not comparable')
  return lines


def _remarks_on_printed(rows: Sequence[LeaderboardRow]) -> list[str]:
  return [
    f'{row.name}: {NAMES[name]} is printed as {stated:.1f}, and the printed scores give {computed:.2f}'
    for row in rows
    for name, (stated, computed) in row.inconsistencies().items()
  ]


def _table(row: LeaderboardRow, beside: Sequence[LeaderboardRow]) -> tuple[list[str], list[list[str]]]:
  rows = [row, *beside]
  titles = {column: f'= {NAMES[column]}' if column in CATEGORIES else NAMES[column] for column in COLUMNS}
  # Retrieval is in no average.
  titles |= {task: f'({NAMES[task]})' for task in RETRIEVAL if any(task in each.scores for each in rows)}
  lines = [[title, *(cell(each, column) for each in rows)] for column, title in titles.items()]
  return ['', *(each.name for each in rows)], lines


# --- one task ---------------------------------------------------------------------------------------------------------


def show_task(console: Console, task: str, summary: TaskSummary) -> None:
  """Prints a task by language, the best first."""
  console.table(*_task_table(task, summary))


def task_markdown(task: str, summary: TaskSummary) -> str:
  """The same as Markdown."""
  title, columns, rows = _task_table(task, summary)
  return '\n'.join([title, '', *_markdown_table(columns, rows)]) + '\n'


def _task_table(task: str, summary: TaskSummary) -> tuple[str, list[str], list[list[str]]]:
  runs = summary.mean.runs
  by_score = sorted(summary.languages.items(), key=lambda item: (-item[1].mean, item[0]))
  rows = [*by_score, ('mean', summary.mean), ('English', summary.english), ('English less the others', summary.gap)]
  return (
    f'{NAMES[task]}, {len(summary.languages)} languages',
    ['language', 'score' if runs == 1 else f'mean ± sd, {runs} seeds'],
    [[name, str(found)] for name, found in rows if found is not None],
  )


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
  line = lambda cells: f'| {" | ".join(cell.strip().replace("|", "/") for cell in cells)} |'
  return [line(columns), f'|{" --- |" + " ---: |" * (len(columns) - 1)}', *map(line, rows)]
