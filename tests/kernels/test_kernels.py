"""Every kernel computes what the plain operation of `rembert.model` does: values and gradients, float32 and bfloat16.

The reference is the plain operation in float32. Kernels are given the same numbers, all of which bfloat16 has.
"""

import dataclasses
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rembert import kernels
from rembert.kernels import cpu
from rembert.kernels.fused_attention import cudnn_attention, splash_attention, splash_self_attention
from rembert.model import attention, layers
from rembert.model.attention import SelfAttention, Visibility
from rembert.model.config import RemBertConfig
from rembert.model.layers import Operations

TOLERANCE = 1e-5  # relative to the largest value of the reference
ROUNDED_ONCE = 2**-8  # the same in bfloat16: half a unit in the last place, and sums in another order
SEVERAL_PRODUCTS = 2e-2  # the same, for products of 8-bit mantissas, one after the other


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
  """What an operation is given."""

  operation: str  # its name in `KERNELS`
  label: str
  plain: Callable  # (*arrays, **options) to an array, float32
  activations: tuple[tuple[int, ...], ...]  # shapes of the arrays that have the dtype of the computation
  parameters: tuple[tuple[int, ...], ...] = ()  # of those that are float32; they come after
  options: dict = dataclasses.field(default_factory=dict)
  tolerance: float = ROUNDED_ONCE  # in bfloat16, of the value and of all gradients
  is_token: np.ndarray | None = None  # where the value is compared; elsewhere it is not read, and has no gradient

  def arrays(self, dtype: str) -> list[jax.Array]:
    random = np.random.default_rng(0)
    draw = lambda shape, scale: jnp.asarray(scale * random.standard_normal(shape), jnp.bfloat16)
    of_dtype = [draw(shape, 1).astype(dtype) for shape in self.activations]
    return of_dtype + [draw(shape, 0.2).astype(jnp.float32) for shape in self.parameters]

  def run(self, operation: Callable, dtype: str) -> list[np.ndarray]:
    """The value, and the gradients of its product with a random direction."""
    arrays = self.arrays(dtype)

    @jax.jit
    def run(*arrays):
      value, pull_back = jax.vjp(lambda *arrays: operation(*arrays, **self.options), *arrays)
      direction = jnp.asarray(np.random.default_rng(1).standard_normal(value.shape), jnp.bfloat16)
      if self.is_token is not None:
        direction = jnp.where(self.is_token.reshape(*self.is_token.shape, *(1,) * (value.ndim - 2)), direction, 0)
      return value, *pull_back(direction.astype(value.dtype))

    value, *gradients = run(*arrays)
    return [value if self.is_token is None else value[self.is_token], *gradients]

  @functools.cached_property
  def reference(self) -> list[np.ndarray]:
    return self.run(self.plain, 'float32')

  def least_scales(self) -> list[float]:
    """Gradients of query and key may cancel out, as with one key. Rounding is relative to what there was before."""
    if self.operation != 'attention':
      return [0] * (1 + len(self.activations) + len(self.parameters))
    query, key, value = (float(np.abs(x).max()) for x in self.arrays('float32'))
    slope = 3 * value / (1 - self.options.get('dropout_rate', 0))
    return [0, slope * key, slope * query, 0]


def einsum(lhs, rhs, formula):
  return jnp.einsum(formula, lhs, rhs, preferred_element_type=jnp.float32)


def product_case(formula, sizes):
  of_lhs, of_rhs, _ = formula.replace('->', ',').split(',')
  shapes = tuple(tuple(sizes[axis] for axis in axes) for axes in (of_lhs, of_rhs))
  return Case('product', f'{formula} {shapes}', einsum, shapes, options={'formula': formula})


FORMULAS = [
  'rk,km->rm',  # a linear map
  'rk,mk->rm',  # logits
  'cv,ce->ve',  # the gradient of their table
  'bnqd,bnkd->bnqk',  # scores
  'bnqk,bnkd->bnqd',  # weighted values
  'bnqd,bnqk->bndk',  # the gradient of keys and values
]
SIZES = dict(zip('bnrkmcveqd', (2, 3, 31, 16, 64, 3, 31, 16, 5, 16), strict=True))

# Rows of 128 tokens: Hugging Face's mask, or segment ids, or neither.
LENGTHS = {'whole': None, 'padded': [[128], [33]], 'packed': [[60, 5, 50], [1, 64, 63]]}


def row_segments(lengths):
  segments = np.zeros((2, 128), np.int32)
  for row, documents in enumerate(lengths):
    segments[row, : sum(documents)] = np.repeat(np.arange(len(documents)) + 1, documents)
  return segments


def row_options(name):
  """Who sees whom, and which positions are tokens."""
  segments = np.ones((2, 128), np.int32) if LENGTHS[name] is None else row_segments(LENGTHS[name])
  is_token = segments > 0
  given = {'padded': (is_token.astype(np.int32), None), 'packed': (None, segments)}.get(name, (None, None))
  visibility = Visibility.of(*(None if mask is None else jnp.asarray(mask) for mask in given))
  return {'options': {'visibility': visibility}, 'is_token': is_token}


