"""Which operations and which dtype a model gets."""

import functools

import jax
import jax.numpy as jnp
import pytest
from absent_devices import tpu_mesh

from rembert import kernels
from rembert.kernels import cpu, platform
from rembert.model.config import KERNELS, Execution
from rembert.model.layers import Operations, operations
from rembert.train.sharding import MeshConfig, make_mesh


def test_the_platform_is_that_of_the_mesh_which_need_not_be_here():
  assert platform() == 'cpu'
  with jax.sharding.use_abstract_mesh(tpu_mesh(1, 1, 1)):
    assert platform() == 'tpu'
  with jax.set_mesh(make_mesh(MeshConfig())):
    assert platform() == 'cpu'


def test_every_choice_of_a_configuration_has_a_table():
  assert set(kernels.TABLES) == set(KERNELS)
  assert operations(Execution(kernels='reference')) == Operations()
  assert operations(Execution(unroll=3)) == operations(Execution())  # equal computations are equal tables


def test_auto_is_chosen_when_a_program_is_traced():
  # A new function each time: JAX keeps what it traced.
  x = jnp.zeros((1, 128, 2, 64), jnp.bfloat16)
  trace = lambda affine: str(jax.make_jaxpr(lambda x: affine(x, jnp.ones((64, 32)), jnp.ones(32)))(x))
  auto, fast, plain = (
    operations(Execution()).affine,
    *(functools.partial(cpu.affine, fast=fast) for fast in (True, False)),
  )
  assert trace(auto) == trace(fast)
  with jax.sharding.use_abstract_mesh(tpu_mesh(1, 1, 1)):
    assert trace(auto) == trace(plain) != trace(fast)


@pytest.mark.parametrize(
  ('platform', 'multiplies', 'dtype'),
  [('cpu', False, 'float32'), ('cpu', True, 'bfloat16'), ('gpu', False, 'bfloat16'), ('tpu', False, 'bfloat16')],
)
def test_auto_is_the_dtype_that_the_devices_multiply_fastest_in(platform, multiplies, dtype, monkeypatch):
  monkeypatch.setattr(kernels, 'multiplies_bfloat16', lambda: multiplies)
  assert kernels.resolve_dtype(Execution('auto'), platform).dtype == dtype
  for given in 'float32', 'bfloat16':
    assert kernels.resolve_dtype(Execution(given), platform).dtype == given
