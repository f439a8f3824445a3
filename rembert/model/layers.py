"""The building blocks of all modules: initialisers, a linear map, LayerNorm, GELU, logits, a stack of layers.

The functions are the equations, differentiated by JAX. Modules call them through a table, `Operations`, in which
`rembert.kernels` may put faster functions of the same signature.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from rembert.model.config import Execution, RemBertConfig
from rembert.model.partitioning import with_axes

# Names of activations that a layer may save (`Execution.remat`): matmuls of activations and a parameter; the
# output of attention, and the other residuals of a fused kernel.
PRODUCT = 'product'
ATTENTION = 'attention'

# --- initialisers -----------------------------------------------------------------------------------------------------


def kernel_initializer(config: RemBertConfig) -> nnx.Initializer:
  """Normal distribution truncated at two standard deviations, as in the original TensorFlow code."""
  return nnx.initializers.truncated_normal(config.initializer_range)


def vocabulary_initializer(config: RemBertConfig) -> nnx.Initializer:
  """`kernel_initializer` for an embedding matrix; the padding of V is zero."""
  fill = kernel_initializer(config)

  def initialize(key, shape, dtype=jnp.float32):
    table = fill(key, shape, dtype)
    return jnp.where(jnp.arange(shape[0])[:, None] < config.vocab_size, table, 0)

  return initialize


# --- equations --------------------------------------------------------------------------------------------------------


def wide(dtype: jnp.dtype) -> jnp.dtype:
  """The dtype of sums over values of `dtype`: float32, or float64 of float64, which only comparisons compute in."""
  return jnp.promote_types(dtype, jnp.float32)


def affine(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
  """x · kernel + bias in the dtype of `x`, contracted over the kernel's axes that the bias lacks."""
  product = jnp.tensordot(x, kernel.astype(x.dtype), kernel.ndim - bias.ndim)
  return checkpoint_name(product, PRODUCT) + bias.astype(x.dtype)


def layer_norm(x: jax.Array, scale_H: jax.Array, bias_H: jax.Array, epsilon: float) -> jax.Array:
  """(x − mean) / √(variance + ε) · scale + bias along the last axis, computed in float32.

  The variance is the mean square of the centred values: E[x²] − E[x]² is too coarse for an ε of 1e-12.
  """
  y = x.astype(wide(x.dtype))
  centred = y - y.mean(-1, keepdims=True)
  normal = centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + epsilon)
  return (normal * scale_H + bias_H).astype(x.dtype)


def gelu(x: jax.Array, approximate: bool) -> jax.Array:
  """x·Φ(x) in float32, exact or with the tanh approximation of Φ (Hendrycks and Gimpel, 2016)."""
  y = x.astype(wide(x.dtype))
  if approximate:
    # Φ ≈ ½(1 + tanh u) as a logistic function of 2u: for large −u, 1 + tanh u would lose all digits.
    return (y * jax.nn.sigmoid(math.sqrt(8 / math.pi) * (y + 0.044715 * y**3))).astype(x.dtype)
  return jax.nn.gelu(y, approximate=False).astype(x.dtype)


def logits(x_BxKxE: jax.Array, table_VxE: jax.Array, bias_V: jax.Array) -> jax.Array:
  """x · tableᵀ + bias, float32 [B, K, V], with a matmul in the dtype of `x`."""
  table_VxE = table_VxE.astype(x_BxKxE.dtype)
  return jnp.einsum('bke,ve->bkv', x_BxKxE, table_VxE, preferred_element_type=wide(x_BxKxE.dtype)) + bias_V


def gather_positions(x_BxSxH: jax.Array, positions_BxK: jax.Array) -> jax.Array:
  """x_BxKxH, the vectors of x_BxSxH at given positions of each sequence."""
  return jnp.take_along_axis(x_BxSxH, positions_BxK[..., None], axis=1)


