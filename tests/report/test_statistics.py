"""Tests against every sign flip written out, and what must hold whatever the numbers."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.report.statistics import bootstrap_interval, compare, holm, sign_flip_p

# Multiples of a quarter: sums are exact, and equal ones are found equal.
DIFFERENCES = st.lists(st.integers(-40, 40).map(lambda n: n / 4), min_size=2, max_size=9)
P = st.one_of(st.none(), st.floats(0, 1))


def every_flip(differences):
  """Two-sided p by all 2ⁿ flips: twice the smaller of both tails, at most 1."""
  observed = sum(differences)
  sums = [
    sum(sign * value for sign, value in zip(signs, differences, strict=True))
    for signs in itertools.product((1, -1), repeat=len(differences))
  ]
  above = sum(total >= observed for total in sums) / len(sums)
  below = sum(total <= observed for total in sums) / len(sums)
  return min(1.0, 2 * min(above, below))


@settings(max_examples=25, deadline=None)
@given(DIFFERENCES)
def test_p_is_that_of_all_flips(differences):
  assert sign_flip_p(differences) == pytest.approx(every_flip(differences))


def test_p_of_few_differences_is_exact():
  assert sign_flip_p([5.0, 6.0, 7.0]) == 0.25  # three seeds can say no more
  assert sign_flip_p([0.0, 0.0, 0.0]) == sign_flip_p([3.0]) == 1.0
  sixteen = [1.0] * 15 + [-0.5]
  assert sign_flip_p(sixteen) == pytest.approx(every_flip(sixteen))


@pytest.mark.parametrize('differences', [[], [1.0, math.nan], [math.inf, 1.0]])
def test_what_cannot_be_tested_is_refused(differences):
  with pytest.raises(ValueError, match='finite'):
    sign_flip_p(differences)


def test_many_differences_are_flipped_at_random_and_reproducibly():
  random = np.random.default_rng(3)
  differences = random.normal(0.35, 1.0, 40)
  p = sign_flip_p(differences)
  assert p == sign_flip_p(differences)
  # Σ ± d is nearly normal here.
  z = differences.sum() / math.sqrt((differences**2).sum())
  assert p == pytest.approx(math.erfc(abs(z) / math.sqrt(2)), abs=0.01)


# --- the interval ------------------------------------------------------------


def test_the_interval_is_that_of_drawing_rows_and_columns_one_by_one():
  random = np.random.default_rng(0)
  differences = random.normal(1.0, 2.0, (3, 7))
  means = []
  for _ in range(10_000):
    rows, columns = random.integers(0, 3, 3), random.integers(0, 7, 7)
    means.append(np.mean([[differences[row, column] for column in columns] for row in rows]))
  assert bootstrap_interval(differences) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.06)


# --- two models --------------------------------------------------------------


def runs(by_seed):
  """A row per seed, a column per language."""
  return pd.DataFrame(by_seed).T


def test_models_are_paired_by_seed_and_language():
  ours = {(0, 0): {'de': 71.0, 'en': 82.0, 'sw': 50.0}, (0, 1): {'de': 73.0, 'en': 84.0, 'sw': 53.0}}
  theirs = {(0, 1): {'en': 80.0, 'de': 70.0}, (0, 0): {'en': 80.0, 'de': 70.0}, (0, 2): {'en': 0.0, 'de': 0.0}}
  found = compare(runs(ours), runs(theirs))
  assert found.difference == pytest.approx((1 + 2 + 3 + 4) / 4)
  assert (found.languages, found.seeds) == (2, 2)
  assert found.p_languages == every_flip([2.0, 3.0])
  assert found.p_seeds == every_flip([1.5, 3.5])
  assert found.low <= found.difference <= found.high


def test_seeds_that_only_one_model_has_are_left_out():
  ours = {(0, seed): {'en': 50.0 + seed, 'de': 40.0 + seed} for seed in (0, 1, 2)}
  theirs = {(0, seed): {'en': 50.0 - seed, 'de': 40.0 - seed} for seed in (1, 2, 3)}
  found = compare(runs(ours), runs(theirs))
  assert (found.difference, found.seeds) == (3.0, 2)  # 2 and 4; by rank it would be 1, 3 and 5


def test_seeds_of_other_names_are_paired_in_their_order():
  ours, theirs = {(0, 5): {'en': 3.0}, (0, 6): {'en': 5.0}}, {(0, 1): {'en': 1.0}, (0, 2): {'en': 2.0}}
  found = compare(runs(ours), runs(theirs))
  assert (found.difference, found.seeds) == (2.5, 2)
  assert found.p_languages is None  # one language is no sample of languages


def test_models_without_a_common_language_are_not_compared():
  assert compare(runs({(0, 0): {'en': 1.0}}), runs({(0, 0): {'de': 1.0}})) is None
  assert compare(runs({}), runs({(0, 0): {'de': 1.0}})) is None


# --- many comparisons --------------------------------------------------------


def holm_by_the_book(values):
  """Reject step by step: the level at which a value is first rejected, found value by value."""
  corrected = []
  for value in values:
    if value is None:
      corrected.append(None)
      continue
    there = sorted(p for p in values if p is not None)
    steps = [min(1.0, p * (len(there) - rank)) for rank, p in enumerate(there)]
    corrected.append(max(step for p, step in zip(there, steps, strict=True) if p <= value))
  return corrected


@given(st.lists(P, max_size=8, unique=True))
def test_holms_correction_is_the_step_down_rule(values):
  for found, expected in zip(holm(values), holm_by_the_book(values), strict=True):
    assert found == (None if expected is None else pytest.approx(expected))
  assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
