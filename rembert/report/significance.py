"""Whether one model is better than another: paired differences over languages and over seeds.

Two questions, two units. Over **languages**, with each language's scores averaged over the seeds: would it hold in
other languages, for these very models? Over **seeds**, with each seed's scores averaged over the languages: would it
hold if the models were trained again? Three seeds can never say yes to the second: of 2³ ways to flip signs, two are as
extreme as the most extreme, p = 0.25.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# Sign flips are all tried up to this many; beyond, that many are drawn.
_FLIPS = 1 << 16
_RESAMPLES = 10_000
LEVEL = 0.05


@dataclasses.dataclass(frozen=True)
class Comparison:
  """A model against another on one task, in points.

  Attributes:
    difference: the mean, over seeds and languages.
    low, high: the middle 95 % of it, where languages and seeds are both drawn again (bootstrap).
    p_languages: two-sided, of flipping the signs of the languages' differences; None for fewer than two.
    p_seeds: likewise of the seeds'.
    languages: pairs.
    seeds: pairs.
  """

  difference: float
  low: float
  high: float
  p_languages: float | None
  p_seeds: float | None
  languages: int
  seeds: int


def sign_flip_p(differences: Sequence[float], seed: int = 0) -> float:
  """Two-sided p of the mean of paired differences, were each as likely to have come out the other way round.

  Exact, from all 2ⁿ flips, up to 16 differences; from 65,536 drawn ones beyond. Nothing but zeros gives 1.

  Args:
    differences: one a pair.
    seed: of the drawn flips.

  Raises:
    ValueError: no differences, or one that is not finite.
  """
  from scipy import stats

  values = np.asarray(differences, np.float64)
  if not values.size or not np.isfinite(values).all():
    raise ValueError('a test needs finite differences, and at least one')
  if values.size == 1 or not values.any():
    return 1.0  # one flip of one value is as extreme as the other
  mean = lambda sample, axis: np.mean(sample, axis=axis)
  found = stats.permutation_test(
    (values,), mean, permutation_type='samples', vectorized=True, n_resamples=_FLIPS, batch=4096, rng=seed
  )
  return float(min(1.0, found.pvalue))


def bootstrap_interval(differences: np.ndarray, seed: int = 0) -> tuple[float, float]:
  """The middle 95 % of the mean of differences [seeds, languages], rows and columns both drawn with replacement."""
  differences = np.asarray(differences, np.float64)
  random = np.random.default_rng(seed)
  rows, columns = differences.shape
  of_rows = random.multinomial(rows, np.full(rows, 1 / rows), _RESAMPLES) / rows
  of_columns = random.multinomial(columns, np.full(columns, 1 / columns), _RESAMPLES) / columns
  means = np.einsum('br,rc,bc->b', of_rows, differences, of_columns, optimize=True)
  low, high = np.quantile(means, [0.025, 0.975])
  return float(low), float(high)


def compare(ours: Mapping[Any, Mapping[str, float]], theirs: Mapping[Any, Mapping[str, float]]) -> Comparison | None:
  """Our scores less theirs, paired by seed and language; None if they have no pair.

  Args:
    ours: seed to language to score, 0 to 100.
    theirs: likewise. Seeds and languages that the other lacks are left out. Where no seed is common to both, but each
      has some, they are paired in their order: seeds are exchangeable.
  """
  pairs = _pairs(ours, theirs)
  languages = [
    language for language in next(iter(ours.values()), {}) if all(language in a and language in b for a, b in pairs)
  ]
  if not pairs or not languages:
    return None
  differences = np.array([[a[language] - b[language] for language in languages] for a, b in pairs])
  low, high = bootstrap_interval(differences)
  p_of = lambda axis: sign_flip_p(differences.mean(axis)) if differences.shape[1 - axis] > 1 else None
  return Comparison(float(differences.mean()), low, high, p_of(0), p_of(1), len(languages), len(pairs))


def _pairs(ours, theirs) -> list[tuple[Mapping[str, float], Mapping[str, float]]]:
  common = [seed for seed in ours if seed in theirs]
  if common:
    return [(ours[seed], theirs[seed]) for seed in common]
  in_order = lambda runs: [runs[seed] for seed in sorted(runs, key=repr)]
  return list(zip(in_order(ours), in_order(theirs), strict=False))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
  """Holm's correction: p of each when all are asked at once; in the same order, None stays None.

  The chance of a single false alarm among them is at most the level that the corrected values are held against.
  """
  there = sorted((p, index) for index, p in enumerate(p_values) if p is not None and not math.isnan(p))
  corrected: list[float | None] = [None] * len(p_values)
  largest = 0.0
  for rank, (p, index) in enumerate(there):
    largest = max(largest, min(1.0, p * (len(there) - rank)))
    corrected[index] = largest
  return corrected
