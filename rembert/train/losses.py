"""Losses of all heads, as sums and counts, divided once, by the weight of the whole batch.

Averaging averages (over micro-batches, hosts or languages) would weight tokens unequally.
"""

from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

T = TypeVar('T')


class LossSums(NamedTuple, Generic[T]):
  """Sums over predictions, float32, of one shape (per sequence, or over a batch)."""

  loss: T  # cross-entropy in nats; for regression, squared error
  correct: T  # predictions whose target has the highest logit, without ties; for regression, NaN
  weight: T  # number of predictions


def mlm_row_sums(logits_BxKxV: jax.Array, targets_BxK: jax.Array, weights_BxK: jax.Array) -> LossSums:
  """Sums per sequence, each [B].

  Args:
    logits_BxKxV: float32; −∞ for the padding of the vocabulary.
    targets_BxK: int32 original ids at the masked positions.
    weights_BxK: 1 for a real masked position, 0 for one that pads K.
  """
  return jax.tree.map(lambda x_BxK: jnp.sum(x_BxK, axis=-1), _weighted(logits_BxKxV, targets_BxK, weights_BxK))


def label_sums(logits: jax.Array, labels: jax.Array) -> LossSums:
  """Scalar sums over a batch: one prediction per label that is not −1, of logits [..., n] and labels [...].

  Labels are [B] in classification and [B, S] in tagging; −1 in examples that pad a batch.
  """
  weights = (labels >= 0).astype(jnp.float32)
  return jax.tree.map(jnp.sum, _weighted(logits, jnp.maximum(labels, 0), weights))


def value_sums(values_Bx1: jax.Array, targets_B: jax.Array) -> LossSums:
  """Scalar sums over a batch of numbers, float32; targets of NaN do not count."""
  is_given_B = ~jnp.isnan(targets_B)
  errors_B = jnp.where(is_given_B, values_Bx1[:, 0] - targets_B, 0)  # avoids 0 · NaN, whose gradient is NaN
  return LossSums(jnp.sum(errors_B**2), jnp.full((), jnp.nan), jnp.sum(is_given_B, dtype=jnp.float32))


def span_sums(logits_BxSx2: jax.Array, spans_Bx2: jax.Array, is_text_BxS: jax.Array) -> LossSums:
  """Scalar sums over a batch: start and end of a span, each half a prediction (google-research/bert, run_squad).

  Args:
    logits_BxSx2: float32, of start and end at each position. The softmax excludes padding.
    spans_Bx2: int32, first and last position; −1 for none.
    is_text_BxS: bool, False for padding.
  """
  logits_Bx2xS = jnp.where(is_text_BxS[:, None], jnp.swapaxes(logits_BxSx2, 1, 2), -jnp.inf)
  is_row_Bx2 = jnp.broadcast_to(jnp.any(is_text_BxS, axis=1)[:, None], spans_Bx2.shape)
  logits_Bx2xS = jnp.where(is_row_Bx2[..., None], logits_Bx2xS, 0)  # without text, neither gradient nor NaN
  weights_Bx2 = 0.5 * ((spans_Bx2 >= 0) & is_row_Bx2)
  return jax.tree.map(jnp.sum, _weighted(logits_Bx2xS, jnp.maximum(spans_Bx2, 0), weights_Bx2))


def _weighted(logits: jax.Array, targets: jax.Array, weights: jax.Array) -> LossSums:
  """Loss, correctness and weight of each prediction: logits [..., n] to [...]."""
  target_logits = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
  # The target's rank is a plain sum, unlike an argmax, and a tie makes it 2.
  is_correct = jnp.sum(logits >= target_logits[..., None], axis=-1) == 1
  losses = jax.nn.logsumexp(logits, axis=-1) - target_logits
  return LossSums(loss=weights * losses, correct=weights * is_correct, weight=weights)
