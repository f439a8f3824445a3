"""Results of runs on XTREME, read from their workdirs, and what several of them come to."""

import json
import statistics
from collections.abc import Mapping, Sequence

from etils import epath

from rembert.report.xtreme_scores import SCORES, Row, TaskSummary, row_of, summarise

ByLanguage = dict[str, dict[str, float]]


def read_scores(workdir: epath.PathLike) -> dict[str, ByLanguage]:
  """Task to language to scores by name, of `results.json`; what has no gold labels is not in it."""
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
  """The score that the judged parameters were chosen by; None where nothing was chosen."""
  content = json.loads((epath.Path(workdir) / 'results.json').read_text())
  return next(iter(content['dev'].values())) if content.get('dev') else None


def value(task: str, scores: Mapping[str, float]) -> float:
  """What a language's scores are worth: accuracy, F1, or for questions the mean of F1 and exact match."""
  return statistics.fmean(scores[name] for name in SCORES[task])


def summary_of(task: str, runs: Sequence[ByLanguage]) -> TaskSummary:
  """A task over runs that differ in their seed."""
  return summarise([{language: value(task, scores) for language, scores in run.items()} for run in runs])


def mean_over_runs(runs: Sequence[ByLanguage]) -> ByLanguage:
  """Each score of each language, averaged over runs of the same languages."""
  names = {language: list(scores) for language, scores in runs[0].items()}
  return {
    language: {name: statistics.fmean(run[language][name] for run in runs) for name in of_language}
    for language, of_language in names.items()
  }


def leaderboard_row(name: str, by_task: Mapping[str, Sequence[ByLanguage]], missing: Mapping[str, str]) -> Row:
  """The row of a model.

  Args:
    name: of the model.
    by_task: of each task the runs, one a seed.
    missing: why other tasks are not there.
  """
  return row_of(name, {task: mean_over_runs(runs) for task, runs in by_task.items()}, missing)
