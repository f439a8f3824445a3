"""Losses of all heads, as sums.

Everything is summed and counted, and divided once, by the whole batch's weight. A mean of means (over microbatches,
hosts or languages) weighs a token by the company it keeps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class LossSums(NamedTuple):
  """Sums over what is to be predicted, float32, of any matching shape (per row, or over a batch).

  Attributes:
    loss: cross-entropy in nats.
    correct: predictions where nothing else has as high a logit as the target.
    weight: predictions that count.
  """

  loss: jax.Array
  correct: jax.Array
  weight: jax.Array


def mlm_row_sums(logits_BxKxV: jax.Array, targets_BxK: jax.Array, weights_BxK: jax.Array) -> LossSums:
  """Sums per row, each [B].

  Args:
    logits_BxKxV: float32; padding rows of the vocabulary at −∞.
    targets_BxK: int32 original ids at the masked positions.
    weights_BxK: 1 for a real masked position, 0 for one that pads K.
  """
  return jax.tree.map(lambda x_BxK: jnp.sum(x_BxK, axis=-1), _weighted(logits_BxKxV, targets_BxK, weights_BxK))


def classification_sums(logits_BxN: jax.Array, labels_B: jax.Array) -> LossSums:
  """Sums over a batch, each a scalar: one prediction a row.

  Args:
    logits_BxN: float32.
    labels_B: int32; −1 where there is none, as in a row that fills up a batch.
  """
  weights_B = (labels_B >= 0).astype(jnp.float32)
  return jax.tree.map(jnp.sum, _weighted(logits_BxN, jnp.maximum(labels_B, 0), weights_B))


def tagging_sums(logits_BxSxN: jax.Array, labels_BxS: jax.Array) -> LossSums:
  """The same with one prediction for every position whose label is not −1."""
  return classification_sums(logits_BxSxN, labels_BxS)


def span_sums(logits_BxSx2: jax.Array, spans_Bx2: jax.Array, is_text_BxS: jax.Array) -> LossSums:
  """Sums over a batch: where a span begins and where it ends, each half a prediction (google-research/bert, run_squad).

  Args:
    logits_BxSx2: float32, of beginning and of ending at each position. Those of padding do not take part.
    spans_Bx2: int32, first and last position; −1 where there is none.
    is_text_BxS: bool, False for padding.
  """
  logits_Bx2xS = jnp.where(is_text_BxS[:, None], jnp.swapaxes(logits_BxSx2, 1, 2), -jnp.inf)
  is_row_Bx2 = jnp.broadcast_to(jnp.any(is_text_BxS, axis=1)[:, None], spans_Bx2.shape)
  logits_Bx2xS = jnp.where(is_row_Bx2[..., None], logits_Bx2xS, 0)  # a row without text has no gradient, nor a NaN
  weights_Bx2 = 0.5 * ((spans_Bx2 >= 0) & is_row_Bx2)
  return jax.tree.map(jnp.sum, _weighted(logits_Bx2xS, jnp.maximum(spans_Bx2, 0), weights_Bx2))


def _weighted(logits: jax.Array, targets: jax.Array, weights: jax.Array) -> LossSums:
  """Loss, correctness and weight of each prediction: logits [..., n] to [...]."""
  target_logits = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
  # The target's rank: a plain sum, which an argmax is not, and which falls for no tie.
  is_correct = jnp.sum(logits >= target_logits[..., None], axis=-1) == 1
  losses = jax.nn.logsumexp(logits, axis=-1) - target_logits
  return LossSums(loss=weights * losses, correct=weights * is_correct, weight=weights)
