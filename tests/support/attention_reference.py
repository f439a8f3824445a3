"""Attention and its gradient by the chain rule, in NumPy and float64."""

import numpy as np


def attention_with_gradients(query, key, value, cotangent, sees=None, kept=1.0):
  """The output of attention, and the gradients of the sum of its product with `cotangent`.

  Arrays are [B, positions, N, D], as are the four results. A query that sees nothing gives every key the same weight.

  Args:
    query: at K positions.
    key: at S positions.
    value: likewise.
    cotangent: as the output.
    sees: bool, broadcasts to [B, N, K, S]; None is everything.
    kept: a factor of each weight, as dropout gives, broadcasts likewise.
  """
  query, key, value, cotangent = (_swapped(np.asarray(x, np.float64)) for x in (query, key, value, cotangent))
  sees = True if sees is None else np.asarray(sees)
  scale = query.shape[-1] ** -0.5
  scores = np.where(sees, scale * query @ _transposed(key), np.finfo(np.float64).min)
  weights = np.exp(scores - scores.max(-1, keepdims=True))
  weights /= weights.sum(-1, keepdims=True)
  slopes = kept * (cotangent @ _transposed(value))
  slopes = np.where(sees, weights * (slopes - (slopes * weights).sum(-1, keepdims=True)), 0)
  output, value_gradient = (kept * weights) @ value, _transposed(kept * weights) @ cotangent
  gradients = scale * slopes @ key, scale * _transposed(slopes) @ query, value_gradient
  return [_swapped(x) for x in (output, *gradients)]


def _transposed(x):
  return np.swapaxes(x, -1, -2)


def _swapped(x):
  return np.swapaxes(x, 1, 2)
