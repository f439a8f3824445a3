"""Results on XTREME: `results.json` of runs, and the leaderboard row that they add up to (the paper's Tables 7 and 16).

Within a task, the score is the unweighted mean over languages. A QA task counts as (EM + F1) / 2. Sentence-pair
classification, structured prediction and question answering are means of their tasks; `average` is the mean of these
three categories, `task_mean` that of the seven tasks. Retrieval is in neither (footnote 6: it needs data for an
intermediate task). A mean over fewer languages or tasks than the benchmark has is marked as partial: in tables, which
are for terminals, JSON and Markdown, by a star, and the lines below name what is missing. Averages of the paper's rows
are those that it prints.
"""

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from rembert import paper
from rembert.files import write_whole
from rembert.tracking.console import Console

QUESTIONS = ('xquad', 'mlqa', 'tydiqa')
CATEGORIES: dict[str, tuple[str, ...]] = {
  'sentence_pair': ('xnli', 'pawsx'),
  'structured': ('udpos', 'panx'),
  'question_answering': QUESTIONS,
}
TASKS = tuple(task for tasks in CATEGORIES.values() for task in tasks)
RETRIEVAL = ('tatoeba', 'bucc2018')

# The scores that count, by their names in XTREME's evaluate.py.
SCORES: dict[str, tuple[str, ...]] = {
  **{task: ('accuracy',) for task in ('xnli', 'pawsx', 'tatoeba')},
  **{task: ('f1',) for task in ('udpos', 'panx', 'bucc2018')},
  **{task: ('exact_match', 'f1') for task in QUESTIONS},
}
# Languages that XTREME evaluates a task in.
NUM_LANGUAGES = {
  **{'xnli': 15, 'pawsx': 7, 'udpos': 33, 'panx': 40, 'xquad': 11, 'mlqa': 7, 'tydiqa': 9},
  **{'tatoeba': 36, 'bucc2018': 4},
}

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

# Language to score name to value, 0 to 100.
ByLanguage = Mapping[str, Mapping[str, float]]


# --- the row of a model -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TaskScore:
  """A model's scores on a task, means over languages, 0 to 100.

  Attributes:
    score: accuracy, or F1.
    exact_match: of a QA task; None if it is not known.
    languages: how many the means are over; None if that is not known.
    of: how many XTREME has.
  """

  score: float
  exact_match: float | None = None
  languages: int | None = None
  of: int | None = None

  @property
  def is_partial(self) -> bool:
    """Whether languages of the benchmark are missing."""
    return self.languages is not None and self.of is not None and self.languages < self.of


@dataclasses.dataclass(frozen=True)
class Average:
  """A mean of tasks, or of categories.

  Attributes:
    value: the mean over those that have a value; None if none has.
    over: which those are.
    of: all that belong to it.
    is_partial: whether something is missing, here or in what it is a mean of, so that it cannot be compared.
  """

  value: float | None
  over: tuple[str, ...]
  of: tuple[str, ...]
  is_partial: bool


@dataclasses.dataclass(frozen=True)
class LeaderboardRow:
  """A model on all tasks.

  Attributes:
    name: of the model.
    scores: by task, of those that have any.
    missing: why a task has none.
    pre_training: parameters in pre-training, in millions.
    fine_tuning: parameters in fine-tuning, in millions.
    stated: averages as printed in the source of the row.
  """

  name: str
  scores: Mapping[str, TaskScore]
  missing: Mapping[str, str] = dataclasses.field(default_factory=dict)
  pre_training: int | None = None
  fine_tuning: int | None = None
  stated: Mapping[str, float] = dataclasses.field(default_factory=dict)

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

  def why_missing(self, task: str) -> str:
    """Why a task does not count, in few words; '' if it does."""
    if self.value(task) is not None:
      return ''
    return 'F1 alone is known' if task in self.scores else self.missing.get(task, 'not judged')

  def inconsistencies(self, tolerance: float = 0.1) -> dict[str, tuple[float, float]]:
    """Averages in `stated` that do not follow from the row's own scores: name to (stated, computed).

    Args:
      tolerance: what rounding to one digit can explain: half a digit in the scores, and half in the mean.
    """
    computed = {name: each.value for name, each in self.averages().items() if each.value is not None}
    return {
      name: (stated, computed[name])
      for name, stated in self.stated.items()
      if name in computed and abs(stated - computed[name]) > tolerance + 1e-9
    }


def leaderboard_row(
  name: str, by_task: Mapping[str, Sequence[ByLanguage]], missing: Mapping[str, str] | None = None
) -> LeaderboardRow:
  """The row of a model from the scores of its runs.

  Args:
    name: of the model.
    by_task: task to its runs, one per seed.
    missing: why tasks that are not in `by_task` have no scores.

  Raises:
    KeyError: a language lacks a score of its task.
    ValueError: a task that XTREME does not have, or one without languages.
  """
  scores = {}
  for task, runs in by_task.items():
    if task not in SCORES:
      raise ValueError(f'{task} is no task of XTREME')
    by_language = mean_over_runs(runs)
    if not by_language:
      raise ValueError(f'{task} has no languages')
    means = [statistics.fmean(found[score] for found in by_language.values()) for score in SCORES[task]]
    exact_match = means[0] if len(means) > 1 else None
    scores[task] = TaskScore(means[-1], exact_match, len(by_language), NUM_LANGUAGES[task])
  return LeaderboardRow(name, scores, dict(missing or {}))


def mean_over_runs(runs: Sequence[ByLanguage]) -> dict[str, dict[str, float]]:
  """Each score of each language, averaged over runs of the same languages."""
  names = {language: list(scores) for language, scores in runs[0].items()}
  return {
    language: {name: statistics.fmean(run[language][name] for run in runs) for name in of_language}
    for language, of_language in names.items()
  }


