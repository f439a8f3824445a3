"""What all modules are built from: initialisers, LayerNorm, linear maps, activations."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from rembert.model.config import RemBertConfig
from rembert.model.partitioning import is_split, platform, with_axes

# --- initialisers -----------------------------------------------------------------------------------------------------


def kernel_initializer(config: RemBertConfig) -> nnx.Initializer:
  """Truncated normal, cut at two standard deviations, as in the original TensorFlow code."""
  return nnx.initializers.truncated_normal(config.initializer_range)


def vocabulary_initializer(config: RemBertConfig) -> nnx.Initializer:
  """`kernel_initializer` for a table of V rows; the rows that only pad it are zero."""
  fill = kernel_initializer(config)

  def initialize(key, shape, dtype=jnp.float32):
    table = fill(key, shape, dtype)
    return jnp.where(jnp.arange(shape[0])[:, None] < config.vocab_size, table, 0)

  return initialize


# --- what a layer's backward pass may find (`Execution.remat`) --------------------------------------------------------

PRODUCT = 'product'  # of activations and a parameter
ATTENTION = 'attention'  # what attention gives, and what a fused kernel needs beside it to go back

# --- layers -----------------------------------------------------------------------------------------------------------


def layer_norm(config: RemBertConfig, features: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> nnx.LayerNorm:
  """LayerNorm with float32 statistics. The fast variance, E[x²] − E[x]², is too coarse for an epsilon of 1e-12."""
  return nnx.LayerNorm(features, epsilon=config.layer_norm_eps, use_fast_variance=False, dtype=dtype, rngs=rngs)


def rows_at(x_BxSxH: jax.Array, positions_BxK: jax.Array) -> jax.Array:
  """x_BxKxH, the rows of x_BxSxH at some positions of each sequence."""
  return jnp.take_along_axis(x_BxSxH, positions_BxK[..., None], axis=1)


def dot_general_of_rows(lhs: jax.Array, rhs: jax.Array, dimension_numbers, **options) -> jax.Array:
  """`jax.lax.dot_general` of the trailing axes of `lhs`, with all axes before them (batch, sequence) made one.

  The product is the same. Its gradient is then one plain product too; over two axes at once, XLA's CPU backend first
  transposes activations, recomputing whatever produced them, and takes twice as long for a feed-forward layer. It would
  also transpose kernels of many axes (query, key and value of all heads) forth and back, so there they have two; unless
  heads are split over devices, since the axis that is made of three could not be.
  """
  (lhs_axes, rhs_axes), _ = dimension_numbers
  rows, outputs = lhs.shape[: lhs.ndim - len(lhs_axes)], tuple(np.delete(rhs.shape, rhs_axes))
  if rhs.ndim > 2 and platform() == 'cpu' and not is_split('heads'):
    rhs = rhs.reshape(-1, math.prod(outputs))  # kernels begin with the axes that are summed over
    rhs_axes = (0,)
  flat = lhs.reshape(math.prod(rows), *(rhs.shape[axis] for axis in rhs_axes))
  product = jax.lax.dot_general(flat, rhs, ((tuple(range(1, flat.ndim)), rhs_axes), ((), ())), **options)
  return checkpoint_name(product.reshape(*rows, *outputs), PRODUCT)


def linear(
  config: RemBertConfig,
  inputs: int | tuple[int, ...],
  outputs: int | tuple[int, ...],
  *,
  axes: tuple[str | None, ...],
  dtype: jnp.dtype,
  rngs: nnx.Rngs,
) -> nnx.LinearGeneral:
  """A product with a kernel [*inputs, *outputs] and a bias [*outputs].

  Args:
    config: for the initialiser.
    inputs: trailing axes of what goes in.
    outputs: axes that take their place.
    axes: logical names of the kernel's axes. The bias has those of the outputs, but stays whole where they are `embed`.
    dtype: of the computation.
    rngs: of the initialisation.
  """
  inputs, outputs = (size if isinstance(size, tuple) else (size,) for size in (inputs, outputs))
  bias_axes = tuple(None if axis == 'embed' else axis for axis in axes[len(inputs) :])
  return nnx.LinearGeneral(
    inputs,
    outputs,
    axis=tuple(range(-len(inputs), 0)),
    dtype=dtype,
    kernel_init=with_axes(kernel_initializer(config), *axes),
    bias_init=with_axes(nnx.initializers.zeros, *bias_axes),
    dot_general=dot_general_of_rows,
    rngs=rngs,
  )


@jax.custom_vjp
def add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
  """x + bias along the last axis, for very many columns.

  The gradient of the bias is written as a product with ones: XLA's CPU backend sums rows column by column, which for
  the logits of a vocabulary takes as long as the product that they came from.
  """
  return x + bias


def _add_bias_forward(x, bias):
  return add_bias(x, bias), None


def _add_bias_backward(_, gradient):
  rows = gradient.reshape(-1, gradient.shape[-1])
  ones = jnp.ones(rows.shape[0], rows.dtype)
  return gradient, jnp.matmul(ones, rows, precision=jax.lax.Precision.HIGHEST)


add_bias.defvjp(_add_bias_forward, _add_bias_backward)


# --- softmax and activations ------------------------------------------------------------------------------------------


@jax.custom_vjp
def softmax(x: jax.Array) -> jax.Array:
  """Along the last axis.

  The backward pass is written out: it keeps the result alone. What JAX derives keeps exponentials and their sums,
  spreads out the latter, and divides by their squares.
  """
  exponentials = jnp.exp(x - x.max(-1, keepdims=True))
  return exponentials * (1 / exponentials.sum(-1, keepdims=True))


def _softmax_forward(x):
  y = softmax(x)
  return y, y


def _softmax_backward(y, gradient):
  return (y * (gradient - (y * gradient).sum(-1, keepdims=True)),)


softmax.defvjp(_softmax_forward, _softmax_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def gelu(x: jax.Array, approximate: bool) -> jax.Array:
  """x·Φ(x) in float32, exact or with the tanh approximation of Φ (Hendrycks and Gimpel, 2016).

  The backward pass is written out: it keeps `x` alone, and takes a third of the time of what JAX derives.
  """
  y = x.astype(jnp.float32)
  return (y * _normal_cdf_and_slope(y, approximate)[0]).astype(x.dtype)


def _normal_cdf_and_slope(y, approximate):
  if not approximate:
    return 0.5 * (1 + jax.lax.erf(math.sqrt(0.5) * y)), jnp.exp(-0.5 * y**2) / math.sqrt(2 * math.pi)
  # ½(1 + tanh u), as a logistic function of 2u: far from zero, 1 + tanh u would lose all its digits.
  share = jax.nn.sigmoid(2 * math.sqrt(2 / math.pi) * (y + 0.044715 * y**3))
  slope_of_u = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * y**2)
  return share, 2 * share * (1 - share) * slope_of_u


def _gelu_forward(x, approximate):
  return gelu(x, approximate), x


def _gelu_backward(approximate, x, gradient):
  y = x.astype(jnp.float32)
  share, density = _normal_cdf_and_slope(y, approximate)
  return ((gradient.astype(jnp.float32) * (share + y * density)).astype(x.dtype),)


gelu.defvjp(_gelu_forward, _gelu_backward)


def activation(name: str):
  """GELU by `RemBertConfig.hidden_act`: exact (`gelu`) or the tanh approximation (`gelu_tanh`)."""
  return functools.partial(gelu, approximate=name == 'gelu_tanh')
