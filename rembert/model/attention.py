"""Multi-head self-attention: who sees whom, and the choice of who computes it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from rembert.model.building_blocks import affine, linear, rows_at
from rembert.model.config import Execution, RemBertConfig
from rembert.model.einsum_attention import einsum_attention
from rembert.model.fused_attention import cudnn_attention, splash_attention
from rembert.model.partitioning import constrain
from rembert.model.products import PRODUCT


def padding_mask(attention_mask_BxS: jax.Array) -> jax.Array:
  """Keys that may be seen, [B, 1, 1, S] bool, from Hugging Face's mask (1 token, 0 padding)."""
  return attention_mask_BxS[:, None, None, :].astype(bool)


def segment_mask(segment_ids_BxS: jax.Array) -> jax.Array:
  """Who sees whom in packed rows, [B, 1, S, S] bool: tokens of one segment see each other; segment 0 is padding."""
  same_BxSxS = segment_ids_BxS[:, :, None] == segment_ids_BxS[:, None, :]
  return (same_BxSxS & (segment_ids_BxS > 0)[:, None, :])[:, None]


@functools.partial(jax.tree_util.register_dataclass)
@dataclasses.dataclass(frozen=True)
class Visibility:
  """Who sees whom, said twice: for products and for kernels. Made once, before the layers; None is everybody.

  The two agree on what tokens see. They differ on what padding sees, which nobody looks at: the mask of a padded batch
  lets it see the tokens, as Hugging Face does, and that of packed rows nothing; by segments it sees padding.

  Attributes:
    mask: bool, broadcasts to [B, N, S, S], True where a key is seen.
    segment_ids_BxS: int32, equal where two positions see each other; 0 is padding.
  """

  mask: jax.Array | None = None
  segment_ids_BxS: jax.Array | None = None

  @classmethod
  def of(cls, attention_mask_BxS: jax.Array | None, segment_ids_BxS: jax.Array | None) -> 'Visibility':
    """From what the encoder is given; segments win over Hugging Face's mask (1 token, 0 padding)."""
    if segment_ids_BxS is not None:
      return cls(segment_mask(segment_ids_BxS), segment_ids_BxS)
    if attention_mask_BxS is not None:
      return cls(padding_mask(attention_mask_BxS), attention_mask_BxS.astype(bool).astype(jnp.int32))
    return cls()

  def mask_at(self, positions_BxK: jax.Array) -> jax.Array | None:
    """What the queries at these positions see: bool, broadcasts to [B, N, K, S]."""
    if self.mask is None or self.mask.shape[2] == 1:
      return self.mask
    return jnp.take_along_axis(self.mask, positions_BxK[:, None, :, None], axis=2)


KERNELS = {'cudnn': cudnn_attention, 'splash': splash_attention}


def dot_product_attention(
  query_BxSxNxD: jax.Array,
  key_BxSxNxD: jax.Array,
  value_BxSxNxD: jax.Array,
  visibility: Visibility = Visibility(),
  *,
  backend: str = 'einsum',
  dropout_rate: float = 0.0,
  dropout_key: jax.Array | None = None,
) -> jax.Array:
  """softmax(q·k/√D)·v, [B, S, N, D], computed by one of `ATTENTION_BACKENDS`; dropout with `einsum` alone.

  Raises:
    UsageError: where a kernel does not run on these devices, or not for this S.
    ValueError: for dropout with another backend. `Execution.check_model` tells a user of it before.
  """
  query, key, value = query_BxSxNxD, key_BxSxNxD, value_BxSxNxD
  if backend == 'einsum':
    return einsum_attention(query, key, value, visibility.mask, dropout_rate=dropout_rate, dropout_key=dropout_key)
  if dropout_rate and dropout_key is not None:
    raise ValueError(f'{backend} attention drops no weights')
  return KERNELS[backend](query, key, value, visibility.segment_ids_BxS)


