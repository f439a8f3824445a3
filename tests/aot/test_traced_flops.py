"""Operations of the traced step: those of the model, and those that remat and padding add."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from rembert.aot import flops
from rembert.aot.traced_flops import traced_flops
from rembert.kernels import splash
from rembert.model.config import Execution
from rembert.train.optimizer import OptimizerConfig, make_optimizer
from rembert.train.sharding import MeshConfig, make_mesh
from rembert.train.state import masked_lm
from rembert.train.step import make_train_step


def counted(function, *arguments) -> int:
  return traced_flops(jax.make_jaxpr(function)(*arguments).jaxpr)


def test_loops_branches_and_calls_are_followed():
  x = jnp.ones((4, 4))
  product = 2 * 4**3
  assert counted(lambda x: x @ x, x) == product
  assert counted(lambda x: jax.lax.scan(lambda c, _: (c @ c, None), x, None, length=5)[0], x) == 5 * product
  branches = [lambda x: x, lambda x: x @ x, lambda x: x @ x @ x]
  assert counted(lambda x: jax.lax.switch(1, branches, x), x) in (product, 2 * product)
  assert counted(jax.jit(lambda x: jax.checkpoint(lambda x: x @ x)(x)), x) == product


def test_a_product_with_a_vector_is_a_sum():
  assert counted(lambda x: x @ jnp.ones(4), jnp.ones((4, 4))) == 0


@pytest.mark.parametrize('accumulation_steps', [1, 2])
def test_a_step_without_remat_does_what_the_model_asks_for(tiny, packed_batch, accumulation_steps):
  config = dataclasses.replace(tiny, vocab_size=64, pad_vocab_to_multiple_of=64)  # no padding rows to multiply
  assert step_flops(config, 'none', packed_batch, accumulation_steps) == 16 * flops.train_flops_per_row(config, 12, 4)


def test_full_remat_adds_a_forward_pass_of_the_layers(tiny, packed_batch):
  config = dataclasses.replace(tiny, vocab_size=64, pad_vocab_to_multiple_of=64)
  without_layers = dataclasses.replace(config, num_hidden_layers=0)
  layers = flops.forward_flops_per_row(config, 12, 4) - flops.forward_flops_per_row(without_layers, 12, 4)
  once, again = (step_flops(config, remat, packed_batch) for remat in ('none', 'full'))
  assert again - once == 16 * layers


def step_flops(config, remat, packed_batch, accumulation_steps=1) -> int:
  mesh = make_mesh(MeshConfig(), jax.devices()[:1])
  optimizer = make_optimizer(OptimizerConfig(), total_steps=8)
  described = masked_lm(config, Execution(remat=remat), optimizer, mesh)
  step = make_train_step(described, accumulation_steps=accumulation_steps)
  with jax.set_mesh(described.mesh):
    return traced_flops(step.trace(described.restore_target(), packed_batch(0)).jaxpr.jaxpr)


def test_a_kernel_counts_once_for_each_cell_of_its_grid():
  rows = jnp.ones((2, 256, 3, 64))
  attend = lambda x: splash.attention(x, x, x, jnp.ones((2, 256), jnp.int32), interpret=True)
  assert counted(attend, rows) == 2 * 3 * (2 * 2 * 256 * 256 * 64)
