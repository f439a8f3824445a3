"""The MLM head against NumPy: masked positions, padding rows, tied embeddings; the heads of fine-tuning; none."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from encoder_values import TOLERANCE, assert_close, gelu, layer_norm, run
from flax import nnx

from rembert.errors import UsageError
from rembert.model.config import Execution
from rembert.model.heads import (
  HEADS,
  RemBertForMaskedLM,
  build_model,
  parameter_shapes,
  sentence_embeddings,
)
from rembert.train.losses import mlm_row_sums

BFLOAT16_TOLERANCE = 5e-2  # as `TOLERANCE`, for products of 8-bit mantissas


def reference_logits(config, p, states, word_embedding):
  """Hugging Face's `cls.predictions`, float64: [B, S, H] to [B, S, V] without padding rows."""
  x = states @ p['transform']['kernel'] + p['transform']['bias']
  x = layer_norm(gelu(x), p['norm'], config.layer_norm_eps)
  table = word_embedding if config.tie_word_embeddings else p['output_embedding']
  return (x @ table.T + p['bias'])[..., : config.vocab_size]


@pytest.fixture(scope='module')
def tied(tiny):
  return dataclasses.replace(tiny, output_embedding_size=tiny.input_embedding_size, tie_word_embeddings=True)


@pytest.fixture(scope='module')
def states(tiny):
  """Hidden states for the head alone, [3, 8, H]."""
  return np.random.default_rng(1).standard_normal((3, 8, tiny.hidden_size)).astype(np.float32)


@pytest.fixture(scope='module')
def ids(tiny):
  return jnp.asarray(np.random.default_rng(0).integers(0, tiny.vocab_size, (3, 8)), jnp.int32)


def run_head(model, states, positions=None):
  word_embedding = model.encoder.embeddings.word.embedding[...]
  return np.asarray(run(model.mlm, jnp.asarray(states), positions, word_embedding_VxI=word_embedding))


@pytest.mark.parametrize('is_tied', [False, True], ids=['output embedding', 'tied'])
def test_logits_are_those_of_the_reference(tiny, tied, build, parameters, states, is_tied):
  config = tied if is_tied else tiny
  model = build(config)
  p = parameters(model)
  expected = reference_logits(config, p['mlm'], states, p['encoder']['embeddings']['word']['embedding'])
  logits = run_head(model, states)
  assert logits.shape == (3, 8, config.padded_vocab_size)
  assert logits.dtype == np.float32
  assert_close(logits[..., : config.vocab_size], expected)
  assert np.all(np.isfinite(run_head(build(dataclasses.replace(config, vocab_size=128)), states)))  # needs no padding


def test_the_head_at_masked_positions_gives_the_dense_logits_there(tiny, tiny_model, states):
  positions = np.array([[0, 3, 7], [5, 5, 1], [2, 0, 0]], np.int32)
  sparse, dense = run_head(tiny_model, states, jnp.asarray(positions)), run_head(tiny_model, states)
  assert sparse.shape == (3, 3, 128)
  for row, slot in np.ndindex(3, 3):
    there = dense[row, positions[row, slot]]
    assert_close(sparse[row, slot, : tiny.vocab_size], there[: tiny.vocab_size])
    assert np.all(sparse[row, slot, tiny.vocab_size :] == -np.inf)


def test_rows_that_pad_the_vocabulary_begin_at_zero(tiny):
  def tables():
    model = RemBertForMaskedLM(tiny, rngs=nnx.Rngs(0))
    return model.mlm.output_embedding[...], model.encoder.embeddings.word.embedding[...], model.mlm.bias[...]

  *tables, bias = jax.jit(tables)()
  for table in tables:
    assert not np.any(table[tiny.vocab_size :])
    assert np.all(np.any(table[: tiny.vocab_size], axis=1))
    assert np.abs(table).max() <= 2 * tiny.initializer_range
  assert not np.any(bias)


def test_the_gradient_of_a_tied_table_is_that_of_both_its_uses_and_none_of_its_padding(tied, build, ids):
  # The untied model with the same values in both tables: its two gradients must add up to the tied one.
  tied = dataclasses.replace(tied, num_hidden_layers=0)
  tied_graphdef, tied_state = nnx.split(build(tied))
  untied_graphdef, _ = nnx.split(build(dataclasses.replace(tied, tie_word_embeddings=False)))
  tied_params = nnx.to_pure_dict(tied_state)
  table = tied_params['encoder']['embeddings']['word']['embedding']
  untied_params = tied_params | {'mlm': tied_params['mlm'] | {'output_embedding': table}}
  targets = (ids + 1) % tied.vocab_size

  def gradients(graphdef, params):
    loss = lambda params: mlm_row_sums(nnx.merge(graphdef, params)(ids).logits, targets, jnp.ones(ids.shape)).loss.sum()
    gradient = jax.jit(jax.grad(loss))(params)
    mlm = gradient['mlm']
    return gradient['encoder']['embeddings']['word']['embedding'], mlm.get('output_embedding', 0), mlm['bias']

  (shared, _, tied_bias), (input_table, output_table, bias) = (
    gradients(*model) for model in ((tied_graphdef, tied_params), (untied_graphdef, untied_params))
  )
  assert_close(shared, input_table + output_table)
  for table in shared, tied_bias, input_table, output_table, bias:
    assert not np.any(table[tied.vocab_size :])  # NaN would not be zero
    assert np.any(table[: tied.vocab_size])


