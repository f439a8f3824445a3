"""Multi-head self-attention, and the masks that say who sees whom."""

import jax
import jax.numpy as jnp
from flax import nnx

from rembert.model.config import RemBertConfig
from rembert.model.embeddings import kernel_initializer
from rembert.model.partitioning import constrain, with_axes

# Half of the smallest float32: adding two of them, or subtracting the row's maximum, stays finite.
_HIDDEN = -0.5 * jnp.finfo(jnp.float32).max.item()


def padding_mask(attention_mask_BxS: jax.Array) -> jax.Array:
  """Keys that may be seen, [B, 1, 1, S] bool, from Hugging Face's mask (1 token, 0 padding)."""
  return attention_mask_BxS[:, None, None, :].astype(bool)


def segment_mask(segment_ids_BxS: jax.Array) -> jax.Array:
  """Who sees whom in packed rows, [B, 1, S, S] bool: tokens of one segment see each other; segment 0 is padding."""
  same_BxSxS = segment_ids_BxS[:, :, None] == segment_ids_BxS[:, None, :]
  return (same_BxSxS & (segment_ids_BxS > 0)[:, None, :])[:, None]


def dot_product_attention(
  query_BxSxNxD: jax.Array,
  key_BxSxNxD: jax.Array,
  value_BxSxNxD: jax.Array,
  mask: jax.Array | None = None,
  *,
  dropout_rate: float = 0.0,
  dropout_key: jax.Array | None = None,
) -> jax.Array:
  """softmax(q·k/√D)·v with the softmax in float32; `mask` broadcasts to [B, N, S, S], True where a key is seen.

  A hidden key gets a weight of exactly zero, so what it holds cannot be felt, to the bit. A query that sees nothing
  (padding) gets the mean of the values rather than NaN.
  """
  scale = query_BxSxNxD.shape[-1] ** -0.5
  scores_BxNxSxS = jnp.einsum('bqnd,bknd->bnqk', query_BxSxNxD * scale, key_BxSxNxD, preferred_element_type=jnp.float32)
  if mask is not None:
    scores_BxNxSxS = jnp.where(mask, scores_BxNxSxS, _HIDDEN)
  weights_BxNxSxS = jax.nn.softmax(scores_BxNxSxS, axis=-1).astype(value_BxSxNxD.dtype)
  weights_BxNxSxS = nnx.Dropout(dropout_rate)(weights_BxNxSxS, deterministic=dropout_key is None, rngs=dropout_key)
  return jnp.einsum('bnqk,bknd->bqnd', weights_BxNxSxS, value_BxSxNxD)


class SelfAttention(nnx.Module):
  """Query, key and value from one product with a [H, 3, N, D] kernel; attention; output projection [N, D, H]."""

  def __init__(self, config: RemBertConfig, dtype: jnp.dtype, *, rngs: nnx.Rngs):
    init, zeros = kernel_initializer(config), nnx.initializers.zeros
    heads, head_dim, hidden = config.num_attention_heads, config.head_dim, config.hidden_size
    self.qkv = nnx.LinearGeneral(
      hidden,
      (3, heads, head_dim),
      dtype=dtype,
      kernel_init=with_axes(init, 'embed', None, 'heads', None),
      bias_init=with_axes(zeros, None, 'heads', None),
      rngs=rngs,
    )
    self.output = nnx.LinearGeneral(
      (heads, head_dim),
      hidden,
      axis=(-2, -1),
      dtype=dtype,
      kernel_init=with_axes(init, 'heads', None, 'embed'),
      bias_init=with_axes(zeros, None),
      rngs=rngs,
    )
    self.dropout_rate = config.attention_probs_dropout_prob

  def __call__(
    self, x_BxSxH: jax.Array, mask: jax.Array | None = None, *, dropout_key: jax.Array | None = None
  ) -> jax.Array:
    """x_BxSxH to x_BxSxH; `mask` as in `dot_product_attention`."""
    qkv_BxSx3xNxD = constrain(self.qkv(x_BxSxH), 'batch', None, None, 'heads', None)
    query, key, value = jnp.moveaxis(qkv_BxSx3xNxD, 2, 0)
    x_BxSxNxD = dot_product_attention(query, key, value, mask, dropout_rate=self.dropout_rate, dropout_key=dropout_key)
    return self.output(x_BxSxNxD)
