"""The masked-language-model loss without its logits: a chunk of positions at a time, each device for its own part.

Logits are the largest thing that a step could hold: RemBERT's, of 32 rows of 512 tokens at masked positions only, take
2.5 GB, and their gradient as much again. Here they exist for one chunk, and two things make that cost nothing:

- A device chunks its own positions, B·K of them in one line, rather than K. Products stay as tall as the chunk however
  few rows a device has, logits take the same memory however many, and no padding to speak of is multiplied.
- A chunk's share of all gradients is made while its logits are there, already in the forward pass. The backward pass
  only scales it, so nothing is computed twice. (Chunks of the vocabulary would need a first pass for the normaliser.)

Over a mesh, the table is brought together over `fsdp` once, before the chunks, and its gradient is summed and split
again once, after them. Over `tensor` it stays split: each device knows the logits of its own pieces, and the devices
exchange a few numbers for each position: the target's logit, the largest of the others, and the sum of exponentials.

B rows · K masked positions per row · C positions of a chunk · E output embedding · V vocabulary, or a device's part
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rembert.kernels import product, sum_of_rows
from rembert.model import partitioning
from rembert.train.losses import LossSums

_INPUT_AXES = (('batch', None, None), ('vocab', 'embed'), ('vocab',), ('batch', None), ('batch', None))
_ROW_SUMS_AXES = LossSums(('batch',), ('batch',), ('batch',))


class _Gradients(NamedTuple):
  """Of the loss summed over all positions."""

  x_BxKxE: jax.Array
  table_VxE: jax.Array
  bias_V: jax.Array


def chunked_mlm_row_sums(
  x_BxKxE: jax.Array,
  table_VxE: jax.Array,
  bias_V: jax.Array,
  targets_BxK: jax.Array,
  weights_BxK: jax.Array,
  *,
  vocab_size: int,
  chunk: int,
) -> LossSums:
  """Sums per row, each [B], as `mlm_row_sums` makes them of logits; for evaluation, where nothing is differentiated.

  The arguments are those of `chunked_mlm_sums`.
  """
  one_shard = functools.partial(_sums_of_shard, vocab_size=vocab_size, chunk=chunk, has_gradients=False)
  run = partitioning.on_shards(one_shard, inputs=_INPUT_AXES, output=_ROW_SUMS_AXES)
  return run(x_BxKxE, table_VxE, bias_V, targets_BxK, weights_BxK)


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
  """Sums over the whole batch, float32 scalars; `loss` can be differentiated.

  By the batch and not by row, since gradients are made before anybody says how much each row matters. Who wants rows to
  matter differently says so by their weights.

  Args:
    x_BxKxE: what the output embedding is multiplied with, in the dtype of the products.
    table_VxE: float32 output embedding, padding rows included.
    bias_V: float32.
    targets_BxK: int32 original ids at the masked positions.
    weights_BxK: 1 for a real masked position, 0 for one that pads K. A constant: it gets no gradient.
    vocab_size: rows of the table that are pieces; the logits of the rest are −∞.
    chunk: at most how many positions of a device have logits at one time; made even, so that little is padded.

  Returns:
    The sums. Gradients of table and bias are added up in float32 whatever the dtype of the products is.
  """
  return _differentiable_sums(vocab_size, chunk, x_BxKxE, table_VxE, bias_V, targets_BxK, weights_BxK)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _differentiable_sums(vocab_size, chunk, *arrays) -> LossSums:
  return jax.tree.map(jnp.sum, chunked_mlm_row_sums(*arrays, vocab_size=vocab_size, chunk=chunk))


def _forward(vocab_size, chunk, *arrays):
  one_shard = functools.partial(_sums_of_shard, vocab_size=vocab_size, chunk=chunk, has_gradients=True)
  gradient_axes = _Gradients(*_INPUT_AXES[:3])
  run = partitioning.on_shards(one_shard, inputs=_INPUT_AXES, output=(_ROW_SUMS_AXES, gradient_axes))
  rows, gradients = run(*arrays)
  return jax.tree.map(jnp.sum, rows), gradients


def _backward(vocab_size, chunk, gradients, of_sums):
  del vocab_size, chunk
  scale = lambda gradient: (of_sums.loss * gradient).astype(gradient.dtype)
  return *map(scale, gradients), None, None


_differentiable_sums.defvjp(_forward, _backward)


# --- one device -------------------------------------------------------------------------------------------------------


def _sums_of_shard(x_BxKxE, table_VxE, bias_V, targets_BxK, weights_BxK, *, vocab_size, chunk, has_gradients):
  """Sums of a device's own rows; with gradients, those of its own parts of `x`, table and bias too."""
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
  first_piece = partitioning.shard_number('vocab') * pieces
  whole_table_VxE = partitioning.all_gather(table_VxE.astype(x_BxKxE.dtype), 'embed', axis=1)
  masked_bias_V = jnp.where(first_piece + jnp.arange(pieces) < vocab_size, bias_V, -jnp.inf)

  def add_chunk(of_table, of_chunk):
    x_CxE, targets_C, weights_C = of_chunk
    own_targets_C = targets_C - first_piece  # elsewhere, where another device has the target
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

  of_table = (jnp.zeros((pieces, width)), jnp.zeros(pieces)) if has_gradients else None
  chunks = (in_chunks(x_BxKxE), in_chunks(targets_BxK), in_chunks(weights_BxK.astype(jnp.float32)))
  of_table, (scores, x_gradient) = jax.lax.scan(add_chunk, of_table, chunks, unroll=number_of_chunks == 1)
  loss_BxK, is_correct_BxK = map(in_rows, scores)
  total = lambda of_slots: jnp.sum(weights_BxK * of_slots, axis=-1, dtype=jnp.float32)
  sums = LossSums(loss=total(loss_BxK), correct=total(is_correct_BxK), weight=total(jnp.ones_like(loss_BxK)))
  if not has_gradients:
    return sums
  table_gradient_VxE, bias_gradient_V = of_table
  return sums, _Gradients(
    x_BxKxE=partitioning.psum(in_rows(x_gradient), 'vocab').astype(x_BxKxE.dtype),
    table_VxE=partitioning.psum(table_gradient_VxE, 'batch', split='embed', axis=1),
    bias_V=partitioning.psum(bias_gradient_V, 'batch'),
  )


