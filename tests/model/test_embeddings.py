"""Input embeddings against NumPy, and the initialisation of tables."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rembert.model.config import RemBertConfig
from rembert.model.embeddings import layer_norm, vocabulary_initializer

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


def test_layer_norm_does_not_lose_a_small_variance_beside_a_large_mean(tiny):
  # E[x²] − E[x]² in float32 would be off by whole per cents here; the input's own rounding is 3e-5 of the spread.
  x = (1000 + np.random.default_rng(3).standard_normal((4, 64))).astype(np.float32)
  norm = layer_norm(tiny, 64, jnp.float32, nnx.Rngs(0))
  exact = x.astype(np.float64)
  exact = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(exact.var(-1, keepdims=True) + tiny.layer_norm_eps)
  assert np.abs(norm(x) - exact).max() <= 1e-4


def test_layer_norm_of_bfloat16_takes_its_statistics_in_float32(tiny):
  x = jnp.asarray(np.random.default_rng(4).standard_normal((8, 512)), jnp.bfloat16)
  y = layer_norm(tiny, 512, jnp.bfloat16, nnx.Rngs(0))(x)
  exact = np.asarray(x, np.float64)
  exact = (exact - exact.mean(-1, keepdims=True)) / exact.std(-1, keepdims=True)
  assert y.dtype == jnp.bfloat16
  # Half a unit in the last place of bfloat16: nothing is rounded but the result.
  assert np.all(np.abs(np.asarray(y, np.float64) - exact) <= 2**-8 * np.abs(exact) * (1 + TOLERANCE) + TOLERANCE)


def test_rows_that_pad_the_vocabulary_are_zero_and_the_others_do_not_depend_on_them(tiny):
  key = jax.random.key(0)
  table = vocabulary_initializer(tiny)(key, (tiny.padded_vocab_size, 18))
  assert not np.any(table[tiny.vocab_size :])
  assert np.all(np.any(table[: tiny.vocab_size], axis=1))


def test_tables_are_filled_with_a_normal_cut_at_two_sigma():
  config = RemBertConfig(vocab_size=5000, initializer_range=0.02)
  table = np.asarray(vocabulary_initializer(config)(jax.random.key(0), (5000, 64)))
  assert np.abs(table).max() <= 2 * 0.02
  # A standard normal cut at ±2 has the standard deviation 0.87962566; 320,000 draws are within 0.5 % of it.
  assert table.std() == pytest.approx(0.87962566 * 0.02, rel=5e-3)
  assert abs(table.mean()) < 4 * 0.0176 / np.sqrt(table.size)


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
