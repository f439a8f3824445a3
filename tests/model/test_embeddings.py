"""Input embeddings against NumPy, and the initialisation of tables."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

TOLERANCE = 1e-5  # relative to the largest value of the reference


def assert_close(actual, reference):
  assert np.abs(np.asarray(actual, np.float64) - reference).max() <= TOLERANCE * np.abs(reference).max()


@pytest.fixture(scope='module')
def ids(tiny):
  return np.random.default_rng(1).integers(0, tiny.vocab_size, (3, 7)).astype(np.int32)


def reference(parameters, ids, types, positions, epsilon):
  x = parameters['word']['embedding'][ids]
  x = x + parameters['position']['embedding'][positions] + parameters['token_type']['embedding'][types]
  x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
  return x * parameters['norm']['scale'] + parameters['norm']['bias']


def test_word_position_and_type_are_summed_and_normalised(tiny, tiny_model, parameters, ids):
  random = np.random.default_rng(2)
  types = random.integers(0, tiny.type_vocab_size, ids.shape)
  positions = random.integers(0, tiny.max_position_embeddings, ids.shape)
  embeddings = tiny_model.encoder.embeddings
  x = embeddings(jnp.asarray(ids), jnp.asarray(types), jnp.asarray(positions))
  assert x.shape == (*ids.shape, tiny.input_embedding_size)
  assert_close(x, reference(parameters(embeddings), ids, types, positions, tiny.layer_norm_eps))


def test_by_default_all_is_the_first_text_and_positions_count_from_zero(tiny, tiny_model, parameters, ids):
  embeddings = tiny_model.encoder.embeddings
  expected = reference(parameters(embeddings), ids, np.zeros_like(ids), np.arange(7)[None], tiny.layer_norm_eps)
  assert_close(embeddings(jnp.asarray(ids)), expected)


def test_dropout_needs_a_key(tiny, build, ids):
  config = dataclasses.replace(tiny, hidden_dropout_prob=0.5)
  embeddings = build(config).encoder.embeddings
  without = np.asarray(embeddings(jnp.asarray(ids)))
  dropped = np.asarray(embeddings(jnp.asarray(ids), dropout_key=jax.random.key(0)))
  again = np.asarray(embeddings(jnp.asarray(ids), dropout_key=jax.random.key(0)))
  assert np.all(without != 0)
  np.testing.assert_array_equal(dropped, again)
  kept = dropped != 0
  assert 0.4 < kept.mean() < 0.6
  np.testing.assert_allclose(dropped[kept], 2 * without[kept], rtol=TOLERANCE)
