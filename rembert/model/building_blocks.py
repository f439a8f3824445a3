"""What all modules are built from: initialisers, LayerNorm, linear maps, activations."""

import functools
import math

import jax
import jax.numpy as jnp
from flax import nnx

from rembert.model.config import RemBertConfig
from rembert.model.partitioning import with_axes
from rembert.model.products import dot_general_of_rows, sum_of_rows

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

ATTENTION = 'attention'  # what attention gives, and what a fused kernel needs beside it to go back

# --- layers -----------------------------------------------------------------------------------------------------------


def layer_norm(config: RemBertConfig, features: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> 'LayerNorm':
  """Along the last axis, of `features`, with float32 statistics and parameters."""
  return LayerNorm(features, epsilon=config.layer_norm_eps, dtype=dtype, rngs=rngs)


def rows_at(x_BxSxH: jax.Array, positions_BxK: jax.Array) -> jax.Array:
  """x_BxKxH, the rows of x_BxSxH at some positions of each sequence."""
  return jnp.take_along_axis(x_BxSxH, positions_BxK[..., None], axis=1)


def linear(
  config: RemBertConfig,
  inputs: int | tuple[int, ...],
  outputs: int | tuple[int, ...],
  *,
  axes: tuple[str | None, ...],
  dtype: jnp.dtype,
  rngs: nnx.Rngs,
) -> 'Linear':
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
  return Linear(
    inputs,
    outputs,
    axis=tuple(range(-len(inputs), 0)),
    dtype=dtype,
    kernel_init=with_axes(kernel_initializer(config), *axes),
    bias_init=with_axes(nnx.initializers.zeros, *bias_axes),
    rngs=rngs,
  )


class Linear(nnx.LinearGeneral):
  """Flax's, with products and gradients in the forms that backends are fastest at."""

  def __call__(self, inputs: jax.Array, out_sharding=None) -> jax.Array:
    """The trailing axes of `inputs` to the outputs; others, in front, stay."""
    assert out_sharding is None  # `constrain` lays out activations
    assert self.bias is not None  # `linear` gives every map one
    return affine(inputs.astype(self.dtype), self.kernel[...], self.bias[...])


def affine(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
  """x · kernel + bias in the dtype of `x`, whose trailing axes are those of the kernel that the bias lacks."""
  count = kernel.ndim - bias.ndim
  axes = tuple(range(x.ndim - count, x.ndim)), tuple(range(count))
  return _plus_bias(dot_general_of_rows(x, kernel.astype(x.dtype), (axes, ((), ()))), bias)


class LayerNorm(nnx.LayerNorm):
  """NNX's parameters; the function and its gradient by `_layer_normalized`."""

  def __call__(self, x: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
    """Of the same shape, in the dtype of the module."""
    assert mask is None  # no feature is left out
    assert self.scale is not None  # `layer_norm` gives every one both
    assert self.bias is not None
    return _layer_normalized(x, self.scale[...], self.bias[...], self.epsilon).astype(self.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _layer_normalized(x: jax.Array, scale_H: jax.Array, bias_H: jax.Array, epsilon: float) -> jax.Array:
  """(x − mean) / √(variance + ε) · scale + bias, in float32 but for `x` and the result.

  The variance is the mean of squares of what is left without the mean: E[x²] − E[x]² is too coarse for an ε of 1e-12.
  The backward pass is written out: it keeps `x` and two numbers of each row. What JAX derives keeps, and XLA's CPU
  backend writes to memory, the scale spread out over all rows besides.
  """
  return _layer_norm_forward(x, scale_H, bias_H, epsilon)[0]


def _layer_norm_forward(x, scale_H, bias_H, epsilon):
  y = x.astype(jnp.float32)
  mean = y.mean(-1, keepdims=True)
  scale_of_row = jax.lax.rsqrt(jnp.square(y - mean).mean(-1, keepdims=True) + epsilon)
  normal = (y - mean) * scale_of_row
  return (normal * scale_H + bias_H).astype(x.dtype), (x, mean, scale_of_row, scale_H)


def _layer_norm_backward(epsilon, kept, gradient):
  del epsilon
  x, mean, scale_of_row, scale_H = kept
  gradient = gradient.astype(jnp.float32)
  normal = (x.astype(jnp.float32) - mean) * scale_of_row
  of_normal = gradient * scale_H
  along_row = of_normal.mean(-1, keepdims=True) + normal * (of_normal * normal).mean(-1, keepdims=True)
  of_x = (scale_of_row * (of_normal - along_row)).astype(x.dtype)
  return of_x, _sum_over_rows(gradient * normal, scale_H.shape), _sum_over_rows(gradient, scale_H.shape)


_layer_normalized.defvjp(_layer_norm_forward, _layer_norm_backward)


@jax.custom_vjp
def _plus_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
  return x + bias.astype(x.dtype)


def _plus_bias_forward(x, bias):
  return _plus_bias(x, bias), bias.shape


def _plus_bias_backward(shape, gradient):
  return gradient, _sum_over_rows(gradient, shape)


_plus_bias.defvjp(_plus_bias_forward, _plus_bias_backward)


def _sum_over_rows(gradient: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Over all axes but the last, which have that shape; float32 whatever the dtype is.

  Of rows in one line, since XLA's CPU backend sums over two axes of bfloat16 in a way that takes longer than the
  product before.
  """
  return gradient.reshape(-1, *shape).sum(0, dtype=jnp.float32)


@jax.custom_vjp
def add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
  """x + bias along the last axis, for very many columns: the gradient of the bias is made by `sum_of_rows`."""
  return x + bias


def _add_bias_forward(x, bias):
  return add_bias(x, bias), None


def _add_bias_backward(_, gradient):
  return gradient, sum_of_rows(gradient.reshape(-1, gradient.shape[-1]))


add_bias.defvjp(_add_bias_forward, _add_bias_backward)


# --- activations ------------------------------------------------------------------------------------------------------


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
