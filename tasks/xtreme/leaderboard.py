"""Results on XTREME: `results.json` of runs, and the leaderboard row that they add up to (the paper's Tables 7 and 16).

Within a task, the score is the unweighted mean over languages. A QA task counts as (EM + F1) / 2. Sentence-pair
classification, structured prediction and question answering are means of their tasks; `average` is the mean of these
three categories, `task_mean` that of the seven tasks. Retrieval is in neither (footnote 6: it needs data for an
intermediate task). A mean over fewer languages or tasks than the benchmark has is marked as partial: in the
table by a star, and the lines below name what is missing. Averages of the paper's rows are those that it prints.
"""

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from rembert import paper
from rembert.files import parsed_json, read_text, write_whole
from rembert.tracking.console import Console
from tasks.xtreme import LANGUAGES, RETRIEVAL

CATEGORIES: dict[str, tuple[str, ...]] = {
  'sentence_pair': ('xnli', 'pawsx'),
  'structured': ('udpos', 'panx'),
  'question_answering': ('xquad', 'mlqa', 'tydiqa'),
}
QUESTIONS = CATEGORIES['question_answering']
TASKS = tuple(task for tasks in CATEGORIES.values() for task in tasks)

# The scores that count, by their names in XTREME's evaluate.py.
SCORES: dict[str, tuple[str, ...]] = {
  **dict.fromkeys(('xnli', 'pawsx', 'tatoeba'), ('accuracy',)),
  **dict.fromkeys(('udpos', 'panx', 'bucc2018'), ('f1',)),
  **dict.fromkeys(QUESTIONS, ('exact_match', 'f1')),
}
NUM_LANGUAGES = {task: len(LANGUAGES[task]) for task in SCORES}

NAMES = {
  **{'xnli': 'XNLI', 'pawsx': 'PAWS-X', 'udpos': 'POS', 'panx': 'NER', 'xquad': 'XQuAD', 'mlqa': 'MLQA'},
  **{'tydiqa': 'TyDi QA', 'squad': 'SQuAD', 'tatoeba': 'Tatoeba', 'bucc2018': 'BUCC'},
  **{'sentence_pair': 'pairs', 'structured': 'structured', 'question_answering': 'questions'},
  **{'average': 'Avg', 'task_mean': 'Avg_task'},
}
# The cells of a row: tasks, each category after its own, averages.
COLUMNS = (*(name for category, tasks in CATEGORIES.items() for name in (*tasks, category)), 'average', 'task_mean')

# Language to score name to value, 0 to 100.
ByLanguage = Mapping[str, Mapping[str, float]]


# --- the row of a model -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TaskScore:
  """A model's scores on a task, means over languages, 0 to 100."""

  score: float  # accuracy, or F1
  exact_match: float | None = None  # of a QA task; None if it is not known
  languages: int | None = None  # how many the means are over; None if that is not known
  of: int | None = None  # how many XTREME has

  @property
  def is_partial(self) -> bool:
    """Whether languages of the benchmark are missing."""
    return self.languages is not None and self.of is not None and self.languages < self.of


class Average(NamedTuple):
  """A mean of the tasks or categories `over`, those of `of` that have a value; None if none has.

  It is partial, and cannot be compared, if something is missing, here or in what it is a mean of.
  """

  value: float | None
  over: tuple[str, ...]
  of: tuple[str, ...]
  is_partial: bool


@dataclasses.dataclass(frozen=True)
class LeaderboardRow:
  """A model on all tasks."""

  name: str  # of the model
  scores: Mapping[str, TaskScore]  # by task, of those that have any
  missing: Mapping[str, str] = dataclasses.field(default_factory=dict)  # why a task has none
  stated: Mapping[str, float] = dataclasses.field(default_factory=dict)  # averages as printed in the source of the row

  def value(self, task: str) -> float | None:
    """What a task counts in an average; None if it has no score, or a QA task lacks its exact match."""
    found = self.scores.get(task)
    if found is None:
      return None
    if task not in QUESTIONS:
      return found.score
    return None if found.exact_match is None else (found.exact_match + found.score) / 2

  def averages(self) -> dict[str, Average]:
    """The categories, `average` and `task_mean`. `average` is over the categories that have a value."""
    found = {name: self._mean(tasks) for name, tasks in CATEGORIES.items()}
    values = {name: each.value for name, each in found.items() if each.value is not None}
    average = statistics.fmean(values.values()) if values else None
    is_partial = any(each.is_partial for each in found.values())
    found['average'] = Average(average, tuple(values), tuple(CATEGORIES), is_partial)
    found['task_mean'] = self._mean(TASKS)
    return found

  def _mean(self, tasks: Sequence[str]) -> Average:
    values = {task: value for task in tasks if (value := self.value(task)) is not None}
    is_partial = len(values) < len(tasks) or any(self.scores[task].is_partial for task in values)
    return Average(statistics.fmean(values.values()) if values else None, tuple(values), tuple(tasks), is_partial)

  def reasons(self) -> dict[str, str]:
    """Why tasks do not count, in few words."""
    reason = lambda task: 'only F1 is known' if task in self.scores else self.missing.get(task, 'not evaluated')
    return {task: reason(task) for task in TASKS if self.value(task) is None}