def test_bfloat16_gives_float32_logits_close_to_those_of_float32(tiny, build, tiny_model, states):
  half = build(tiny, Execution(dtype='bfloat16'))
  logits = run_head(half, jnp.asarray(states, jnp.bfloat16))
  assert logits.dtype == np.float32
  expected = run_head(tiny_model, jnp.asarray(states, jnp.bfloat16).astype(jnp.float32))
  assert_close(logits[..., : tiny.vocab_size], expected[..., : tiny.vocab_size], BFLOAT16_TOLERANCE)


def test_the_model_is_the_head_on_the_encoder_and_passes_options_through(tiny, tiny_model, ids):
  options = {'segment_ids': jnp.asarray([[1] * 5 + [0] * 3] * 3)}
  expected = run_head(tiny_model, run(tiny_model.encoder, ids, **options).last_hidden_state)
  assert_close(run(tiny_model, ids, **options).logits[..., : tiny.vocab_size], expected[..., : tiny.vocab_size])


# --- fine-tuning ------------------------------------------------------------------------------------------------------

TASK_HEADS = [head for head in HEADS if head != 'mlm']


@pytest.fixture(scope='module', params=TASK_HEADS)
def task(request, tiny):
  """Head, model, and its parameters filled so that every bias is felt."""
  without_layers = dataclasses.replace(tiny, num_hidden_layers=0)
  build = lambda: build_model(request.param, without_layers, num_labels=5, rngs=nnx.Rngs(0))
  graphdef, shapes = nnx.split(nnx.eval_shape(build))
  random = np.random.default_rng(2)
  fill = lambda leaf: jnp.asarray(0.3 * random.standard_normal(leaf.shape), jnp.float32)
  return request.param, nnx.merge(graphdef, jax.tree.map(fill, nnx.to_pure_dict(shapes)))


def test_a_task_head_is_a_linear_map_of_its_documented_input(task, tiny, parameters):
  head, model = task
  random = np.random.default_rng(3)
  shape = (2, 3, 8) if head == 'multiple_choice' else (4, 8)
  ids = random.integers(0, tiny.vocab_size, shape)
  mask = np.ones(shape, int)
  mask[0, ..., 6:] = 0
  types = random.integers(0, 2, shape)
  output = jax.jit(lambda *inputs: model(*inputs))(ids, types, mask)
  p = parameters(model)
  linear = p['qa_outputs'] if head == 'qa' else p['classifier']
  is_pooled = head in ('classification', 'multiple_choice', 'regression')
  seen = output.pooler_output if is_pooled else output.last_hidden_state
  expected = np.asarray(seen, np.float64) @ linear['kernel'] + linear['bias']
  wanted = {'classification': (4, 5), 'tagging': (4, 8, 5), 'qa': (4, 8, 2), 'multiple_choice': (2, 3)}
  wanted = (wanted | {'regression': (4, 1)})[head]
  assert_close(output.logits, expected.reshape(wanted))
  assert output.logits.shape == wanted
  assert output.logits.dtype == jnp.float32
  assert (output.pooler_output is None) == (head in ('tagging', 'qa'))
  assert output.last_hidden_state.shape == (6 if head == 'multiple_choice' else 4, 8, tiny.hidden_size)


def test_a_pooling_head_on_a_trimmed_last_layer_has_the_logits_and_gradients_of_the_whole(tiny, build_head):
  tiny = dataclasses.replace(tiny, num_hidden_layers=2)
  random = np.random.default_rng(4)
  ids = random.integers(0, tiny.vocab_size, (4, 3, 8))
  mask, types = np.ones_like(ids), random.integers(0, 2, ids.shape)
  mask[0, ..., 6:] = 0
  direction = random.standard_normal((4, 3)).astype(np.float32)

  def logits_and_gradients(execution):
    graphdef, params = nnx.split(build_head('multiple_choice', tiny, execution))

    def loss(params):
      output = nnx.merge(graphdef, params)(ids, types, mask)
      return (direction * output.logits).sum(), output

    gradients, output = jax.jit(jax.grad(loss, has_aux=True))(params)
    return output, gradients

  whole, gradients = logits_and_gradients(Execution())
  segments = run(build_head('multiple_choice', tiny), ids, types, segment_ids=mask)  # of choices, too
  assert_close(segments.logits, whole.logits)
  trimmed, trimmed_gradients = logits_and_gradients(Execution(trim_last_layer=True, remat='full'))
  rows = ids.size // 8
  assert whole.last_hidden_state.shape == (rows, 8, tiny.hidden_size)
  assert trimmed.last_hidden_state.shape == (rows, 1, tiny.hidden_size)
  assert_close(trimmed.last_hidden_state, whole.last_hidden_state[:, :1])
  assert_close(trimmed.pooler_output, whole.pooler_output)
  assert_close(trimmed.logits, whole.logits)
  scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(gradients))
  for actual, reference in zip(jax.tree.leaves(trimmed_gradients), jax.tree.leaves(gradients), strict=True):
    np.testing.assert_allclose(actual, reference, rtol=0, atol=TOLERANCE * scale)


