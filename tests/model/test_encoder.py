"""The whole encoder against NumPy in float64, and the properties that hold whatever its parameters are."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from encoder_values import TOLERANCE, assert_close, gelu, gelu_tanh, layer_norm, readout, run
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.model.config import Execution
from rembert.model.encoder import RemBertEncoder

# --- the reference: Hugging Face's RemBERT, written out for one row at a time ---------------------


def reference_row(config, p, ids, types, positions, sees):
  """Hidden states [L + 1, S, H] and pooled [H] of one row; `sees` [S, S] is True where a query sees a key."""
  epsilon = config.layer_norm_eps
  act = {'gelu': gelu, 'gelu_tanh': gelu_tanh}[config.hidden_act]
  tables = p['embeddings']
  x = (
    tables['word']['embedding'][ids]
    + tables['position']['embedding'][positions]
    + tables['token_type']['embedding'][types]
  )
  x = layer_norm(x, tables['norm'], epsilon)
  if 'projection' in p:
    x = x @ p['projection']['kernel'] + p['projection']['bias']
  states = [x]
  for index in range(config.num_hidden_layers):
    layer = jax.tree.map(lambda stacked, index=index: stacked[index], p['layers'])
    qkv, output = layer['attention']['qkv'], layer['attention']['output']
    attended = output['bias'].copy()
    for head in range(config.num_attention_heads):
      query, key, value = (x @ qkv['kernel'][:, i, head] + qkv['bias'][i, head] for i in range(3))
      scores = np.where(sees, query @ key.T / np.sqrt(config.hidden_size // config.num_attention_heads), -np.inf)
      weights = np.exp(scores - scores.max(-1, keepdims=True))
      attended = attended + weights / weights.sum(-1, keepdims=True) @ value @ output['kernel'][head]
    x = layer_norm(x + attended, layer['attention_norm'], epsilon)
    up, down = layer['feed_forward']['up'], layer['feed_forward']['down']
    fed = act(x @ up['kernel'] + up['bias']) @ down['kernel'] + down['bias']
    x = layer_norm(x + fed, layer['output_norm'], epsilon)
    states.append(x)
  return np.stack(states), np.tanh(x[0] @ p['pooler']['kernel'] + p['pooler']['bias'])


# --- against the reference ------------------------------------------------------------------------


@pytest.mark.parametrize(
  'fields',
  [
    {},
    {'hidden_act': 'gelu_tanh', 'input_embedding_size': 32},
    {'input_embedding_size': 32, 'always_project_embeddings': True},
  ],
  ids=['erf', 'tanh, without projection', 'with a projection between equal widths'],
)
def test_hidden_states_and_pooler_are_those_of_the_reference(tiny, build, parameters, batch, fields):
  config = dataclasses.replace(tiny, **fields)
  encoder = build(config).encoder
  output = run(encoder, batch['ids'], batch['types'], batch['mask'], output_hidden_states=True)
  p = parameters(encoder)
  for row, length in enumerate(batch['lengths']):
    sees = np.broadcast_to(np.arange(10) < length, (10, 10))
    states, pooled = reference_row(config, p, batch['ids'][row], batch['types'][row], np.arange(10), sees)
    assert_close(output.hidden_states[:, row], states)
    assert_close(output.pooler_output[row], pooled)
  np.testing.assert_array_equal(output.hidden_states[-1], output.last_hidden_state)
  assert output.hidden_states.shape == (config.num_hidden_layers + 1, 4, 10, config.hidden_size)
  plain = jax.eval_shape(build(config, add_pooler=False).encoder, jnp.asarray(batch['ids']))
  assert plain.pooler_output is plain.hidden_states is None  # what is not asked for is not returned


def test_by_default_there_is_one_text_without_padding(tiny_model, batch, plain):
  ids = jnp.asarray(batch['ids'])
  explicit = run(
    tiny_model.encoder, ids, jnp.zeros_like(ids), jnp.ones_like(ids), position_ids=jnp.tile(jnp.arange(10), (4, 1))
  )
  assert_close(plain[0], explicit.last_hidden_state)


# --- who feels whom -------------------------------------------------------------------------------


@pytest.mark.parametrize(('kept', 'unroll'), [(1, 1), (2, 8)])
def test_the_bottom_layers_alone_give_their_own_hidden_state_and_what_is_above_is_not_computed(
  tiny, build, batch, kept, unroll
):
  ids, mask = jnp.asarray(batch['ids']), jnp.asarray(batch['mask'])
  encoder = build(tiny, Execution(unroll=unroll)).encoder
  every = run(encoder, ids, attention_mask=mask, output_hidden_states=True).hidden_states
  graphdef, state = nnx.split(encoder)
  parameters = nnx.to_pure_dict(state)
  parameters['layers'] = jax.tree.map(lambda leaf: leaf.at[kept:].set(jnp.nan), parameters['layers'])
  bottom = run(nnx.merge(graphdef, parameters), ids, attention_mask=mask, num_layers=kept)
  assert_close(bottom.last_hidden_state, every[kept])


def test_padding_does_not_change_a_bit(tiny, tiny_model, batch):
  forward = nnx.jit(lambda model, ids: model(ids, None, jnp.asarray(batch['mask'])))
  other = np.where(batch['mask'], batch['ids'], (batch['ids'] + 1) % tiny.vocab_size)
  before, after = (forward(tiny_model.encoder, jnp.asarray(ids)) for ids in (batch['ids'], other))
  is_token = batch['mask'].astype(bool)
  np.testing.assert_array_equal(before.last_hidden_state[is_token], after.last_hidden_state[is_token])
  np.testing.assert_array_equal(before.pooler_output, after.pooler_output)
  assert np.any(before.last_hidden_state[~is_token] != after.last_hidden_state[~is_token])


PACKED = 24  # positions in a packed row


@pytest.fixture(scope='module')
def run_packed(tiny_model):
  """ids, segments, positions, each [4, PACKED], to last hidden states; compiled once."""
  forward = nnx.jit(lambda model, ids, segments, positions: model(ids, segment_ids=segments, position_ids=positions))
  return lambda *arrays: np.asarray(forward(tiny_model.encoder, *map(jnp.asarray, arrays)).last_hidden_state)


@given(
  lengths=st.lists(st.integers(1, 8), min_size=2, max_size=4).filter(lambda lengths: sum(lengths) <= PACKED),
  seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=10)
def test_a_packed_document_is_encoded_as_if_alone_and_bitwise_the_same_next_to_any_other(
  tiny, run_packed, lengths, seed
):
  random, count = np.random.default_rng(seed), len(lengths)
  segments = np.pad(np.repeat(np.arange(count) + 1, lengths), (0, PACKED - sum(lengths)))
  positions = np.pad(np.concatenate([np.arange(length) for length in lengths]), (0, PACKED - sum(lengths)))
  ids = np.where(segments > 0, random.integers(0, tiny.vocab_size, PACKED), 0)
  # Row 0 as it is; in row k all documents but the k-th, and the padding, hold other tokens.
  rows, alone = random.integers(0, tiny.vocab_size, (4, PACKED)), np.zeros((3, 4, PACKED), np.int32)
  rows[0] = ids
  for row in range(1, 4):
    rows[row] = np.where(segments == row, ids, rows[row])
  for row, length in enumerate(lengths):
    alone[0, row, :length], alone[1, row, :length] = ids[segments == row + 1], 1
    alone[2, row, :length] = np.arange(length)
  packed, unpacked = run_packed(rows, *(np.tile(x, (4, 1)) for x in (segments, positions))), run_packed(*alone)
  for row in range(1, min(4, count + 1)):
    np.testing.assert_array_equal(packed[row, segments == row], packed[0, segments == row])
  for row, length in enumerate(lengths):
    assert_close(packed[0, segments == row + 1], unpacked[row, :length])


# --- gradients ------------------------------------------------------------------------------------


def test_the_gradient_is_the_slope_and_felt_by_every_parameter(tiny, tiny_model, parameters, batch, plain):
  for path, gradient in jax.tree_util.tree_leaves_with_path(plain[1]):
    names = [key.key for key in path]
    assert names[0] == 'pooler' or np.any(gradient), names
  # Central differences of the NumPy reference in float64, along one random direction through all parameters at once.
  p, random = parameters(tiny_model.encoder), np.random.default_rng(6)
  direction = jax.tree.map(lambda x: random.standard_normal(x.shape), p)

  def projected(scale):
    moved = jax.tree.map(lambda x, d: x + scale * d, p, direction)
    options = np.zeros(10, int), np.arange(10), np.ones((10, 10), bool)
    rows = [reference_row(tiny, moved, ids, *options)[0][-1] for ids in batch['ids']]
    return np.vdot(np.stack(rows), readout((4, 10, tiny.hidden_size)))

  slope = (projected(1e-6) - projected(-1e-6)) / 2e-6
  ours = sum(np.vdot(g, d) for g, d in zip(jax.tree.leaves(plain[1]), jax.tree.leaves(direction), strict=True))
  assert ours == pytest.approx(slope, rel=1e-4)


# --- dropout --------------------------------------------------------------------------------------


def test_half_of_the_embeddings_are_dropped_with_a_key_and_the_rest_is_doubled(tiny, build, batch):
  embeddings = build(dataclasses.replace(tiny, hidden_dropout_prob=0.5, num_hidden_layers=0)).encoder.embeddings
  without = np.asarray(run(embeddings, batch['ids']))
  dropped, again = (np.asarray(run(embeddings, batch['ids'], dropout_key=jax.random.key(0))) for _ in range(2))
  np.testing.assert_array_equal(dropped, again)
  kept = dropped != 0
  assert 0.4 < kept.mean() < 0.6
  np.testing.assert_allclose(dropped[kept], 2 * without[kept], rtol=TOLERANCE)


@pytest.fixture(scope='module')
def dropout_run(tiny, build, batch):
  """(parameters, key) to hidden states with half of the units and attention weights dropped; and the parameters."""
  config = dataclasses.replace(tiny, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
  graphdef, params = nnx.split(build(config).encoder)
  ids = jnp.asarray(batch['ids'])
  run = jax.jit(
    lambda params, key: nnx.merge(graphdef, params)(ids, output_hidden_states=True, dropout_key=key).hidden_states
  )
  return run, nnx.to_pure_dict(params)


def test_dropout_is_off_without_a_key_and_reproducible_with_one(dropout_run, plain):
  run, params = dropout_run
  assert_close(run(params, None)[-1], plain[0])
  first, again, other = (run(params, jax.random.key(seed)) for seed in (1, 1, 2))
  np.testing.assert_array_equal(first, again)
  for states in np.asarray(first), np.asarray(other):
    assert np.abs(states[-1] - plain[0]).max() > 0.01
  assert np.abs(first - other).max() > 0.01


def states_of_a_bias(dropout_run, branch, linear):
  """What each layer gives out if its only word is a large bias: low where it is dropped, elsewhere high."""
  run, params = dropout_run
  layers = jax.tree.map(jnp.zeros_like, params['layers'])
  layers[branch][linear]['bias'] += 1000.0
  for norm in 'attention_norm', 'output_norm':
    layers[norm]['scale'] += 1.0
  return np.asarray(run(params | {'layers': layers}, jax.random.key(0)))[1:]


def test_every_layer_and_both_branches_of_one_drop_other_units(dropout_run):
  states = states_of_a_bias(dropout_run, 'feed_forward', 'down')
  attention = states_of_a_bias(dropout_run, 'attention', 'output')
  kept = np.concatenate([states, attention[:1]]).reshape(len(states) + 1, -1) > 0
  # 1,280 units: independent masks agree on half of them, within five standard deviations.
  slack = 5 * 0.5 / np.sqrt(kept.shape[1])
  for one in range(len(kept)):
    assert abs(kept[one].mean() - 0.5) < slack
    for other in range(one):
      assert abs((kept[one] == kept[other]).mean() - 0.5) < slack
  # Of each token the units that are dropped have one value, those that are kept another. If none were dropped, the norm
  # would take the bias away.
  for units in attention[0].reshape(-1, attention.shape[-1]):
    assert np.ptp(units[units > 0]) < 0.05
    assert np.ptp(units[units < 0]) < 0.05


# --- initialisation -------------------------------------------------------------------------------


def test_kernels_and_tables_begin_as_different_normals_cut_at_two_sigma_biases_at_zero_and_scales_at_one(tiny):
  config = dataclasses.replace(tiny, hidden_size=128, intermediate_size=512, vocab_size=3000, input_embedding_size=64)
  construct = lambda: nnx.to_pure_dict(nnx.state(RemBertEncoder(config, rngs=nnx.Rngs(0))))
  fresh, filled = jax.tree.map(np.asarray, jax.jit(construct)()), 0
  for path, x in jax.tree_util.tree_leaves_with_path(fresh):
    name = '/'.join(key.key for key in path)
    if name.endswith(('bias', 'scale')):
      assert np.all(x == name.endswith('scale')), name
      continue
    x = x[:3000] if 'word' in name else x
    assert np.abs(x).max() <= 2 * 0.02, name
    assert abs(x.mean()) < 5 * 0.0176 / np.sqrt(x.size), name
    # The cut leaves 0.87962566 of σ; the estimate's own standard error is below 0.6 / √n of it.
    assert x.std() == pytest.approx(0.87962566 * 0.02, rel=5 * 0.6 / np.sqrt(x.size)), name
    filled += 1
  assert filled == 3 + 1 + 4 + 1
  kernels = [x for path, x in jax.tree_util.tree_leaves_with_path(fresh['layers']) if path[-1].key == 'kernel']
  heads = [layer.reshape(-1)[:1000] for kernel in kernels for layer in kernel]
  assert np.abs(np.corrcoef(heads) - np.eye(len(heads))).max() < 0.2