def leaderboard_row(
  name: str, by_task: Mapping[str, Sequence[ByLanguage]], missing: Mapping[str, str] | None = None
) -> LeaderboardRow:
  """The row of a model from the scores of its runs, of each task one per seed, and why other tasks have none."""
  scores = {}
  for task, runs in by_task.items():
    languages = list(runs[0])
    means = [
      statistics.fmean(statistics.fmean(run[language][name] for run in runs) for language in languages)
      for name in SCORES[task]
    ]
    exact_match = means[0] if len(means) > 1 else None
    scores[task] = TaskScore(means[-1], exact_match, len(languages), NUM_LANGUAGES[task])
  return LeaderboardRow(name, scores, dict(missing or {}))


def _printed_row(printed: paper.PaperRow) -> LeaderboardRow:
  """A row of Table 16 with the averages that it and Table 7 state. Not all of these follow from the row's scores."""
  scores = {
    task: TaskScore(of_task[-1], of_task[0] if len(of_task) > 1 else None) for task, of_task in printed.scores.items()
  }
  averages = {**printed.categories, 'task_mean': printed.task_mean, 'average': printed.mean}
  stated = {name: value for name, value in averages.items() if value is not None}
  return LeaderboardRow(printed.label, scores, stated=stated)


# RemBERT, XLM-R, VECO, FILTER, STiLTs.
PAPER = tuple(map(_printed_row, reversed(paper.TABLE_7)))
# VECO and FILTER are also trained on translations, STiLTs on other tasks' data: the fair comparison is with XLM-R.
FAIR = PAPER[:2]


# --- languages and seeds ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Spread:
  """Mean and sample deviation (n - 1; None for a single run) over runs that differ in their seed: `70.1 ± 0.2`."""

  mean: float
  deviation: float | None
  runs: int

  def __str__(self) -> str:
    return f'{self.mean:.1f}' + ('' if self.deviation is None else f' ± {self.deviation:.1f}')


