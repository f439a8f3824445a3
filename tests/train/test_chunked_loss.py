"""The loss in chunks is the plain loss of all logits, to rounding; and what it talks about between devices."""

import dataclasses
import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

from rembert.model.config import Execution
from rembert.model.partitioning import partition_spec
from rembert.train.chunked_loss import chunked_mlm_row_sums, chunked_mlm_sums
from rembert.train.losses import mlm_row_sums
from rembert.train.sharding import MeshConfig, make_mesh, to_device
from rembert.train.step import make_eval_step, make_train_step, masked_lm_sums

TOLERANCE = 1e-6  # relative to the largest value of the reference
BFLOAT16_TOLERANCE = 2e-2  # the same, for products of 8-bit mantissas
B, K, E, V, PIECES = 16, 5, 24, 64, 53  # of eight parts of the vocabulary, one is padding alone and one in part
AXES = (('batch', None, None), ('vocab', 'embed'), ('vocab',), ('batch', None), ('batch', None))


def assert_close(actual, reference, tolerance=TOLERANCE):
  reference = np.asarray(reference, np.float64)
  np.testing.assert_allclose(
    np.asarray(actual, np.float64), reference, rtol=0, atol=tolerance * np.abs(reference).max()
  )


def inputs(seed=0):
  """x, table, bias, targets, weights. The table's padding rows hold noise; row 0 counts everywhere, row 1 nowhere."""
  random = np.random.default_rng(seed)
  x, table, bias = (random.standard_normal(shape).astype(np.float32) for shape in ((B, K, E), (V, E), (V,)))
  logits = (x @ table.T + bias)[..., :PIECES]
  best = random.random((B, K)) < 1 / 3
  targets = np.where(best, logits.argmax(-1), random.integers(0, PIECES, (B, K))).astype(np.int32)
  weights = (random.random((B, K)) < 0.6).astype(np.float32)
  weights[0], weights[1] = 1, 0
  return x, table, bias, targets, weights


def plain_row_sums(x, table, bias, targets, weights):
  logits = jnp.where(jnp.arange(V) < PIECES, jnp.einsum('bke,ve->bkv', x, table) + bias, -jnp.inf)
  return mlm_row_sums(logits, targets, weights)


@functools.cache
def compiled_on(sizes, function, *shapes):
  """`function` of arrays compiled for arrays of these shapes and dtypes, sharded by the table of logical axes."""
  if sizes is None:
    return jax.jit(function).lower(*(jax.ShapeDtypeStruct(*each) for each in shapes)).compile()
  with jax.set_mesh(make_mesh(MeshConfig(*sizes))):
    arrays = [jax.ShapeDtypeStruct(*each, sharding=where) for each, where in zip(shapes, places(sizes), strict=True)]
    return jax.jit(function).lower(*arrays).compile()


def places(sizes):
  """The sharding of each input."""
  return [NamedSharding(make_mesh(MeshConfig(*sizes)), partition_spec(axes)) for axes in AXES]


def on_mesh(sizes, function, arrays):
  """The result of `function`, and what was compiled."""
  compiled = compiled_on(sizes, function, *((array.shape, array.dtype) for array in arrays))
  placed = arrays if sizes is None else jax.device_put(list(arrays), places(sizes))
  return jax.device_get(compiled(*placed)), compiled


ROW_SUMS = functools.partial(chunked_mlm_row_sums, vocab_size=PIECES, chunk=7)


@functools.cache
def with_gradients(chunk, vocab_size=PIECES):
  """(x, table, bias, targets, weights) to the sums and the gradients of the first three."""

  def run(x, table, bias, targets, weights):
    def loss(x, table, bias):
      sums = chunked_mlm_sums(x, table, bias, targets, weights, vocab_size=vocab_size, chunk=chunk)
      return sums.loss, sums

    gradients, sums = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(x, table, bias)
    return sums, gradients

  return run


@pytest.fixture(scope='module')
def plain():
  """Row sums and gradients of the plain loss."""
  x, table, bias, targets, weights = inputs()
  loss = lambda x, table, bias: plain_row_sums(x, table, bias, targets, weights).loss.sum()
  return jax.device_get(
    (jax.jit(plain_row_sums)(*inputs()), jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(x, table, bias))
  )


# --- values -----------------------------------------------------------------------------------------------------------


# 80 positions, or 10 on each of eight devices: 5 divides both and 7 neither.
@pytest.mark.parametrize(
  ('sizes', 'chunk'), [(None, 5), (None, 1000), ((2, 4, 1), 7), ((1, 2, 4), 5), ((1, 2, 4), 7)], ids=str
)
def test_loss_and_gradients_are_those_of_all_logits(plain, sizes, chunk):
  rows, expected = plain
  (sums, gradients), _ = on_mesh(sizes, with_gradients(chunk), inputs())
  assert_close(sums.loss, rows.loss.sum())
  assert sums.correct == rows.correct.sum()
  assert sums.weight == rows.weight.sum()
  assert 0 < sums.correct < sums.weight < B * K
  for actual, reference in zip(gradients, expected, strict=True):
    assert actual.dtype == np.float32
    assert_close(actual, reference)
  _, of_table, of_bias = gradients
  assert not np.any(of_table[PIECES:])  # NaN would not be zero
  assert not np.any(of_bias[PIECES:])


