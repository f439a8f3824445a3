"""Attention by fused kernels, which keep the [S, S] weights on the chip: cuDNN's on GPUs, Splash on TPUs.

Both are told who sees whom by segments alone: every position sees its own segment, padding (segment 0) included. So no
position sees nothing, and it does not matter what a kernel makes of an empty row. What padding gets is then not what
`einsum_attention` gives it; tokens get the same, and nobody looks at padding.

The compiler cannot split a kernel over a mesh by itself: each device is given its rows and heads by hand.
"""

import jax

from rembert.errors import UsageError
from rembert.model.building_blocks import ATTENTION
from rembert.model.partitioning import on_shards, platform

_PLATFORM = {'cudnn': 'gpu', 'splash': 'tpu'}
_LENGTH_MULTIPLE = {'cudnn': 2, 'splash': 128}  # cuDNN's backward pass with a mask; the lanes of a TPU's registers
_LARGEST_BLOCK = 512  # in float32, blocks of 1024 no longer fit into the 16 MiB that a kernel has on a TPU v4


def check_backend(backend: str, *, platform: str, sequence_length: int) -> None:
  """UsageError where a backend of `Execution.attention` has no kernel for these devices, or for rows of this length."""
  needed, multiple = _PLATFORM.get(backend, platform), _LENGTH_MULTIPLE.get(backend, 1)
  if platform != needed:
    raise UsageError(
      f'{backend} attention is a kernel for the {needed.upper()}, and these devices are {platform}',
      where=f'execution.attention = {backend!r}',
      fix='--gin.execution.attention=einsum, which runs everywhere',
    )
  if sequence_length % multiple:
    longer = sequence_length + -sequence_length % multiple
    raise UsageError(
      f'{backend} attention needs rows of a multiple of {multiple} tokens, not {sequence_length}',
      where=f'execution.attention = {backend!r}',
      fix=f'rows of {longer} tokens, or --gin.execution.attention=einsum',
    )


def cudnn_attention(
  query_BxSxNxD: jax.Array, key_BxSxNxD: jax.Array, value_BxSxNxD: jax.Array, segment_ids_BxS: jax.Array | None = None
) -> jax.Array:
  """softmax(q·k/√D)·v by cuDNN, [B, S, N, D], bfloat16 or float16; D a multiple of 8.

  Raises:
    UsageError: away from GPUs, or where S is odd.
  """
  check_backend('cudnn', platform=platform(), sequence_length=query_BxSxNxD.shape[1])

  def on_one_device(query_BxSxNxD, key_BxSxNxD, value_BxSxNxD, segment_ids_BxS):
    mask = None
    if segment_ids_BxS is not None:  # cuDNN knows no segments, and takes no mask smaller than [B, 1, S, S]
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
  """softmax(q·k/√D)·v by JAX's Splash kernel, [B, S, N, D]; scores and softmax in float32.

  Args:
    query_BxSxNxD: float32 or bfloat16, as are the other two.
    key_BxSxNxD: see `query_BxSxNxD`.
    value_BxSxNxD: see `query_BxSxNxD`.
    segment_ids_BxS: int32, or None where everything sees everything.
    interpret: run the kernel step by step on any device, to test it.

  Raises:
    UsageError: away from TPUs, or where S is no multiple of 128.
  """
  sequence_length, head_dim = query_BxSxNxD.shape[1], query_BxSxNxD.shape[3]
  check_backend('splash', platform='tpu' if interpret else platform(), sequence_length=sequence_length)

  def on_one_device(query_BxNxSxD, key_BxNxSxD, value_BxNxSxD, segment_ids_BxS):
    kernel = _splash_kernel(query_BxNxSxD.shape[1], sequence_length, interpret)
    return jax.vmap(kernel)(query_BxNxSxD, key_BxNxSxD, value_BxNxSxD, segment_ids_BxS)

  rows_and_heads = ('batch', 'heads', None, None)
  attend = on_shards(on_one_device, inputs=(*[rows_and_heads] * 3, ('batch', None)), output=rows_and_heads)
  query, key, value = (x.swapaxes(1, 2) for x in (query_BxSxNxD * head_dim**-0.5, key_BxSxNxD, value_BxSxNxD))
  return attend(query, key, value, segment_ids_BxS).swapaxes(1, 2)


def splash_block(sequence_length: int) -> int:
  """Rows of a block, queries as well as keys: the largest multiple of 128 up to 512 that divides the row."""
  return max(size for size in range(128, _LARGEST_BLOCK + 1, 128) if sequence_length % size == 0)


def _splash_kernel(heads, sequence_length, interpret):
  """(q, k, v, segment ids) of one row, heads first, to the output of that row."""
  # Here, since it lives in jax.experimental: should it move, only those who want it notice.
  from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
  from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

  block = splash_block(sequence_length)
  kernel = splash.make_splash_mha_single_device(
    masks.MultiHeadMask([masks.FullMask((sequence_length, sequence_length))] * heads),
    # The fused backward kernel computes the scores once for all three gradients, not once for the queries' and once
    # for the other two. It leaves one part of the queries' gradient per block of keys to be added up; up to 512
    # tokens there is one block.
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
