"""Which kernels a model gets, and where the fused ones are refused."""

import functools

import jax
import jax.numpy as jnp
import pytest
from absent_devices import tpu_mesh

from rembert import kernels
from rembert.errors import UsageError
from rembert.kernels import check_backend, cpu, platform
from rembert.model.config import KERNELS, Execution
from rembert.model.operations import Operations, operations
from rembert.train.sharding import MeshConfig, make_mesh

ROWS = jnp.zeros((1, 128, 2, 64), jnp.bfloat16)


def test_the_platform_is_that_of_the_mesh_which_need_not_be_here():
  assert platform() == 'cpu'
  with jax.sharding.use_abstract_mesh(tpu_mesh(1, 1, 1)):
    assert platform() == 'tpu'
  with jax.set_mesh(make_mesh(MeshConfig())):
    assert platform() == 'cpu'


def test_every_choice_of_a_configuration_has_a_table():
  assert set(kernels.TABLES) == set(KERNELS)
  assert operations(Execution(kernels='reference')) == Operations()
  assert operations(Execution(kernels='cpu')) == kernels.CPU
  assert operations(Execution(unroll=3)) == operations(Execution())  # equal computations are equal tables


def test_auto_is_chosen_when_a_program_is_traced():
  # A new function each time: JAX keeps what it traced.
  trace = lambda affine: str(jax.make_jaxpr(lambda x: affine(x, jnp.ones((64, 32)), jnp.ones(32)))(ROWS))
  auto = operations(Execution())
  assert trace(auto.affine) == trace(kernels.CPU.affine)
  with jax.sharding.use_abstract_mesh(tpu_mesh(1, 1, 1)):
    assert trace(auto.affine) == trace(functools.partial(cpu.affine, fast=False)) != trace(kernels.CPU.affine)


@pytest.mark.parametrize('kernels', KERNELS)
@pytest.mark.parametrize('backend', ['cudnn', 'splash'])
def test_a_kernel_is_refused_on_the_cpu_before_anything_is_compiled(backend, kernels):
  attention = operations(Execution(dtype='bfloat16', attention=backend, kernels=kernels)).attention
  with pytest.raises(UsageError, match='these devices are cpu') as error:
    jax.eval_shape(lambda: attention(ROWS, ROWS, ROWS))
  assert 'execution.attention=einsum' in error.value.fix[0]


@pytest.mark.parametrize(
  ('backend', 'platform', 'sequence_length', 'message'),
  [
    ('cudnn', 'tpu', 512, 'kernel for the GPU'),
    ('splash', 'gpu', 512, 'kernel for the TPU'),
    ('splash', 'tpu', 500, 'multiple of 128, not 500\n.*\n.*sequence length of 512'),
    ('cudnn', 'gpu', 511, 'multiple of 2, not 511\n.*\n.*sequence length of 512'),
  ],
)
def test_other_devices_and_other_lengths_are_refused(backend, platform, sequence_length, message):
  check_backend('einsum', platform=platform, sequence_length=sequence_length)  # runs everywhere
  check_backend(backend, platform={'cudnn': 'gpu', 'splash': 'tpu'}[backend], sequence_length=512)
  with pytest.raises(UsageError, match=message) as error:
    check_backend(backend, platform=platform, sequence_length=sequence_length)
  assert 'execution.attention=einsum' in error.value.fix[0]


def test_dropout_is_refused_where_it_would_be_left_out():
  attention = operations(Execution(attention='splash')).attention
  with pytest.raises(ValueError, match='does not support dropout'):
    attention(ROWS, ROWS, ROWS, dropout_rate=0.1, dropout_key=jax.random.key(0))
