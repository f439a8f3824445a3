"""Finding translations, compared with loops that follow the definitions pair by pair."""

import fractions

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from tasks.metrics import retrieval

TOLERANCE = 1e-5


def random_sides(seed=0, sources=57, targets=83, width=16):
  random = np.random.default_rng(seed)
  return random.standard_normal((sources, width)), random.standard_normal((targets, width))


def cosines(x, y):
  """One by one, in float64."""
  return np.array([[a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) for b in y] for a in x])


def plain_neighbours(similarity, k):
  return [sorted(range(len(row)), key=lambda j: (-row[j], j))[:k] for row in similarity]


# A few directions, on a grid, of exact length in binary: cosines are exact, and many are equal.
DIRECTIONS = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0.5, 0.5, 0.5, 0.5], [-0.5, 0.5, 0.5, 0.5], [0, 0, 0, 0]])


def plain_mining(similarity, k):
  """Artetxe & Schwenk's mining, in rational numbers: ({(source, target): score} by falling score)."""
  exact = [[fractions.Fraction(float(value)) for value in row] for row in similarity]
  columns = [list(column) for column in zip(*exact, strict=True)]
  near_x, near_y = plain_neighbours(exact, k), plain_neighbours(columns, k)
  mean_x = [sum(row[j] for j in near) / len(near) for row, near in zip(exact, near_x, strict=True)]
  mean_y = [sum(row[i] for i in near) / len(near) for row, near in zip(columns, near_y, strict=True)]
  margin = lambda i, j: 2 * exact[i][j] / (mean_x[i] + mean_y[j]) if mean_x[i] + mean_y[j] else 0
  proposals = [(margin(i, j), i, j) for i, near in enumerate(near_x) for j in [max(near, key=lambda j: margin(i, j))]]
  proposals += [(margin(i, j), i, j) for j, near in enumerate(near_y) for i in [max(near, key=lambda i: margin(i, j))]]
  taken_x, taken_y, pairs = set(), set(), {}
  for score, i, j in sorted(proposals, key=lambda proposal: -proposal[0]):
    if i not in taken_x and j not in taken_y:
      taken_x.add(i)
      taken_y.add(j)
      if score > 0:
        pairs[i, j] = float(score)
  return pairs


# --- neighbours ---------------------------------------------------------------


@pytest.mark.parametrize('block_bytes', [1, 4 * 7, 4 * 57 * 5, 1 << 20])
@pytest.mark.parametrize('k', [1, 4, 200])
def test_neighbours_are_those_of_the_full_table_whatever_the_blocks(block_bytes, k):
  x, y = random_sides()
  similarity = cosines(x, y)
  forward, backward = retrieval.nearest_neighbours(x, y, k, block_bytes=block_bytes)
  for found, table in (forward, similarity), (backward, similarity.T):
    expected = np.array(plain_neighbours(table, k))
    np.testing.assert_array_equal(found.indices, expected)
    np.testing.assert_allclose(found.similarity, np.take_along_axis(table, expected, 1), atol=TOLERANCE)


@settings(deadline=None, max_examples=60)
@given(
  st_numpy.arrays(np.int64, st.integers(1, 12), elements=st.integers(0, 4)),
  st_numpy.arrays(np.int64, st.integers(1, 12), elements=st.integers(0, 4)),
  st.integers(1, 5),
  st.sampled_from([1, 12, 40, 1 << 12]),
)
def test_of_equally_similar_ones_the_first_wins(sources, targets, k, block_bytes):
  x, y = DIRECTIONS[sources], DIRECTIONS[targets]
  forward, backward = retrieval.nearest_neighbours(x, y, k, block_bytes=block_bytes)
  assert forward.indices.tolist() == plain_neighbours(x @ y.T, k)
  assert backward.indices.tolist() == plain_neighbours(y @ x.T, k)


def test_more_sources_than_are_taken_at_once():
  x, y = random_sides(sources=2500, targets=30)
  similarity = retrieval.unit_length(x).astype(float) @ retrieval.unit_length(y).astype(float).T
  forward, backward = retrieval.nearest_neighbours(x, y, 3, block_bytes=1 << 15)
  np.testing.assert_array_equal(forward.indices, np.argsort(-similarity, 1)[:, :3])
  np.testing.assert_array_equal(backward.indices, np.argsort(-similarity.T, 1)[:, :3])


