"""However the encoder is computed (loops, recomputing, trimmed, kernels, dtype), it is the plain one."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absent_devices import tpu_mesh
from encoder_values import TOLERANCE, assert_close, readout, run, values_and_gradients
from flax import nnx

from rembert.model.config import Execution
from rembert.model.encoder import RemBertEncoder

BFLOAT16_TOLERANCE = 5e-2  # as `TOLERANCE`, for products of 8-bit mantissas


@pytest.mark.parametrize(
  'execution',
  # Three layers: 2 leaves one over, 8 is more than there are.
  [
    Execution(remat='dots', unroll=2),
    Execution(remat='dots_and_attention'),
    Execution(kernels='reference', remat='full', unroll=8),
  ],
  ids=lambda execution: f'{execution.kernels} unroll {execution.unroll} remat {execution.remat}',
)
def test_unrolling_recomputing_and_kernels_change_neither_values_nor_gradients(
  tiny, build, batch, plain, run_encoder, execution
):
  states, gradients = run_encoder(build(tiny, execution).encoder, batch['ids'])
  assert_close(states, plain[0])
  jax.tree.map(assert_close, gradients, plain[1])


def test_in_bfloat16_the_gradients_of_a_row_that_many_tokens_share_are_added_in_float32(tiny, build):
  embeddings = build(tiny, Execution('bfloat16')).encoder.embeddings
  graphdef, parameters = nnx.split(embeddings)
  direction = readout((tiny.input_embedding_size,))

  @jax.grad
  def gradients(parameters, ids):
    return jnp.sum(direction * nnx.merge(graphdef, parameters)(ids, position_ids_BxS=jnp.zeros_like(ids)))

  tokens = 2000  # all the same; a sum in bfloat16 stops at 256 equal terms
  of_one, of_many = (nnx.to_pure_dict(gradients(parameters, jnp.full((1, size), 7))) for size in (1, tokens))
  for table, row in (('word', 7), ('position', 0), ('token_type', 0)):
    one, many = (np.asarray(each[table]['embedding'][row]) for each in (of_one, of_many))
    assert np.abs(one).max() > 0
    np.testing.assert_allclose(many, tokens * one, rtol=1e-3, atol=1e-3 * tokens * np.abs(one).max())


TRIMMED = Execution(trim_last_layer=True)


@pytest.mark.parametrize(
  ('layers', 'visibility', 'executions'),
  [
    (0, 'all', [TRIMMED]),  # nothing to trim
    (1, 'padded', [TRIMMED]),
    (2, 'packed', [dataclasses.replace(TRIMMED, unroll=2), dataclasses.replace(TRIMMED, remat='full')]),
  ],
  ids=['no layer', 'one layer', 'two layers'],
)
def test_the_encoder_at_some_positions_is_the_encoder_there(tiny, build, batch, layers, visibility, executions):
  config, ids = dataclasses.replace(tiny, num_hidden_layers=layers), jnp.asarray(batch['ids'])
  rows, length = ids.shape
  options = {
    'all': {},
    'padded': {'attention_mask': jnp.asarray(batch['mask'])},
    'packed': {'segment_ids': jnp.asarray(batch['mask'] * (1 + np.arange(length) // 3))},
  }[visibility]
  random = np.random.default_rng(8)
  # Of tokens; the states of padding are not used. Some positions come twice.
  positions = jnp.asarray([random.choice(np.flatnonzero(row), 5) for row in batch['mask']])
  direction = readout((rows, 5, config.hidden_size))

  def everywhere(encoder):
    return jnp.take_along_axis(encoder(ids, **options).last_hidden_state, positions[..., None], axis=1)

  expected = values_and_gradients(build(config).encoder, direction, everywhere)
  scale = max(np.abs(leaf).max(initial=0) for leaf in jax.tree.leaves(expected[1]))
  for execution in executions:
    encoder = build(config, execution).encoder
    states, gradients = values_and_gradients(
      encoder, direction, lambda encoder: encoder(ids, positions=positions, **options).last_hidden_state
    )
    assert states.shape == (rows, 5, config.hidden_size)
    assert_close(states, expected[0])
    for actual, reference in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected[1]), strict=True):
      np.testing.assert_allclose(actual, reference, rtol=0, atol=TOLERANCE * scale)


@pytest.mark.parametrize('layers', [0, 3])
def test_unrolled_layers_drop_and_output_what_a_loop_does(tiny, build, batch, layers):
  config = dataclasses.replace(tiny, num_hidden_layers=layers, hidden_dropout_prob=0.5)
  options = {'output_hidden_states': True, 'dropout_key': jax.random.key(3)}
  loop, unrolled = (
    run(build(config, execution).encoder, batch['ids'], **options) for execution in (Execution(), Execution(unroll=8))
  )
  assert loop.hidden_states.shape[0] == layers + 1
  assert_close(unrolled.hidden_states, loop.hidden_states)
  assert_close(unrolled.last_hidden_state, loop.hidden_states[-1])


def test_gradients_of_unrolled_layers_are_stacked_once(tiny, build, batch):
  ids, positions = jnp.asarray(batch['ids']), jnp.zeros((len(batch['ids']), 2), jnp.int32)

  def primitives(execution):
    graphdef, parameters = nnx.split(build(tiny, execution).encoder)
    loss = lambda parameters: nnx.merge(graphdef, parameters)(ids, positions=positions).last_hidden_state.sum()
    closed = jax.make_jaxpr(jax.grad(loss))(parameters)
    of_layers = {(tiny.num_hidden_layers, *leaf.shape[1:]) for leaf in jax.tree.leaves(parameters['layers'])}
    return [
      equation.primitive.name for equation in closed.eqns for made in equation.outvars if made.aval.shape in of_layers
    ]

  unrolled = primitives(Execution(trim_last_layer=True, unroll=tiny.num_hidden_layers))
  assert not {'pad', 'add_any', 'scan'} & {*unrolled}
  assert 'pad' in primitives(Execution(trim_last_layer=True))


def test_dropout_is_drawn_at_the_positions_alone(tiny, build, batch):
  config = dataclasses.replace(tiny, hidden_dropout_prob=0.5)
  positions = jnp.tile(jnp.asarray([[1, 2]]), (len(batch['ids']), 1))
  encoder, ids = build(config, Execution(trim_last_layer=True)).encoder, jnp.asarray(batch['ids'])
  forward = jax.jit(lambda key: encoder(ids, positions=positions, dropout_key=key).last_hidden_state)
  one, again, other = forward(jax.random.key(0)), forward(jax.random.key(0)), forward(jax.random.key(1))
  np.testing.assert_array_equal(one, again)
  assert np.any(one != other)


def test_each_policy_keeps_less_than_the_one_before(tiny):
  # Rows so long, and heads so many, that the scores are most of what a layer makes; after them what is as wide as the
  # feed-forward, of which `none` keeps both sides of GELU.
  config = dataclasses.replace(tiny, num_hidden_layers=3, intermediate_size=192, max_position_embeddings=64)
  ids = jnp.zeros((2, 64), jnp.int32)

  def temporaries(remat):
    # Without a loop, XLA's CPU backend would keep what is to be recomputed.
    construct = lambda: RemBertEncoder(config, Execution(remat=remat, unroll=8), add_pooler=False, rngs=nnx.Rngs(0))
    graphdef, shapes = nnx.split(nnx.eval_shape(construct))
    loss = lambda params: nnx.merge(graphdef, params)(ids).last_hidden_state.sum()
    return jax.jit(jax.grad(loss)).lower(nnx.to_pure_dict(shapes)).compile().memory_analysis().temp_size_in_bytes

  sizes = [temporaries(remat) for remat in ('none', 'dots', 'dots_and_attention', 'full')]
  assert all(more > 1.2 * less for more, less in itertools.pairwise(sizes)), sizes


@pytest.mark.parametrize(('remat', 'has_barriers'), [('none', False), ('full', True)])
def test_without_a_loop_barriers_keep_a_compiler_from_keeping(tiny, remat, has_barriers):
  construct = lambda: RemBertEncoder(tiny, Execution(remat=remat, unroll=8), add_pooler=False, rngs=nnx.Rngs(0))
  graphdef, shapes = nnx.split(nnx.eval_shape(construct))
  loss = lambda params: nnx.merge(graphdef, params)(jnp.zeros((2, 8), jnp.int32)).last_hidden_state.sum()
  with jax.sharding.use_abstract_mesh(tpu_mesh(1, 1, 1)):
    traced = jax.jit(jax.grad(loss)).trace(nnx.to_pure_dict(shapes))
    text = traced.lower(lowering_platforms=('tpu',)).as_text()
  assert 'stablehlo.while' not in text
  assert ('stablehlo.optimization_barrier' in text) == has_barriers


def test_bfloat16_keeps_float32_parameters_and_stays_close(tiny, build, batch, plain, run_encoder):
  states, gradients = run_encoder(build(tiny, Execution(dtype='bfloat16')).encoder, batch['ids'])
  assert states.dtype == jnp.bfloat16
  assert {x.dtype for x in jax.tree.leaves(gradients)} == {jnp.dtype('float32')}
  assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves((states, gradients)))
  assert_close(states.astype(np.float32), plain[0], BFLOAT16_TOLERANCE)
