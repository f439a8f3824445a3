"""Scores on XTREME, averaged as the paper averages them (Tables 7 and 16), and none averaged in silence.

Within a task: the unweighted mean over languages. A QA task is worth (EM + F1) / 2. Sentence-pair classification,
structured prediction and question answering are means of their tasks; `average` is the mean of these three categories,
`task_mean` that of the seven tasks. Retrieval is in neither (footnote 6: it needs data for an intermediate task).
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

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
# Languages that XTREME judges a task in.
NUM_LANGUAGES = {
  **{'xnli': 15, 'pawsx': 7, 'udpos': 33, 'panx': 40, 'xquad': 11, 'mlqa': 7, 'tydiqa': 9},
  **{'tatoeba': 36, 'bucc2018': 4},
}


@dataclasses.dataclass(frozen=True)
class TaskScore:
  """A model's scores on a task, means over languages, 0 to 100.

  Attributes:
    score: accuracy, or F1.
    exact_match: of a QA task, beside its F1; None where it is not known.
    languages: how many the means are over; None where that is not known.
    of: how many XTREME has.
  """

  score: float
  exact_match: float | None = None
  languages: int | None = None
  of: int | None = None

  @property
  def is_partial(self) -> bool:
    """Whether languages of the benchmark are missing."""
    return None not in (self.languages, self.of) and self.languages < self.of


@dataclasses.dataclass(frozen=True)
class Average:
  """A mean of tasks.

  Attributes:
    value: the mean over those that are there; None if none is.
    over: which those are.
    of: all that should be.
    is_partial: whether something is missing, here or in what it is a mean of: it cannot be compared.
  """

  value: float | None
  over: tuple[str, ...]
  of: tuple[str, ...]
  is_partial: bool


@dataclasses.dataclass(frozen=True)
class Row:
  """A model in the table.

  Attributes:
    name: of the model.
    scores: by task, of those that there are.
    missing: why a task has none.
    pre_training: parameters in pre-training, in millions.
    fine_tuning: parameters in fine-tuning, in millions.
    stated: averages as they are printed where the row comes from.
  """

  name: str
  scores: Mapping[str, TaskScore]
  missing: Mapping[str, str] = dataclasses.field(default_factory=dict)
  pre_training: int | None = None
  fine_tuning: int | None = None
  stated: Mapping[str, float] = dataclasses.field(default_factory=dict)

  def value(self, task: str) -> float | None:
    """What a task is worth in an average; None if it has no score, or a QA task has half of it."""
    found = self.scores.get(task)
    if found is None:
      return None
    if task not in QUESTIONS:
      return found.score
    return None if found.exact_match is None else (found.exact_match + found.score) / 2

  def averages(self) -> dict[str, Average]:
    """The categories', `average` and `task_mean`. An average of categories takes in those that have a value."""
    found = {name: self._mean(tasks) for name, tasks in CATEGORIES.items()}
    there = tuple(name for name, each in found.items() if each.value is not None)
    value = statistics.fmean(found[name].value for name in there) if there else None
    found['average'] = Average(value, there, tuple(CATEGORIES), any(each.is_partial for each in found.values()))
    found['task_mean'] = self._mean(TASKS)
    return found

  def _mean(self, tasks: Sequence[str]) -> Average:
    values = {task: self.value(task) for task in tasks if self.value(task) is not None}
    is_partial = len(values) < len(tasks) or any(self.scores[task].is_partial for task in values)
    return Average(statistics.fmean(values.values()) if values else None, tuple(values), tuple(tasks), is_partial)

  def why_missing(self, task: str) -> str:
    """Why a task does not count, in few words; '' if it does."""
    if self.value(task) is not None:
      return ''
    return 'F1 alone is known' if task in self.scores else self.missing.get(task, 'not judged')


def row_of(
  name: str,
  languages: Mapping[str, Mapping[str, Mapping[str, float]]],
  missing: Mapping[str, str] | None = None,
) -> Row:
  """A row from the scores of each language.

  Args:
    name: of the model.
    languages: task to language to score name (`SCORES`) to value, 0 to 100.
    missing: why tasks that are not in `languages` are not.

  Raises:
    KeyError: a language lacks a score of its task.
    ValueError: a task that XTREME has not, or one without languages.
  """
  scores = {}
  for task, by_language in languages.items():
    if task not in SCORES:
      raise ValueError(f'{task} is no task of XTREME')
    if not by_language:
      raise ValueError(f'{task} has no languages')
    means = {score: statistics.fmean(found[score] for found in by_language.values()) for score in SCORES[task]}
    *exact_match, score = (means[name] for name in SCORES[task])
    scores[task] = TaskScore(score, *(exact_match or [None]), len(by_language), NUM_LANGUAGES[task])
  return Row(name, scores, dict(missing or {}))


# --- languages and seeds ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Spread:
  """A number over runs that differ in their seed alone.

  Attributes:
    mean: over runs.
    deviation: standard deviation of the sample (n - 1); None of a single run.
    runs: how many.
  """

  mean: float
  deviation: float | None
  runs: int


def spread(values: Sequence[float]) -> Spread:
  """Mean and standard deviation."""
  return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


@dataclasses.dataclass(frozen=True)
class TaskSummary:
  """One task by language.

  Attributes:
    languages: each language's score.
    mean: over languages.
    english: what was learned in; None if it is not among them.
    gap: English less the mean of the other languages, what transfer without examples costs; None without both.
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
    ValueError: no runs, or runs of other languages.
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