def random_mask(*shape):
  return jnp.asarray(np.random.default_rng(2).random(shape) < 0.6)


def attention_case(label, rows, heads, width, queries, keys, mask=None, **options):
  shapes = ((rows, queries, heads, width), (rows, keys, heads, width), (rows, keys, heads, width))
  if mask is not None:
    options['visibility'] = Visibility(mask)
  return Case('attention', label, attention.attention, shapes, options=options, tolerance=SEVERAL_PRODUCTS)


TINY = RemBertConfig(hidden_size=32, num_attention_heads=4)
PLAIN = Operations()


def self_attention(x_BxSxH, *parameters, visibility, ops=PLAIN):
  """The module with parameters as they come: bias and kernel of the output, then those of query, key and value."""
  module = nnx.eval_shape(lambda: SelfAttention(TINY, x_BxSxH.dtype, ops, rngs=nnx.Rngs(0)))
  graphdef, state = nnx.split(module)
  return nnx.merge(graphdef, jax.tree.unflatten(jax.tree.structure(state), parameters))(x_BxSxH, visibility)


def stacked_layers(x, kernels, biases, *, trims, run_layers=layers.run_layers):
  """Three layers, the last of them twice as strong if it is trimmed; with the outputs of all, if it is not."""

  def step(x, layer, factor=1):
    kernel, bias = (leaf.astype(x.dtype) for leaf in layer)
    y = jnp.tanh(factor * x @ kernel + bias)
    return y, y

  last_step = (lambda x, layer: (step(x, layer, 2)[0], None)) if trims else None
  last, outputs = run_layers(step, x, (kernels, biases), unroll=8, last_step=last_step)
  return last if outputs is None else jnp.concatenate([last[None], outputs])


DROPOUT = {'dropout_rate': 0.4, 'dropout_key': jax.random.key(3)}
POSITIONS = jnp.asarray([[0, 5, 5], [7, 1, 2]])
LINEAR = [(12, 12), (12, (3, 4, 5)), ((4, 5), 12)]
CASES = [
  *(
    Case(
      'affine', f'{inputs} to {outputs}', layers.affine, ((2, 3, *i),), ((*i, *o), o), tolerance=3 * ROUNDED_ONCE
    )  # rounded are the product, the bias and their sum
    for inputs, outputs in LINEAR
    for i, o in [(np.atleast_1d(inputs), np.atleast_1d(outputs))]
  ),
  *(
    Case('layer_norm', f'epsilon {epsilon}', layers.layer_norm, ((2, 3, 50),), ((50,), (50,)), {'epsilon': epsilon})
    for epsilon in (1e-12, 0.1)
  ),
  *(
    Case('gelu', name, layers.gelu, ((50, 50),), options={'approximate': approximate})
    for name, approximate in (('erf', False), ('tanh', True))
  ),
  Case('logits', '', layers.logits, ((2, 3, 16),), ((50, 16), (50,))),
  *(product_case(formula, SIZES) for formula in FORMULAS),
  *(Case('sum_of_rows', f'{rows} rows', lambda x: x.sum(0, dtype=jnp.float32), ((rows, 50),)) for rows in (1, 77)),
  *(
    Case('run_layers', f'{trims=}', stacked_layers, ((4, 5),), ((3, 5, 5), (3, 5)), {'trims': trims}, SEVERAL_PRODUCTS)
    for trims in (False, True)
  ),
  attention_case('one query and one key', 2, 3, 2, 1, 1),
  attention_case('masked and dropped', 2, 3, 4, 16, 7, random_mask(2, 1, 16, 7), **DROPOUT),
  attention_case('at positions', 2, 3, 4, 3, 8, random_mask(2, 1, 8, 8), positions_BxK=POSITIONS),
  *(
    Case('rows', name, attention.attention, ((2, 128, 2, 64),) * 3, **row_options(name), tolerance=SEVERAL_PRODUCTS)
    for name in LENGTHS
  ),
  Case(
    'self_attention',
    'packed',
    self_attention,
    ((2, 128, 32),),
    ((32,), (4, 8, 32), (3, 4, 8), (32, 3, 4, 8)),
    **row_options('packed'),
    tolerance=SEVERAL_PRODUCTS,
  ),
]


def on_rows(kernel):
  """A fused kernel with the signature of the plain operation."""
  return lambda query, key, value, visibility=Visibility(), **_: kernel(query, key, value, visibility.segment_ids_BxS)


INTERPRETED = on_rows(functools.partial(splash_attention, interpret=True))
WHOLE = Operations(self_attention=functools.partial(splash_self_attention, attend=INTERPRETED))


def products(lhs, rhs, formula):
  return cpu.product(formula, lhs, rhs, jnp.float32, fast=True)


