"""Multi-head self-attention and its masks."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from rembert.model.config import RemBertConfig
from rembert.model.layers import ATTENTION, Linear, Operations, gather_positions, wide
from rembert.model.partitioning import constrain

# The score of a masked key, half of the smallest float32: subtracting the maximum stays finite.
HIDDEN = -0.5 * jnp.finfo(jnp.float32).max.item()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Visibility:
  """The attention mask in two forms, for matmuls and for fused kernels; None if every position sees every other.

  Both agree on what tokens see. They differ on what padding sees, which is never read: the mask of a padded batch lets
  it see the tokens, as in Hugging Face, and that of packed sequences nothing; by segments it sees padding.

  Attributes:
    mask: bool, broadcasts to [B, N, S, S], True if a key is seen.
    segment_ids_BxS: int32, equal where two positions see each other; 0 is padding.
  """

  mask: jax.Array | None = None
  segment_ids_BxS: jax.Array | None = None

  @classmethod
  def of(cls, attention_mask_BxS: jax.Array | None, segment_ids_BxS: jax.Array | None) -> 'Visibility':
    """From the segments of packed sequences, if given, or Hugging Face's mask (1 token, 0 padding)."""
    if segment_ids_BxS is not None:
      same_BxSxS = segment_ids_BxS[:, :, None] == segment_ids_BxS[:, None, :]
      return cls((same_BxSxS & (segment_ids_BxS > 0)[:, None, :])[:, None], segment_ids_BxS)
    if attention_mask_BxS is not None:
      is_key_Bx1x1xS = attention_mask_BxS[:, None, None, :].astype(bool)
      return cls(is_key_Bx1x1xS, attention_mask_BxS.astype(bool).astype(jnp.int32))
    return cls()

  def mask_at(self, positions_BxK: jax.Array | None) -> jax.Array | None:
    """The mask of the queries at these positions (None: all): bool, broadcasts to [B, N, K, S]."""
    if positions_BxK is None or self.mask is None or self.mask.shape[2] == 1:
      return self.mask
    return jnp.take_along_axis(self.mask, positions_BxK[:, None, :, None], axis=2)


def attention(
  query_BxKxNxD: jax.Array,
  key_BxSxNxD: jax.Array,
  value_BxSxNxD: jax.Array,
  visibility: Visibility = Visibility(),
  positions_BxK: jax.Array | None = None,
  *,
  dropout_rate: float = 0.0,
  dropout_key: jax.Array | None = None,
) -> jax.Array:
  """softmax(q·k/√D)·v, [B, K, N, D], the softmax in float32, for K queries and S keys.

  A masked key gets a weight of exactly zero, so its value does not change a bit of the result. A query that sees
  nothing (padding) gets the mean of the values rather than NaN. `positions_BxK` are those of the queries; None for all.
  Weights are dropped if there is a key.
  """
  query_BxKxNxD = query_BxKxNxD * query_BxKxNxD.shape[-1] ** -0.5
  dtype = wide(query_BxKxNxD.dtype)
  scores_BxNxKxS = jnp.einsum('bknd,bsnd->bnks', query_BxKxNxD, key_BxSxNxD, preferred_element_type=dtype)
  if (mask := visibility.mask_at(positions_BxK)) is not None:
    scores_BxNxKxS = jnp.where(mask, scores_BxNxKxS, HIDDEN)
  weights_BxNxKxS = jax.nn.softmax(scores_BxNxKxS).astype(value_BxSxNxD.dtype)
  if dropout_rate and dropout_key is not None:
    weights_BxNxKxS = nnx.Dropout(dropout_rate)(weights_BxNxKxS, rngs=dropout_key)
  return checkpoint_name(jnp.einsum('bnks,bsnd->bknd', weights_BxNxKxS, value_BxSxNxD), ATTENTION)


class SelfAttention(nnx.Module):
  """Query, key and value from one [H, 3, N, D] kernel; attention; output projection [N, D, H]."""

  def __init__(self, config: RemBertConfig, dtype: jnp.dtype, ops: Operations, *, rngs: nnx.Rngs):
    heads, head_dim, hidden = config.num_attention_heads, config.head_dim, config.hidden_size
    linear = functools.partial(Linear, config, dtype=dtype, ops=ops, rngs=rngs)
    self.qkv = linear(hidden, (3, heads, head_dim), axes=('embed', None, 'heads', None))
    self.output = linear((heads, head_dim), hidden, axes=('heads', None, 'embed'))
    self.dropout_rate, self.ops = config.attention_probs_dropout_prob, ops

  def __call__(
    self,
    x_BxSxH: jax.Array,
    visibility: Visibility = Visibility(),
    *,
    positions_BxK: jax.Array | None = None,
    dropout_key: jax.Array | None = None,
  ) -> jax.Array:
    """x_BxSxH to x_BxSxH, or to x_BxKxH at given positions, without computing the other queries."""
    dropout = {'dropout_rate': self.dropout_rate, 'dropout_key': dropout_key}
    if positions_BxK is None and self.ops.self_attention is not None:
      return self.ops.self_attention(x_BxSxH, self.qkv, self.output, visibility, **dropout)
    if positions_BxK is None:
      query, key, value = _parts(constrain(self.qkv(x_BxSxH), 'batch', None, None, 'heads', None))
    else:
      query = self._part(gather_positions(x_BxSxH, positions_BxK), slice(0, 1))[:, :, 0]
      key, value = _parts(self._part(x_BxSxH, slice(1, 3)))
    attend: Callable[..., jax.Array] = self.ops.attention or attention
    return self.output(attend(query, key, value, visibility, positions_BxK, **dropout))

  def _part(self, x_BxSxH: jax.Array, part: slice) -> jax.Array:
    """`self.qkv` for some of query, key and value."""
    x_BxSxPxNxD = self.ops.affine(x_BxSxH, self.qkv.kernel[...][:, part], self.qkv.bias[...][part])
    return constrain(x_BxSxPxNxD, 'batch', None, None, 'heads', None)


def _parts(x_BxSxPxNxD: jax.Array) -> list[jax.Array]:
  """Each of P, as [B, S, N, D]. Gradients are concatenated at once; those of slices would be padded and added."""
  count = x_BxSxPxNxD.shape[2]
  return [part[:, :, 0] for part in jax.lax.split(x_BxSxPxNxD, (1,) * count, axis=2)]
