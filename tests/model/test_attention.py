"""Attention against NumPy, and who sees whom."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.model.attention import dot_product_attention, padding_mask, segment_mask

TOLERANCE = 1e-5  # relative to the largest value of the reference

B, S, N, D = 2, 6, 3, 4


def assert_close(actual, reference):
  assert np.abs(np.asarray(actual, np.float64) - reference).max() <= TOLERANCE * np.abs(reference).max()


def reference(query, key, value, mask=None):
  """softmax(q·k/√D)·v, head by head, float64; `mask` [B, S, S]."""
  output = np.zeros(query.shape)
  for b, n in np.ndindex(B, N):
    scores = query[b, :, n].astype(np.float64) @ key[b, :, n].T.astype(np.float64) / np.sqrt(D)
    if mask is not None:
      scores = np.where(mask[b], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    output[b, :, n] = weights / weights.sum(-1, keepdims=True) @ value[b, :, n].astype(np.float64)
  return output


@pytest.fixture
def qkv():
  return np.random.default_rng(0).standard_normal((3, B, S, N, D)).astype(np.float32)


def test_attention_is_the_textbooks(qkv):
  assert_close(dot_product_attention(*qkv), reference(*qkv))


def test_hidden_keys_are_left_out(qkv):
  attention_mask = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
  mask = np.repeat(attention_mask[:, None, :].astype(bool), S, axis=1)
  actual = dot_product_attention(*qkv, padding_mask(jnp.asarray(attention_mask)))
  assert_close(actual, reference(*qkv, mask))


def test_what_a_hidden_key_holds_is_not_felt_to_the_bit(qkv):
  mask = padding_mask(jnp.asarray([[1, 1, 1, 1, 0, 0], [1, 1, 0, 1, 1, 1]]))
  query, key, value = (x.copy() for x in qkv)
  before = dot_product_attention(query, key, value, mask)
  for x in key, value:
    x[0, 4:], x[1, 2] = 1e4, -1e4
  np.testing.assert_array_equal(dot_product_attention(query, key, value, mask), before)


def test_a_query_that_sees_nothing_gets_the_mean_of_the_values(qkv):
  mask = jnp.zeros((B, 1, S, S), bool)
  expected = np.broadcast_to(qkv[2].astype(np.float64).mean(1, keepdims=True), (B, S, N, D))
  assert_close(dot_product_attention(*qkv, mask), expected)


def test_scores_too_large_for_bfloat16_sums_stay_finite(qkv):
  query, key, value = (jnp.asarray(100 * x, jnp.bfloat16) for x in qkv)
  output = dot_product_attention(query, key, value, jnp.zeros((B, 1, S, S), bool).at[..., 0].set(True))
  assert output.dtype == jnp.bfloat16
  np.testing.assert_array_equal(output, jnp.broadcast_to(value[:, :1], value.shape))


def test_gradients_do_not_flow_to_hidden_keys(qkv):
  mask = padding_mask(jnp.asarray([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]]))
  gradients = jax.grad(lambda qkv: jnp.sum(dot_product_attention(*qkv, mask) ** 2))(jnp.asarray(qkv))
  assert np.all(np.isfinite(gradients))
  assert not np.any(gradients[1:, 0, 3:])
  assert not np.any(gradients[1:, 1, 5:])
  assert np.all(np.any(gradients[1:, 0, :3], axis=(-1, -2)))


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


def test_self_attention_is_four_linear_maps_around_attention(tiny, build, parameters):
  attention = build(tiny).encoder.layers.attention
  p = parameters(attention)
  heads, head_dim, hidden = tiny.num_attention_heads, tiny.head_dim, tiny.hidden_size
  x = np.random.default_rng(1).standard_normal((1, 5, hidden)).astype(np.float32)
  expected = np.zeros((1, 5, hidden)) + p['output']['bias'][0]
  for n in range(heads):
    query, key, value = (x[0] @ p['qkv']['kernel'][0, :, i, n] + p['qkv']['bias'][0, i, n] for i in range(3))
    scores = query @ key.T / np.sqrt(head_dim)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expected[0] += weights @ value @ p['output']['kernel'][0, n]
  first = _layer(attention, 0)
  assert_close(first(jnp.asarray(x)), expected)


def _layer(stacked, index):
  from flax import nnx

  graphdef, state = nnx.split(stacked)
  return nnx.merge(graphdef, jax.tree.map(lambda x: x[index], nnx.to_pure_dict(state)))


def test_dropout_removes_weights_and_scales_up_the_rest(qkv):
  # With the identity as values, the output is the attention weights themselves.
  query, key = (jnp.asarray(np.random.default_rng(i).standard_normal((1, 64, 1, 64)), jnp.float32) for i in (0, 1))
  identity = jnp.eye(64)[None, :, None, :]
  weights = np.asarray(dot_product_attention(query, key, identity, dropout_rate=0.25))
  dropped = np.asarray(dot_product_attention(query, key, identity, dropout_rate=0.25, dropout_key=jax.random.key(0)))
  kept = dropped != 0
  # 4,096 independent draws: within five standard deviations of their mean.
  assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 4096)
  np.testing.assert_allclose(dropped[kept], weights[kept] / 0.75, rtol=TOLERANCE)