def test_length_does_not_matter_and_nothing_is_divided_by_zero():
  x, y = random_sides()
  scale = np.random.default_rng(1).uniform(0.01, 100, (len(x), 1))
  np.testing.assert_array_equal(retrieval.nearest(x, y), retrieval.nearest(x * scale, y))
  x[3] = 0
  forward, _ = retrieval.nearest_neighbours(x, y, 2)
  assert forward.indices[3].tolist() == [0, 1]
  assert forward.similarity[3].tolist() == [0, 0]


def test_progress_ends_at_all():
  told = []
  retrieval.nearest_neighbours(*random_sides(), 2, block_bytes=64, on_progress=told.append)
  assert told == sorted(told)
  assert told[-1] == 1


@pytest.mark.parametrize('broken', [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_refused(broken):
  x, y = random_sides()
  y[5, 0] = broken
  with (
    pytest.raises(ValueError, match='must be finite'),
    np.errstate(invalid='ignore'),
  ):
    retrieval.nearest(x, y)
  with pytest.raises(ValueError, match='one side has no embeddings'):
    retrieval.nearest(x, y[:0])


# --- mining -------------------------------------------------------------------


@pytest.mark.parametrize('seed', range(2))
def test_pairs_and_scores_are_those_of_the_plain_definition(seed):
  x, y = random_sides(seed, 40 + seed, 33)
  found = retrieval.mine(x, y, neighbours=4, block_bytes=4 * 40 * 8)
  expected = plain_mining(cosines(x, y), 4)
  assert list(zip(found.source.tolist(), found.target.tolist(), strict=True)) == list(expected)
  np.testing.assert_allclose(found.score, list(expected.values()), rtol=TOLERANCE)


# --- threshold ----------------------------------------------------------------


def f1_at(threshold, scores, is_gold, num_gold):
  taken = [gold for score, gold in zip(scores, is_gold, strict=True) if score >= threshold]
  return fractions.Fraction(2 * sum(taken), len(taken) + num_gold) if taken else fractions.Fraction(0)


@settings(deadline=None)
@given(
  st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=20),
  st.integers(0, 5),
)
def test_no_threshold_has_a_better_f1(pairs, missed):
  scores, is_gold = [score / 8 for score, _ in pairs], [gold for _, gold in pairs]
  num_gold = sum(is_gold) + missed
  chosen = retrieval.best_threshold(scores, is_gold, num_gold)
  if any(is_gold):
    assert f1_at(chosen, scores, is_gold, num_gold) == max(f1_at(at, scores, is_gold, num_gold) for at in scores)
  else:
    assert chosen == 0


@pytest.mark.parametrize(
  ('scores', 'is_gold', 'num_gold', 'threshold'),
  [
    ([1.5, 1.25, 1.0, 0.5], [True, True, False, True], 2, 1.125),
    ([0.5, 1.0, 1.5, 1.25], [True, False, True, True], 2, 1.125),  # pairs may come in any order
    ([1.5, 1.25], [True, True], 2, 1.25),  # all are taken
    ([np.nextafter(1.0, 2), 1.0], [True, False], 1, np.nextafter(1.0, 2)),  # between neighbouring numbers is none
  ],
)
def test_the_threshold_is_half_way_to_the_next_pair(scores, is_gold, num_gold, threshold):
  assert retrieval.best_threshold(scores, is_gold, num_gold) == threshold


def test_precision_recall_and_f1_of_sets_of_pairs():
  gold = {('a', 'x'), ('b', 'y'), ('c', 'z'), ('d', 'w')}
  mined = retrieval.score_pairs({('a', 'x'), ('b', 'z'), ('c', 'z')}, gold)
  f1 = 100 * 2 * (2 / 3) * 0.5 / (2 / 3 + 0.5)
  assert mined == pytest.approx({'precision': 100 * 2 / 3, 'recall': 50, 'f1': f1})
  assert retrieval.score_pairs(set(), gold) == {'precision': 0, 'recall': 0, 'f1': 0}
