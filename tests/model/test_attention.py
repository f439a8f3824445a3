"""Attention against NumPy in float64: values and gradients, masks, dropout."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from encoder_values import TOLERANCE, assert_close, run
from flax import nnx

from rembert.kernels import cpu
from rembert.model.attention import Visibility, attention

BFLOAT16_TOLERANCE = 2e-2  # as `TOLERANCE`, for products of 8-bit mantissas, one after the other

B, S, N, D = 2, 6, 3, 4  # of the fixture `qkv`
either_way = pytest.mark.parametrize('attend', [attention, cpu.attention], ids=['plain', 'cpu'])


# --- masks ----------------------------------------------------------------------------------------


def test_a_padding_mask_hides_keys_from_every_query_and_head():
  attention_mask = jnp.asarray([[1, 1, 0], [1, 0, 0]])
  visibility = Visibility.of(attention_mask, None)
  np.testing.assert_array_equal(visibility.mask, np.array([[[[True, True, False]]], [[[True, False, False]]]]))
  np.testing.assert_array_equal(visibility.segment_ids_BxS, attention_mask)  # what fused kernels use
  assert Visibility.of(None, None) == Visibility()


def test_tokens_see_their_own_segment_and_no_padding():
  segments = np.array([[1, 1, 2, 3, 0, 0], [2, 1, 1, 4, 4, 4], [0, 0, 0, 0, 0, 1]])
  visibility = Visibility.of(jnp.zeros_like(segments), jnp.asarray(segments))  # segments take precedence
  for row, query, key in np.ndindex(3, 6, 6):
    sees = segments[row, query] == segments[row, key] > 0
    assert visibility.mask[row, 0, query, key] == sees
  np.testing.assert_array_equal(visibility.segment_ids_BxS, segments)


# --- the function ---------------------------------------------------------------------------------


@either_way
def test_a_hidden_key_does_not_change_a_bit(attend, qkv):
  visibility = Visibility.of(jnp.asarray([[1, 1, 1, 1, 0, 0], [1, 1, 0, 1, 1, 1]]), None)
  query, key, value = (x.copy() for x in qkv)
  before = attend(query, key, value, visibility)
  for x in key, value:
    x[0, 4:], x[1, 2] = 1e4, -1e4
  np.testing.assert_array_equal(attend(query, key, value, visibility), before)


@either_way
def test_a_query_that_sees_nothing_gets_the_mean_of_the_values_and_is_not_compared_with_keys(attend, qkv):
  visibility = Visibility(jnp.ones((B, 1, S, S), bool).at[0, :, 2].set(False))
  of_query_2 = lambda query, key, value: attend(query, key, value, visibility)[0, 2, :, 0]
  (output, pull_back) = jax.vjp(jax.jit(of_query_2), *qkv)
  assert_close(output, qkv[2][0].astype(np.float64).mean(0)[:, 0])
  query_gradient, key_gradient, value_gradient = pull_back(jnp.ones(N))
  assert not np.any(query_gradient)
  assert not np.any(key_gradient)
  np.testing.assert_allclose(value_gradient[0, ..., 0], np.full((S, N), 1 / S), rtol=1e-6)


@either_way
def test_scores_too_large_for_bfloat16_sums_stay_finite(attend, qkv):
  query, key, value = (jnp.asarray(100 * x, jnp.bfloat16) for x in qkv)
  output = attend(query, key, value, Visibility(jnp.zeros((B, 1, S, S), bool).at[..., 0].set(True)))
  assert output.dtype == jnp.bfloat16
  np.testing.assert_array_equal(output, jnp.broadcast_to(value[:, :1], value.shape))


@either_way
def test_dropout_removes_weights_of_each_head_and_scales_up_the_rest(attend):
  # With the identity as values, the output is the attention weights themselves.
  query, key = (jnp.asarray(np.random.default_rng(i).standard_normal((1, 64, 2, 64)), jnp.float32) for i in (0, 1))
  identity = jnp.tile(jnp.eye(64)[None, :, None, :], (1, 1, 2, 1))
  weights = np.asarray(attend(query, key, identity, dropout_rate=0.25))
  dropped = np.asarray(attend(query, key, identity, dropout_rate=0.25, dropout_key=jax.random.key(0)))
  kept = dropped != 0
  # 8,192 independent draws: within five standard deviations of their mean.
  assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 8192)
  assert np.any(kept[:, :, 0] != kept[:, :, 1])
  np.testing.assert_allclose(dropped[kept], weights[kept] / 0.75, rtol=TOLERANCE)


transposed, swapped = (functools.partial(np.swapaxes, axis1=one, axis2=two) for one, two in ((-1, -2), (1, 2)))


def attention_with_gradients(query, key, value, cotangent, sees, kept):
  """By the chain rule in float64: output [B, K, N, D], and the gradients of the sum of its product with `cotangent`.

  A query that sees nothing gives every key the same weight. `sees` is bool, `kept` a factor of each weight, as dropout
  gives; both broadcast to [B, N, K, S].
  """
  query, key, value, cotangent = (swapped(np.asarray(x, np.float64)) for x in (query, key, value, cotangent))
  scale = query.shape[-1] ** -0.5
  scores = np.where(sees, scale * query @ transposed(key), np.finfo(np.float64).min)
  weights = np.exp(scores - scores.max(-1, keepdims=True))
  weights /= weights.sum(-1, keepdims=True)
  slopes = kept * (cotangent @ transposed(value))
  slopes = np.where(sees, weights * (slopes - (slopes * weights).sum(-1, keepdims=True)), 0)
  output, value_gradient = (kept * weights) @ value, transposed(kept * weights) @ cotangent
  gradients = scale * slopes @ key, scale * transposed(slopes) @ query, value_gradient
  return [swapped(x) for x in (output, *gradients)]


@pytest.mark.parametrize(
  ('dtype', 'rate', 'sizes'),  # B, N, D, K, S
  [('float32', 0.0, (2, 1, 16, 2, 1)), ('float32', 0.4, (2, 3, 4, 5, 7)), ('bfloat16', 0.4, (2, 3, 4, 5, 7))],
)
def test_values_and_gradients_are_those_of_the_chain_rule(dtype, rate, sizes):
  rows, heads, depth, queries, keys = sizes
  random = np.random.default_rng(0)
  shapes = [(rows, length, heads, depth) for length in (queries, keys, keys, queries)]
  query, key, value, cotangent = (jnp.asarray(random.standard_normal(shape), dtype) for shape in shapes)
  sees = random.random((rows, 1, queries, keys)) < 0.6
  dropout_key = jax.random.key(3)
  kept = np.asarray(nnx.Dropout(rate)(jnp.ones((rows, heads, queries, keys)), rngs=dropout_key), np.float64)
  expected = attention_with_gradients(query, key, value, cotangent, sees, kept)
  # Gradients of query and key may cancel out, as with one key. Rounding is relative to what there was before.
  slope = np.abs(cotangent).max() * np.abs(value).max() * kept.max()
  sizes = 0, slope * np.abs(key).max(), slope * np.abs(query).max(), 0
  tolerance = TOLERANCE if dtype == 'float32' else BFLOAT16_TOLERANCE
  attend = lambda *qkv: attention(*qkv, Visibility(jnp.asarray(sees)), dropout_rate=rate, dropout_key=dropout_key)
  output, pull_back = jax.vjp(jax.jit(attend), query, key, value)
  for ours, theirs, least in zip((output, *pull_back(cotangent)), expected, sizes, strict=True):
    assert ours.dtype == dtype
    atol = tolerance * max(np.abs(theirs).max(), float(least))
    np.testing.assert_allclose(np.asarray(ours, np.float64), theirs, rtol=0, atol=atol)


# --- the module -----------------------------------------------------------------------------------


def test_the_rate_of_dropout_is_that_of_attention(tiny, build):
  tiny = dataclasses.replace(tiny, num_hidden_layers=1)
  x = jnp.asarray(np.random.default_rng(1).standard_normal((2, 5, tiny.hidden_size)).astype(np.float32))

  def attended(dropout_key=None, **rates):
    graphdef, state = nnx.split(build(dataclasses.replace(tiny, **rates)).encoder.layers.attention)
    first = nnx.merge(graphdef, jax.tree.map(lambda leaf: leaf[0], nnx.to_pure_dict(state)))
    return np.asarray(run(first, x, dropout_key=dropout_key))

  key = jax.random.key(0)
  kept = attended(key, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.0)
  np.testing.assert_array_equal(kept, attended())
  dropped = attended(key, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
  assert np.abs(dropped - kept).max() > 1e-3
