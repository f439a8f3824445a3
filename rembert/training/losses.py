"""The masked-language-model loss, as sums.

Everything is summed and counted, and divided once, by the whole batch's weight. A mean of means (over microbatches,
hosts or languages) weighs a token by the company it keeps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class MlmSums(NamedTuple):
  """Sums over masked positions, float32, of any matching shape (per row, or over a batch).

  Attributes:
    loss: cross-entropy in nats.
    correct: positions where no other piece has as high a logit as the target.
    weight: positions that count.
  """

  loss: jax.Array
  correct: jax.Array
  weight: jax.Array


def mlm_row_sums(logits_BxKxV: jax.Array, targets_BxK: jax.Array, weights_BxK: jax.Array) -> MlmSums:
  """Sums per row, each [B].

  Args:
    logits_BxKxV: float32; padding rows of the vocabulary at −∞.
    targets_BxK: int32 original ids at the masked positions.
    weights_BxK: 1 for a real masked position, 0 for one that pads K.
  """
  log_normalizer_BxK = jax.nn.logsumexp(logits_BxKxV, axis=-1)
  target_logits_BxK = jnp.take_along_axis(logits_BxKxV, targets_BxK[..., None], axis=-1)[..., 0]
  # The target's rank: a plain sum, which an argmax is not, and which falls for no tie.
  is_correct_BxK = jnp.sum(logits_BxKxV >= target_logits_BxK[..., None], axis=-1) == 1
  total = lambda x_BxK: jnp.sum(weights_BxK * x_BxK, axis=-1)
  return MlmSums(
    loss=total(log_normalizer_BxK - target_logits_BxK), correct=total(is_correct_BxK), weight=jnp.sum(weights_BxK, -1)
  )
