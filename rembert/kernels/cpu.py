"""The operations of a model with hand-written gradients, in the forms that XLA's CPU backend computes fastest.

The gradients that JAX derives save more activations, or compute in slower forms. GPUs and TPUs run the same functions,
except for the form of matmuls (`fast`).

XLA's CPU backend uses the bfloat16 instructions of a processor (AMX, AVX512_BF16) for one form of matmul only: two
row-major bfloat16 arrays, the first summed over its last axis, with a float32 result. It converts all others to float32
first, which takes up to five times as long. The gradients that JAX derives have other forms (float32 times bfloat16,
sums over the first axis); here they have the fast one.
"""

import functools
import math
import operator
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.layout import Layout, with_layout_constraint

from rembert.model import layers as plain
from rembert.model.attention import HIDDEN, Visibility
from rembert.model.layers import ATTENTION, PRODUCT
from rembert.model.partitioning import is_split


def platform() -> str:
  """`cpu`, `gpu` or `tpu`: where the traced code will run. A mesh decides, also one of a target topology."""
  device = jax.sharding.get_abstract_mesh().abstract_device
  return jax.default_backend() if device is None else device.platform


def _is_fast(fast: bool | None) -> bool:
  """Whether to use the forms for a CPU: as given, or for None if the traced code will run on one."""
  return platform() == 'cpu' if fast is None else fast


# --- products ---------------------------------------------------------------------------------------------------------


def product(
  formula: str, lhs: jax.Array, rhs: jax.Array, dtype: jax.typing.DTypeLike, *, fast: bool | None = None
) -> jax.Array:
  """`jnp.einsum` of two arrays of one dtype, accumulated in float32, with a result in `dtype`.

  `formula` is such as `bqd,bkd->bqk`: one axis is summed over, the last or last but one in both arrays. The result has
  first the axes that both have, then one of `lhs`, then one of `rhs`. Bfloat16 products and their gradients have the
  form for a CPU if `fast`.
  """
  if _is_fast(fast) and lhs.dtype == jnp.bfloat16:
    return _bfloat16_product(formula, lhs, rhs).astype(dtype)
  return jnp.einsum(formula, lhs, rhs, preferred_element_type=dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _bfloat16_product(formula, lhs, rhs):
  of_lhs, of_rhs, of_result = _axes(formula)
  return _fast_product(of_result, (of_lhs, lhs), (of_rhs, rhs))


def _bfloat16_product_forward(formula, lhs, rhs):
  return _bfloat16_product(formula, lhs, rhs), (lhs, rhs)


def _bfloat16_product_backward(formula, operands, gradient):
  lhs, rhs, gradient = zip(_axes(formula), (*operands, gradient.astype(jnp.bfloat16)), strict=True)
  gradients = _fast_product(lhs[0], gradient, rhs), _fast_product(rhs[0], lhs, gradient)
  return tuple(x.astype(jnp.bfloat16) for x in gradients)


_bfloat16_product.defvjp(_bfloat16_product_forward, _bfloat16_product_backward)


def _axes(formula):
  return formula.replace('->', ',').split(',')


def _fast_product(of_result, lhs, rhs):
  """Product in the fast form, float32 with the axes `of_result`, of two factors (axes, array).

  Either factor may come first. It is transposed unless the summed axis is its last, and the result is transposed unless
  it begins with that factor's other axes. Of both orders, the one that moves fewer numbers is used.
  """
  sizes = dict(zip(lhs[0] + rhs[0], lhs[1].shape + rhs[1].shape, strict=True))

  def plan(first, second):
    of_first = ''.join(sorted(first[0], key=lambda axis: axis not in of_result))  # the summed axis goes last
    comes_out = ''.join(axis for axis in dict.fromkeys(of_first + second[0]) if axis in of_result)
    moved = 0 if of_first == first[0] else first[1].size
    moved += 0 if comes_out == of_result else math.prod(sizes[axis] for axis in of_result)
    return moved, of_first, comes_out, first, second

  _, of_first, comes_out, first, second = min(plan(lhs, rhs), plan(rhs, lhs), key=operator.itemgetter(0))
  factors = _row_major(jnp.transpose(first[1], [first[0].index(axis) for axis in of_first])), _row_major(second[1])
  result = jnp.einsum(f'{of_first},{second[0]}->{comes_out}', *factors, preferred_element_type=jnp.float32)
  return jnp.transpose(_row_major(result), [comes_out.index(axis) for axis in of_result])


def _row_major(x):
  """Forces a row-major memory layout of `x`; the compiler would relabel its axes instead."""
  return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))


