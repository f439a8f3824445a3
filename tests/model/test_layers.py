"""LayerNorm, linear maps and activations against plain NumPy: the equations, and their fast versions."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from encoder_values import gelu_tanh
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert import kernels
from rembert.model.layers import LayerNorm, Linear, Operations, layer_norm

RTOL, ATOL = 1e-5, 1e-6
PLAIN, CPU = Operations(), kernels.TABLES['auto']
X = np.concatenate([np.linspace(-12, 12, 4001), [-1e4, -0.0, 0.0, 1e-20, 1e4]])

either_way = pytest.mark.parametrize('ops', [PLAIN, CPU], ids=['plain', 'cpu'])


def exact_gelu(x):
  return np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x])


def slope(f, x, h=1e-5):
  return (f(x + h) - f(x - h)) / (2 * h)


@either_way
@pytest.mark.parametrize(('approximate', 'reference'), [(False, exact_gelu), (True, gelu_tanh)])
def test_gelu_and_its_slope_are_the_textbook_s(ops, approximate, reference):
  x = jnp.asarray(X, jnp.float32)
  y, backward = jax.vjp(lambda x: ops.gelu(x, approximate), x)
  np.testing.assert_allclose(y, reference(X), rtol=RTOL, atol=ATOL)
  np.testing.assert_allclose(backward(jnp.ones_like(x))[0], slope(reference, X), rtol=RTOL, atol=ATOL)
  twice, expected = backward(-2 * jnp.ones_like(x))[0], -2 * backward(jnp.ones_like(x))[0]
  # What JAX derives multiplies in another order: factors of 1e-36 lose digits below the smallest normal number.
  np.testing.assert_allclose(twice, expected, rtol=0, atol=0 if ops is CPU else 1e-30)


@pytest.mark.parametrize(
  ('inputs', 'outputs', 'axes', 'formula'),
  [
    (12, 20, ('embed', 'mlp'), 'bsh,hf->bsf'),
    (12, (3, 4, 5), ('embed', None, 'heads', None), 'bsh,hcnd->bscnd'),
    ((4, 5), 12, ('heads', None, 'embed'), 'bsnd,ndh->bsh'),
  ],
)
def test_a_linear_map_and_its_gradients_are_the_einsum_s(tiny, inputs, outputs, axes, formula):
  module = Linear(tiny, inputs, outputs, axes=axes, dtype=jnp.float32, ops=PLAIN, rngs=nnx.Rngs(0))
  graphdef, parameters = nnx.split(module)
  shape = (2, 3, *np.atleast_1d(inputs))
  x = jax.random.normal(jax.random.key(1), shape)
  weights = jax.random.normal(jax.random.key(2), (2, 3, *np.atleast_1d(outputs)))

  def ours(parameters, x):
    return jnp.sum(nnx.merge(graphdef, parameters)(x) * weights)

  def plain(parameters, x):
    return jnp.sum((jnp.einsum(formula, x, parameters['kernel'][...]) + parameters['bias'][...]) * weights)

  (value, gradients), (expected, references) = (
    jax.jit(jax.value_and_grad(function, (0, 1)))(parameters, x) for function in (ours, plain)
  )
  np.testing.assert_allclose(value, expected, rtol=RTOL)
  for left, right in zip(jax.tree.leaves(gradients), jax.tree.leaves(references), strict=True):
    np.testing.assert_allclose(left, right, rtol=RTOL, atol=ATOL)


def test_a_bias_stays_whole_where_its_kernel_is_split_over_fsdp(tiny):
  axes = lambda *names: nnx.get_partition_spec(
    nnx.state(Linear(tiny, 8, 8, axes=names, dtype=jnp.float32, ops=PLAIN, rngs=nnx.Rngs(0)))
  )['bias'].get_value()
  assert tuple(axes('mlp', 'embed')) == (None,)
  assert tuple(axes('embed', 'mlp')) == ('mlp',)


@either_way
def test_layer_norm_keeps_a_small_variance_around_a_large_mean_and_takes_statistics_in_float32(tiny, ops):
  exact = lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + tiny.layer_norm_eps)
  norm = lambda x: LayerNorm(tiny, x.shape[1], dtype=x.dtype, ops=ops, rngs=nnx.Rngs(0))(x)
  # E[x²] − E[x]² in float32 would be off by whole per cents here; the input's own rounding is 3e-5 of the spread.
  x = (1000 + np.random.default_rng(3).standard_normal((4, 64))).astype(np.float32)
  for rows in x, np.float32(1e-3) * (x - 1000):  # the second shows which epsilon it is
    assert np.abs(norm(rows) - exact(np.float64(rows))).max() <= 1e-4
  # Half a unit in the last place of bfloat16: nothing is rounded but the result.
  x = jnp.asarray(np.random.default_rng(4).standard_normal((8, 512)), jnp.bfloat16)
  y, expected = norm(x), exact(np.asarray(x, np.float64))
  assert y.dtype == jnp.bfloat16
  assert np.all(np.abs(np.asarray(y, np.float64) - expected) <= 2**-8 * np.abs(expected) * (1 + RTOL) + RTOL)


def textbook_layer_norm(x, scale, bias, epsilon, direction):
  """A row [H] in float64, and its part of the gradients: that of `x` by the matrix of all derivatives."""
  centred = x - x.mean()
  deviation = math.sqrt((centred**2).mean() + epsilon)
  normal, features = centred / deviation, len(x)
  derivatives_HxH = (np.eye(features) - 1 / features - np.outer(normal, normal) / features) / deviation
  return normal * scale + bias, derivatives_HxH @ (direction * scale), direction * normal, direction


@functools.partial(jax.jit, static_argnums=0)
def layer_norm_with_gradients(epsilon, x, scale, bias, direction):
  y, backward = jax.vjp(lambda *arrays: layer_norm(*arrays, epsilon), x, scale, bias)
  return y, *backward(direction)


@settings(deadline=None, max_examples=20)
@given(
  shape=st.sampled_from([(1, 2), (5, 40), (5, 7)]),  # each is compiled
  magnitude=st.sampled_from([1e-3, 1.0, 30.0]),
  offset=st.sampled_from([0.0, -3.0]),
  epsilon=st.sampled_from([1e-12, 1e-5]),
  seed=st.integers(0, 2**32 - 1),
)
def test_layer_norm_and_its_gradients_are_the_textbook_s(shape, magnitude, offset, epsilon, seed):
  rows, features = shape
  random = np.random.default_rng(seed)
  x = (magnitude * (random.standard_normal((2, rows, features)) + offset)).astype(np.float32)
  scale, bias = random.standard_normal((2, features)).astype(np.float32)
  direction = random.standard_normal(x.shape).astype(np.float32)
  y, of_x, of_scale, of_bias = layer_norm_with_gradients(epsilon, x, scale, bias, direction)

  def of_row(x, direction):
    return textbook_layer_norm(*(each.astype(np.float64) for each in (x, scale, bias)), epsilon, np.float64(direction))

  lines = [of_row(*line) for line in zip(x.reshape(-1, features), direction.reshape(-1, features), strict=True)]
  references = [np.stack(each) for each in zip(*lines, strict=True)]
  # Rounding of `x` and of its mean, in deviations of its row; what is divided by a deviation has its error so.
  deviation = np.sqrt(x.astype(np.float64).var(-1) + epsilon)
  coarseness = 1e-6 * max(1, (np.abs(x).max(-1) / deviation).max())
  largest = np.abs(direction).max() * max(1, np.abs(scale).max()) * features
  for actual, reference, tolerance in (
    (y.reshape(-1, features), references[0], coarseness * largest),
    (of_x.reshape(-1, features), references[1], coarseness * largest / deviation.min()),
    (of_scale, references[2].sum(0), coarseness * largest * 2 * rows),
    (of_bias, references[3].sum(0), 1e-6 * largest * 2 * rows),
  ):
    np.testing.assert_allclose(actual, reference, rtol=0, atol=tolerance)
