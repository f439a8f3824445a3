"""Products of matrices, added up in float32, in the forms that backends are fastest at.

In bfloat16 the form matters on a CPU. Where a processor has instructions that multiply bfloat16 (AMX, AVX512_BF16),
XLA's CPU backend uses them for one form alone: two bfloat16 arrays that lie row by row, the first of them summed over
its last axis, to a float32 result. All else it turns into float32 before, which takes up to five times as long. The
gradients that JAX derives have other forms: products of float32 and bfloat16, sums over the first axis. Here they are
written in the fast one.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.layout import Layout, with_layout_constraint

from rembert.model.partitioning import is_split, platform

PRODUCT = 'product'  # of activations and a parameter, for `Execution.remat`


def product(formula: str, lhs: jax.Array, rhs: jax.Array, dtype: jnp.dtype) -> jax.Array:
  """`jnp.einsum` of two arrays of one dtype, added up in float32. In bfloat16 on a CPU, so are its gradients.

  Args:
    formula: as `bqd,bkd->bqk`: one axis is summed over, in both arrays the last or the last but one. The result has
      first the axes that both have, then one of `lhs`, then one of `rhs`.
    lhs: the first array.
    rhs: the second.
    dtype: of the result.
  """
  if _wants_fast_form(lhs):
    return _bfloat16_product(formula, lhs, rhs).astype(dtype)
  return jnp.einsum(formula, lhs, rhs, preferred_element_type=dtype)


def _wants_fast_form(x):
  return x.dtype == jnp.bfloat16 and platform() == 'cpu'


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _bfloat16_product(formula, lhs, rhs):
  of_lhs, of_rhs, of_result = _axes(formula)
  return _fast_product(of_result, _Factor(of_lhs, lhs), _Factor(of_rhs, rhs))


def _forward(formula, lhs, rhs):
  return _bfloat16_product(formula, lhs, rhs), (lhs, rhs)


def _backward(formula, operands, gradient):
  axes = _axes(formula)
  lhs, rhs, gradient = map(_Factor, axes, (*operands, gradient.astype(jnp.bfloat16)))
  gradients = _fast_product(lhs.axes, gradient, rhs), _fast_product(rhs.axes, lhs, gradient)
  return tuple(x.astype(jnp.bfloat16) for x in gradients)


_bfloat16_product.defvjp(_forward, _backward)


def _axes(formula):
  return formula.replace('->', ',').split(',')


class _Factor(NamedTuple):
  """An array, and a letter for each of its axes."""

  axes: str
  array: jax.Array


def _fast_product(of_result, *factors):
  """The product of two factors in the fast form, float32, with these axes.

  Either factor may come first. It is transposed unless the axis that is summed over is its last, and the result is
  unless it begins with what remains of that factor: the order with less to move is taken.
  """
  orders = factors, factors[::-1]
  lhs, rhs = min(orders, key=lambda order: _to_be_moved(of_result, *order))
  of_lhs, comes_out = _fast_axes(of_result, lhs, rhs)
  first = _row_major(jnp.transpose(lhs.array, [lhs.axes.index(axis) for axis in of_lhs]))
  second = _row_major(rhs.array)
  result = jnp.einsum(f'{of_lhs},{rhs.axes}->{comes_out}', first, second, preferred_element_type=jnp.float32)
  return jnp.transpose(_row_major(result), [comes_out.index(axis) for axis in of_result])


def _fast_axes(of_result, lhs, rhs):
  """Of the first factor and of the result, in the fast form."""
  of_lhs = ''.join(sorted(lhs.axes, key=lambda axis: axis not in of_result))  # what is summed over goes last
  return of_lhs, ''.join(axis for axis in dict.fromkeys(of_lhs + rhs.axes) if axis in of_result)


def _to_be_moved(of_result, lhs, rhs):
  """How many numbers have to change their place."""
  of_lhs, comes_out = _fast_axes(of_result, lhs, rhs)
  sizes = dict(zip(lhs.axes + rhs.axes, lhs.array.shape + rhs.array.shape, strict=True))
  of_factor = 0 if of_lhs == lhs.axes else lhs.array.size
  return of_factor + (0 if comes_out == of_result else math.prod(sizes[axis] for axis in of_result))


def _row_major(x):
  """Moves `x` if it does not lie in memory as its axes say. The compiler would rather call its columns rows."""
  return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))


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
  if _wants_fast_form(flat) and flat.ndim == rhs.ndim == 2:
    formula = 'rk,km->rm' if rhs_axes[0] == 0 else 'rk,mk->rm'
    result = _bfloat16_product(formula, flat, rhs).astype(options.get('preferred_element_type') or flat.dtype)
  else:
    result = jax.lax.dot_general(flat, rhs, ((tuple(range(1, flat.ndim)), rhs_axes), ((), ())), **options)
  return checkpoint_name(result.reshape(*rows, *outputs), PRODUCT)


def sum_of_rows(x_RxC: jax.Array) -> jax.Array:
  """Sums of very many columns, float32, as a product with ones.

  XLA's CPU backend sums rows column by column, which for the logits of a vocabulary takes as long as the product that
  they came from.
  """
  sums = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
  if _wants_fast_form(x_RxC):  # that of one row and a matrix is slow, and that of two is not
    return sums(jnp.ones((2, len(x_RxC)), x_RxC.dtype), x_RxC)[0]
  return sums(jnp.ones(len(x_RxC), x_RxC.dtype), x_RxC)
