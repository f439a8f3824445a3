"""Tables as clouds of points, beside plain NumPy in float64."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.analysis import spectra

TOLERANCE = 1e-9


def random_table(rows=60, width=7, seed=0):
  """Directions of very different length, and a mean that is not zero."""
  random = np.random.default_rng(seed)
  return (random.standard_normal((rows, width)) * np.logspace(0, -5, width) + 0.3).astype(np.float32)


@pytest.fixture(params=[1, 1 << 27], ids=['in blocks', 'at once'], autouse=True)
def blocks(request, monkeypatch):
  monkeypatch.setattr(spectra, '_BLOCK_BYTES', request.param)


@pytest.mark.parametrize('shape', [(60, 7), (7, 7), (4, 7), (1, 3)])
def test_singular_values_are_those_of_the_whole_table(shape):
  table = random_table(*shape)
  values, vectors = spectra.singular_vectors(table)
  expected = np.linalg.svd(table.astype(np.float64), compute_uv=False)
  np.testing.assert_allclose(values, expected, rtol=1e-7, atol=1e-14)  # the small ones too
  np.testing.assert_allclose(vectors @ vectors.T, np.eye(len(values)), atol=TOLERANCE)


def test_effective_rank_and_participation_ratio_follow_their_definitions():
  values = np.array([3.0, 1.0, 0.5, 0.0])
  entropy = -sum(p * math.log(p) for p in (3 / 4.5, 1 / 4.5, 0.5 / 4.5))
  assert spectra.effective_rank(values) == pytest.approx(math.exp(entropy))
  assert spectra.participation_ratio(values) == pytest.approx((9 + 1 + 0.25) ** 2 / (81 + 1 + 0.0625))


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 9), st.integers(1, 40), st.floats(0.01, 100))
def test_even_directions_are_all_counted_and_scale_does_not_matter(width, copies, scale):
  table = np.concatenate([np.eye(width), -np.eye(width)] * copies) * scale
  found = spectra.spectrum(table, pairs=10)
  assert found['effective_rank'] == pytest.approx(width)
  assert found['participation_ratio'] == pytest.approx(width)
  assert found['common_share'] == pytest.approx(0, abs=TOLERANCE)
  assert sum(found['singular_values']) == pytest.approx(1)


def test_isotropy_is_the_ratio_of_the_partition_function():
  table = random_table().astype(np.float64)
  _, _, vectors = np.linalg.svd(table, full_matrices=False)
  z = [sum(math.exp(direction @ row) for row in table) for one in vectors for direction in (one, -one)]
  assert spectra.isotropy(table, vectors) == pytest.approx(min(z) / max(z), rel=TOLERANCE)
  assert spectra.isotropy(1000 * table, vectors) >= 0  # no overflow
  assert spectra.isotropy(np.concatenate([np.eye(4), -np.eye(4)]), np.eye(4)) == pytest.approx(1)


def test_mean_cosine_is_that_of_all_pairs_of_different_rows():
  table = random_table(rows=12).astype(np.float64)
  table[3] = 0
  unit = [row / np.linalg.norm(row) for row in table if row.any()]
  expected = np.mean([a @ b for i, a in enumerate(unit) for j, b in enumerate(unit) if i != j])
  assert spectra.mean_cosine(table, pairs=20_000, seed=1) == pytest.approx(expected, abs=0.02)
  assert spectra.mean_cosine(np.ones((5, 3)), pairs=10) == pytest.approx(1)
  assert math.isnan(spectra.mean_cosine(np.zeros((5, 3)), pairs=10))


def test_the_share_of_the_mean_vector():
  table = random_table().astype(np.float64)
  expected = len(table) * (table.mean(0) ** 2).sum() / (table**2).sum()
  assert spectra.spectrum(table, pairs=10)['common_share'] == pytest.approx(expected)


def test_norms_by_frequency_are_means_over_classes():
  lengths = np.arange(1.0, 9)
  counts = np.array([0, 0, 1, 2, 3, 4, 7, 9])
  found = [tuple(row.values()) for row in spectra.norms_by_frequency(lengths, counts)]
  assert found == [(0, 1, 2, 1.5), (1, 2, 1, 3.0), (2, 4, 2, 4.5), (4, 8, 2, 6.5), (8, 16, 1, 8.0)]
  assert sum(row[2] for row in found) == len(lengths)


def test_norms_of_nothing_are_none():
  table = random_table()
  lengths = spectra.row_norms(table)
  np.testing.assert_allclose(lengths, [math.sqrt(sum(float(x) ** 2 for x in row)) for row in table], rtol=1e-12)
  assert spectra.norms(lengths[:0]) is None
  assert spectra.norms(lengths)['quantiles'][2] == pytest.approx(np.median(lengths))