def run_layers(
  step: Callable, x: jax.Array, layers: Any, *, unroll: int = 1, last_step: Callable | None = None
) -> tuple[jax.Array, Any]:
  """Runs layers with stacked parameters in a loop, so that program size and compile time do not grow with depth.

  `step` is as in `jax.lax.scan`: (x, a layer's parameters) to (output, a result to stack). `last_step` runs the last
  layer instead. Returns the output of the last layer, and the stacked results; with `last_step`, its result.
  """
  if last_step is None:
    return jax.lax.scan(step, x, layers, unroll=unroll)
  x, _ = jax.lax.scan(step, x, jax.tree.map(lambda leaf: leaf[:-1], layers), unroll=unroll)
  return last_step(x, jax.tree.map(lambda leaf: leaf[-1], layers))


# --- their table ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Operations:
  """The functions that modules call; by default the equations, differentiated by JAX.

  `attention` is that of `rembert.model.attention` if None. `self_attention` computes all of `SelfAttention` for whole
  sequences, with a kernel's own memory layout; None uses `attention`. `choose_unroll` maps (`Execution.unroll`, number
  of layers, whether they are recomputed) to the `unroll` of `run_layers`.
  """

  affine: Callable[..., jax.Array] = affine
  layer_norm: Callable[..., jax.Array] = layer_norm
  gelu: Callable[..., jax.Array] = gelu
  logits: Callable[..., jax.Array] = logits
  attention: Callable[..., jax.Array] | None = None
  self_attention: Callable[..., jax.Array] | None = None
  run_layers: Callable[..., tuple] = run_layers
  choose_unroll: Callable[[int, int, bool], int] = lambda unroll, count, recomputes: unroll


def operations(execution: Execution) -> Operations:
  """The table chosen by `Execution.kernels` and `Execution.attention`."""
  if execution.kernels == 'reference' and execution.attention == 'einsum':
    return Operations()
  from rembert import kernels  # here, since kernels import the equations

  return kernels.operations(execution.kernels, execution.attention)


# --- modules ----------------------------------------------------------------------------------------------------------


class Linear(nnx.Module):
  """A map of trailing axes [*inputs] to [*outputs]: a kernel [*inputs, *outputs] and a bias [*outputs].

  `axes` are those of the kernel; the bias has those of the outputs, but is not split over `embed`.
  """

  def __init__(
    self,
    config: RemBertConfig,
    inputs: int | tuple[int, ...],
    outputs: int | tuple[int, ...],
    *,
    axes: tuple[str | None, ...],
    dtype: jnp.dtype,
    ops: Operations,
    rngs: nnx.Rngs,
  ):
    inputs, outputs = (size if isinstance(size, tuple) else (size,) for size in (inputs, outputs))
    bias_axes = tuple(None if axis == 'embed' else axis for axis in axes[len(inputs) :])
    fill_kernel, fill_bias = with_axes(kernel_initializer(config), *axes), with_axes(nnx.initializers.zeros, *bias_axes)
    self.kernel = nnx.Param(fill_kernel(rngs.params(), (*inputs, *outputs), jnp.float32))
    self.bias = nnx.Param(fill_bias(rngs.params(), outputs, jnp.float32))
    self.dtype, self.ops = dtype, ops

  def __call__(self, x: jax.Array) -> jax.Array:
    """[…, *inputs] to […, *outputs]."""
    return self.ops.affine(x.astype(self.dtype), self.kernel[...], self.bias[...])


class LayerNorm(nnx.Module):
  """`layer_norm` along the last axis, of `features`, with float32 statistics and parameters; returns `dtype`."""

  def __init__(self, config: RemBertConfig, features: int, *, dtype: jnp.dtype, ops: Operations, rngs: nnx.Rngs):
    self.scale = nnx.Param(nnx.initializers.ones(rngs.params(), (features,), jnp.float32))
    self.bias = nnx.Param(nnx.initializers.zeros(rngs.params(), (features,), jnp.float32))
    self.epsilon, self.dtype, self.ops = config.layer_norm_eps, dtype, ops

  def __call__(self, x: jax.Array) -> jax.Array:
    """Normalises `x`, of unchanged shape."""
    return self.ops.layer_norm(x, self.scale[...], self.bias[...], self.epsilon).astype(self.dtype)
