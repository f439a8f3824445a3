"""A score against a size, the width of the output embedding in the paper (Tables 4 and 8), fitted with uncertainty.

Two laws: `logarithmic`, score = a + b · log2(x), in which b is what a doubling brings; and `saturating`,
score = a − b · x^(−c), which ends at a. Both are fitted by weighted least squares to all runs. Standard errors come
from the covariance of the fit; intervals from a bootstrap over the seeds of each size, where there are several.

`results` of `analysis.json`:

    points          [{"x", "scores": [one a run], "mean", "deviation"}], by x; deviation null of one run
    laws            by name; null where there are too few sizes (2 and 3 are needed):
      parameters    by letter: {"value", "error", "low", "high"}; error from the covariance, low and high the 95 % of
                    the bootstrap; null where they cannot be had
      residual      weighted sum of squares
      aic           n · ln(residual / n) + 2k, with its correction for small n where n allows it; null of a fit that has
                    no residual, which is no evidence for a law
      curve         [{"x", "score", "low", "high"}] to draw
    better          name of the law with the lower AIC, or null
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import optimize

from rembert.analysis.context import AnalysisContext, AnalysisResult, Table
from rembert.analysis.correlation import interval
from rembert.analysis.files import Points, read_points

_EXPONENTS = np.geomspace(0.02, 8, 60)
_CURVE_POINTS = 41
_LARGEST_EXPONENT = 20.0


def logarithmic(x, a, b):
  """a + b · log2(x)."""
  return a + b * np.log2(x)


def saturating(x, a, b, c):
  """a − b · x^(−c)."""
  return a - b * x ** (-c)


LAWS: dict[str, tuple[Callable, str]] = {'logarithmic': (logarithmic, 'ab'), 'saturating': (saturating, 'abc')}


def fit_law(points: Points, law: str, *, samples: int = 1000, seed: int = 0) -> dict[str, Any] | None:
  """A law of `LAWS` fitted to points, as in `results`; None if there are fewer sizes than it has parameters.

  Each of the `samples` of the bootstrap draws, for each size, as many of its runs as there are; a size with one run
  always gives that. With no size of several runs there is no bootstrap.
  """
  function, letters = LAWS[law]
  if len(np.unique(points.x)) < len(letters):
    return None
  solve = _solve_logarithmic if law == 'logarithmic' else _solve_saturating
  values, errors = solve(points)
  residual = float((points.weight * (points.score - function(points.x, *values)) ** 2).sum())
  curve_x = np.geomspace(points.x.min(), points.x.max(), _CURVE_POINTS)
  drawn = _bootstrapped(points, solve, samples, seed)
  lines = np.stack([function(curve_x, *row) for row in drawn]) if len(drawn) else np.full((0, _CURVE_POINTS), np.nan)
  parameters = {}
  for number, (letter, value, error) in enumerate(zip(letters, values, errors, strict=True)):
    low, high = interval(drawn[:, number]) if len(drawn) else (None, None)
    error = float(error) if math.isfinite(error) else None
    parameters[letter] = {'value': float(value), 'error': error, 'low': low, 'high': high}
  curve = []
  for number, (x, score) in enumerate(zip(curve_x, function(curve_x, *values), strict=True)):
    low, high = interval(lines[:, number])
    curve.append({'x': float(x), 'score': float(score), 'low': low, 'high': high})
  aic = akaike(residual, len(points.x), len(letters), scale=float((points.weight * points.score**2).sum()))
  return {'parameters': parameters, 'residual': residual, 'aic': aic, 'curve': curve}


def akaike(residual: float, n: int, parameters: int, *, scale: float = 1.0) -> float | None:
  """AIC of a least-squares fit whose variance is fitted too, with Hurvich & Tsai's correction where n allows it.

  None where the residual is nothing but rounding at this scale: as many parameters as sizes fit anything.
  """
  if residual <= 1e-20 * max(scale, 1e-300):
    return None
  k = parameters + 1
  correction = 2 * k * (k + 1) / (n - k - 1) if n > k + 1 else 0.0
  return n * math.log(residual / n) + 2 * k + correction


def _linear(design_NxP: np.ndarray, points: Points) -> tuple[np.ndarray, float]:
  root = np.sqrt(points.weight)
  values = np.linalg.lstsq(design_NxP * root[:, None], points.score * root, rcond=None)[0]
  return values, float(((root * (points.score - design_NxP @ values)) ** 2).sum())


def _solve_logarithmic(points: Points) -> tuple[np.ndarray, np.ndarray]:
  design = np.stack([np.ones_like(points.x), np.log2(points.x)], 1)
  values, residual = _linear(design, points)
  free = len(points.x) - 2
  if free <= 0:
    return values, np.full(2, np.nan)
  covariance = np.linalg.inv(design.T @ (design * points.weight[:, None])) * residual / free
  return values, np.sqrt(np.diag(covariance))


def _solve_saturating(points: Points) -> tuple[np.ndarray, np.ndarray]:
  # In x / (its geometric mean) the three parameters are of one size, and a and b are linear for every c: the best of a
  # grid of c is where curve_fit begins.
  middle = np.exp(np.log(points.x).mean())
  x = points.x / middle

  def on_grid(exponent: float) -> tuple[float, tuple[float, float, float]]:
    (a, minus_b), residual = _linear(np.stack([np.ones_like(x), x**-exponent], 1), points)
    return residual, (a, -minus_b, exponent)

  _, start = min(map(on_grid, _EXPONENTS), key=lambda found: found[0])
  bounds = ([-np.inf, -np.inf, 1e-3], [np.inf, np.inf, _LARGEST_EXPONENT])
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', optimize.OptimizeWarning)  # no covariance: said by the NaN below
    try:
      (a, b, c), covariance = optimize.curve_fit(
        saturating, x, points.score, start, sigma=points.weight**-0.5, bounds=bounds, xtol=1e-12, ftol=1e-12, gtol=1e-12
      )
    except RuntimeError:  # no convergence: the grid's best is within 10 % of its exponent
      (a, b, c), covariance = start, np.full((3, 3), np.nan)
  # From b' = b · middle^(−c) back to b = b' · middle^c, and its error by the derivative.
  scale = middle**c
  gradient = np.array([[1, 0, 0], [0, scale, b * scale * math.log(middle)], [0, 0, 1]])
  with np.errstate(invalid='ignore'):
    errors = np.sqrt(np.diag(gradient @ covariance @ gradient.T))
  return np.array([a, b * scale, c]), errors


def _bootstrapped(points: Points, solve, samples: int, seed: int) -> np.ndarray:
  groups = [np.flatnonzero(points.x == x) for x in np.unique(points.x)]
  if all(len(group) == 1 for group in groups):
    return np.empty((0, 0))
  random = np.random.default_rng(seed)
  found = []
  for _ in range(samples):
    chosen = np.concatenate([random.choice(group, len(group)) for group in groups])
    found.append(solve(Points(points.x[chosen], points.score[chosen], points.weight[chosen]))[0])
  return np.array(found)


def results_of(points: Points, *, samples: int = 1000, seed: int = 0) -> dict[str, Any]:
  """All fits of some points; see the head of this file."""
  fits = {law: fit_law(points, law, samples=samples, seed=seed) for law in LAWS}
  aics = {law: fit['aic'] for law, fit in fits.items() if fit is not None and fit['aic'] is not None}
  by_size = []
  for x in np.unique(points.x):
    scores = points.score[points.x == x]
    deviation = float(scores.std(ddof=1)) if len(scores) > 1 else None
    by_size.append({'x': float(x), 'scores': scores.tolist(), 'mean': float(scores.mean()), 'deviation': deviation})
  return {'points': by_size, 'laws': fits, 'better': min(aics, key=lambda law: aics[law]) if len(aics) > 1 else None}


# --- the analysis -----------------------------------------------------------------------------------------------------


def run(context: AnalysisContext) -> AnalysisResult:
  """A file of sizes and scores, fitted; see the head of this file."""
  analyze = context.config.analyze
  analyze.require('points')
  points = read_points(analyze.points)
  with context.task('fitting'):
    results = results_of(points, samples=analyze.samples, seed=analyze.seed)
  remarks = []
  if results['better']:
    remarks.append(f'the {results["better"]} law has the lower AIC')
  if all(row['deviation'] is None for row in results['points']):
    remarks.append('one run of each size: there is no bootstrap')
  facts = {'points': str(analyze.points), 'runs': len(points.x), 'sizes': len(results['points'])}
  return AnalysisResult(results, facts, [_table(results['laws'])], remarks)


def _table(laws: Mapping[str, dict[str, Any] | None]) -> Table:
  rows = []
  for name, fit in laws.items():
    if fit is None:
      rows.append((name, 'too few sizes', '', '', ''))
      continue
    aic = '–' if fit['aic'] is None else f'{fit["aic"]:.1f}'
    for letter, found in fit['parameters'].items():
      between = '–' if found['low'] is None else f'{found["low"]:.4g} to {found["high"]:.4g}'
      error = '–' if found['error'] is None else f'{found["error"]:.2g}'
      is_first = letter == 'a'
      rows.append((f'{name} {letter}' if is_first else letter, f'{found["value"]:.4g}', error, between, aic * is_first))
  return Table('a + b · log₂ x, and a − b · x^(−c)', ('', 'value', 'error', '95 % of the bootstrap', 'AIC'), rows)