@pytest.mark.parametrize(
  'sizes', [None, (2, 4, 1), (1, 2, 4)], ids=lambda sizes: 'x'.join(map(str, sizes)) if sizes else 'no mesh'
)
def test_rows_are_summed_one_by_one_and_a_piece_as_good_as_the_target_makes_it_wrong(plain, sizes):
  rows, _ = on_mesh(sizes, ROW_SUMS, inputs())
  assert_close(rows.loss, plain[0].loss)
  np.testing.assert_array_equal(rows.correct, plain[0].correct)
  np.testing.assert_array_equal(rows.weight, plain[0].weight)
  assert {x.dtype for x in rows} == {np.dtype('float32')}
  x, table, bias, targets, _ = inputs()
  targets[:], weights = 3, np.ones((B, K), np.float32)
  bias[3] = 1000  # everywhere the best, until another is exactly as good
  correct = lambda: on_mesh(sizes, ROW_SUMS, (x, table, bias, targets, weights))[0].correct.sum()
  assert correct() == B * K
  twin = 45  # on another device where the vocabulary is split
  table[twin], bias[twin] = table[3], bias[3]
  assert correct() == 0


def test_a_loss_that_counts_three_times_has_three_times_the_gradients(plain):
  x, table, bias, targets, weights = inputs()
  loss = lambda *p: 3 * chunked_mlm_sums(*p, targets, weights, vocab_size=PIECES, chunk=7).loss
  for actual, expected in zip(jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(x, table, bias), plain[1], strict=True):
    assert_close(actual, 3 * expected)


def test_padding_of_weight_zero_does_not_change_a_bit():
  x, table, bias, targets, weights = inputs()
  run, counts, others = (
    lambda *arrays: on_mesh(None, with_gradients(7), arrays)[0],
    weights.astype(bool),
    inputs(seed=1),
  )
  expected, gradients = run(*inputs())
  mixed = np.where(counts[..., None], x, others[0]), table, bias, np.where(counts, targets, others[3]), weights
  jax.tree.map(np.testing.assert_array_equal, run(*mixed), (expected, gradients))
  assert not np.any(gradients[0][~counts])
  sums, gradients = run(x, table, bias, targets, np.zeros_like(weights))
  assert sums == (0, 0, 0)
  assert not any(np.any(gradient) for gradient in gradients)


@pytest.mark.parametrize('sizes', [None, (1, 2, 4)], ids=['no mesh', '1x2x4'])
def test_in_bfloat16_the_gradients_of_parameters_are_added_up_in_float32(plain, sizes):
  x, *rest = inputs()
  (sums, gradients), _ = on_mesh(sizes, with_gradients(7), (jnp.asarray(x, jnp.bfloat16), *rest))
  assert [gradient.dtype for gradient in gradients] == [jnp.bfloat16, jnp.float32, jnp.float32]
  assert_close(sums.loss, plain[0].loss.sum(), BFLOAT16_TOLERANCE)
  for actual, expected in zip(gradients, plain[1], strict=True):
    assert_close(actual, expected, BFLOAT16_TOLERANCE)
  if sizes is None:  # and what each chunk adds to the table is not rounded
    arrays = jnp.asarray(x[:1, :1], jnp.bfloat16), *rest[:2], *(array[:1, :1] for array in rest[2:])
    table = np.asarray(on_mesh(None, with_gradients(1), arrays)[0][1][1])[:PIECES]
    is_rounded = table == np.asarray(jnp.asarray(table, jnp.bfloat16), np.float32)
    assert is_rounded.mean() < 0.2  # a product of two numbers of 8 bits has up to 16


# --- through the model ------------------------------------------------------------------------------------------------


def test_every_parameter_of_the_model_has_the_gradient_of_the_plain_loss(trainable, packed_batch, tiny):
  # With tied embeddings, dropout, and a mesh; against all logits on one device. Layers: see test_step.py.
  config = dataclasses.replace(
    tiny, hidden_dropout_prob=0.1, input_embedding_size=24, tie_word_embeddings=True, num_hidden_layers=0
  )
  random = np.random.default_rng(0)
  draw = lambda leaf: 0.2 * random.standard_normal(leaf.shape, np.float32)
  params = jax.tree.map(draw, trainable(config=config).abstract_state.params)

  def gradients(sizes, chunk):
    described = trainable(sizes, config=config, execution=Execution(loss_chunk=chunk))

    def loss(params, batch):
      sums = masked_lm_sums(described.graphdef, params, batch, jax.random.key(3))
      return sums.loss, sums

    with jax.set_mesh(described.mesh):
      placed = jax.device_put(params, described.shardings.params)
      batch = to_device(packed_batch(0), described.mesh)
      return jax.device_get(jax.jit(jax.grad(loss, has_aux=True))(placed, batch))

  (actual, sums), (expected, expected_sums) = gradients((2, 2, 2), 3), gradients((1, 1, 1), 0)
  assert_close(sums.loss, expected_sums.loss)
  assert sums[1:] == expected_sums[1:]
  largest = max(np.abs(x).max(initial=0) for x in jax.tree.leaves(expected))
  close = functools.partial(np.testing.assert_allclose, rtol=0, atol=TOLERANCE * largest)
  jax.tree.map(close, actual, expected)


