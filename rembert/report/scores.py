"""All scores as one tidy table, and the selection that a report shows.

A row of the table is one score: `model`, `pretrain_seed`, `seed` (of fine-tuning; -1 for the eval set), `variant` of
the fine-tuning, `learning_rate` ('' for that of the gin file), `dev` (dev score of the selected checkpoint), `task`,
`language`, `metric`, `value` and `baseline` (the score of the trivial baseline). `counts` marks the metrics that are
averaged. A planned run without a score of a task has one row there, without a value.
"""

import dataclasses
import functools
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from rembert.report.load import FINE_TUNING, Model, Run, Source
from tasks.xtreme.leaderboard import QUESTIONS, SCORES, Spread, parse_dev_score, parse_results, spread

HELD_OUT = 'held-out text'  # used as the name of a task
ALL_LANGUAGES = 'all'
SEEDS = ['pretrain_seed', 'seed']
COLUMNS = ['model', *SEEDS, 'variant', 'learning_rate', 'dev']
COLUMNS += ['task', 'language', 'metric', 'value', 'baseline', 'counts']


@dataclasses.dataclass(frozen=True)
class TaskProgress:
  """Progress of a model on a task: the number of seeds with scores, and when all runs are done."""

  done: int
  planned: int
  learning_rate: str  # the best on dev; '' if there was no choice
  left_out: tuple[str, ...]  # languages that some seed lacks


class Results:
  """The data of a report: `scores`, the tidy table, for the best learning rate and the languages that all seeds have.

  `models` are those of all directories, in order; the index of a model is its colour on the whole page. `progress` is
  by (model, variant, task), for tasks with scores.
  """

  def __init__(self, sources: Sequence[Source]):
    self.sources = list(sources)
    self.models = [model for source in sources for model in source.models]
    self.scores, self.progress = select(tidy(self.models))

  @functools.cached_property
  def worths(self) -> pd.DataFrame:
    """The score of each language: the mean of the metrics that count, as `value` and `baseline`."""
    keys = ['model', 'variant', 'task', *SEEDS, 'language']
    return self.scores[self.scores['counts']].groupby(keys, sort=False)[['value', 'baseline']].mean().reset_index()

  def tasks(self, model: Model, variant: str = '') -> list[str]:
    """Tasks for which a model has scores, in the order of its runs."""
    return [task for name, of_variant, task in self.progress if (name, of_variant) == (model.name, variant)]

  def variants(self, model: Model) -> list[str]:
    """Variants of a model's fine-tuning that have scores; first '', without changes."""
    return list(dict.fromkeys(variant for name, variant, _ in self.progress if name == model.name))

  def by_seed(self, model: Model, task: str, variant: str = '') -> pd.DataFrame:
    """The score of each language: a row per seed, a column per language."""
    found = of(self.worths, model=model.name, variant=variant, task=task)
    return found.pivot_table(index=SEEDS, columns='language', values='value', sort=False)

  def by_metric(self, model: Model, task: str, variant: str = '') -> list[Spread]:
    """The mean over languages of each metric that counts; (exact match, F1) for question answering."""
    found = of(self.scores, model=model.name, variant=variant, task=task, counts=True)
    means = found.groupby(['metric', *SEEDS], sort=False)['value'].mean()
    return [spread(means[metric].tolist()) for metric in counting_metrics(task, found['metric'].unique())]


def of(frame: pd.DataFrame, **values: Any) -> pd.DataFrame:
  """The rows with the given values in the given columns."""
  for column, value in values.items():
    frame = frame[frame[column] == value]
  return frame


def counting_metrics(task: str, metrics: Sequence[str]) -> tuple[str, ...]:
  """The metrics of a task that are averaged, in the order of print; of an unknown task, the first."""
  wanted = SCORES['xquad'] if task in (*QUESTIONS, 'squad') else SCORES.get(task, ())
  return tuple(name for name in wanted if name in metrics) or tuple(metrics)[:1]


# --- the table --------------------------------------------------------------------------------------------------------