class SelfAttention(nnx.Module):
  """Query, key and value from one product with a [H, 3, N, D] kernel; attention; output projection [N, D, H].

  Raises:
    UsageError: for dropout of attention weights with a backend that has none.
  """

  def __init__(self, config: RemBertConfig, execution: Execution, *, rngs: nnx.Rngs):
    execution.check_model(config)
    dtype, self.backend = jnp.dtype(execution.dtype), execution.attention
    heads, head_dim, hidden = config.num_attention_heads, config.head_dim, config.hidden_size
    self.qkv = linear(config, hidden, (3, heads, head_dim), axes=('embed', None, 'heads', None), dtype=dtype, rngs=rngs)
    self.output = linear(config, (heads, head_dim), hidden, axes=('heads', None, 'embed'), dtype=dtype, rngs=rngs)
    self.dropout_rate = config.attention_probs_dropout_prob

  def __call__(
    self,
    x_BxSxH: jax.Array,
    visibility: Visibility = Visibility(),
    *,
    positions_BxK: jax.Array | None = None,
    dropout_key: jax.Array | None = None,
  ) -> jax.Array:
    """x_BxSxH to x_BxSxH; given positions to x_BxKxH, what it would be there: the other queries are not made.

    At positions it is written out whatever the backend is, since K queries have few weights to keep.
    """
    rate = self.dropout_rate
    if positions_BxK is not None:
      query_BxKxNxD = self._part(rows_at(x_BxSxH, positions_BxK), slice(0, 1))[:, :, 0]
      key_value_BxSx2xNxD = self._part(x_BxSxH, slice(1, 3))
      key, value = _parts(key_value_BxSx2xNxD)
      mask = visibility.mask_at(positions_BxK)
      x_BxKxNxD = einsum_attention(query_BxKxNxD, key, value, mask, dropout_rate=rate, dropout_key=dropout_key)
      return self.output(x_BxKxNxD)
    if self.backend == 'splash':
      return self._by_splash(x_BxSxH, visibility, dropout_key)
    qkv_BxSx3xNxD = constrain(self.qkv(x_BxSxH), 'batch', None, None, 'heads', None)
    query, key, value = _parts(qkv_BxSx3xNxD)
    x_BxSxNxD = dot_product_attention(
      query, key, value, visibility, backend=self.backend, dropout_rate=rate, dropout_key=dropout_key
    )
    return self.output(x_BxSxNxD)

  def _by_splash(self, x_BxSxH: jax.Array, visibility: Visibility, dropout_key: jax.Array | None) -> jax.Array:
    """The same with arrays that lie in memory as the kernel wants them from product to product, heads before positions.

    One product for all three would have to be taken apart, and its gradient put together, by copies: a third of what
    a layer moves. So would products of flattened rows. What the backward pass keeps is what the kernel was given.
    """
    heads_first = lambda x_BxSxNxD: jnp.swapaxes(x_BxSxNxD, 1, 2)
    assert self.qkv.bias is not None  # `linear` gives every map one
    assert self.output.bias is not None
    parts = []
    for part in range(3):
      kernel_HxNxD = self.qkv.kernel[...][:, part].astype(x_BxSxH.dtype)
      bias_NxD = self.qkv.bias[...][part].astype(x_BxSxH.dtype)
      x_BxSxNxD = jax.lax.dot_general(x_BxSxH, kernel_HxNxD, (((2,), (0,)), ((), ()))) + bias_NxD
      x_BxNxSxD = checkpoint_name(heads_first(constrain(x_BxSxNxD, 'batch', None, 'heads', None)), PRODUCT)
      parts.append(heads_first(x_BxNxSxD))
    query, key, value = parts
    x_BxSxNxD = dot_product_attention(
      query, key, value, visibility, backend='splash', dropout_rate=self.dropout_rate, dropout_key=dropout_key
    )
    kernel_NxDxH, bias_H = (x[...].astype(x_BxSxH.dtype) for x in (self.output.kernel, self.output.bias))
    x_BxSxH = jax.lax.dot_general(x_BxSxNxD, kernel_NxDxH, (((2, 3), (0, 1)), ((), ())))
    return checkpoint_name(x_BxSxH, PRODUCT) + bias_H

  def _part(self, x_BxSxH: jax.Array, part: slice) -> jax.Array:
    """`self.qkv` for some of query, key and value."""
    assert self.qkv.bias is not None  # `linear` gives every map one
    x_BxSxPxNxD = affine(x_BxSxH, self.qkv.kernel[...][:, part], self.qkv.bias[...][part])
    return constrain(x_BxSxPxNxD, 'batch', None, None, 'heads', None)


def _parts(x_BxSxPxNxD: jax.Array) -> list[jax.Array]:
  """Each of P, as [B, S, N, D]. Their gradients are put together at one time; those of slices are padded and added."""
  count = x_BxSxPxNxD.shape[2]
  return [part[:, :, 0] for part in jax.lax.split(x_BxSxPxNxD, (1,) * count, axis=2)]
