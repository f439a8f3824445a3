"""The leaderboard row of a model beside the paper's, and one task by language: as text, JSON and Markdown.

A star marks what is over less than the benchmark: a mean over some languages, an average over some tasks. What is
missing in it stands below the table. Averages of printed rows are those that are printed.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from rembert.report.xtreme_rows import FAIR, PAPER, inconsistencies
from rembert.report.xtreme_scores import CATEGORIES, QUESTIONS, RETRIEVAL, TASKS, Row, Spread, TaskSummary
from rembert.storage import write_whole
from rembert.training.console import Console

NAMES = {
  **{'xnli': 'XNLI', 'pawsx': 'PAWS-X', 'udpos': 'POS', 'panx': 'NER', 'xquad': 'XQuAD', 'mlqa': 'MLQA'},
  **{'tydiqa': 'TyDi QA', 'squad': 'SQuAD', 'tatoeba': 'Tatoeba', 'bucc2018': 'BUCC'},
  **{'sentence_pair': '= pairs', 'structured': '= structured', 'question_answering': '= questions'},
  **{'average': 'Avg', 'task_mean': 'Avg_task'},
}
_MISSING = '–'


def show(console: Console, row: Row, beside: Sequence[Row] = FAIR) -> None:
  """Prints a row beside others, and what is missing in it. Five rows beside it are more than a terminal is wide."""
  columns, cells = _table(row, beside)
  console.table('XTREME', columns, cells)
  for line in (*remarks(row), *_remarks_on_printed(beside)):
    console.say(line)


def markdown(row: Row, beside: Sequence[Row] = PAPER) -> str:
  """The same as Markdown."""
  columns, cells = _table(row, beside)
  lines = [f'- {line}' for line in (*remarks(row), *_remarks_on_printed(beside))]
  return '\n'.join([*_markdown_table(columns, cells), '', *lines]).rstrip() + '\n'


def write(row: Row, folder: epath.PathLike, tasks: Mapping[str, TaskSummary] | None = None) -> None:
  """Writes `xtreme.json` and `xtreme.md`: the row, and the tasks language by language."""
  content = as_json(row) | {'tasks': {task: task_json(summary) for task, summary in (tasks or {}).items()}}
  parts = [markdown(row), *(task_markdown(task, summary) for task, summary in (tasks or {}).items())]
  write_whole(epath.Path(folder) / 'xtreme.json', json.dumps(content, indent=2, ensure_ascii=False) + '\n')
  write_whole(epath.Path(folder) / 'xtreme.md', '\n'.join(parts))


def as_json(row: Row) -> dict[str, Any]:
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


def remarks(row: Row) -> list[str]:
  """What a reader has to know of a row: tasks that are missing, languages that are, averages that lack them."""
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
      lines.append(f'* {NAMES[name].removeprefix("= ")}: {over}, not comparable')
  return lines


def _remarks_on_printed(rows: Sequence[Row]) -> list[str]:
  of = lambda name: NAMES[name].removeprefix('= ')
  return [
    f'{row.name}: {of(name)} is printed as {stated:.1f}, and the printed scores give {computed:.2f}'
    for row in rows
    for name, (stated, computed) in inconsistencies(row).items()
  ]


def _table(row: Row, beside: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
  rows = [row, *beside]
  lines = []
  for category, tasks in CATEGORIES.items():
    lines += [[NAMES[task], *(_score(each, task) for each in rows)] for task in tasks]
    lines.append([NAMES[category], *(_average(each, category) for each in rows)])
  lines += [[NAMES[name], *(_average(each, name) for each in rows)] for name in ('average', 'task_mean')]
  for task in RETRIEVAL:  # in no average
    if any(task in each.scores for each in rows):
      lines.append([f'({NAMES[task]})', *(_score(each, task) for each in rows)])
  return ['', *(each.name for each in rows)], lines


def _score(row: Row, task: str) -> str:
  found = row.scores.get(task)
  if found is None:
    return _MISSING
  text = f'{found.score:.1f}'
  if task in QUESTIONS:
    text = f'{_MISSING if found.exact_match is None else f"{found.exact_match:.1f}"}/{text}'
  return f'{text}*' if found.is_partial else text


def _average(row: Row, name: str) -> str:
  if name in row.stated:
    return f'{row.stated[name]:.1f}'
  average = row.averages()[name]
  if average.value is None:
    return _MISSING
  return f'{average.value:.1f}' + ('*' if average.is_partial else '')


# --- one task ---------------------------------------------------------------------------------------------------------


def show_task(console: Console, task: str, summary: TaskSummary) -> None:
  """Prints a task by language, the best first."""
  console.table(_title(task, summary), _task_columns(summary), _task_rows(summary))


def task_markdown(task: str, summary: TaskSummary) -> str:
  """The same as Markdown."""
  return '\n'.join([_title(task, summary), '', *_markdown_table(_task_columns(summary), _task_rows(summary))]) + '\n'


def task_json(summary: TaskSummary) -> dict[str, Any]:
  """The same as JSON: `languages`, `mean`, `english` and `gap`, each with mean, deviation and number of runs."""
  return dataclasses.asdict(summary)


def _title(task: str, summary: TaskSummary) -> str:
  return f'{NAMES[task]}, {len(summary.languages)} languages'


def _task_columns(summary: TaskSummary) -> tuple[str, str]:
  runs = summary.mean.runs
  return 'language', 'score' if runs == 1 else f'mean ± sd, {runs} seeds'


def _task_rows(summary: TaskSummary) -> list[list[str]]:
  by_score = sorted(summary.languages.items(), key=lambda item: (-item[1].mean, item[0]))
  rows = [[language, _spread(found)] for language, found in by_score]
  rows.append(['mean', _spread(summary.mean)])
  if summary.english is not None:
    rows.append(['English', _spread(summary.english)])
  if summary.gap is not None:
    rows.append(['English less the others', _spread(summary.gap)])
  return rows


def _spread(found: Spread) -> str:
  return f'{found.mean:.1f}' + ('' if found.deviation is None else f' ± {found.deviation:.1f}')


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
  line = lambda cells: f'| {" | ".join(cell.strip().replace("|", "/") for cell in cells)} |'
  return [line(columns), f'|{" --- |" + " ---: |" * (len(columns) - 1)}', *map(line, rows)]
