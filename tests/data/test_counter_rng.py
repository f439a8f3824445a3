"""Random numbers by coordinates: equal to the published generator, and independent for close coordinates."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.data import counter_rng
from rembert.data.counter_rng import bits, distinct_bits, offsets, row_states, uniform

# A right generator exceeds five standard deviations once in two million draws, and the seeds are fixed.
SIGMAS = 5
UINT64 = 2**64


def mix(word):
  """SplitMix64's finaliser, in Python's integers."""
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % UINT64
  word = (word ^ (word >> 27)) * 0x94D049BB133111EB % UINT64
  return word ^ (word >> 31)


def output(state, number):
  """SplitMix64's output of that number, counted from 0, by stepping through those before it."""
  for _ in range(number + 1):
    state = (state + 0x9E3779B97F4A7C15) % UINT64
  return mix(state)


def test_the_numbers_are_splitmix64s():
  # Published outputs: https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64, seed 1234567.
  published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
  assert bits(np.array([1234567], np.uint64), offsets(np.arange(5))).tolist() == published
  assert [output(1234567, number) for number in range(5)] == published


@given(
  seed=st.integers(-(2**63), UINT64 - 1),
  stream=st.integers(0, 3),
  step=st.integers(0, 40),
  first_row=st.integers(0, 30),
  rows=st.integers(0, 5),
)
@settings(deadline=None, max_examples=50)
def test_a_row_is_a_leaf_of_the_tree_of_generators(seed, stream, step, first_row, rows):
  expected = []
  for row in range(first_row, first_row + rows):
    state = mix((seed + 1) % UINT64 * 0x9E3779B97F4A7C15 % UINT64)
    for coordinate in (stream, step, row):
      state = output(state, coordinate)
    expected.append(state)
  assert row_states(seed, stream, step, first_row, rows).tolist() == expected
  assert uniform(np.array([0, UINT64 - 1], np.uint64)).tolist() == [0.0, 1 - 2.0**-53]


def test_no_two_coordinates_share_a_state_nor_two_purposes_a_number():
  assert min(np.diff([counter_rng.CHOICE, counter_rng.KIND, counter_rng.REPLACEMENT])) >= 2**32
  coordinates = itertools.product(range(8), range(4), range(40))
  states = np.concatenate([row_states(*coordinate, 0, 40) for coordinate in coordinates])
  assert len(np.unique(states)) == 8 * 4 * 40 * 40


@pytest.mark.parametrize('count', [1, 63, 64, 65, 512])
def test_distinct_bits_are_distinct_and_know_their_column(count):
  numbers, column_bits = distinct_bits(row_states(0, 0, 0, 0, 50), 7, count), (1 << count.bit_length()) - 1
  np.testing.assert_array_equal(numbers & np.uint64(column_bits), np.tile(np.arange(count), (50, 1)))
  plain = bits(row_states(0, 0, 0, 0, 50)[:, None], offsets(7 + np.arange(count)))
  np.testing.assert_array_equal(numbers | np.uint64(column_bits), plain | np.uint64(column_bits))
  assert numbers.max() < UINT64 - 1


# --- statistics ------------------------------------------------------------------------------------------------------

# Coordinates as training uses them: many small ones, next to each other. Numbers [step, row, position].
STEPS, ROWS, POSITIONS = 32, 32, 128


@pytest.fixture(scope='module')
def numbers():
  states = np.stack([row_states(3, 1, step, 0, ROWS) for step in range(STEPS)])
  return bits(states[..., None], offsets(np.arange(POSITIONS)))


@pytest.mark.parametrize('axis', [0, 1, 2], ids=['steps', 'rows', 'positions'])
def test_neighbours_have_nothing_in_common(numbers, axis):
  first, second = numbers.swapaxes(0, axis)[:-1], numbers.swapaxes(0, axis)[1:]
  differing = np.bitwise_count(first ^ second)
  assert abs(differing.mean() - 32) < SIGMAS * 4 / np.sqrt(differing.size)
  assert abs(differing.var() - 16) < SIGMAS * 16 * np.sqrt(2 / differing.size)
  correlation = np.corrcoef(uniform(first).ravel(), uniform(second).ravel())[0, 1]
  assert abs(correlation) < SIGMAS / np.sqrt(first.size)