def tidy(models: Sequence[Model]) -> pd.DataFrame:
  """All scores of all runs."""
  rows = [row for model in models for row in (*_held_out_rows(model), *_task_rows(model))]
  frame = pd.DataFrame(rows, columns=COLUMNS, dtype=object)
  return frame.astype(dict.fromkeys(SEEDS, int) | dict.fromkeys(('value', 'baseline', 'dev'), float) | {'counts': bool})


def _held_out_rows(model: Model) -> Iterator[tuple]:
  """The last evaluation of each pre-training run: loss in nats, accuracy in percent."""
  for run in model.pretrained:
    for metric, factor in (('loss', 1), ('accuracy', 100)):
      key = f'eval/{metric}'
      for language in (ALL_LANGUAGES, *run.parts_of(key)):
        if (value := run.last(key if language == ALL_LANGUAGES else f'{key}/{language}')) is not None:
          keys = (model.name, run.pretrain_seed, run.seed, '', '', None, HELD_OUT)
          yield (*keys, language, metric, factor * value, None, False)


def _task_rows(model: Model) -> Iterator[tuple]:
  finetuned = model.runs(FINE_TUNING)
  taken: dict[tuple[str, str], str] = {}  # a variant's task belongs to the first training task with scores for it
  for variant, trained in sorted(dict.fromkeys((run.variant, run.task) for run in finetuned), key=lambda key: key[0]):
    runs = [run for run in finetuned if (run.variant, run.task) == (variant, trained)]
    for task in dict.fromkeys(name for run in runs for name in run.evaluated):
      scores = [list(_scores(run, task)) for run in runs]
      if not any(scores) or taken.setdefault((variant, task), trained) != trained:
        continue
      for run, of_run in zip(runs, scores, strict=True):
        rate = '' if run.learning_rate is None else f'{run.learning_rate:g}'
        keys = (model.name, run.pretrain_seed, run.seed, variant, rate, parse_dev_score(run.results), task)
        yield from ((*keys, *score) for score in of_run or [(None, None, None, None, False)])


def _scores(run: Run, task: str) -> Iterator[tuple]:
  """Language, metric, value, baseline, and whether the metric counts, for all numbers in `results.json`."""
  for language, (scores, baseline) in parse_results(run.results).get(task, {}).items():
    counting = counting_metrics(task, list(scores))
    for metric, value in scores.items():
      yield language, metric, value, baseline.get(metric), metric in counting


# --- the selection ----------------------------------------------------------------------------------------------------


def select(scores: pd.DataFrame) -> tuple[pd.DataFrame, dict[tuple[str, str, str], TaskProgress]]:
  """Scores of the best learning rate in the languages that all seeds have, and progress by model and task."""
  kept, progress = [], {}
  for key, of_task in scores.groupby(['model', 'variant', 'task'], sort=False):
    if key[-1] == HELD_OUT:
      kept.append(of_task)
      continue
    rates = of_task['learning_rate'].unique()
    best = max(of_task.dropna(subset='value')['learning_rate'].unique(), key=lambda rate: _mean_dev(of_task, rate))
    of_rate = of(of_task, learning_rate=best).dropna(subset='value')
    seeds = of_rate.groupby(SEEDS).ngroups
    complete = of_rate.drop_duplicates([*SEEDS, 'language']).groupby('language', sort=False).size().eq(seeds)
    if complete.any():
      kept.append(of_rate[of_rate['language'].map(complete)])
      planned = of_task.groupby(SEEDS).ngroups
      left_out = tuple(complete.index[~complete])
      progress[key] = TaskProgress(seeds, planned, best if len(rates) > 1 else '', left_out)
  return pd.concat(kept) if kept else scores, progress


def _mean_dev(scores: pd.DataFrame, rate: str) -> float:
  """Mean dev score over seeds; a learning rate without dev scores is never the best."""
  found = of(scores, learning_rate=rate).drop_duplicates(SEEDS)['dev'].dropna()
  return statistics.fmean(found) if len(found) else float('-inf')
