"""Laws fitted to scores, beside the normal equations, a fine grid, and laws that are known."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.analysis.scaling import Points, fit_law, read_points, results_of
from rembert.errors import UsageError

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
    assert fit.parameters[letter].value == pytest.approx(value, rel=1e-9)
    assert fit.parameters[letter].error == pytest.approx(error, rel=1e-9)
  assert fit.residual == pytest.approx(residual)
  n, k = len(points.x), 3  # a, b and the variance
  assert fit.aic == pytest.approx(n * math.log(residual / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1))


def test_the_saturating_fit_is_the_best_of_a_fine_grid():
  points = noisy(lambda x: 72 - 90 * x**-0.6, deviation=0.05)
  fit = fit_law(points, 'saturating', samples=0)

  def residual_at(c):  # for a given c the law is linear
    design = np.stack([np.ones_like(points.x), -(points.x**-c)], 1)
    normal = design.T @ np.diag(points.weight) @ design
    a, b = np.linalg.solve(normal, design.T @ np.diag(points.weight) @ points.score)
    return float((points.weight * (points.score - a + b * points.x**-c) ** 2).sum()), a, b

  best, a, b, c = min((*residual_at(c), c) for c in np.arange(0.2, 1.5, 0.0005))
  assert fit.residual <= best * (1 + 1e-9)
  assert fit.parameters['c'].value == pytest.approx(c, abs=1e-3)
  assert fit.parameters['a'].value == pytest.approx(a, abs=1e-2)
  assert fit.parameters['b'].value == pytest.approx(b, rel=1e-2)
  assert results_of(points, samples=0)['better'] == 'saturating'


@settings(deadline=None, max_examples=15)
@given(st.floats(20, 90), st.floats(5, 300), st.floats(0.1, 2))
def test_a_law_without_noise_is_found_again(a, b, c):
  points = Points(SIZES, a - b * SIZES**-c, np.ones_like(SIZES))
  fit = fit_law(points, 'saturating', samples=0)
  drawn = np.array([row[1] for row in fit.curve])
  x = np.array([row[0] for row in fit.curve])
  np.testing.assert_allclose(drawn, a - b * x**-c, atol=1e-4 * b)
  assert fit.parameters['a'].low is None


def test_the_error_of_the_exponent_is_what_repeated_runs_scatter_by():
  law = lambda x: 75 - 60 * x**-0.5
  found = [fit_law(noisy(law, seed, 0.1), 'saturating', samples=0).parameters['b'] for seed in range(120)]
  scatter = np.std([parameter.value for parameter in found])
  assert np.median([parameter.error for parameter in found]) == pytest.approx(scatter, rel=0.5)


def test_the_bootstrap_draws_seeds_within_their_size():
  points = noisy(lambda x: 50 + 1.5 * np.log2(x))
  fit = fit_law(points, 'logarithmic', samples=200, seed=1)
  slope = fit.parameters['b']
  assert slope.low < slope.value < slope.high
  assert fit == fit_law(points, 'logarithmic', samples=200, seed=1)
  alike = Points(SIZES, 50 + np.log2(SIZES), np.ones_like(SIZES))  # the seeds of a size do not differ
  slope = fit_law(alike, 'logarithmic', samples=20).parameters['b']
  assert slope.low == pytest.approx(1)
  assert slope.high == pytest.approx(1)


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


@pytest.mark.parametrize(
  ('name', 'text'),
  [
    ('p.csv', '128,68.1\n768,70.4\n768,70.6\n'),
    ('p.csv', '# runs; seeds\nE_out,XNLI\n128,68.1\n\n768,70.4\n768,70.6\n'),
    ('p.tsv', '128\t68.1\n768\t70.4\n768\t70.6\n'),
    ('p.json', '[[128, 68.1], [768, 70.4], [768, 70.6]]'),
    ('p.json', '[{"x": 128, "score": 68.1}, {"x": 768, "score": 70.4}, {"x": 768, "score": 70.6}]'),
  ],
)
def test_files_of_each_form_give_the_same_points(tmp_path, name, text):
  (tmp_path / name).write_text(text)
  points = read_points(tmp_path / name)
  assert points.x.tolist() == [128, 768, 768]
  assert points.score.tolist() == [68.1, 70.4, 70.6]
  assert points.weight.tolist() == [1, 1, 1]


def test_a_deviation_becomes_a_weight(tmp_path):
  (tmp_path / 'p.json').write_text(json.dumps([{'x': 1, 'score': 2, 'deviation': 0.5}]))
  assert read_points(tmp_path / 'p.json').weight.tolist() == [4]


@pytest.mark.parametrize(
  ('name', 'text', 'what', 'where'),
  [
    ('p.csv', '128,68\n768\n', 'is no point', 'p.csv:2'),
    ('p.csv', '128,68\n768,many\n', 'is no point', 'p.csv:2'),
    ('p.csv', '128,68\n-1,70\n', 'above 0', 'p.csv:2'),
    ('p.csv', '128,68\n768,70,0.1\n', 'with and without', 'p.csv:1'),
    ('p.csv', 'x,score\n', 'no points', 'p.csv'),
    ('p.json', '[[1,\n2', 'not JSON', 'p.json:2'),
    ('p.json', '{"x": 1}', 'not a list', 'p.json'),
    ('p.json', '[[1, 2], {"x": 3}]', 'is no point', 'row 2'),
  ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path, name, text, what, where):
  (tmp_path / name).write_text(text)
  with pytest.raises(UsageError, match=what) as caught:
    read_points(tmp_path / name)
  assert where in caught.value.where


def test_the_curve_goes_through_the_sizes():
  fit = fit_law(noisy(lambda x: 1 + np.log2(x)), 'logarithmic', samples=9)
  assert fit.curve[0][0] == pytest.approx(128)
  assert fit.curve[-1][0] == pytest.approx(3072)
  assert all(low <= high for _, _, low, high in fit.curve)
