"""Attention as the textbook has it, for every backend and every number of positions, with its gradient written out."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from rembert.model.building_blocks import ATTENTION
from rembert.model.products import product

# Half of the smallest float32: adding two of them, or subtracting the row's maximum, stays finite.
_HIDDEN = -0.5 * jnp.finfo(jnp.float32).max.item()


def einsum_attention(
  query_BxKxNxD: jax.Array,
  key_BxSxNxD: jax.Array,
  value_BxSxNxD: jax.Array,
  mask: jax.Array | None = None,
  *,
  dropout_rate: float = 0.0,
  dropout_key: jax.Array | None = None,
) -> jax.Array:
  """softmax(q·k/√D)·v, [B, K, N, D], the softmax in float32, for K queries and S keys.

  A hidden key gets a weight of exactly zero, so what it holds cannot be felt, to the bit. A query that sees nothing
  (padding) gets the mean of the values rather than NaN.

  Args:
    query_BxKxNxD: float32 or bfloat16, as are the next two.
    key_BxSxNxD: what queries are compared with.
    value_BxSxNxD: what is added up.
    mask: bool, broadcasts to [B, N, K, S], True where a key is seen; None is everywhere.
    dropout_rate: share of the weights that are dropped, where there is a key.
    dropout_key: of `jax.random`.
  """
  query, key, value = query_BxKxNxD * query_BxKxNxD.shape[-1] ** -0.5, key_BxSxNxD, value_BxSxNxD
  kept = None
  if dropout_rate and dropout_key is not None:
    (rows, queries, heads, _), keys = query.shape, key.shape[1]
    kept = nnx.Dropout(dropout_rate)(jnp.ones((rows, heads, queries, keys), value.dtype), rngs=dropout_key)
  return _attend(query, key, value, mask, kept)


@jax.custom_vjp
def _attend(query_BxKxNxD, key_BxSxNxD, value_BxSxNxD, mask, kept_BxNxKxS):
  """Attention with scaled queries. What is kept of a weight is a factor: 0, or 1 / (1 - rate); None is 1.

  The backward pass is written out, as that of Dao et al. (FlashAttention, 2022, appendix B.2): what the softmax takes
  off every slope, Σ over keys of weight · slope, is Σ over D of x · its gradient. That spares a pass over all pairs,
  and of the weights one array is left, in the dtype of the values; JAX would keep them in float32 besides.
  """
  return _attend_forward(query_BxKxNxD, key_BxSxNxD, value_BxSxNxD, mask, kept_BxNxKxS)[0]


def _attend_forward(query_BxKxNxD, key_BxSxNxD, value_BxSxNxD, mask, kept_BxNxKxS):
  # Heads beside the batch first, so that every product is a plain batched one.
  query, key, value = map(_swapped, (query_BxKxNxD, key_BxSxNxD, value_BxSxNxD))
  scores_BxNxKxS = product('bnqd,bnkd->bnqk', query, key, jnp.float32)
  if mask is not None:
    scores_BxNxKxS = jnp.where(mask, scores_BxNxKxS, _HIDDEN)
  exponentials_BxNxKxS = jnp.exp(scores_BxNxKxS - scores_BxNxKxS.max(-1, keepdims=True))
  weights_BxNxKxS = exponentials_BxNxKxS * (1 / exponentials_BxNxKxS.sum(-1, keepdims=True))
  weights_BxNxKxS = weights_BxNxKxS.astype(value.dtype)
  x_BxNxKxD = product('bnqk,bnkd->bnqd', _dropped(weights_BxNxKxS, kept_BxNxKxS), value, value.dtype)
  x_BxKxNxD = checkpoint_name(_swapped(x_BxNxKxD), ATTENTION)
  return x_BxKxNxD, (query, key, value, mask, kept_BxNxKxS, weights_BxNxKxS, x_BxKxNxD)


def _attend_backward(residuals, gradient_BxKxNxD):
  query, key, value, mask, kept_BxNxKxS, weights_BxNxKxS, x_BxKxNxD = residuals
  dtype, gradient = value.dtype, _swapped(gradient_BxKxNxD)
  mean_slope_BxKxN = (x_BxKxNxD.astype(jnp.float32) * gradient_BxKxNxD.astype(jnp.float32)).sum(-1)
  slopes_BxNxKxS = _dropped(product('bnqd,bnkd->bnqk', gradient, value, jnp.float32), kept_BxNxKxS)
  slopes_BxNxKxS = weights_BxNxKxS * (slopes_BxNxKxS - _swapped(mean_slope_BxKxN)[..., None])
  if mask is not None:  # not all hidden keys have weights of zero: a query that sees nothing has the same for each
    slopes_BxNxKxS = jnp.where(mask, slopes_BxNxKxS, 0)
  slopes_BxNxKxS = slopes_BxNxKxS.astype(dtype)
  # The narrower factor first, for XLA's CPU backend: it is the one that is turned around.
  over_queries = lambda x, y: jnp.swapaxes(product('bnqd,bnqk->bndk', x, y, dtype), -1, -2)
  query_gradient = product('bnqk,bnkd->bnqd', slopes_BxNxKxS, key, dtype)
  key_gradient = over_queries(query, slopes_BxNxKxS)
  value_gradient = over_queries(gradient, _dropped(weights_BxNxKxS, kept_BxNxKxS))
  return *map(_swapped, (query_gradient, key_gradient, value_gradient)), None, None


_attend.defvjp(_attend_forward, _attend_backward)
_swapped = functools.partial(jnp.swapaxes, axis1=1, axis2=2)


def _dropped(x, kept):
  return x if kept is None else x * kept
