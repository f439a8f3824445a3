"""Attention as it is written out, and its gradient, against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_reference import attention_with_gradients
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.model.attention import padding_mask
from rembert.model.einsum_attention import einsum_attention

TOLERANCE = 1e-5  # relative to the largest value of the reference
BFLOAT16_TOLERANCE = 2e-2  # the same, for products of 8-bit mantissas, one after the other

B, S, N, D = 2, 6, 3, 4  # of the fixture `qkv`


def assert_close(actual, reference):
  assert np.abs(np.asarray(actual, np.float64) - reference).max() <= TOLERANCE * np.abs(reference).max()


def reference(query, key, value, sees=None):
  return attention_with_gradients(query, key, value, np.zeros_like(query), sees)[0]


def test_attention_is_the_textbooks(qkv):
  assert_close(einsum_attention(*qkv), reference(*qkv))


def test_hidden_keys_are_left_out(qkv):
  mask = padding_mask(jnp.asarray([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]))
  assert_close(einsum_attention(*qkv, mask), reference(*qkv, mask))


def test_what_a_hidden_key_holds_is_not_felt_to_the_bit(qkv):
  mask = padding_mask(jnp.asarray([[1, 1, 1, 1, 0, 0], [1, 1, 0, 1, 1, 1]]))
  query, key, value = (x.copy() for x in qkv)
  before = einsum_attention(query, key, value, mask)
  for x in key, value:
    x[0, 4:], x[1, 2] = 1e4, -1e4
  np.testing.assert_array_equal(einsum_attention(query, key, value, mask), before)


def test_a_query_that_sees_nothing_gets_the_mean_of_the_values(qkv):
  mask = jnp.zeros((B, 1, S, S), bool)
  expected = np.broadcast_to(qkv[2].astype(np.float64).mean(1, keepdims=True), (B, S, N, D))
  assert_close(einsum_attention(*qkv, mask), expected)


def test_nothing_flows_to_what_a_query_that_sees_nothing_was_not_compared_with(qkv):
  mask = jnp.ones((B, 1, S, S), bool).at[0, :, 2].set(False)
  of_query_2 = lambda query, key, value: einsum_attention(query, key, value, mask)[0, 2, :, 0].sum()
  query_gradient, key_gradient, value_gradient = jax.grad(of_query_2, argnums=(0, 1, 2))(*map(jnp.asarray, qkv))
  assert not np.any(query_gradient)
  assert not np.any(key_gradient)
  np.testing.assert_allclose(value_gradient[0, ..., 0], np.full((S, N), 1 / S), rtol=1e-6)


def test_scores_too_large_for_bfloat16_sums_stay_finite(qkv):
  query, key, value = (jnp.asarray(100 * x, jnp.bfloat16) for x in qkv)
  output = einsum_attention(query, key, value, jnp.zeros((B, 1, S, S), bool).at[..., 0].set(True))
  assert output.dtype == jnp.bfloat16
  np.testing.assert_array_equal(output, jnp.broadcast_to(value[:, :1], value.shape))


def test_gradients_do_not_flow_to_hidden_keys(qkv):
  mask = padding_mask(jnp.asarray([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]]))
  gradients = jax.grad(lambda qkv: jnp.sum(einsum_attention(*qkv, mask) ** 2))(jnp.asarray(qkv))
  assert np.all(np.isfinite(gradients))
  assert not np.any(gradients[1:, 0, 3:])
  assert not np.any(gradients[1:, 1, 5:])
  assert np.all(np.any(gradients[1:, 0, :3], axis=(-1, -2)))


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_of_the_weights_one_array_is_kept_for_the_gradient(qkv, dtype):
  _, pull_back = jax.vjp(einsum_attention, *(jnp.asarray(x, dtype) for x in qkv))
  weights = [x for x in jax.tree.leaves(pull_back) if x.size == B * N * S * S]
  assert [x.dtype for x in weights] == [dtype]


def test_dropout_removes_weights_and_scales_up_the_rest():
  # With the identity as values, the output is the attention weights themselves.
  query, key = (jnp.asarray(np.random.default_rng(i).standard_normal((1, 64, 1, 64)), jnp.float32) for i in (0, 1))
  identity = jnp.eye(64)[None, :, None, :]
  weights = np.asarray(einsum_attention(query, key, identity, dropout_rate=0.25))
  dropped = np.asarray(einsum_attention(query, key, identity, dropout_rate=0.25, dropout_key=jax.random.key(0)))
  kept = dropped != 0
  # 4,096 independent draws: within five standard deviations of their mean.
  assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 4096)
  np.testing.assert_allclose(dropped[kept], weights[kept] / 0.75, rtol=TOLERANCE)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('rate', [0.0, 0.4])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_values_and_gradients_are_those_of_the_chain_rule(dtype, rate, data):
  size = lambda name, *sizes: data.draw(st.sampled_from(sizes), label=name)
  rows, heads, depth = size('B', 1, 2), size('N', 1, 3), size('D', 2, 4, 16)
  queries, keys = size('K', 1, 2, 5, 16), size('S', 1, 2, 7, 16)
  random = np.random.default_rng(data.draw(st.integers(0, 9), label='seed'))
  shapes = [(rows, length, heads, depth) for length in (queries, keys, keys, queries)]
  query, key, value, cotangent = (jnp.asarray(random.standard_normal(shape), dtype) for shape in shapes)
  mask = None
  if data.draw(st.booleans(), label='masked'):
    mask = jnp.asarray(random.random((rows, 1, queries, keys)) < 0.6)
  dropout_key = jax.random.key(3)
  kept = np.asarray(nnx.Dropout(rate)(jnp.ones((rows, heads, queries, keys)), rngs=dropout_key), np.float64)

  @jax.jit
  def run(*qkv):
    attend = lambda *qkv: einsum_attention(*qkv, mask, dropout_rate=rate, dropout_key=dropout_key)
    output, pull_back = jax.vjp(attend, *qkv)
    return output, *pull_back(cotangent)

  expected = attention_with_gradients(query, key, value, cotangent, mask, kept)
  # Gradients of query and key may cancel out, as with one key. Rounding is relative to what there was before.
  slope = np.abs(cotangent).max() * np.abs(value).max() * kept.max()
  sizes = 0, slope * np.abs(key).max(), slope * np.abs(query).max(), 0
  tolerance = TOLERANCE if dtype == 'float32' else BFLOAT16_TOLERANCE
  for ours, theirs, least in zip(run(query, key, value), expected, sizes, strict=True):
    assert ours.dtype == dtype
    atol = tolerance * max(np.abs(theirs).max(), float(least))
    np.testing.assert_allclose(np.asarray(ours, np.float64), theirs, rtol=0, atol=atol)