def _product_of_rows(x, kernel, axes, *, fast, dtype=None):
  """`jax.lax.dot_general` over the trailing axes of `x`, with all axes before them (batch, sequence) merged.

  The result is the same, and its gradient is then a single matmul too. Over two axes at once, XLA's CPU backend first
  transposes activations, recomputing the operations before, and takes twice as long for a feed-forward layer. It would
  also transpose kernels of many axes (query, key and value of all heads) back and forth, so these are reshaped to two
  axes, unless heads are sharded, since a merged axis could not be.
  """
  rows, outputs = x.shape[: x.ndim - len(axes)], tuple(np.delete(kernel.shape, axes))
  if fast and kernel.ndim > 2 and not is_split('heads'):
    kernel, axes = kernel.reshape(-1, math.prod(outputs)), (0,)  # the summed axes come first
  flat = x.reshape(math.prod(rows), *(kernel.shape[axis] for axis in axes))
  if fast and flat.dtype == jnp.bfloat16 and flat.ndim == kernel.ndim == 2:
    formula = 'rk,km->rm' if axes[0] == 0 else 'rk,mk->rm'
    result = _bfloat16_product(formula, flat, kernel).astype(dtype or flat.dtype)
  else:
    numbers = ((tuple(range(1, flat.ndim)), axes), ((), ()))
    result = jax.lax.dot_general(flat, kernel, numbers, preferred_element_type=dtype)
  return result.reshape(*rows, *outputs)


# --- linear maps ------------------------------------------------------------------------------------------------------


def affine(x: jax.Array, kernel: jax.Array, bias: jax.Array, *, fast: bool | None = None) -> jax.Array:
  """`rembert.model.layers.affine`, with batch and sequence axes merged."""
  axes = tuple(range(kernel.ndim - bias.ndim))
  y = checkpoint_name(_product_of_rows(x, kernel.astype(x.dtype), axes, fast=_is_fast(fast)), PRODUCT)
  return _plus_bias(y, bias)


@jax.custom_vjp
def _plus_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
  return x + bias.astype(x.dtype)


_plus_bias.defvjp(
  lambda x, bias: (_plus_bias(x, bias), bias.shape),
  lambda shape, gradient: (gradient, _sum_over_rows(gradient, shape)),
)