# --- what is never made -----------------------------------------------------------------------------------------------


def tensors_with_vocabulary_axis(text, sizes):
  """For every tensor of a lowered program that has an axis of one of `sizes`: the number of its elements but for it."""
  found = set()
  for shape in re.findall(r'tensor<((?:\d+x)+)[a-z]', text):
    dimensions = [int(size) for size in shape.split('x') if size]
    found |= {math.prod(dimensions) // size for size in sizes if size in dimensions}
  return found


@pytest.mark.parametrize(('kind', 'sizes'), [('training', (2, 2, 2)), ('evaluation', (1, 1, 1))])
def test_no_step_holds_the_logits_of_all_positions(trainable, tiny, packed_batch, kind, sizes):
  # 1104 rows of tables, 552 on each device of two; 16 x 4 masked positions on one device, 4 x 4 on one of eight. The
  # widest that stands widest V otherwise is a row of the table, 12 with two parts of it.
  config = dataclasses.replace(tiny, vocab_size=1100, output_embedding_size=12, num_hidden_layers=0)

  def widest(chunk):
    described = trainable(sizes, config=config, execution=Execution(loss_chunk=chunk))
    batch = to_device(packed_batch(0), described.mesh)
    with jax.set_mesh(described.mesh):
      if kind == 'training':
        lowered = make_train_step(described).lower(described.restore_target(), batch, None)
      else:
        lowered = make_eval_step(described, 3).lower(described.restore_target().params, batch)
    return max(tensors_with_vocabulary_axis(lowered.as_text(), (1104, 552)))

  assert widest(5) == 12
  assert widest(0) >= 64  # the reference holds all logits, so this test detects them


# --- what devices tell each other -------------------------------------------------------------------------------------

COLLECTIVE = r'= (\S.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\('


def collectives(text):
  """(kind, shapes) of every collective inside loops, and outside."""
  computations = dict(re.findall(r'^(?:ENTRY )?%?([\w.\-]+) \(.*?\{\n(.*?)^\}', text, re.MULTILINE | re.DOTALL))
  bodies = set(re.findall(r'body=%?([\w.\-]+)', text))
  assert bodies <= computations.keys()

  def of(names):
    return [
      (kind, tuple(re.findall(r'\w+\[([\d,]*)\]', shapes)))
      for name in names
      for shapes, kind in re.findall(COLLECTIVE, computations[name])
    ]

  return of(bodies), of(computations.keys() - bodies)


@functools.cache
def spoken(sizes):
  """The collectives inside the loop over chunks, and outside it."""
  return collectives(on_mesh(sizes, with_gradients(5), inputs())[1].as_text())


@pytest.mark.parametrize('sizes', [(2, 4, 1), (2, 2, 2)], ids=['2x4x1', '2x2x2'])
def test_over_fsdp_the_table_is_gathered_once_and_its_gradient_reduced_once(sizes):
  inside, outside = spoken(sizes)
  rows = V // sizes[2]
  table, part = f'{rows},{E}', f'{rows},{E // sizes[1]}'
  assert not [shapes for kind, shapes in inside if kind != 'all-reduce' or any(',' in shape for shape in shapes)]
  assert [shapes for kind, shapes in outside if kind == 'all-gather'] == [(table,)]
  assert [shapes for kind, shapes in outside if kind == 'reduce-scatter'] == [(part,)]
  # Over `data` only the part that a device keeps is added up.
  added = [shape for kind, shapes in outside if kind == 'all-reduce' for shape in shapes]
  assert part in added
  assert table not in added
  assert {kind for kind, _ in outside} == {'all-gather', 'reduce-scatter', 'all-reduce'}


@pytest.mark.parametrize('sizes', [(1, 1, 8), (2, 2, 2)], ids=['1x1x8', '2x2x2'])
def test_over_tensor_a_few_numbers_for_each_position_are_exchanged(sizes):
  inside, outside = spoken(sizes)
  assert inside
  # The target's logit; the largest of the others; the sum of exponentials: each of a chunk's five positions.
  assert {(kind, shape) for kind, shapes in inside for shape in shapes} == {('all-reduce', '5')}
  assert sum(len(shapes) for _, shapes in inside) == 3
  # Of what was computed for x by each part of the vocabulary, the sum, once.
  rows = B // (sizes[0] * sizes[1])
  added = [shape for kind, shapes in outside if kind == 'all-reduce' for shape in shapes]
  assert added.count(f'{rows},{K},{E}') == 1
  assert all(len(shape.split(',')) < 2 or str(V) not in shape.split(',') for _, shapes in outside for shape in shapes)


def test_without_fsdp_and_tensor_nothing_but_gradients_and_sums_is_added_up():
  inside, outside = spoken((8, 1, 1))
  assert not inside
  assert {kind for kind, _ in outside} == {'all-reduce'}