def _own_target_logits(products_CxV, bias_V, own_targets_C):
  """[C]: the target's logit where this device has it, else 0."""
  pieces = len(bias_V)
  nearest_C = jnp.clip(own_targets_C, 0, pieces - 1)
  picked_C = jnp.take_along_axis(products_CxV, nearest_C[:, None], axis=1)[:, 0] + bias_V[nearest_C]
  return jnp.where(nearest_C == own_targets_C, picked_C, 0)


def _score(own_target_logits_C, others_CxV):
  """Loss and correctness of each position, and its log-normaliser, [C] each, over the pieces of all devices.

  The logits come as that of the target and those of all others: so one array is walked through for everything. The
  target is right where it is larger than all others, which is a rank of 1 as in `mlm_row_sums`.
  """
  target_logit_C = partitioning.psum(own_target_logits_C, 'vocab')
  largest_other_C = partitioning.all_max(others_CxV.max(axis=-1), 'vocab')
  largest_C = jnp.maximum(largest_other_C, target_logit_C)
  exponentials_C = partitioning.psum(jnp.exp(others_CxV - largest_C[:, None]).sum(axis=-1), 'vocab')
  log_normalizer_C = largest_C + jnp.log(exponentials_C + jnp.exp(target_logit_C - largest_C))
  return (log_normalizer_C - target_logit_C, target_logit_C > largest_other_C), log_normalizer_C