def _sum_over_rows(gradient: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """The float32 sum over all but the trailing axes, of the given shape.

  The axes are merged: for XLA's CPU backend a bfloat16 sum over two axes takes longer than the matmul before it.
  """
  return gradient.reshape(-1, *shape).sum(0, dtype=jnp.float32)


def logits(x_BxKxE: jax.Array, table_VxE: jax.Array, bias_V: jax.Array, *, fast: bool | None = None) -> jax.Array:
  """`rembert.model.layers.logits`, with batch and sequence axes merged."""
  products = _product_of_rows(x_BxKxE, table_VxE.astype(x_BxKxE.dtype), (1,), fast=_is_fast(fast), dtype=jnp.float32)
  return _plus_bias_of_columns(products, bias_V)


@jax.custom_vjp
def _plus_bias_of_columns(x, bias):
  """x + bias along the last axis, for very many columns: `sum_of_rows` computes the gradient of the bias."""
  return x + bias


_plus_bias_of_columns.defvjp(
  lambda x, bias: (_plus_bias_of_columns(x, bias), None),
  lambda _, gradient: (gradient, sum_of_rows(gradient.reshape(-1, gradient.shape[-1]))),
)


def sum_of_rows(x_RxC: jax.Array, *, fast: bool | None = None) -> jax.Array:
  """Float32 sums of very many columns, as a product with ones.

  XLA's CPU backend sums column by column, which for the logits of a vocabulary takes as long as their matmul.
  """
  sums = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
  if _is_fast(fast) and x_RxC.dtype == jnp.bfloat16:  # the fast form is slow for one row times a matrix, not for two
    return sums(jnp.ones((2, len(x_RxC)), x_RxC.dtype), x_RxC)[0]
  return sums(jnp.ones(len(x_RxC), x_RxC.dtype), x_RxC)


# --- LayerNorm and GELU -----------------------------------------------------------------------------------------------


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def layer_norm(x: jax.Array, scale_H: jax.Array, bias_H: jax.Array, epsilon: float) -> jax.Array:
  """`rembert.model.layers.layer_norm`, which saves `x` and two numbers per position for the backward pass.

  The derived gradient also saves the scale, which XLA's CPU backend writes to memory for every position.
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


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def gelu(x: jax.Array, approximate: bool) -> jax.Array:
  """`rembert.model.layers.gelu`, which saves only `x`; its backward pass takes a third of the derived one's time."""
  y = x.astype(jnp.float32)
  return (y * _normal_cdf_and_slope(y, approximate)[0]).astype(x.dtype)


def _normal_cdf_and_slope(y, approximate):
  if not approximate:
    return 0.5 * (1 + jax.lax.erf(math.sqrt(0.5) * y)), jnp.exp(-0.5 * y**2) / math.sqrt(2 * math.pi)
  # ½(1 + tanh u) as a logistic function of 2u: for large −u, 1 + tanh u would lose all digits.
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

# --- attention --------------------------------------------------------------------------------------------------------


def attention(
  query_BxKxNxD: jax.Array,
  key_BxSxNxD: jax.Array,
  value_BxSxNxD: jax.Array,
  visibility: Visibility = Visibility(),
  positions_BxK: jax.Array | None = None,
  *,
  dropout_rate: float = 0.0,
  dropout_key: jax.Array | None = None,
  fast: bool | None = None,
) -> jax.Array:
  """`rembert.model.attention.attention`, which saves one array of weights for the backward pass."""
  mask, kept = visibility.mask_at(positions_BxK), None
  query, key, value = query_BxKxNxD * query_BxKxNxD.shape[-1] ** -0.5, key_BxSxNxD, value_BxSxNxD
  if dropout_rate and dropout_key is not None:
    (rows, queries, heads, _), keys = query.shape, key.shape[1]
    kept = nnx.Dropout(dropout_rate)(jnp.ones((rows, heads, queries, keys), value.dtype), rngs=dropout_key)
  return _attend(_is_fast(fast), query, key, value, mask, kept)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(fast, query_BxKxNxD, key_BxSxNxD, value_BxSxNxD, mask, kept_BxNxKxS):
  """Attention with scaled queries. `kept` is a factor for each weight: 0, or 1 / (1 - rate); None is 1.

  The backward pass is that of Dao et al. (FlashAttention, 2022, appendix B.2): the term that the softmax subtracts from
  each gradient of a score, Σ over keys of weight · gradient, equals Σ over D of x · its gradient. That saves a pass
  over all pairs. One array of weights is saved, in the dtype of the values; JAX would save them in float32 too.
  """
  return _attend_forward(fast, query_BxKxNxD, key_BxSxNxD, value_BxSxNxD, mask, kept_BxNxKxS)[0]


def _attend_forward(fast, query_BxKxNxD, key_BxSxNxD, value_BxSxNxD, mask, kept_BxNxKxS):
  # Move the heads next to the batch, so that every matmul is a plain batched one.
  query, key, value = map(_swapped, (query_BxKxNxD, key_BxSxNxD, value_BxSxNxD))
  scores_BxNxKxS = product('bnqd,bnkd->bnqk', query, key, jnp.float32, fast=fast)
  if mask is not None:
    scores_BxNxKxS = jnp.where(mask, scores_BxNxKxS, HIDDEN)
  exponentials_BxNxKxS = jnp.exp(scores_BxNxKxS - scores_BxNxKxS.max(-1, keepdims=True))
  weights_BxNxKxS = exponentials_BxNxKxS * (1 / exponentials_BxNxKxS.sum(-1, keepdims=True))
  weights_BxNxKxS = weights_BxNxKxS.astype(value.dtype)
  x_BxNxKxD = product('bnqk,bnkd->bnqd', _dropped(weights_BxNxKxS, kept_BxNxKxS), value, value.dtype, fast=fast)
  x_BxKxNxD = checkpoint_name(_swapped(x_BxNxKxD), ATTENTION)
  return x_BxKxNxD, (query, key, value, mask, kept_BxNxKxS, weights_BxNxKxS, x_BxKxNxD)


def _attend_backward(fast, residuals, gradient_BxKxNxD):
  query, key, value, mask, kept_BxNxKxS, weights_BxNxKxS, x_BxKxNxD = residuals
  multiply = functools.partial(product, fast=fast)
  dtype, gradient = value.dtype, _swapped(gradient_BxKxNxD)
  mean_slope_BxKxN = (x_BxKxNxD.astype(jnp.float32) * gradient_BxKxNxD.astype(jnp.float32)).sum(-1)
  slopes_BxNxKxS = _dropped(multiply('bnqd,bnkd->bnqk', gradient, value, jnp.float32), kept_BxNxKxS)
  slopes_BxNxKxS = weights_BxNxKxS * (slopes_BxNxKxS - _swapped(mean_slope_BxKxN)[..., None])
  if mask is not None:  # masked keys may have nonzero weights: a query that sees no key weights all equally
    slopes_BxNxKxS = jnp.where(mask, slopes_BxNxKxS, 0)
  slopes_BxNxKxS = slopes_BxNxKxS.astype(dtype)
  # The narrower factor first: XLA's CPU backend transposes that one.
  over_queries = lambda x, y: jnp.swapaxes(multiply('bnqd,bnqk->bndk', x, y, dtype), -1, -2)
  query_gradient = multiply('bnqk,bnkd->bnqd', slopes_BxNxKxS, key, dtype)
  key_gradient = over_queries(query, slopes_BxNxKxS)
  value_gradient = over_queries(gradient, _dropped(weights_BxNxKxS, kept_BxNxKxS))
  return *map(_swapped, (query_gradient, key_gradient, value_gradient)), None, None


_attend.defvjp(_attend_forward, _attend_backward)
_swapped = functools.partial(jnp.swapaxes, axis1=1, axis2=2)


def _dropped(x, kept):
  return x if kept is None else x * kept


# --- the loop over layers ---------------------------------------------------------------------------------------------


def run_layers(step: Callable, x: jax.Array, layers, *, unroll: int = 1, last_step: Callable | None = None):
  """`rembert.model.layers.run_layers`, but without a loop if `unroll` is the number of layers."""
  count = len(jax.tree.leaves(layers)[0])
  if not 0 < count <= unroll:
    return plain.run_layers(step, x, layers, unroll=unroll, last_step=last_step)
  each, step, outputs = _unstack(layers, count), jax.jit(step), []  # traced once
  for layer in each if last_step is None else each[:-1]:
    x, output = step(x, layer)
    outputs.append(output)
  return (x, jax.tree.map(lambda *parts: jnp.stack(parts), *outputs)) if last_step is None else last_step(x, each[-1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _unstack(stacked, count: int) -> list:
  """The parameters of each layer. Their gradients are stacked at once; JAX would pad each and add."""
  return [jax.tree.map(operator.itemgetter(number), stacked) for number in range(count)]


_unstack.defvjp(
  lambda stacked, count: (_unstack(stacked, count), None),
  lambda count, _, gradients: (jax.tree.map(lambda *parts: jnp.stack(parts), *gradients),),
)


def choose_unroll(unroll: int, count: int, recomputes: bool, *, fast: bool | None = None) -> int:
  """Layers per iteration of the loop; on a CPU, 1 if unrolled layers would not be recomputed.

  XLA's CPU backend drops the barriers before it eliminates common subexpressions.
  """
  return 1 if _is_fast(fast) and recomputes and unroll >= count else unroll
