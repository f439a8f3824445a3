"""Translations by layer, beside loops over all pairs in float64; means of layers, beside each sentence alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rembert
from rembert.analysis import layer_retrieval
from rembert.analysis.layer_retrieval import layer_means
from rembert.inference.embed import embed_lines
from rembert.jobs.predict import text_encoder

TOLERANCE = 1e-5
LINES = ['der Fluss', 'die Stadt und das Meer', 'in', 'der Fluss fließt durch die Stadt und in das Meer']


def plain_nearest(queries, targets):
  """One by one: the first of the targets with the smallest Σ (q − t)²."""
  found = []
  for query in queries.astype(np.float64):
    distances = [((query - target) ** 2).sum() for target in targets.astype(np.float64)]
    found.append(distances.index(min(distances)))
  return found


def plain_accuracy(source, target, gold):
  source, target = source.astype(np.float64), target.astype(np.float64)
  shift = np.mean([target[gold[i]] - source[i] for i in range(len(source))], axis=0)
  return 100 * np.mean([plain_nearest((source[i] + shift)[None], target)[0] == gold[i] for i in range(len(source))])


def random_sides(seed, sources=41, targets=41, width=7):
  """Sides that have enough to do with each other for some to be found."""
  random = np.random.default_rng(seed)
  target = random.standard_normal((targets, width)).astype(np.float32)
  gold = random.permutation(targets)[:sources]
  source = target[gold] + 0.9 * random.standard_normal((sources, width)).astype(np.float32) + 3
  return source, target, gold


@pytest.mark.parametrize('block_bytes', [1, 1000, 1 << 26])
def test_the_nearest_are_those_of_a_loop_whatever_the_blocks(monkeypatch, block_bytes):
  monkeypatch.setattr(layer_retrieval, '_BLOCK_BYTES', block_bytes)
  source, target, _ = random_sides(0, sources=30, targets=53)
  assert layer_retrieval.nearest(source, target).tolist() == plain_nearest(source, target)


@pytest.mark.parametrize('seed', range(4))
def test_accuracy_is_that_of_a_loop_in_both_directions(seed):
  source, target, gold = random_sides(seed, sources=31)
  expected = plain_accuracy(source, target, gold)
  assert 0 < expected < 100
  assert layer_retrieval.translation_accuracy(source, target, gold) == pytest.approx(expected, abs=1e-12)
  # The other way: the aligned targets ask among the sources.
  aligned = target[gold]
  reverse = plain_accuracy(aligned, source, np.arange(len(source)))
  assert layer_retrieval.reverse_accuracy(source, target, gold) == pytest.approx(reverse, abs=1e-12)


def test_of_equally_near_targets_the_first_is_taken():
  targets = np.array([[2.0, 0], [0, 1], [0, -1], [0, 1]])
  assert layer_retrieval.nearest(np.zeros((1, 2)), targets).tolist() == [1]
  copies = np.repeat(np.random.default_rng(0).standard_normal((9, 33)), 5, axis=0)
  assert layer_retrieval.nearest(copies, copies).tolist() == [5 * (row // 5) for row in range(45)]


def test_far_from_the_origin_nothing_is_lost_to_rounding():
  random = np.random.default_rng(1)
  targets = 1e4 + 1e-3 * random.standard_normal((60, 16))
  queries = targets + 1e-4 * random.standard_normal((60, 16))
  assert layer_retrieval.nearest(queries, targets).tolist() == plain_nearest(queries, targets)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.integers(2, 30), st.floats(-50, 50))
def test_a_constant_shift_is_undone(seed, count, shift):
  # Whole numbers, so that source + mean difference is the target itself.
  source = np.random.default_rng(seed).integers(-100, 100, (count, 5)).astype(np.float64)
  source = np.unique(source, axis=0)
  assert layer_retrieval.translation_accuracy(source, source + round(shift)) == 100
  assert layer_retrieval.reverse_accuracy(source, source + round(shift)) == 100


def test_layers_are_judged_one_by_one():
  sides = [random_sides(seed) for seed in range(3)]
  gold = sides[0][2]
  source, target = (np.stack([side[index] for side in sides]) for index in (0, 1))
  told = []
  forward, reverse = layer_retrieval.accuracy_by_layer(source, target, gold, with_reverse=True, on_progress=told.append)
  assert forward == [layer_retrieval.translation_accuracy(source[layer], target[layer], gold) for layer in range(3)]
  assert reverse == [layer_retrieval.reverse_accuracy(*pair, gold) for pair in zip(source, target, strict=True)]
  assert told == [1 / 3, 2 / 3, 1]
  assert layer_retrieval.accuracy_by_layer(source, target)[1] is None


# --- vectors of all layers --------------------------------------------------


@pytest.fixture
def model(saved_with_vocabulary):
  return rembert.load(saved_with_vocabulary)


def test_means_are_over_the_pieces_between_cls_and_sep(model):
  encoder = text_encoder(model)
  vectors, cut = layer_means(model, encoder, LINES, batch_size=3)
  assert vectors.shape == (4, len(LINES), 32)
  assert cut == 0
  for number, line in enumerate(LINES):
    ids = np.array([encoder.encode(line)])
    states = np.asarray(model(ids, output_hidden_states=True).hidden_states, np.float64)  # no padding at all
    np.testing.assert_allclose(vectors[:, number], states[:, 0, 1:-1].mean(1), atol=TOLERANCE * np.abs(states).max())


def test_each_layer_is_that_of_the_embeddings_of_lines(model):
  vectors, _ = layer_means(model, text_encoder(model), LINES)
  for layer in range(4):
    np.testing.assert_allclose(
      vectors[layer], embed_lines(model, text_encoder(model), LINES, layer=layer), rtol=1e-4, atol=1e-4
    )


def test_long_sentences_are_cut_and_counted(model):
  vectors, cut = layer_means(model, text_encoder(model), ['Fluss ' * 60, 'Fluss'])
  assert cut == 1
  assert np.isfinite(vectors).all()
