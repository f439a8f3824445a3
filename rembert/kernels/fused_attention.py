"""Fused attention, which keeps the [S, S] weights on the chip: cuDNN's kernel on NVIDIA GPUs, JAX's Splash on TPUs.

Every position sees its own segment, padding (segment 0) included, so no position sees nothing. Padding gets other
values than from `rembert.model.attention.attention`, which are never read; tokens get the same. The compiler cannot
split a kernel over a mesh, so `on_shards` gives each device its sequences and heads.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from rembert.errors import UsageError
from rembert.kernels.cpu import platform
from rembert.model.attention import Visibility
from rembert.model.layers import ATTENTION, PRODUCT, Linear
from rembert.model.partitioning import constrain, on_shards

_LARGEST_BLOCK = 512  # float32 blocks of 1024 exceed the 16 MiB of a kernel on a TPU v4


def cudnn_attention(
  query_BxSxNxD: jax.Array, key_BxSxNxD: jax.Array, value_BxSxNxD: jax.Array, segment_ids_BxS: jax.Array | None = None
) -> jax.Array:
  """softmax(q·k/√D)·v, [B, S, N, D], bfloat16 or float16; S even, D a multiple of 8."""

  def on_one_device(query_BxSxNxD, key_BxSxNxD, value_BxSxNxD, segment_ids_BxS):
    mask = None
    if segment_ids_BxS is not None:  # cuDNN has no segments, and accepts no mask smaller than [B, 1, S, S]
      mask = segment_ids_BxS[:, None, :, None] == segment_ids_BxS[:, None, None, :]
    return jax.nn.dot_product_attention(query_BxSxNxD, key_BxSxNxD, value_BxSxNxD, mask=mask, implementation='cudnn')

  rows_and_heads = ('batch', None, 'heads', None)
  attend = on_shards(on_one_device, inputs=(*[rows_and_heads] * 3, ('batch', None)), output=rows_and_heads)
  return attend(query_BxSxNxD, key_BxSxNxD, value_BxSxNxD, segment_ids_BxS)


def splash_attention(
  query_BxSxNxD: jax.Array,
  key_BxSxNxD: jax.Array,
  value_BxSxNxD: jax.Array,
  segment_ids_BxS: jax.Array | None = None,
  *,
  interpret: bool = False,
) -> jax.Array:
  """softmax(q·k/√D)·v, [B, S, N, D] in the dtype of the arguments; scores and softmax in float32.

  S is a multiple of 128. Without segments every position sees every other. `interpret` runs the kernel step by step on
  any device, for tests.
  """
  sequence_length, head_dim = query_BxSxNxD.shape[1], query_BxSxNxD.shape[3]

  def on_one_device(query_BxNxSxD, key_BxNxSxD, value_BxNxSxD, segment_ids_BxS):
    kernel = _make_kernel(query_BxNxSxD.shape[1], sequence_length, interpret)
    return jax.vmap(kernel)(query_BxNxSxD, key_BxNxSxD, value_BxNxSxD, segment_ids_BxS)

  rows_and_heads = ('batch', 'heads', None, None)
  attend = on_shards(on_one_device, inputs=(*[rows_and_heads] * 3, ('batch', None)), output=rows_and_heads)
  query, key, value = (x.swapaxes(1, 2) for x in (query_BxSxNxD * head_dim**-0.5, key_BxSxNxD, value_BxSxNxD))
  return attend(query, key, value, segment_ids_BxS).swapaxes(1, 2)


def splash_self_attention(
  x_BxSxH: jax.Array,
  qkv: Linear,
  output: Linear,
  visibility: Visibility,
  *,
  attend: Callable[..., jax.Array],
  **dropout: Any,
) -> jax.Array:
  """Computes `SelfAttention` with all arrays in the memory layout of the kernel, heads before positions.

  A joint projection of query, key and value would have to be split, and its gradient assembled, by copies: a third of
  the memory traffic of a layer. So would matmuls over merged axes. The backward pass saves the inputs of the kernel.
  `attend` has the signature of `rembert.model.attention.attention`, with options `dropout`.
  """
  heads_first = lambda x_BxSxNxD: jnp.swapaxes(x_BxSxNxD, 1, 2)
  parts = []
  for part in range(3):
    kernel_HxNxD, bias_NxD = qkv.kernel[...][:, part].astype(x_BxSxH.dtype), qkv.bias[...][part].astype(x_BxSxH.dtype)
    x_BxSxNxD = jax.lax.dot_general(x_BxSxH, kernel_HxNxD, (((2,), (0,)), ((), ()))) + bias_NxD
    x_BxNxSxD = checkpoint_name(heads_first(constrain(x_BxSxNxD, 'batch', None, 'heads', None)), PRODUCT)
    parts.append(heads_first(x_BxNxSxD))
  x_BxSxNxD = attend(*parts, visibility, **dropout)
  kernel_NxDxH, bias_H = (x[...].astype(x_BxSxH.dtype) for x in (output.kernel, output.bias))
  x_BxSxH = jax.lax.dot_general(x_BxSxNxD, kernel_NxDxH, (((2, 3), (0, 1)), ((), ())))
  return checkpoint_name(x_BxSxH, PRODUCT) + bias_H


def block_size(sequence_length: int) -> int:
  """Block size of queries and keys: the largest multiple of 128 up to 512 that divides the sequence length."""
  return max(size for size in range(128, _LARGEST_BLOCK + 1, 128) if sequence_length % size == 0)


def _make_kernel(heads, sequence_length, interpret):
  """Returns a kernel: (q, k, v, segment ids) of one sequence, heads first, to its output."""
  # Imported here since it is in jax.experimental: if it moves, only this kernel breaks.
  from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
  from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

  block = block_size(sequence_length)
  kernel = splash.make_splash_mha_single_device(
    masks.MultiHeadMask([masks.FullMask((sequence_length, sequence_length))] * heads),
    # The fused backward kernel computes the scores once for all three gradients, rather than twice. It returns one part
    # of the queries' gradient per block of keys, to be added up; up to 512 tokens there is one block.
    block_sizes=splash.BlockSizes(
      block_q=block, block_kv=block, block_q_dkv=block, block_kv_dkv=block, use_fused_bwd_kernel=True
    ),
    residual_checkpoint_name=ATTENTION,
    interpret=interpret,
  )

  def attend(query_NxSxD, key_NxSxD, value_NxSxD, segment_ids_S):
    segments = None if segment_ids_S is None else splash.SegmentIds(q=segment_ids_S, kv=segment_ids_S)
    return kernel(query_NxSxD, key_NxSxD, value_NxSxD, segments)

  return attend


# --- the choice -------------------------------------------------------------------------------------------------------

# By `Execution.attention`: the function, its platform, and the divisor of the sequence length
# (for cuDNN's backward pass with a mask; the lanes of a TPU's registers).
_FUSED = {'cudnn': (cudnn_attention, 'gpu', 2), 'splash': (splash_attention, 'tpu', 128)}


def fused_attention(
  backend: str, unfused: Callable[..., jax.Array], query, key, value, visibility=Visibility(), positions=None, **dropout
) -> jax.Array:
  """Attention of whole sequences by a fused kernel. At given positions it is `unfused`: K queries have few weights.

  Raises:
    UsageError: the kernel does not run on these devices, or not for this sequence length.
    ValueError: dropout is set, which kernels do not support (`Execution.check_model` rejects it before).
  """
  if positions is not None:
    return unfused(query, key, value, visibility, positions, **dropout)
  if dropout.get('dropout_rate') and dropout.get('dropout_key') is not None:
    raise ValueError(f'{backend} attention does not support dropout')
  check_backend(backend, platform=platform(), sequence_length=query.shape[1])
  return _FUSED[backend][0](query, key, value, visibility.segment_ids_BxS)


def check_backend(backend: str, *, platform: str, sequence_length: int) -> None:
  """UsageError if a backend of `Execution.attention` does not support these devices or this sequence length."""
  if backend not in _FUSED:
    return
  _, needed, multiple = _FUSED[backend]
  if platform != needed:
    raise UsageError(
      f'{backend} attention is a kernel for the {needed.upper()}; these devices are {platform}',
      where=f'execution.attention = {backend!r}',
      fix='--gin.execution.attention=einsum, which runs everywhere',
    )
  if sequence_length % multiple:
    longer = sequence_length + -sequence_length % multiple
    raise UsageError(
      f'{backend} attention requires a sequence length that is a multiple of {multiple}, not {sequence_length}',
      where=f'execution.attention = {backend!r}',
      fix=f'use a sequence length of {longer}, or --gin.execution.attention=einsum',
    )
