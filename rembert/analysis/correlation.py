"""Spearman's rank correlation with a bootstrap interval."""

import math
from typing import TypedDict

import numpy as np
from scipy import stats

_SAMPLES_AT_ONCE = 1 << 22  # numbers of resampled data that are alive at a time


class Correlation(TypedDict):
  """A rank correlation × 100; `rho` is None where one side is constant, or there are fewer than two points.

  `low` and `high` are the ends of its interval; None where there is none.
  """

  rho: float | None
  low: float | None
  high: float | None


NO_CORRELATION = Correlation(rho=None, low=None, high=None)


def spearman(x_N: np.ndarray, y_N: np.ndarray) -> float | None:
  """Spearman's ρ × 100, equal values having the mean of their ranks; None where a side does not vary."""
  if len(x_N) < 2 or np.ptp(x_N) == 0 or np.ptp(y_N) == 0:
    return None
  return 100 * float(stats.spearmanr(x_N, y_N).statistic)


def resampled(count: int, samples: int, seed: int) -> np.ndarray:
  """Indices of bootstrap samples, [samples, count]: drawn with replacement."""
  return np.random.default_rng(seed).integers(count, size=(samples, count))


def bootstrap_spearman(x_N: np.ndarray, y_N: np.ndarray, indices_SxN: np.ndarray) -> np.ndarray:
  """Spearman's ρ × 100 of each sample, [S]; NaN where a side does not vary in it."""
  found = []
  rows = max(1, _SAMPLES_AT_ONCE // max(1, len(x_N)))
  for start in range(0, len(indices_SxN), rows):
    chosen = indices_SxN[start : start + rows]
    ranks = [stats.rankdata(np.asarray(side)[chosen], axis=1) for side in (x_N, y_N)]
    x, y = (side - side.mean(1, keepdims=True) for side in ranks)
    with np.errstate(invalid='ignore', divide='ignore'):
      found.append((x * y).sum(1) / np.sqrt((x**2).sum(1) * (y**2).sum(1)))
  return 100 * np.concatenate(found) if found else np.empty(0)


def interval(values_S: np.ndarray, confidence: float = 0.95) -> tuple[float | None, float | None]:
  """The middle `confidence` of some values, NaN left out; None, None if nothing is left."""
  finite = np.asarray(values_S)[np.isfinite(values_S)]
  if not len(finite):
    return None, None
  low, high = np.percentile(finite, [50 * (1 - confidence), 50 * (1 + confidence)])
  return float(low), float(high)


def correlation(x_N: np.ndarray, y_N: np.ndarray, *, samples: int = 1000, seed: int = 0) -> Correlation:
  """Spearman's ρ × 100 with the 95 % interval of so many bootstrap samples over the points."""
  rho = spearman(x_N, y_N)
  if rho is None or not math.isfinite(rho):
    return NO_CORRELATION
  low, high = interval(bootstrap_spearman(x_N, y_N, resampled(len(x_N), samples, seed)))
  return Correlation(rho=rho, low=low, high=high)