def spread(values: Sequence[float]) -> Spread:
  """Mean and standard deviation."""
  return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def summarise(runs: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
  """One task by language; then `mean` over languages and `transfer gap`: English minus the mean of the others.

  Means and gaps are taken in each run, of each of which every language has a score, and then over runs. Without
  English, or without others, there is no gap.
  """
  languages = list(runs[0])
  others = [language for language in languages if language != 'en']
  found = {language: spread([run[language] for run in runs]) for language in languages}
  found['mean'] = spread([statistics.fmean(run.values()) for run in runs])
  if 'en' in languages and others:
    gaps = [run['en'] - statistics.fmean(run[language] for language in others) for run in runs]
    found['transfer gap'] = spread(gaps)
  return found


# --- results.json -----------------------------------------------------------------------------------------------------


def parse_results(results: Any) -> dict[str, dict[str, tuple[dict[str, float], dict[str, float]]]]:
  """Task to language to scores by metric, and those of the trivial baseline, of the content of `results.json`.

  What has no scores, or no numbers, is left out.
  """
  results = _object(results)
  if 'tasks' in results:
    by_task = _object(results['tasks'])
  else:  # retrieval: languages at the top, metrics among other numbers, no baseline but chance
    task, over = str(results.get('task')), results.get('mean_over')
    of_language = lambda name: _object(_object(results.get('languages')).get(name))
    counting = lambda scores: {name: score for name, score in scores.items() if name in SCORES.get(task, (name,))}
    names = over if isinstance(over, list) else []
    by_task = {task: {name: {'scores': counting(of_language(name))} for name in names}}
  found: dict[str, dict[str, tuple[dict[str, float], dict[str, float]]]] = {}
  for task, languages in by_task.items():
    for name, entry in _object(languages).items():
      if scores := _numbers(_object(entry).get('scores')):
        found.setdefault(task, {})[name] = scores, _numbers(_object(entry).get('baseline'))
  return found


def _object(value: Any) -> dict[str, Any]:
  return value if isinstance(value, dict) else {}


def _numbers(value: Any) -> dict[str, float]:
  is_number = lambda each: isinstance(each, int | float) and not isinstance(each, bool) and each == each
  return {name: float(number) for name, number in _object(value).items() if is_number(number)}


def parse_dev_score(results: Any) -> float | None:
  """The score on dev by which the evaluated parameters were selected; None if there was no selection."""
  return next(iter(_numbers(_object(results).get('dev')).values()), None)


def read_results(workdir: epath.PathLike) -> Any:
  """The content of `results.json`; UsageError if there is none."""
  file = epath.Path(workdir) / 'results.json'
  fix = 'run the same command again'
  return parsed_json(read_text(file, what='the results', fix=fix), file, fix=fix)


def value(task: str, scores: Mapping[str, float]) -> float:
  """What a language's scores count: accuracy, F1, or for questions the mean of F1 and exact match."""
  return statistics.fmean(scores[name] for name in SCORES[task])


# --- tables -----------------------------------------------------------------------------------------------------------


def cell(row: LeaderboardRow, column: str, missing: str = '–') -> str:
  """The score of a task, questions as exact match/F1, or an average; `missing` is the text for a missing score."""
  if column in row.stated:
    return f'{row.stated[column]:.1f}'
  number = lambda value: missing if value is None else f'{value:.1f}'
  averages = row.averages()
  found = averages.get(column) or row.scores.get(column)
  if found is None:
    return missing
  if isinstance(found, Average):
    return number(found.value) + '*' * (found.is_partial and found.value is not None)
  text = number(found.score) + '*' * found.is_partial
  return f'{number(found.exact_match)}/{text}' if column in QUESTIONS else text


def show_row(console: Console, row: LeaderboardRow, others: Sequence[LeaderboardRow] = FAIR) -> None:
  """Prints a row next to others, and what is missing in it. A terminal has no room for five."""
  rows = [row, *others]
  titles = {column: f'= {NAMES[column]}' if column in CATEGORIES else NAMES[column] for column in COLUMNS}
  # Retrieval is in no average.
  titles |= {task: f'({NAMES[task]})' for task in RETRIEVAL if any(task in each.scores for each in rows)}
  lines = [[title, *(cell(each, column) for each in rows)] for column, title in titles.items()]
  console.table('XTREME', ['', *(each.name for each in rows)], lines)
  for line in remarks(row):
    console.say(line)


def write_row(row: LeaderboardRow, folder: epath.PathLike) -> None:
  """Writes `xtreme.json`: `scores`, `averages` with what they are over, `missing` with the reasons."""
  content = {
    'name': row.name,
    'scores': {task: dataclasses.asdict(score) | {'value': row.value(task)} for task, score in row.scores.items()},
    'averages': {
      name: {'value': average.value, 'over': list(average.over), 'is_partial': average.is_partial}
      for name, average in row.averages().items()
    },
    'missing': row.reasons(),
  }
  write_whole(epath.Path(folder) / 'xtreme.json', json.dumps(content, indent=2, ensure_ascii=False) + '\n')


def remarks(row: LeaderboardRow) -> list[str]:
  """What limits a comparison: missing tasks, missing languages, averages that lack them."""
  lines = [f'{NAMES[task]} is missing: {reason}' for task, reason in row.reasons().items()]
  for task, score in row.scores.items():
    if score.is_partial:
      lines.append(f'* {NAMES[task]}: {score.languages} of {score.of} languages, not comparable')
  for name, (value, parts, of, is_partial) in row.averages().items():
    if is_partial and value is not None:
      plural = 'categories' if name == 'average' else 'tasks'
      over = f'{len(parts)} of {len(of)} {plural}' if len(parts) < len(of) else f'{plural} of which parts are missing'
      lines.append(f'* {NAMES[name]}: over {over}, not comparable')
  return lines
