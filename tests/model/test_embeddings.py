"""Input embeddings against NumPy, and the initialisation of tables."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from encoder_values import TOLERANCE, assert_close, layer_norm


@pytest.fixture(scope='module')
def ids(tiny):
  return np.random.default_rng(1).integers(0, tiny.vocab_size, (3, 7)).astype(np.int32)


def test_word_position_and_type_are_summed_and_normalised(tiny, tiny_model, parameters, ids):
  random = np.random.default_rng(2)
  types = random.integers(0, tiny.type_vocab_size, ids.shape)
  positions = random.integers(0, tiny.max_position_embeddings, ids.shape)
  embeddings = tiny_model.encoder.embeddings
  x = embeddings(jnp.asarray(ids), jnp.asarray(types), jnp.asarray(positions))
  assert x.shape == (*ids.shape, tiny.input_embedding_size)
  p = parameters(embeddings)
  word, position, token_type = (p[name]['embedding'] for name in ('word', 'position', 'token_type'))
  assert_close(x, layer_norm(word[ids] + position[positions] + token_type[types], p['norm'], tiny.layer_norm_eps))
  # By default all is the first text, and positions count from zero.
  by_default = layer_norm(word[ids] + position[:7] + token_type[0], p['norm'], tiny.layer_norm_eps)
  assert_close(embeddings(jnp.asarray(ids)), by_default)


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
