"""Values and gradients of an encoder, to hold one way of computing it against another."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from scipy.special import erf

TOLERANCE = 1e-5  # relative to the largest value of the reference


def assert_close(actual, reference, tolerance=TOLERANCE):
  """No value is off by more than `tolerance` times the largest of the reference."""
  error = np.abs(np.asarray(actual, np.float64) - np.asarray(reference, np.float64)).max()
  assert error <= tolerance * np.abs(np.asarray(reference, np.float64)).max()


def readout(shape, seed=5):
  """A fixed random direction, float32."""
  return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(module, *inputs, **options):
  """`module(*inputs, **options)`, as one compiled program."""
  return nnx.jit(lambda module, inputs: module(*inputs, **options))(module, inputs)


def values_and_gradients(encoder, direction, run):
  """What `run(encoder)` gives, and the gradients of its projection on `direction`, by parameter."""
  graphdef, params = nnx.split(encoder)

  def projected(params):
    states = run(nnx.merge(graphdef, params))
    return jnp.vdot(states.astype(jnp.float32), direction), states

  (_, states), gradients = jax.jit(jax.value_and_grad(projected, has_aux=True))(nnx.to_pure_dict(params))
  return states, gradients


# --- references in float64 --------------------------------------------------------------------------------------------


def gelu(x):
  """x·Φ(x)."""
  return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def gelu_tanh(x):
  """The approximation of the original TensorFlow code."""
  return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def layer_norm(x, p, epsilon):
  """With the parameters `scale` and `bias`."""
  normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
  return normal * p['scale'] + p['bias']
