"""The masked-language-model loss, computed in chunks of positions, so that not all logits are in memory.

Logits would be the largest arrays of a step: for RemBERT, 32 sequences of 512 tokens need 2.5 GB at masked positions
alone, and their gradient as much again. Here they exist for one chunk at a time, at no cost:

- A device chunks its B·K positions, rather than K of each sequence. So matmuls stay as large as the chunk with any
  number of sequences per device, memory for logits is constant, and hardly any padding is multiplied.
- The forward pass computes a chunk's contribution to all gradients while its logits exist, and the backward pass only
  scales it, so nothing is computed twice. (Chunks of the vocabulary would need a first pass for the normaliser.)

Over a mesh, the table is gathered over `fsdp` once, before the chunks, and its gradient is reduced and scattered once,
after them. Over `tensor` it stays split: each device computes the logits of its vocabulary entries, and the devices
exchange three numbers per position: the target's logit, the largest of the others, and the sum of exponentials.

B sequences · K masked positions · C positions of a chunk · E output embedding · V vocabulary, or a device's shard
"""

import functools
import math

import jax
import jax.numpy as jnp

from rembert.kernels import product, sum_of_rows
from rembert.model import partitioning
from rembert.train.losses import LossSums

_INPUT_AXES = (('batch', None, None), ('vocab', 'embed'), ('vocab',), ('batch', None), ('batch', None))
_ROW_SUMS_AXES = LossSums(('batch',), ('batch',), ('batch',))


def chunked_mlm_row_sums(*arrays: jax.Array, vocab_size: int, chunk: int) -> LossSums:
  """Sums per sequence, each [B], from the arguments of `chunked_mlm_sums`, without gradients; equals `mlm_row_sums`."""
  return _on_shards(False, vocab_size, chunk, _ROW_SUMS_AXES)(*arrays)


def chunked_mlm_sums(
  x_BxKxE: jax.Array,
  table_VxE: jax.Array,
  bias_V: jax.Array,
  targets_BxK: jax.Array,
  weights_BxK: jax.Array,
  *,
  vocab_size: int,
  chunk: int,
) -> LossSums:
  """Sums over the whole batch, float32 scalars; `loss` is differentiable.

  The sum has one weight, not one per sequence, since gradients are computed in the forward pass; weight sequences by
  `weights_BxK`. Gradients of table and bias are accumulated in float32 for any dtype of the matmuls.

  Args:
    x_BxKxE: inputs of the output embedding, in the dtype of the matmuls.
    table_VxE: float32 output embedding, with the padding of the vocabulary.
    bias_V: float32.
    targets_BxK: int32 original ids at the masked positions.
    weights_BxK: 1 for a real masked position, 0 for one that pads K. A constant: it gets no gradient.
    vocab_size: size of the vocabulary without padding; the logits of padding are −∞.
    chunk: maximum number of positions per device whose logits are in memory; chunks are of equal size.
  """
  return _differentiable_sums(vocab_size, chunk, x_BxKxE, table_VxE, bias_V, targets_BxK, weights_BxK)


def _on_shards(has_gradients, vocab_size, chunk, output_axes):
  one_shard = functools.partial(_sums_of_shard, vocab_size=vocab_size, chunk=chunk, has_gradients=has_gradients)
  return partitioning.on_shards(one_shard, inputs=_INPUT_AXES, output=output_axes)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _differentiable_sums(vocab_size, chunk, *arrays) -> LossSums:
  return jax.tree.map(jnp.sum, chunked_mlm_row_sums(*arrays, vocab_size=vocab_size, chunk=chunk))


def _forward(vocab_size, chunk, *arrays):
  rows, gradients = _on_shards(True, vocab_size, chunk, (_ROW_SUMS_AXES, _INPUT_AXES[:3]))(*arrays)
  return jax.tree.map(jnp.sum, rows), gradients


def _backward(vocab_size, chunk, gradients, of_sums):
  del vocab_size, chunk
  scale = lambda gradient: (of_sums.loss * gradient).astype(gradient.dtype)
  return *map(scale, gradients), None, None


_differentiable_sums.defvjp(_forward, _backward)


# --- one device -------------------------------------------------------------------------------------------------------