def test_who_asks_for_other_layers_gets_them_whole(tiny, build_head):
  ids = np.random.default_rng(5).integers(0, tiny.vocab_size, (4, 8))
  plain, trimming = (build_head('classification', tiny, Execution(trim_last_layer=trim)) for trim in (False, True))
  for options in ({'output_hidden_states': True}, {'num_layers': 1}):
    expected, actual = run(plain, ids, **options), run(trimming, ids, **options)
    assert_close(actual.last_hidden_state, expected.last_hidden_state)
    assert_close(actual.logits, expected.logits)
  tagging = build_head('tagging', tiny, Execution(trim_last_layer=True))
  assert jax.eval_shape(tagging, ids).logits.shape == (4, 8, 3)


@pytest.mark.parametrize('head', ['tagging', 'qa'])
def test_only_some_heads_drop_out_before_their_map(tiny, build_head, head):
  # The encoder of this configuration has no dropout: only the head needs a key.
  model = build_head(head, dataclasses.replace(tiny, num_hidden_layers=0))
  ids = np.random.default_rng(0).integers(0, tiny.vocab_size, (4, 8))
  logits = jax.jit(lambda seed: model(ids, dropout_key=jax.random.key(seed)).logits)
  if head == 'qa':
    assert np.array_equal(logits(0), logits(1))
    return
  plain = run(model, ids).logits
  draws = np.stack([logits(seed) for seed in range(200)])
  assert not np.array_equal(draws[0], draws[1])
  assert np.array_equal(logits(0), draws[0])
  # What is left is scaled up: on average nothing changes.
  assert np.abs(draws.mean(0) - plain).max() < 5 * draws.std(0).max() / np.sqrt(len(draws))


def test_shapes_have_the_encoder_under_one_name_and_heads_that_cannot_be_built_say_why(tiny):
  alone = parameter_shapes(None, tiny, add_pooler=True)
  for head in ('mlm', 'classification'):
    shapes = parameter_shapes(head, tiny, num_labels=3, add_pooler=True)
    assert {path: shape for path, shape in shapes.items() if path.startswith('encoder/')} == alone
  assert 'encoder/pooler/kernel' not in parameter_shapes('tagging', tiny, num_labels=3, add_pooler=True)
  for head, message in ('ner', "unknown head 'ner'"), ('tagging', 'requires num_labels'):
    with pytest.raises(UsageError, match=message):
      build_model(head, tiny, rngs=nnx.Rngs(0))


# --- sentence embeddings ----------------------------------------------------------------------------------------------


def test_a_sentence_is_the_mean_of_its_pieces_at_a_layer(tiny, tiny_model):
  tiny = dataclasses.replace(tiny, bos_token_id=1, eos_token_id=2)
  encoder = tiny_model.encoder
  ids = np.asarray([[1, 7, 8, 9, 2, 0, 0], [1, 5, 2, 6, 7, 8, 2], [1, 2, 0, 0, 0, 0, 0]])
  mask = np.asarray([[1] * 5 + [0] * 2, [1] * 7, [1] * 2 + [0] * 5])
  pieces = [[1, 2, 3], [1, 3, 4, 5], []]
  states = run(encoder, ids, attention_mask=mask, output_hidden_states=True).hidden_states
  original, encoder.config = encoder.config, tiny
  try:
    embed = nnx.jit(sentence_embeddings, static_argnames='layer')
    embeddings = {layer: embed(encoder, jnp.asarray(ids), jnp.asarray(mask), layer=layer) for layer in (2, None)}
  finally:
    encoder.config = original
  for layer, means in embeddings.items():
    of_layer = np.asarray(states[-1 if layer is None else layer], np.float64)
    mean = lambda row, where, of_layer=of_layer: of_layer[row, where].mean(0) if where else np.zeros(tiny.hidden_size)
    assert_close(means, np.stack([mean(row, where) for row, where in enumerate(pieces)]))
  with pytest.raises(UsageError, match='no layer 4'):
    sentence_embeddings(encoder, jnp.asarray(ids), jnp.asarray(mask), layer=4)
