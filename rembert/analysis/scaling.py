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

import csv
import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from etils import epath
from scipy import optimize

from rembert.analysis.correlation import interval
from rembert.errors import UsageError
from rembert.files import parsed_json

_EXPONENTS = np.geomspace(0.02, 8, 60)
_CURVE_POINTS = 41
_LARGEST_EXPONENT = 20.0


@dataclasses.dataclass(frozen=True)
class Points:
  """Runs: size, score, and how much each counts, [n] float64 each. A weight is 1 / variance, up to a factor."""

  x: np.ndarray
  score: np.ndarray
  weight: np.ndarray


@dataclasses.dataclass(frozen=True)
class Parameter:
  """A number that was fitted; None is not known."""

  value: float
  error: float | None = None
  low: float | None = None
  high: float | None = None


@dataclasses.dataclass(frozen=True)
class Fit:
  """A law fitted to points; see the head of this file. `curve` has rows of (x, score, low, high)."""

  parameters: Mapping[str, Parameter]
  residual: float
  aic: float | None
  curve: tuple[tuple[float, float, float | None, float | None], ...]


def logarithmic(x, a, b):
  """a + b · log2(x)."""
  return a + b * np.log2(x)


def saturating(x, a, b, c):
  """a − b · x^(−c)."""
  return a - b * x ** (-c)


LAWS: dict[str, tuple[Callable, str]] = {'logarithmic': (logarithmic, 'ab'), 'saturating': (saturating, 'abc')}


def fit_law(points: Points, law: str, *, samples: int = 1000, seed: int = 0) -> Fit | None:
  """A law of `LAWS` fitted to points; None where there are fewer sizes than it has parameters.

  Args:
    points: at least one.
    law: its name.
    samples: of the bootstrap. Every sample draws, for each size, as many of its runs as there are; sizes with one run
      always give that. With no size of several runs there is no bootstrap.
    seed: of the bootstrap.
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
  return Fit(
    parameters={
      letter: Parameter(float(value), _finite(error), *(interval(drawn[:, number]) if len(drawn) else (None, None)))
      for number, (letter, value, error) in enumerate(zip(letters, values, errors, strict=True))
    },
    residual=residual,
    aic=akaike(residual, len(points.x), len(letters), scale=float((points.weight * points.score**2).sum())),
    curve=tuple(
      (float(x), float(score), *interval(lines[:, number]))
      for number, (x, score) in enumerate(zip(curve_x, function(curve_x, *values), strict=True))
    ),
  )


def akaike(residual: float, n: int, parameters: int, *, scale: float = 1.0) -> float | None:
  """AIC of a least-squares fit whose variance is fitted too, with Hurvich & Tsai's correction where n allows it.

  None where the residual is nothing but rounding at this scale: as many parameters as sizes fit anything.
  """
  if residual <= 1e-20 * max(scale, 1e-300):
    return None
  k = parameters + 1
  correction = 2 * k * (k + 1) / (n - k - 1) if n > k + 1 else 0.0
  return n * math.log(residual / n) + 2 * k + correction


def better_law(fits: Mapping[str, Fit | None]) -> str | None:
  """The name of the law with the lowest AIC; None unless at least two have one."""
  known = {name: fit.aic for name, fit in fits.items() if fit is not None and fit.aic is not None}
  return min(known, key=lambda name: known[name]) if len(known) > 1 else None


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


def _finite(value: float) -> float | None:
  return float(value) if math.isfinite(value) else None


def results_of(points: Points, *, samples: int = 1000, seed: int = 0) -> dict:
  """All fits of some points as `results`; see the head of this file. For the report, too."""
  fits = {law: fit_law(points, law, samples=samples, seed=seed) for law in LAWS}
  grouped = [(float(x), points.score[points.x == x]) for x in np.unique(points.x)]
  as_row = lambda row: dict(zip(('x', 'score', 'low', 'high'), row, strict=True))
  return {
    'points': [
      {
        'x': x,
        'scores': scores.tolist(),
        'mean': float(scores.mean()),
        'deviation': float(scores.std(ddof=1)) if len(scores) > 1 else None,
      }
      for x, scores in grouped
    ],
    'laws': {
      name: fit and dataclasses.asdict(fit) | {'curve': [as_row(row) for row in fit.curve]}
      for name, fit in fits.items()
    },
    'better': better_law(fits),
  }


# --- files ------------------------------------------------------------------------------------------------------------

_COLUMNS = 'rows of x, score and, if known, the standard deviation of the score'


def read_points(path: epath.PathLike) -> Points:
  """Points of a CSV with or without a header (x, score[, deviation]), or of a JSON list of such rows or objects.

  Raises:
    UsageError: no such file, or a row that is none, with its line.
  """
  path = epath.Path(path)
  if not path.is_file():
    raise UsageError('there is no such file', where=str(path), fix=f'a CSV or JSON file, {_COLUMNS}')
  text = path.read_text()
  rows = _json_rows(text, path) if path.suffix == '.json' else _csv_rows(text, path)
  if not rows:
    raise UsageError('there are no points', where=str(path), fix=_COLUMNS)
  return points_of(rows)


def points_of(rows: Sequence[tuple[tuple[float, ...], str]]) -> Points:
  """Points of rows (x, score) or (x, score, deviation), each with where it stands; UsageError if one cannot be."""
  for (x, _, *deviation), where in rows:
    if x <= 0 or any(value <= 0 for value in deviation):
      raise UsageError('a size and a deviation are above 0', where=where, fix=_COLUMNS)
  if len({len(row) for row, _ in rows}) > 1:
    raise UsageError('rows with and without a deviation', where=rows[0][1], fix='a deviation in all rows, or in none')
  x, score, *deviation = np.array([row for row, _ in rows], np.float64).T
  return Points(x, score, np.power(deviation[0], -2) if deviation else np.ones_like(x))


def _json_rows(text: str, path) -> list[tuple[tuple[float, ...], str]]:
  content = parsed_json(text, path, fix=f'a list, {_COLUMNS}')
  if not isinstance(content, list):
    raise UsageError('not a list', where=f'{path}:1', fix=f'a list, {_COLUMNS}')
  found = []
  for number, row in enumerate(content, 1):
    where = f'{path}, row {number}'
    values = [row.get('x'), row.get('score'), row.get('deviation')] if isinstance(row, dict) else row
    values = [value for value in values if value is not None] if isinstance(values, list) else []
    found.append((_numbers(values, where), where))
  return found


def _csv_rows(text: str, path) -> list[tuple[tuple[float, ...], str]]:
  lines = text.splitlines()
  separator = next((sign for sign in '\t;' if any(sign in line for line in lines if not line.startswith('#'))), ',')
  found, has_header = [], False
  for number, cells in enumerate(csv.reader(lines, delimiter=separator), 1):
    where = f'{path}:{number}'
    if not any(cells) or cells[0].startswith('#'):
      continue
    if not found and not has_header and not _is_number(cells[0]):
      has_header = True
      continue
    found.append((_numbers(cells, where), where))
  return found


def _is_number(text) -> bool:
  try:
    return math.isfinite(float(text))
  except (TypeError, ValueError):
    return False


def _numbers(values: Sequence, where: str) -> tuple[float, ...]:
  if len(values) not in (2, 3) or not all(map(_is_number, values)):
    raise UsageError(f'{list(values)!r} is no point', where=where, fix=_COLUMNS)
  return tuple(map(float, values))
