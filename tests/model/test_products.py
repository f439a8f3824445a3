"""Products and their gradients are those of NumPy in float64, in float32 and in the fast form of bfloat16."""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.model.products import dot_general_of_rows, product, sum_of_rows

RTOL, ATOL = 1e-5, 1e-6
ROUNDED_ONCE = 2**-8  # of the largest: half a unit in the last place of bfloat16, and sums in another order
FORMULAS = [
  'rk,km->rm',  # a linear map
  'rk,mk->rm',  # logits
  'cv,ce->ve',  # the gradient of their table
  'bnqd,bnkd->bnqk',  # scores
  'bnqk,bnkd->bnqd',  # weighted values
  'bnqd,bnqk->bndk',  # the gradient of keys and values
]


def operands(formula, sizes, dtype):
  """Both factors, and a gradient of the result, with numbers that bfloat16 has."""
  random = np.random.default_rng(0)
  draw = lambda axes: jnp.asarray(random.standard_normal([sizes[axis] for axis in axes]), jnp.bfloat16).astype(dtype)
  return tuple(draw(axes) for axes in formula.replace('->', ',').split(','))


def expected(formula, lhs, rhs, gradient):
  """The product, and the gradients of both factors."""
  of_lhs, of_rhs, of_result = formula.replace('->', ',').split(',')
  lhs, rhs, gradient = (np.asarray(x, np.float64) for x in (lhs, rhs, gradient))
  return (
    np.einsum(formula, lhs, rhs),
    np.einsum(f'{of_result},{of_rhs}->{of_lhs}', gradient, rhs),
    np.einsum(f'{of_result},{of_lhs}->{of_rhs}', gradient, lhs),
  )


@functools.partial(jax.jit, static_argnums=(0, 4))
def with_gradients(formula, lhs, rhs, gradient, dtype):
  result, backward = jax.vjp(lambda lhs, rhs: product(formula, lhs, rhs, dtype), lhs, rhs)
  return result, *backward(gradient.astype(dtype))


def assert_near(actual, reference, tolerance):
  scale = np.abs(reference).max()
  np.testing.assert_allclose(np.asarray(actual, np.float64), reference, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize('formula', FORMULAS)
@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_product_and_its_gradients_are_those_of_float64(formula, dtype, data):
  size = lambda axis: data.draw(st.sampled_from([1, 2, 3] if axis in 'bn' else [1, 2, 3, 16, 31, 64]), label=axis)
  sizes = {axis: size(axis) for axis in sorted(set(formula) - set(',->'))}
  lhs, rhs, gradient = operands(formula, sizes, dtype)
  result, *gradients = with_gradients(formula, lhs, rhs, gradient, jnp.float32)
  assert result.dtype == jnp.float32
  assert {x.dtype for x in gradients} == {jnp.dtype(dtype)}
  reference, *reference_gradients = expected(formula, lhs, rhs, gradient)
  assert_near(result, reference, RTOL)  # sums are float32 whatever the factors are
  for ours, theirs in zip(gradients, reference_gradients, strict=True):
    assert_near(ours, theirs, RTOL if dtype == jnp.float32 else ROUNDED_ONCE)


@pytest.mark.parametrize('formula', FORMULAS)
def test_in_bfloat16_every_product_has_the_fast_form(formula):
  lhs, rhs, gradient = operands(formula, dict(zip('bnrcqkmdev', range(3, 13), strict=True)), jnp.bfloat16)
  jaxpr = jax.make_jaxpr(lambda *xs: with_gradients.__wrapped__(formula, *xs, jnp.bfloat16))(lhs, rhs, gradient)
  products = [equation for equation in every_equation(jaxpr.jaxpr) if equation.primitive.name == 'dot_general']
  assert len(products) == 3
  for equation in products:
    ((summed,), _), (batch, _) = equation.params['dimension_numbers']
    first, second = (variable.aval for variable in equation.invars)
    assert summed == first.ndim - 1
    assert batch == tuple(range(first.ndim - 2))
    assert first.dtype == second.dtype == jnp.bfloat16
    assert equation.outvars[0].aval.dtype == jnp.float32


def every_equation(jaxpr):
  for equation in jaxpr.eqns:
    yield equation
    for inner in jax.extend.core.jaxprs_in_params(equation.params):
      yield from every_equation(inner)


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_products_in_a_loop_are_those_outside(dtype):
  lhs, rhs, _ = operands('rk,km->rm', dict(r=24, k=40, m=40), dtype)
  step = lambda x: product('rk,km->rm', x, rhs, dtype) / 8
  looped = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: step(x), x))(lhs)
  np.testing.assert_array_equal(looped, step(step(step(lhs))))


def test_rows_can_have_any_number_of_axes():
  rhs = jax.random.normal(jax.random.key(0), (5, 7))
  for shape in [(5,), (2, 5), (2, 3, 5), (2, 3, 4, 5)]:
    lhs = jax.random.normal(jax.random.key(1), shape)
    product = dot_general_of_rows(lhs, rhs, (((len(shape) - 1,), (0,)), ((), ())))
    np.testing.assert_allclose(product, np.asarray(lhs) @ np.asarray(rhs), rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize('rows', [1, 2, 77])
def test_rows_are_summed(rows, dtype):
  x = jax.random.normal(jax.random.key(0), (rows, 50)).astype(dtype)
  sums = sum_of_rows(x)
  assert sums.dtype == jnp.float32
  np.testing.assert_allclose(sums, np.asarray(x, np.float64).sum(0), rtol=RTOL, atol=ATOL)
