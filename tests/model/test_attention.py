"""Attention against NumPy in float64: values and gradients, who sees whom, dropout; and the module around it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_reference import attention_with_gradients
from encoder_values import assert_close
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.kernels import cpu
from rembert.model.attention import Visibility, attention, padding_mask, segment_mask

TOLERANCE = 1e-5  # relative to the largest value of the reference
BFLOAT16_TOLERANCE = 2e-2  # the same, for products of 8-bit mantissas, one after the other

B, S, N, D = 2, 6, 3, 4  # of the fixture `qkv`
either_way = pytest.mark.parametrize('attend', [attention, cpu.attention], ids=['plain', 'cpu'])


def reference(query, key, value, sees=None):
  return attention_with_gradients(query, key, value, np.zeros_like(query), sees)[0]


# --- who sees whom --------------------------------------------------------------------------------


def test_padding_mask_hides_keys_from_every_query_and_head():
  mask = padding_mask(jnp.asarray([[1, 1, 0], [1, 0, 0]]))
  assert mask.dtype == bool
  np.testing.assert_array_equal(mask, np.array([[[[True, True, False]]], [[[True, False, False]]]]))


@given(segments=st.lists(st.integers(0, 4), min_size=1, max_size=12))
@settings(deadline=None, max_examples=40)
def test_tokens_see_their_own_segment_and_no_padding(segments):
  mask = np.asarray(segment_mask(jnp.asarray([segments])))
  assert mask.shape == (1, 1, len(segments), len(segments))
  for query, key in np.ndindex(len(segments), len(segments)):
    assert mask[0, 0, query, key] == (segments[query] == segments[key] and segments[key] > 0)


def test_a_fused_kernel_is_told_of_padding_by_segments():
  mask = jnp.asarray([[1, 1, 0], [1, 0, 0]])
  np.testing.assert_array_equal(Visibility.of(mask, None).segment_ids_BxS, mask)
  segments = jnp.asarray([[1, 2, 0], [1, 1, 2]])
  np.testing.assert_array_equal(Visibility.of(mask, segments).segment_ids_BxS, segments)
  assert Visibility.of(None, None) == Visibility()


# --- the function ---------------------------------------------------------------------------------


@either_way
def test_attention_is_the_textbooks(attend, qkv):
  assert_close(attend(*qkv), reference(*qkv))


@either_way
def test_hidden_keys_are_left_out(attend, qkv):
  mask = padding_mask(jnp.asarray([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]))
  assert_close(attend(*qkv, Visibility(mask)), reference(*qkv, mask))


@either_way
def test_what_a_hidden_key_holds_is_not_felt_to_the_bit(attend, qkv):
  visibility = Visibility(padding_mask(jnp.asarray([[1, 1, 1, 1, 0, 0], [1, 1, 0, 1, 1, 1]])))
  query, key, value = (x.copy() for x in qkv)
  before = attend(query, key, value, visibility)
  for x in key, value:
    x[0, 4:], x[1, 2] = 1e4, -1e4
  np.testing.assert_array_equal(attend(query, key, value, visibility), before)


@either_way
def test_a_query_that_sees_nothing_gets_the_mean_of_the_values(attend, qkv):
  expected = np.broadcast_to(qkv[2].astype(np.float64).mean(1, keepdims=True), (B, S, N, D))
  assert_close(attend(*qkv, Visibility(jnp.zeros((B, 1, S, S), bool))), expected)


@either_way
def test_nothing_flows_to_what_a_query_that_sees_nothing_was_not_compared_with(attend, qkv):
  visibility = Visibility(jnp.ones((B, 1, S, S), bool).at[0, :, 2].set(False))
  of_query_2 = lambda query, key, value: attend(query, key, value, visibility)[0, 2, :, 0].sum()
  query_gradient, key_gradient, value_gradient = jax.grad(of_query_2, argnums=(0, 1, 2))(*map(jnp.asarray, qkv))
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
def test_gradients_do_not_flow_to_hidden_keys(attend, qkv):
  visibility = Visibility(padding_mask(jnp.asarray([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]])))
  gradients = jax.grad(lambda qkv: jnp.sum(attend(*qkv, visibility) ** 2))(jnp.asarray(qkv))
  assert np.all(np.isfinite(gradients))
  assert not np.any(gradients[1:, 0, 3:])
  assert not np.any(gradients[1:, 1, 5:])
  assert np.all(np.any(gradients[1:, 0, :3], axis=(-1, -2)))


@either_way
def test_dropout_removes_weights_and_scales_up_the_rest(attend):
  # With the identity as values, the output is the attention weights themselves.
  query, key = (jnp.asarray(np.random.default_rng(i).standard_normal((1, 64, 1, 64)), jnp.float32) for i in (0, 1))
  identity = jnp.eye(64)[None, :, None, :]
  weights = np.asarray(attend(query, key, identity, dropout_rate=0.25))
  dropped = np.asarray(attend(query, key, identity, dropout_rate=0.25, dropout_key=jax.random.key(0)))
  kept = dropped != 0
  # 4,096 independent draws: within five standard deviations of their mean.
  assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 4096)
  np.testing.assert_allclose(dropped[kept], weights[kept] / 0.75, rtol=TOLERANCE)


def test_all_heads_drop_weights_of_their_own():
  ones = jnp.ones((1, 16, 2, 4))
  x = attention(ones, ones, ones, dropout_rate=0.5, dropout_key=jax.random.key(0))
  assert np.any(x[:, :, 0] != x[:, :, 1])


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('rate', [0.0, 0.4])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_values_and_gradients_are_those_of_the_chain_rule(dtype, rate, data):
  # Few shapes: each is compiled. Some of one query, or of one key.
  rows, heads, depth, queries, keys = data.draw(
    st.sampled_from([(2, 3, 4, 5, 7), (1, 1, 2, 1, 16), (2, 1, 16, 2, 1), (1, 3, 4, 16, 16)]), label='B, N, D, K, S'
  )
  random = np.random.default_rng(data.draw(st.integers(0, 9), label='seed'))
  shapes = [(rows, length, heads, depth) for length in (queries, keys, keys, queries)]
  query, key, value, cotangent = (jnp.asarray(random.standard_normal(shape), dtype) for shape in shapes)
  sees = np.ones((rows, 1, queries, keys), bool)
  if data.draw(st.booleans(), label='masked'):
    sees = random.random(sees.shape) < 0.6
  dropout_key = jax.random.key(3)
  kept = np.asarray(nnx.Dropout(rate)(jnp.ones((rows, heads, queries, keys)), rngs=dropout_key), np.float64)
  expected = attention_with_gradients(query, key, value, cotangent, sees, kept)
  # Gradients of query and key may cancel out, as with one key. Rounding is relative to what there was before.
  slope = np.abs(cotangent).max() * np.abs(value).max() * kept.max()
  sizes = 0, slope * np.abs(key).max(), slope * np.abs(query).max(), 0
  tolerance = TOLERANCE if dtype == 'float32' else BFLOAT16_TOLERANCE
  computed = output_and_gradients(rate, dropout_key, cotangent, jnp.asarray(sees), query, key, value)
  for ours, theirs, least in zip(computed, expected, sizes, strict=True):
    assert ours.dtype == dtype
    atol = tolerance * max(np.abs(theirs).max(), float(least))
    np.testing.assert_allclose(np.asarray(ours, np.float64), theirs, rtol=0, atol=atol)


@jax.jit(static_argnums=0)
def output_and_gradients(rate, dropout_key, cotangent, mask, *qkv):
  attend = lambda *qkv: attention(*qkv, Visibility(mask), dropout_rate=rate, dropout_key=dropout_key)
  output, pull_back = jax.vjp(attend, *qkv)
  return output, *pull_back(cotangent)


# --- the module -----------------------------------------------------------------------------------


def test_self_attention_is_four_linear_maps_around_attention(tiny, build, parameters):
  stacked = build(tiny).encoder.layers.attention
  p = parameters(stacked)
  heads, head_dim, hidden = tiny.num_attention_heads, tiny.head_dim, tiny.hidden_size
  x = np.random.default_rng(1).standard_normal((1, 5, hidden)).astype(np.float32)
  expected = np.zeros((1, 5, hidden)) + p['output']['bias'][0]
  for n in range(heads):
    query, key, value = (x[0] @ p['qkv']['kernel'][0, :, i, n] + p['qkv']['bias'][0, i, n] for i in range(3))
    scores = query @ key.T / np.sqrt(head_dim)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expected[0] += weights @ value @ p['output']['kernel'][0, n]
  graphdef, state = nnx.split(stacked)
  first = nnx.merge(graphdef, jax.tree.map(lambda leaf: leaf[0], nnx.to_pure_dict(state)))
  assert_close(first(jnp.asarray(x)), expected)


def test_the_rate_of_dropout_is_that_of_attention(tiny, build):
  x = jnp.asarray(np.random.default_rng(1).standard_normal((2, 5, tiny.hidden_size)).astype(np.float32))

  def attended(dropout_key=None, **rates):
    graphdef, state = nnx.split(build(dataclasses.replace(tiny, **rates)).encoder.layers.attention)
    first = nnx.merge(graphdef, jax.tree.map(lambda leaf: leaf[0], nnx.to_pure_dict(state)))
    return np.asarray(first(x, dropout_key=dropout_key))

  key = jax.random.key(0)
  np.testing.assert_array_equal(attended(key, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.0), attended())
  dropped = attended(key, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
  assert np.abs(dropped - attended()).max() > 1e-3
