"""The forms that are fast on a CPU, and what is kept to go back. Values are compared in test_kernels.py."""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from rembert.kernels import cpu

FORMULAS = ['rk,km->rm', 'rk,mk->rm', 'cv,ce->ve', 'bnqd,bnkd->bnqk', 'bnqk,bnkd->bnqd', 'bnqd,bnqk->bndk']


def operands(formula, sizes, dtype):
  """Both factors, and a gradient of the result, with numbers that bfloat16 has."""
  random = np.random.default_rng(0)
  draw = lambda axes: jnp.asarray(random.standard_normal([sizes[axis] for axis in axes]), jnp.bfloat16).astype(dtype)
  return tuple(draw(axes) for axes in formula.replace('->', ',').split(','))


def every_equation(jaxpr):
  for equation in jaxpr.eqns:
    yield equation
    for inner in jax.extend.core.jaxprs_in_params(equation.params):
      yield from every_equation(inner)


def assert_every_product_is_fast(function, *arrays):
  """Three products: that of `function`, and the gradients of both factors."""

  def with_gradients(*arrays):
    result, backward = jax.vjp(function, *arrays)
    return backward(result)

  equations = every_equation(jax.make_jaxpr(with_gradients)(*arrays).jaxpr)
  products = [equation for equation in equations if equation.primitive.name == 'dot_general']
  assert len(products) == 3
  for equation in products:
    ((summed,), _), (batch, _) = equation.params['dimension_numbers']
    first, second = (variable.aval for variable in equation.invars)
    assert summed == first.ndim - 1
    assert batch == tuple(range(first.ndim - 2))
    assert first.dtype == second.dtype == jnp.bfloat16
    assert equation.outvars[0].aval.dtype == jnp.float32


@pytest.mark.parametrize('formula', FORMULAS)
def test_in_bfloat16_every_product_has_the_fast_form(formula):
  lhs, rhs, _ = operands(formula, dict(zip('bnrcqkmdev', range(3, 13), strict=True)), jnp.bfloat16)
  assert_every_product_is_fast(lambda lhs, rhs: cpu.product(formula, lhs, rhs, jnp.bfloat16), lhs, rhs)


@pytest.mark.parametrize(('inputs', 'outputs'), [((12,), (20,)), ((12,), (3, 4, 5)), ((4, 5), (12,))])
def test_in_bfloat16_a_linear_map_of_any_axes_has_the_fast_form(inputs, outputs):
  x, kernel = jnp.ones((2, 3, *inputs), jnp.bfloat16), jnp.ones((*inputs, *outputs), jnp.float32)
  assert_every_product_is_fast(lambda x, kernel: cpu.affine(x, kernel, jnp.ones(outputs)), x, kernel)


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_products_in_a_loop_are_those_outside(dtype):
  lhs, rhs, _ = operands('rk,km->rm', dict(r=24, k=40, m=40), dtype)
  step = lambda x: cpu.product('rk,km->rm', x, rhs, dtype) / 8
  looped = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: step(x), x))(lhs)
  np.testing.assert_array_equal(looped, step(step(step(lhs))))


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('attention', [cpu.attention, functools.partial(cpu.attention, fast=False)])
def test_of_the_weights_one_array_is_kept_for_the_gradient(attention, dtype):
  query_key_value = [jnp.ones((2, 6, 3, 4), dtype)] * 3
  _, pull_back = jax.vjp(attention, *query_key_value)
  weights = [x for x in jax.tree.leaves(pull_back) if x.size == 2 * 3 * 6 * 6]
  assert [x.dtype for x in weights] == [dtype]
