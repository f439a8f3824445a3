"""Laws fitted to scores, beside the normal equations, a fine grid, and laws that are known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.analysis.files import Points
from rembert.analysis.scaling import fit_law, results_of

SIZES = np.repeat([128.0, 256, 768, 1536, 3072], 3)


def noisy(function, seed=0, deviation=0.3):
  random = np.random.default_rng(seed)
  weight = random.uniform(0.5, 2, len(SIZES))
  return Points(SIZES, function(SIZES) + deviation * random.standard_normal(len(SIZES)), weight)


def test_the_logarithmic_fit_solves_the_normal_equations():
  points = noisy(lambda x: 50 + 1.5 * np.log2(x))
  design = np.array([[1, math.log2(x)] for x in points.x])
  normal = design.T @ np.diag(points.weight) @ design
  expected = np.linalg.solve(normal, design.T @ np.diag(points.weight) @ points.score)
  residual = sum(w * (y - row @ expected) ** 2 for w, y, row in zip(points.weight, points.score, design, strict=True))
  errors = np.sqrt(np.diag(np.linalg.inv(normal)) * residual / (len(points.x) - 2))
  fit = fit_law(points, 'logarithmic', samples=5)
  for letter, value, error in zip('ab', expected, errors, strict=True):
    assert fit['parameters'][letter]['value'] == pytest.approx(value, rel=1e-9)
    assert fit['parameters'][letter]['error'] == pytest.approx(error, rel=1e-9)
  assert fit['residual'] == pytest.approx(residual)
  n, k = len(points.x), 3  # a, b and the variance
  assert fit['aic'] == pytest.approx(n * math.log(residual / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1))


def test_the_saturating_fit_is_the_best_of_a_fine_grid():
  points = noisy(lambda x: 72 - 90 * x**-0.6, deviation=0.05)
  fit = fit_law(points, 'saturating', samples=0)

  def residual_at(c):  # for a given c the law is linear
    design = np.stack([np.ones_like(points.x), -(points.x**-c)], 1)
    normal = design.T @ np.diag(points.weight) @ design
    a, b = np.linalg.solve(normal, design.T @ np.diag(points.weight) @ points.score)
    return float((points.weight * (points.score - a + b * points.x**-c) ** 2).sum()), a, b

  best, a, b, c = min((*residual_at(c), c) for c in np.arange(0.2, 1.5, 0.0005))
  assert fit['residual'] <= best * (1 + 1e-9)
  assert fit['parameters']['c']['value'] == pytest.approx(c, abs=1e-3)
  assert fit['parameters']['a']['value'] == pytest.approx(a, abs=1e-2)
  assert fit['parameters']['b']['value'] == pytest.approx(b, rel=1e-2)
  assert results_of(points, samples=0)['better'] == 'saturating'


@settings(deadline=None, max_examples=15)
@given(st.floats(20, 90), st.floats(5, 300), st.floats(0.1, 2))
def test_a_law_without_noise_is_found_again(a, b, c):
  points = Points(SIZES, a - b * SIZES**-c, np.ones_like(SIZES))
  fit = fit_law(points, 'saturating', samples=0)
  x, drawn = (np.array([row[name] for row in fit['curve']]) for name in ('x', 'score'))
  np.testing.assert_allclose(drawn, a - b * x**-c, atol=1e-4 * b)
  assert fit['parameters']['a']['low'] is None


def test_the_error_of_the_exponent_is_what_repeated_runs_scatter_by():
  law = lambda x: 75 - 60 * x**-0.5
  found = [fit_law(noisy(law, seed, 0.1), 'saturating', samples=0)['parameters']['b'] for seed in range(120)]
  scatter = np.std([parameter['value'] for parameter in found])
  assert np.median([parameter['error'] for parameter in found]) == pytest.approx(scatter, rel=0.5)


def test_the_bootstrap_draws_seeds_within_their_size():
  points = noisy(lambda x: 50 + 1.5 * np.log2(x))
  fit = fit_law(points, 'logarithmic', samples=200, seed=1)
  slope = fit['parameters']['b']
  assert slope['low'] < slope['value'] < slope['high']
  assert fit == fit_law(points, 'logarithmic', samples=200, seed=1)
  alike = Points(SIZES, 50 + np.log2(SIZES), np.ones_like(SIZES))  # the seeds of a size do not differ
  slope = fit_law(alike, 'logarithmic', samples=20)['parameters']['b']
  assert slope['low'] == pytest.approx(1)
  assert slope['high'] == pytest.approx(1)


def test_one_run_of_each_size_has_no_bootstrap_and_too_few_sizes_no_law():
  points = Points(np.array([128.0, 768, 3072]), np.array([68.1, 70.4, 71.1]), np.ones(3))  # Table 4, XNLI
  results = results_of(points)
  assert results['laws']['logarithmic']['parameters']['b']['low'] is None
  assert results['laws']['logarithmic']['parameters']['b']['value'] == pytest.approx(
    np.polyfit(np.log2(points.x), points.score, 1)[0]
  )
  assert results['laws']['saturating']['aic'] is None  # three parameters for three points
  assert results['better'] is None
  two = Points(points.x[:2], points.score[:2], np.ones(2))
  assert results_of(two)['laws']['saturating'] is None
  assert results_of(two)['laws']['logarithmic']['parameters']['b']['error'] is None


def test_the_curve_goes_through_the_sizes():
  fit = fit_law(noisy(lambda x: 1 + np.log2(x)), 'logarithmic', samples=9)
  assert fit['curve'][0]['x'] == pytest.approx(128)
  assert fit['curve'][-1]['x'] == pytest.approx(3072)
  assert all(row['low'] <= row['high'] for row in fit['curve'])
