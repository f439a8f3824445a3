"""The table of functions that modules compute with: the plain ones, or those of `rembert.kernels` in their place."""

import dataclasses
from collections.abc import Callable

import jax

from rembert.model import attention, layers
from rembert.model.config import Execution


@dataclasses.dataclass(frozen=True)
class Operations:
  """One function for each thing that modules compute; without arguments the equations, as JAX differentiates them.

  Attributes:
    affine: see `rembert.model.layers.affine`.
    layer_norm: see `rembert.model.layers.layer_norm`.
    gelu: see `rembert.model.layers.gelu`.
    logits: see `rembert.model.layers.logits`.
    attention: see `rembert.model.attention.attention`.
    self_attention: all of `SelfAttention` for whole rows, by a kernel that wants its arrays in an order of its own;
      None is products around `attention`.
    run_layers: see `rembert.model.layers.run_layers`.
    choose_unroll: (`Execution.unroll`, number of layers, whether they are computed again) to the `unroll` of
      `run_layers`.
  """

  affine: Callable[..., jax.Array] = layers.affine
  layer_norm: Callable[..., jax.Array] = layers.layer_norm
  gelu: Callable[..., jax.Array] = layers.gelu
  logits: Callable[..., jax.Array] = layers.logits
  attention: Callable[..., jax.Array] = attention.attention
  self_attention: Callable[..., jax.Array] | None = None
  run_layers: Callable[..., tuple] = layers.run_layers
  choose_unroll: Callable[[int, int, bool], int] = lambda unroll, count, recomputes: unroll


def operations(execution: Execution) -> Operations:
  """What `Execution.kernels` and `Execution.attention` choose."""
  if execution.kernels == 'reference' and execution.attention == 'einsum':
    return Operations()
  # Here and nowhere else: kernels are made after the equations, and import them.
  from rembert import kernels

  return kernels.operations(execution)