CPU = kernels.TABLES['auto']
KERNELS = {
  'cpu': {name: getattr(CPU, name) for name in ('affine', 'layer_norm', 'gelu', 'logits', 'attention')}
  | {'product': products, 'sum_of_rows': cpu.sum_of_rows}
  | {'run_layers': functools.partial(stacked_layers, run_layers=cpu.run_layers)},
  'accelerator': {
    name: functools.partial(getattr(cpu, name), fast=False) for name in ('affine', 'logits', 'attention', 'sum_of_rows')
  },
  'splash': {'rows': INTERPRETED, 'self_attention': functools.partial(self_attention, ops=WHOLE)},
}
# Padded and packed rows go through Splash in `self_attention`, and all rows through cuDNN on a GPU. Products in float32
# are those of `jnp.einsum` itself.
ALL = [
  (kernel, case, dtype)
  for kernel in KERNELS
  for case in CASES
  for dtype in ('float32', 'bfloat16')
  if case.operation in KERNELS[kernel]
  and (case.operation, case.label) not in {('rows', 'padded'), ('rows', 'packed')}
  and (case.operation, dtype) != ('product', 'float32')
]


def rows_case(name):
  return next(case for case in CASES if (case.operation, case.label) == ('rows', name))


def assert_equal_to_plain(case, dtype, computed):
  for number, (actual, expected, least) in enumerate(zip(computed, case.reference, case.least_scales(), strict=True)):
    # Sums are float32 whatever the factors are: what comes out in it was not rounded on the way, but for parameters
    # that are cast to the dtype of the products.
    is_rounded = dtype == 'bfloat16' and (actual.dtype == jnp.bfloat16 or number > 0)
    tolerance = case.tolerance if is_rounded else TOLERANCE
    atol = tolerance * max(np.abs(expected).max(), least)
    np.testing.assert_allclose(np.asarray(actual, np.float64), expected, rtol=0, atol=atol)


@pytest.mark.parametrize(
  ('kernel', 'case', 'dtype'), ALL, ids=lambda x: x if isinstance(x, str) else f'{x.operation} {x.label}'
)
def test_values_and_gradients_are_those_of_the_plain_operation(kernel, case, dtype):
  operation = KERNELS[kernel][case.operation]
  computed = case.run(operation, dtype)
  expected = jax.eval_shape(lambda *arrays: case.plain(*arrays, **case.options), *case.arrays(dtype))
  assert computed[0].dtype == expected.dtype
  assert [x.dtype for x in computed[1:]] == [x.dtype for x in case.arrays(dtype)]
  assert_equal_to_plain(case, dtype, computed)


@pytest.mark.parametrize('operation', ['layer_norm', 'gelu'])
@pytest.mark.parametrize('table', [PLAIN, CPU], ids=['reference', 'cpu'])
def test_in_bfloat16_values_and_gradients_are_those_of_float32_rounded_once(operation, table):
  for case in CASES:
    if case.operation == operation:
      narrow, wide = (case.run(getattr(table, operation), dtype) for dtype in ('bfloat16', 'float32'))
      for actual, exact in zip(narrow, wide, strict=True):
        np.testing.assert_array_equal(actual, exact.astype(actual.dtype))


def test_cudnn_gets_the_segments(monkeypatch):
  in_plain_words = functools.partial(jax.nn.dot_product_attention, implementation='xla')
  of_xla = lambda *arrays, mask, implementation: in_plain_words(*arrays, mask=mask)
  monkeypatch.setattr(jax.nn, 'dot_product_attention', of_xla)
  case = rows_case('packed')
  assert_equal_to_plain(case, 'bfloat16', case.run(on_rows(cudnn_attention), 'bfloat16'))


# --- on the GPU -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('name', LENGTHS)
def test_cudnn_gives_the_values_and_gradients_of_the_plain_operation(name, root, tmp_path):
  if shutil.which('nvidia-smi') is None:
    pytest.skip('no NVIDIA GPU here')
  if not any(importlib.util.find_spec(f'jax_cuda{version}_plugin') for version in (12, 13)):
    pytest.skip('a GPU, but jax is installed without CUDA')
  # In a process of its own: this one has been told to see CPUs alone.
  subprocess.run(
    [sys.executable, '-m', 'tests.kernels.test_kernels', name, tmp_path / 'out.npz'],
    cwd=root,
    env=os.environ | {'JAX_PLATFORMS': 'cuda', 'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'},
    check=True,
  )
  with np.load(tmp_path / 'out.npz') as computed:
    assert_equal_to_plain(rows_case(name), 'bfloat16', [jnp.asarray(x, jnp.bfloat16) for x in computed.values()])


if __name__ == '__main__':  # what the test of cuDNN runs on the GPU
  computed = rows_case(sys.argv[1]).run(on_rows(cudnn_attention), 'bfloat16')
  np.savez(sys.argv[2], *(x.astype(jnp.float32) for x in computed))
