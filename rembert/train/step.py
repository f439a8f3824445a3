"""Training and evaluation steps, as pure functions of pytrees."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from rembert.train.chunked_loss import chunked_mlm_row_sums, chunked_mlm_sums
from rembert.train.losses import LossSums, label_sums, mlm_row_sums, span_sums, value_sums
from rembert.train.state import Trainable, TrainState

Batch = dict[str, jax.Array]
# (graphdef, parameters, batch, dropout key or None) to sums over the batch.
Objective = Callable[[nnx.GraphDef, dict, Batch, jax.Array | None], LossSums]


class StepMetrics(NamedTuple):
  """Scalars of a training step over the global batch, float32."""

  sums: LossSums  # over all predictions
  tokens: jax.Array  # positions that are not padding
  grad_norm: jax.Array  # global norm of the mean gradient, before clipping
  is_finite: jax.Array  # bool; an update whose loss or gradient is not finite is skipped


def _run_masked_lm(graphdef, params, batch, dropout_key, of_logits, in_chunks) -> LossSums:
  model, slots = nnx.merge(graphdef, params), (batch['targets'], batch['weights'])
  inputs = {name: batch[name] for name in ('input_ids', 'segment_ids', 'position_ids', 'masked_positions')}
  chunk = model.encoder.execution.loss_chunk
  if not chunk:
    return of_logits(model(**inputs, dropout_key=dropout_key).logits, *slots)
  hidden_for_logits = model.hidden_for_logits(**inputs, dropout_key=dropout_key)
  with jax.named_scope('loss'):
    return in_chunks(*hidden_for_logits, *slots, vocab_size=model.encoder.config.vocab_size, chunk=chunk)


def masked_lm_sums(graphdef: nnx.GraphDef, params: dict, batch: Batch, dropout_key=None) -> LossSums:
  """Sums over a batch of packed, masked sequences (`rembert.data.masking`), with a differentiable loss."""
  of_logits = lambda *slots: jax.tree.map(jnp.sum, mlm_row_sums(*slots))
  return _run_masked_lm(graphdef, params, batch, dropout_key, of_logits, chunked_mlm_sums)


def masked_lm_row_sums(graphdef: nnx.GraphDef, params: dict, batch: Batch) -> LossSums:
  """Sums per sequence, [B], without dropout, for evaluation."""
  return _run_masked_lm(graphdef, params, batch, None, mlm_row_sums, chunked_mlm_row_sums)


def head_sums(head: str) -> Objective:
  """The objective of one of `rembert.model.heads.TASK_HEADS`."""

  def sums(graphdef, params, batch, dropout_key=None):
    logits = head_logits(graphdef, params, batch, dropout_key)
    if head == 'qa':
      return span_sums(logits, batch['labels'], batch['segment_ids'] > 0)
    if head == 'regression':
      return value_sums(logits, batch['labels'])
    return label_sums(logits, batch['labels'])

  return sums


def head_logits(graphdef: nnx.GraphDef, params: dict, batch: Batch, dropout_key=None) -> jax.Array:
  """Logits of a head for a batch of `rembert.data.finetune_batches`, float32."""
  inputs = {name: batch[name] for name in ('input_ids', 'token_type_ids', 'segment_ids')}
  return nnx.merge(graphdef, params)(**inputs, dropout_key=dropout_key).logits


def make_train_step(
  trainable: Trainable,
  *,
  sums_of: Objective = masked_lm_sums,
  accumulation_steps: int = 1,
) -> jax.stages.Wrapped:
  """Returns the jitted update of a state, a batch and the seed of dropout, an int or None for none.

  It returns the next state, in the memory of the old one, and `StepMetrics`. The gradients of `accumulation_steps`
  micro-batches are added as sums and divided once by the weight of the whole batch, so the result is that of one large
  batch. The seed is an argument so that runs of several seeds share a compiled program.
  """

  def microbatch_gradients(params, microbatch, key):
    def loss_sum(params):
      sums = sums_of(trainable.graphdef, params, microbatch, key)
      return sums.loss, sums

    return jax.grad(loss_sum, has_aux=True)(params)

  def all_gradients(params, batch, key):
    if accumulation_steps == 1:
      return microbatch_gradients(params, batch, key)
    # Sequence r goes to micro-batch r mod A, so that each micro-batch stays sharded over all devices.
    deal = lambda rows: jnp.swapaxes(rows.reshape(-1, accumulation_steps, *rows.shape[1:]), 0, 1)
    parts = jax.tree.map(deal, batch)
    keys = None if key is None else jax.random.split(key, accumulation_steps)

    def add_part(totals, part):
      return jax.tree.map(jnp.add, totals, microbatch_gradients(params, *part)), None

    zeros = (optax.tree.zeros_like(params), LossSums(*(jnp.zeros(()) for _ in LossSums._fields)))
    return jax.lax.scan(add_part, zeros, (parts, keys))[0]

  def train_step(state: TrainState, batch: Batch, dropout_seed: jax.Array | None) -> tuple[TrainState, StepMetrics]:
    key = None if dropout_seed is None else jax.random.fold_in(jax.random.key(dropout_seed), state.step)
    gradients, sums = all_gradients(state.params, batch, key)
    weight = jnp.maximum(sums.weight, 1)
    grad_norm = optax.tree.norm(gradients) / weight
    is_finite = jnp.isfinite(sums.loss) & jnp.isfinite(grad_norm)
    with jax.named_scope('optimizer'):
      updates, opt_state = trainable.optimizer.update(
        gradients, state.opt_state, state.params, weight=weight, is_finite=is_finite
      )
    metrics = StepMetrics(
      sums=sums,
      tokens=jnp.sum(batch['segment_ids'] > 0, dtype=jnp.float32),
      grad_norm=grad_norm,
      is_finite=is_finite,
    )
    # Selected elementwise, where the update is written; a branch would cost a second copy of the state.
    keep_if_finite = lambda new, old: jnp.where(is_finite, new, old)
    params = jax.tree.map(keep_if_finite, optax.apply_updates(state.params, updates), state.params)
    ema = state.ema
    if ema is not None:
      # Less at first, as `tf.train.ExponentialMovingAverage` with `num_updates`: 1 − min(decay, (1 + t) / (10 + t)).
      share = jnp.maximum(1 - trainable.ema_decay, 9 / (10 + state.step))
      ema = jax.tree.map(keep_if_finite, optax.incremental_update(params, ema, share), ema)
    return TrainState(state.step + 1, params, opt_state, ema), metrics

  shardings = trainable.shardings
  return jax.jit(train_step, donate_argnums=0, in_shardings=(shardings, None, None), out_shardings=(shardings, None))


def make_eval_step(trainable: Trainable, num_languages: int) -> jax.stages.Wrapped:
  """Returns the jitted evaluation: (params, batch) to sums per language, each [num_languages]."""

  def eval_step(params: dict, batch: Batch) -> LossSums:
    rows = masked_lm_row_sums(trainable.graphdef, params, batch)
    return jax.tree.map(lambda sums: jax.ops.segment_sum(sums, batch['language'], num_languages), rows)

  return jax.jit(eval_step, in_shardings=(trainable.shardings.params, None))


def make_logits_step(trainable: Trainable) -> jax.stages.Wrapped:
  """Returns the jitted forward pass of a head: (params, batch) to logits, replicated for all hosts."""
  return jax.jit(
    lambda params, batch: head_logits(trainable.graphdef, params, batch),
    in_shardings=(trainable.shardings.params, None),
    out_shardings=NamedSharding(trainable.mesh, PartitionSpec()),
  )
