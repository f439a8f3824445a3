"""The forms that are fast on a CPU, and what is kept to go back. Values are compared in test_kernels.py."""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import pytest

from rembert.kernels import cpu

FORMULAS = ['rk,km->rm', 'rk,mk->rm', 'cv,ce->ve', 'bnqd,bnkd->bnqk', 'bnqk,bnkd->bnqd', 'bnqd,bnqk->bndk']


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
  sizes = dict(zip('bnrcqkmdev', range(3, 13), strict=True))
  lhs, rhs, _ = (
    jnp.ones([sizes[axis] for axis in axes], jnp.bfloat16) for axes in formula.replace('->', ',').split(',')
  )
  assert_every_product_is_fast(lambda lhs, rhs: cpu.product(formula, lhs, rhs, jnp.bfloat16), lhs, rhs)


@pytest.mark.parametrize(('inputs', 'outputs'), [((12,), (20,)), ((12,), (3, 4, 5)), ((4, 5), (12,))])
def test_in_bfloat16_a_linear_map_of_any_axes_has_the_fast_form(inputs, outputs):
  x, kernel = jnp.ones((2, 3, *inputs), jnp.bfloat16), jnp.ones((*inputs, *outputs), jnp.float32)
  assert_every_product_is_fast(lambda x, kernel: cpu.affine(x, kernel, jnp.ones(outputs)), x, kernel)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('attention', [cpu.attention, functools.partial(cpu.attention, fast=False)])
def test_of_the_weights_one_array_is_kept_for_the_gradient(attention, dtype):
  query_key_value = [jnp.ones((2, 6, 3, 4), dtype)] * 3
  _, pull_back = jax.vjp(attention, *query_key_value)
  weights = [x for x in jax.tree.leaves(pull_back) if x.size == 2 * 3 * 6 * 6]
  assert [x.dtype for x in weights] == [dtype]
