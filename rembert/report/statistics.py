"""Significance of differences between models: paired sign-flip tests over languages and over seeds.

There are two questions. Over **languages**, with scores averaged over seeds: would the difference hold in other
languages, for these models? Over **seeds**, with scores averaged over languages: would it hold if the models were
trained again? With three seeds the second test cannot be significant: of the 2³ sign flips, two are as extreme as the
most extreme one, so p ≥ 0.25.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

# Up to this many sign flips, all are tried; otherwise this many random ones.
_FLIPS = 1 << 16
_RESAMPLES = 10_000
LEVEL = 0.05


@dataclasses.dataclass(frozen=True)
class Comparison:
  """The difference between two models on one task, in points."""

  difference: float  # mean over seeds and languages
  low: float  # of its 95 % interval, from a bootstrap over languages and seeds
  high: float
  p_languages: float | None  # two-sided, of the sign-flip test over languages; None for fewer than two
  p_seeds: float | None
  languages: int  # paired ones, as are the seeds
  seeds: int
  p_holm: float | None = None  # `p_languages` after Holm's correction for several comparisons


def sign_flip_p(differences: Sequence[float], seed: int = 0) -> float:
  """Two-sided p of the mean of paired differences, from a paired sign-flip permutation test.

  Exact, from all 2ⁿ flips, for up to 16 differences; from 65,536 random flips (`seed`) for more. It is 1 if all are
  zero.

  Raises:
    ValueError: no differences, or one that is not finite.
  """
  from scipy import stats

  values = np.asarray(differences, np.float64)
  if not values.size or not np.isfinite(values).all():
    raise ValueError('the test requires at least one difference, all finite')
  if values.size == 1 or not values.any():
    return 1.0  # both flips of a single value are equally extreme
  mean = lambda sample, axis: np.mean(sample, axis=axis)
  found = stats.permutation_test(
    (values,), mean, permutation_type='samples', vectorized=True, n_resamples=_FLIPS, batch=4096, rng=seed
  )
  return float(min(1.0, found.pvalue))


def bootstrap_interval(differences: np.ndarray, seed: int = 0) -> tuple[float, float]:
  """95 % bootstrap interval of the mean of differences [seeds, languages], resampling both axes."""
  differences = np.asarray(differences, np.float64)
  random = np.random.default_rng(seed)
  rows, columns = differences.shape
  of_rows = random.multinomial(rows, np.full(rows, 1 / rows), _RESAMPLES) / rows
  of_columns = random.multinomial(columns, np.full(columns, 1 / columns), _RESAMPLES) / columns
  means = np.einsum('br,rc,bc->b', of_rows, differences, of_columns, optimize=True)
  low, high = np.quantile(means, [0.025, 0.975])
  return float(low), float(high)


def compare(ours: pd.DataFrame, theirs: pd.DataFrame) -> Comparison | None:
  """Our scores minus theirs, paired by seed and language; None if they have no pair.

  Args:
    ours: a row per seed, a column per language, 0 to 100.
    theirs: the same. Seeds and languages that the other lacks are excluded. If no seed is common to both, runs are
      paired in the order of their seeds, since seeds are exchangeable.
  """
  common = [seed for seed in ours.index if seed in theirs.index]
  if common:
    ours, theirs = ours.loc[common], theirs.loc[common]
  else:
    count = min(len(ours), len(theirs))
    ours, theirs = (runs.sort_index().iloc[:count].reset_index(drop=True) for runs in (ours, theirs))
  shared = [language for language in ours.columns if language in theirs.columns]
  differences = (ours[shared] - theirs[shared]).dropna(axis='columns').to_numpy()
  seeds, languages = differences.shape
  if not differences.size:
    return None
  low, high = bootstrap_interval(differences)
  p_languages = sign_flip_p(differences.mean(0)) if languages > 1 else None
  p_seeds = sign_flip_p(differences.mean(1)) if seeds > 1 else None
  return Comparison(float(differences.mean()), low, high, p_languages, p_seeds, languages, seeds)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
  """Holm's correction for several tests: the corrected p values in the same order; None stays None.

  If the corrected values are compared with a level, the probability of any false positive is at most that level.
  """
  there = sorted((p, index) for index, p in enumerate(p_values) if p is not None and not math.isnan(p))
  corrected: list[float | None] = [None] * len(p_values)
  largest = 0.0
  for rank, (p, index) in enumerate(there):
    largest = max(largest, min(1.0, p * (len(there) - rank)))
    corrected[index] = largest
  return corrected