def _printed_row(printed: paper.LeaderboardRow) -> LeaderboardRow:
  """A row of Table 16 with the averages that it and Table 7 state. Not all of these follow from the row's scores."""
  scores = {
    task: TaskScore(of_task[-1], of_task[0] if len(of_task) > 1 else None) for task, of_task in printed.scores.items()
  }
  stated = {**printed.categories, 'task_mean': printed.task_mean}
  if printed.mean is not None:
    stated['average'] = printed.mean
  return LeaderboardRow(printed.label, scores, {}, printed.pre_training_millions, printed.fine_tuning_millions, stated)


_TABLE_7 = {printed.name: _printed_row(printed) for printed in paper.TABLE_7}
REMBERT, XLM_R, VECO, FILTER, STILTS = map(_TABLE_7.__getitem__, ('rembert', 'xlm_r', 'veco', 'filter', 'stilts'))

# VECO and FILTER learn from translations too, STiLTs from other tasks' data: the fair comparison is with XLM-R.
FAIR = (REMBERT, XLM_R)
PAPER = (REMBERT, XLM_R, VECO, FILTER, STILTS)


# --- languages and seeds ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Spread:
  """A number over runs that differ in their seed alone. As text: `70.1 ± 0.2`.

  Attributes:
    mean: over runs.
    deviation: standard deviation of the sample (n - 1); None for a single run.
    runs: how many.
  """

  mean: float
  deviation: float | None
  runs: int

  def __str__(self) -> str:
    return f'{self.mean:.1f}' + ('' if self.deviation is None else f' ± {self.deviation:.1f}')


def spread(values: Sequence[float]) -> Spread:
  """Mean and standard deviation."""
  return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


@dataclasses.dataclass(frozen=True)
class TaskSummary:
  """One task by language.

  Attributes:
    languages: each language's score.
    mean: over languages.
    english: the training language; None if it was not evaluated.
    gap: English minus the mean of the other languages, the transfer gap; None without both.
  """

  languages: Mapping[str, Spread]
  mean: Spread
  english: Spread | None
  gap: Spread | None


def summarise(runs: Sequence[Mapping[str, float]]) -> TaskSummary:
  """A task over several seeds; means and gaps are taken in each run, and then over runs.

  Args:
    runs: of each seed, the score of every language, 0 to 100.

  Raises:
    ValueError: no runs, or runs of different languages.
  """
  if not runs or not runs[0]:
    raise ValueError('there are no scores')
  languages = list(runs[0])
  if any(set(run) != set(languages) for run in runs):
    raise ValueError('the runs are not of the same languages')
  others = [language for language in languages if language != 'en']
  has_gap = 'en' in languages and others
  gaps = [run['en'] - statistics.fmean(run[language] for language in others) for run in runs] if has_gap else []
  return TaskSummary(
    {language: spread([run[language] for run in runs]) for language in languages},
    spread([statistics.fmean(run.values()) for run in runs]),
    spread([run['en'] for run in runs]) if 'en' in languages else None,
    spread(gaps) if gaps else None,
  )


# --- results.json -----------------------------------------------------------------------------------------------------


def read_scores(workdir: epath.PathLike) -> dict[str, ByLanguage]:
  """Task to its scores by language, of `results.json`; tasks and languages without gold labels are left out."""
  content = json.loads((epath.Path(workdir) / 'results.json').read_text())
  if 'tasks' not in content:  # retrieval
    scored = {language: content['languages'][language] for language in content['mean_over']}
    return {content['task']: scored} if scored else {}
  found = {
    task: {language: entry['scores'] for language, entry in by_language.items() if entry['scores']}
    for task, by_language in content['tasks'].items()
  }
  return {task: scored for task, scored in found.items() if scored}


def dev_score(workdir: epath.PathLike) -> float | None:
  """The score on dev by which the evaluated parameters were selected; None if there was no selection."""
  content = json.loads((epath.Path(workdir) / 'results.json').read_text())
  return next(iter(content['dev'].values())) if content.get('dev') else None


def value(task: str, scores: Mapping[str, float]) -> float:
  """What a language's scores count: accuracy, F1, or for questions the mean of F1 and exact match."""
  return statistics.fmean(scores[name] for name in SCORES[task])


def summary_of(task: str, runs: Sequence[ByLanguage]) -> TaskSummary:
  """A task over runs that differ in their seed."""
  return summarise([{language: value(task, scores) for language, scores in run.items()} for run in runs])


# --- tables -----------------------------------------------------------------------------------------------------------


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


def show_row(console: Console, row: LeaderboardRow, beside: Sequence[LeaderboardRow] = FAIR) -> None:
  """Prints a row next to others, and what is missing in it. A terminal has no room for five."""
  console.table('XTREME', *_table(row, beside))
  for line in (*remarks(row), *_remarks_on_printed(beside)):
    console.say(line)


def row_markdown(row: LeaderboardRow, beside: Sequence[LeaderboardRow] = PAPER) -> str:
  """The same as Markdown."""
  lines = [f'- {line}' for line in (*remarks(row), *_remarks_on_printed(beside))]
  return '\n'.join([*_markdown_table(*_table(row, beside)), '', *lines]).rstrip() + '\n'


def write_row(row: LeaderboardRow, folder: epath.PathLike, tasks: Mapping[str, TaskSummary] | None = None) -> None:
  """Writes `xtreme.json` and `xtreme.md`: the row, and the tasks language by language."""
  tasks = tasks or {}
  content = as_json(row) | {'tasks': {task: dataclasses.asdict(summary) for task, summary in tasks.items()}}
  parts = [row_markdown(row), *(task_markdown(task, summary) for task, summary in tasks.items())]
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
