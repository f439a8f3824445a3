"""Attention by cuDNN's fused kernel, for NVIDIA GPUs: the [S, S] weights stay on the chip."""

import jax

from rembert.model.partitioning import on_shards


def attention(
  query_BxSxNxD: jax.Array, key_BxSxNxD: jax.Array, value_BxSxNxD: jax.Array, segment_ids_BxS: jax.Array | None = None
) -> jax.Array:
  """softmax(q·k/√D)·v, [B, S, N, D], bfloat16 or float16; S even, D a multiple of 8.

  Every position sees its own segment, padding (segment 0) included. The compiler cannot split a kernel over a mesh, so
  `on_shards` gives each device its sequences and heads.
  """

  def on_one_device(query_BxSxNxD, key_BxSxNxD, value_BxSxNxD, segment_ids_BxS):
    mask = None
    if segment_ids_BxS is not None:  # cuDNN has no segments, and accepts no mask smaller than [B, 1, S, S]
      mask = segment_ids_BxS[:, None, :, None] == segment_ids_BxS[:, None, None, :]
    return jax.nn.dot_product_attention(query_BxSxNxD, key_BxSxNxD, value_BxSxNxD, mask=mask, implementation='cudnn')

  rows_and_heads = ('batch', None, 'heads', None)
  attend = on_shards(on_one_device, inputs=(*[rows_and_heads] * 3, ('batch', None)), output=rows_and_heads)
  return attend(query_BxSxNxD, key_BxSxNxD, value_BxSxNxD, segment_ids_BxS)
