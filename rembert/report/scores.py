"""Scores of models on tasks, from the results of their runs: of the best learning rate, one entry a seed."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from rembert.report.reading import Learned, Model
from rembert.report.xtreme_scores import QUESTIONS, SCORES, Spread, TaskSummary, spread, summarise

Seed = tuple[int, int]  # of pre-training, of fine-tuning
_QUESTIONS = (*QUESTIONS, 'squad')


@dataclasses.dataclass(frozen=True)
class TaskScores:
  """A model on a task.

  Attributes:
    task: its name.
    by_seed: language to scores by name, 0 to 100; the languages that all seeds have.
    baseline: likewise of somebody who knows the labels' frequencies alone; {} where nobody was asked.
    planned: how many seeds there are to be.
    learning_rate: that did best on dev; None where there was no choice.
    left_out: languages that not all seeds have.
  """

  task: str
  by_seed: Mapping[Seed, Mapping[str, Mapping[str, float]]]
  baseline: Mapping[str, Mapping[str, float]]
  planned: int
  learning_rate: float | None = None
  left_out: tuple[str, ...] = ()

  @property
  def languages(self) -> list[str]:
    """In the order of the results."""
    return list(next(iter(self.by_seed.values())))

  def values(self) -> dict[Seed, dict[str, float]]:
    """What each language is worth, by seed."""
    return {
      seed: {language: worth(self.task, scores) for language, scores in run.items()}
      for seed, run in self.by_seed.items()
    }

  def summary(self) -> TaskSummary:
    """Mean, English, gap and languages over seeds."""
    return summarise(list(self.values().values()))

  def means(self) -> list[Spread]:
    """Of each score that counts, the mean over languages, over seeds: (exact match, F1) of questions."""
    names = score_names(self.task, next(iter(next(iter(self.by_seed.values())).values())))
    runs = self.by_seed.values()
    return [spread([statistics.fmean(scores[name] for scores in run.values()) for run in runs]) for name in names]


def score_names(task: str, scores: Mapping[str, float]) -> tuple[str, ...]:
  """Which of the scores of a language count, in the order of print."""
  wanted = SCORES['xquad'] if task in _QUESTIONS else SCORES.get(task, ())
  found = tuple(name for name in wanted if name in scores)
  return found or tuple(scores)[:1]


def worth(task: str, scores: Mapping[str, float]) -> float:
  """What a language's scores are worth: accuracy, F1, or for questions the mean of F1 and exact match."""
  return statistics.fmean(scores[name] for name in score_names(task, scores))


def task_scores(model: Model, variant: str = '') -> dict[str, TaskScores]:
  """Tasks that a model was judged on, in the order of the runs; those that have no scores yet are not there.

  Args:
    model: whose runs are asked.
    variant: of the fine-tuning.
  """
  of_variant = [each for each in model.learned if each.variant == variant]
  found: dict[str, TaskScores] = {}
  for task in dict.fromkeys(each.task for each in of_variant):
    runs = [each for each in of_variant if each.task == task]
    for judged in dict.fromkeys(name for each in runs for name in each.judged):
      scores = _of_best_rate(judged, runs)
      if scores is not None and judged not in found:
        found[judged] = scores
  return found


def variants(model: Model) -> list[str]:
  """Variants that anything was learned with, '' first."""
  return sorted({each.variant for each in model.learned})


def dev_score(learned: Learned) -> float | None:
  """The score that the judged parameters were chosen by; None where nothing was chosen."""
  dev = (learned.run.results or {}).get('dev') if learned.run else None
  value = next(iter(dev.values()), None) if isinstance(dev, dict) else None
  return float(value) if _is_number(value) else None


def _of_best_rate(task: str, runs: Sequence[Learned]) -> TaskScores | None:
  by_rate: dict[float | None, list[Learned]] = {}
  for each in runs:
    by_rate.setdefault(each.learning_rate, []).append(each)
  scored = {
    rate: {
      (each.pretrain_seed, each.seed): (of_run, baseline)
      for each in of_rate
      for of_run, baseline in [_language_scores(each, task)]
      if of_run
    }
    for rate, of_rate in by_rate.items()
  }
  scored = {rate: of_rate for rate, of_rate in scored.items() if of_rate}
  if not scored:
    return None
  best = max(scored, key=lambda rate: _mean_dev(by_rate[rate]))
  of_best = scored[best]
  everywhere = [
    language
    for language in next(iter(of_best.values()))[0]
    if all(language in of_seed for of_seed, _ in of_best.values())
  ]
  if not everywhere:
    return None
  anywhere = dict.fromkeys(language for of_seed, _ in of_best.values() for language in of_seed)
  baseline = next(iter(of_best.values()))[1]
  return TaskScores(
    task=task,
    by_seed={seed: {language: of_seed[language] for language in everywhere} for seed, (of_seed, _) in of_best.items()},
    baseline={language: baseline[language] for language in everywhere if language in baseline},
    planned=len({(each.pretrain_seed, each.seed) for each in runs}),
    learning_rate=best if len(by_rate) > 1 else None,
    left_out=tuple(language for language in anywhere if language not in everywhere),
  )


def _mean_dev(runs: Sequence[Learned]) -> float:
  found = [score for score in map(dev_score, runs) if score is not None]
  return statistics.fmean(found) if found else float('-inf')


def _language_scores(learned: Learned, task: str) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
  """Scores and baseline by language, as far as `results.json` has numbers where they belong."""
  results = (learned.run.results or {}) if learned.run else {}
  if 'tasks' not in results:  # retrieval: languages at the top, and no baseline but chance
    languages = results.get('languages') if results.get('task') == task else None
    over = results.get('mean_over')
    entries = {
      language: {'scores': entry}
      for language, entry in _object(languages).items()
      if isinstance(over, list) and language in over
    }
    wanted = SCORES.get(task, ())
  else:
    entries, wanted = _object(_object(results['tasks']).get(task)), ()
  numbers = lambda entry, key: {
    name: float(value)
    for name, value in _object(_object(entry).get(key)).items()
    if _is_number(value) and (not wanted or name in wanted)
  }
  scores = {language: found for language, entry in entries.items() if (found := numbers(entry, 'scores'))}
  baseline = {language: found for language, entry in entries.items() if (found := numbers(entry, 'baseline'))}
  return scores, baseline


def _object(value: Any) -> dict:
  return value if isinstance(value, dict) else {}


def _is_number(value: Any) -> TypeGuard[float]:
  return isinstance(value, int | float) and not isinstance(value, bool) and value == value
