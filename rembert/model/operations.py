"""The table of functions that modules call: the equations, or faster implementations of `rembert.kernels`."""

import dataclasses
from collections.abc import Callable

import jax

from rembert.model import attention, layers
from rembert.model.config import Execution


@dataclasses.dataclass(frozen=True)
class Operations:
  """The functions that modules call; by default the equations of `layers` and `attention`, differentiated by JAX.

  `self_attention` computes all of `SelfAttention` for whole sequences, with a kernel's own memory layout; None uses
  `attention`. `choose_unroll` maps (`Execution.unroll`, number of layers, whether they are recomputed) to the `unroll`
  of `run_layers`.
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
  """The table chosen by `Execution.kernels` and `Execution.attention`."""
  if execution.kernels == 'reference' and execution.attention == 'einsum':
    return Operations()
  # Imported here, since kernels import the equations.
  from rembert import kernels

  return kernels.operations(execution)