def _sums_of_shard(x_BxKxE, table_VxE, bias_V, targets_BxK, weights_BxK, *, vocab_size, chunk, has_gradients):
  """Sums of a device's sequences; with `has_gradients` also the gradients of its shards of `x`, table and bias."""
  rows, slots, width = x_BxKxE.shape
  number_of_chunks = max(1, math.ceil(rows * slots / chunk))
  chunk = math.ceil(rows * slots / number_of_chunks)
  padding = number_of_chunks * chunk - rows * slots

  def in_chunks(of_slots):
    flat = of_slots.reshape(rows * slots, *of_slots.shape[2:])
    padded = jnp.pad(flat, ((0, padding), *((0, 0) for _ in flat.shape[1:])))
    return padded.reshape(number_of_chunks, chunk, *flat.shape[1:])

  def in_rows(of_chunks):
    flat = of_chunks.reshape(number_of_chunks * chunk, *of_chunks.shape[2:])
    return flat[: rows * slots].reshape(rows, slots, *flat.shape[1:])

  pieces = table_VxE.shape[0]
  first_id = partitioning.shard_number('vocab') * pieces
  whole_table_VxE = partitioning.all_gather(table_VxE.astype(x_BxKxE.dtype), 'embed', axis=1)
  masked_bias_V = jnp.where(first_id + jnp.arange(pieces) < vocab_size, bias_V, -jnp.inf)

  def add_chunk(of_table, of_chunk):
    x_CxE, targets_C, weights_C = of_chunk
    own_targets_C = targets_C - first_id  # out of range if another device has the target
    is_target_CxV = jnp.arange(pieces) == own_targets_C[:, None]
    products_CxV = product('ce,ve->cv', x_CxE, whole_table_VxE, jnp.float32)
    others_CxV = jnp.where(is_target_CxV, -jnp.inf, products_CxV + masked_bias_V)
    scores, log_normalizer_C = _score(_own_target_logits(products_CxV, masked_bias_V, own_targets_C), others_CxV)
    if not has_gradients:
      return of_table, (scores, None)
    softmax_CxV = jnp.exp(others_CxV - log_normalizer_C[:, None])
    of_target_C = jnp.expm1(-scores[0])  # softmax − 1
    slope_CxV = jnp.where(is_target_CxV, of_target_C[:, None], softmax_CxV) * weights_C[:, None]
    slope_CxV = slope_CxV.astype(x_CxE.dtype)
    table_gradient_VxE, bias_gradient_V = of_table
    table_gradient_VxE += product('cv,ce->ve', slope_CxV, x_CxE, jnp.float32)
    bias_gradient_V += sum_of_rows(slope_CxV)
    x_gradient_CxE = product('cv,ve->ce', slope_CxV, whole_table_VxE, jnp.float32)
    return (table_gradient_VxE, bias_gradient_V), (scores, x_gradient_CxE)

  of_table: tuple[jax.Array, ...] = (jnp.zeros((pieces, width)), jnp.zeros(pieces)) if has_gradients else ()
  chunks = (in_chunks(x_BxKxE), in_chunks(targets_BxK), in_chunks(weights_BxK.astype(jnp.float32)))
  of_table, (scores, x_gradient) = jax.lax.scan(add_chunk, of_table, chunks, unroll=number_of_chunks == 1)
  loss_BxK, is_correct_BxK = map(in_rows, scores)
  total = lambda of_slots: jnp.sum(weights_BxK * of_slots, axis=-1, dtype=jnp.float32)
  sums = LossSums(loss=total(loss_BxK), correct=total(is_correct_BxK), weight=total(jnp.ones_like(loss_BxK)))
  if not has_gradients:
    return sums
  table_gradient_VxE, bias_gradient_V = of_table
  return sums, (
    partitioning.psum(in_rows(x_gradient), 'vocab').astype(x_BxKxE.dtype),
    partitioning.psum(table_gradient_VxE, 'batch', split='embed', axis=1),
    partitioning.psum(bias_gradient_V, 'batch'),
  )


def _own_target_logits(products_CxV, bias_V, own_targets_C):
  """[C]: the target's logit if this device has it, else 0."""
  pieces = len(bias_V)
  nearest_C = jnp.clip(own_targets_C, 0, pieces - 1)
  picked_C = jnp.take_along_axis(products_CxV, nearest_C[:, None], axis=1)[:, 0] + bias_V[nearest_C]
  return jnp.where(nearest_C == own_targets_C, picked_C, 0)


def _score(own_target_logits_C, others_CxV):
  """Loss and correctness of each position, and its log-normaliser, [C] each, over the vocabulary of all devices.

  The target's logit is separate from all others, so that one array is read for everything. A prediction is correct if
  its target's logit is larger than all others, a rank of 1 as in `mlm_row_sums`.
  """
  target_logit_C = partitioning.psum(own_target_logits_C, 'vocab')
  largest_other_C = partitioning.all_max(others_CxV.max(axis=-1), 'vocab')
  largest_C = jnp.maximum(largest_other_C, target_logit_C)
  exponentials_C = partitioning.psum(jnp.exp(others_CxV - largest_C[:, None]).sum(axis=-1), 'vocab')
  log_normalizer_C = largest_C + jnp.log(exponentials_C + jnp.exp(target_logit_C - largest_C))
  return (log_normalizer_C - target_logit_C, target_logit_C > largest_other_C), log_normalizer_C
