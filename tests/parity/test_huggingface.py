"""The same weights in Hugging Face's torch RemBERT and in this one: outputs and gradients agree to float32 rounding.

Weights are random and nothing is downloaded. Torch is imported inside functions: the suite can be collected without it,
but this comparison, once asked for, fails where torch is missing; it is never skipped in silence.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rembert.model.config import RemBertConfig
from rembert.model.encoder import RemBertEncoder
from rembert.model.heads import RemBertForMaskedLM
from rembert.training.losses import mlm_row_sums

pytestmark = pytest.mark.parity

# The one tolerance of this file: max |ours − theirs| / max |theirs|, for each tensor by itself.
TOLERANCE = 1e-5

TINY = RemBertConfig(
  vocab_size=101,
  input_embedding_size=17,
  output_embedding_size=43,
  hidden_size=33,
  num_hidden_layers=3,
  num_attention_heads=3,
  intermediate_size=37,
  max_position_embeddings=23,
  type_vocab_size=3,
)
CONFIGURATIONS = {
  'odd sizes': TINY,
  'odd sizes, tanh': dataclasses.replace(TINY, hidden_act='gelu_tanh'),
  'I = H': dataclasses.replace(TINY, input_embedding_size=33),
  'E = H, 1 layer, 1 head': dataclasses.replace(
    TINY, output_embedding_size=33, num_hidden_layers=1, num_attention_heads=1
  ),
  'released widths': dataclasses.replace(
    RemBertConfig(), vocab_size=1003, num_hidden_layers=2, max_position_embeddings=64
  ),
}
HF_ACTIVATIONS = {'gelu': 'gelu', 'gelu_tanh': 'gelu_pytorch_tanh'}


# --- the two models ---------------------------------------------------------------------------------------------------


def hugging_face_models(config: RemBertConfig):
  """Their masked-LM model, and their pooled encoder with the same weights, all of them random, biases and norms too."""
  import torch
  import transformers

  fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
  fields.pop('pad_vocab_to_multiple_of')
  theirs = transformers.RemBertConfig(**{**fields, 'hidden_act': HF_ACTIVATIONS[config.hidden_act]})
  masked_lm = transformers.RemBertForMaskedLM(theirs).eval()
  pooled = transformers.RemBertModel(theirs).eval()

  random = np.random.default_rng(0)
  with torch.no_grad():
    for name, parameter in [*masked_lm.named_parameters(), *pooled.pooler.named_parameters()]:
      if 'LayerNorm.weight' in name:
        values = random.normal(1, 0.1, parameter.shape)
      elif name.endswith('bias'):
        values = random.normal(0, 0.1, parameter.shape)
      elif 'embeddings' in name:
        # Small, as in training: a wrong epsilon in the LayerNorm that follows would show.
        values = random.normal(0, 0.02, parameter.shape)
      else:
        values = random.normal(0, parameter.shape[1] ** -0.5, parameter.shape)
      parameter.copy_(torch.tensor(values))
    if not config.projects_embeddings:
      # They always project I to H; here the projection exists only where the two differ.
      projection = masked_lm.rembert.encoder.embedding_hidden_mapping_in
      projection.weight.copy_(torch.eye(config.hidden_size))
      projection.bias.zero_()
    pooled.load_state_dict(masked_lm.rembert.state_dict(), strict=False)
  return masked_lm, pooled


def as_our_tree(theirs: dict[str, np.ndarray], config: RemBertConfig) -> dict:
  """Their tensors by name, weights or gradients, as this project's parameter tree.

  Torch keeps a kernel as [out, in]; here it is [in, out], heads have axes of their own, query, key and value are one
  kernel, layers are stacked, and the tables that have a row per piece are padded with zeros.
  """
  hidden, heads, head_dim = config.hidden_size, config.num_attention_heads, config.head_dim

  def dense(name):
    return {'kernel': theirs[f'{name}.weight'].T, 'bias': theirs[f'{name}.bias']}

  def norm(name):
    return {'scale': theirs[f'{name}.weight'], 'bias': theirs[f'{name}.bias']}

  def padded(table):
    rows = config.padded_vocab_size - config.vocab_size
    return np.pad(table, [(0, rows), *[(0, 0)] * (table.ndim - 1)])

  def layer(index):
    name = f'rembert.encoder.layer.{index}'
    qkv = [dense(f'{name}.attention.self.{part}') for part in ('query', 'key', 'value')]
    output = dense(f'{name}.attention.output.dense')
    return {
      'attention': {
        'qkv': {
          'kernel': np.stack([part['kernel'].reshape(hidden, heads, head_dim) for part in qkv], axis=1),
          'bias': np.stack([part['bias'].reshape(heads, head_dim) for part in qkv]),
        },
        'output': {'kernel': output['kernel'].reshape(heads, head_dim, hidden), 'bias': output['bias']},
      },
      'attention_norm': norm(f'{name}.attention.output.LayerNorm'),
      'feed_forward': {'up': dense(f'{name}.intermediate.dense'), 'down': dense(f'{name}.output.dense')},
      'output_norm': norm(f'{name}.output.LayerNorm'),
    }

  encoder = {
    'embeddings': {
      'word': {'embedding': padded(theirs['rembert.embeddings.word_embeddings.weight'])},
      'position': {'embedding': theirs['rembert.embeddings.position_embeddings.weight']},
      'token_type': {'embedding': theirs['rembert.embeddings.token_type_embeddings.weight']},
      'norm': norm('rembert.embeddings.LayerNorm'),
    },
    'layers': jax.tree.map(lambda *leaves: np.stack(leaves), *map(layer, range(config.num_hidden_layers))),
  }
  if config.projects_embeddings:
    encoder['projection'] = dense('rembert.encoder.embedding_hidden_mapping_in')
  mlm = {
    'transform': dense('cls.predictions.dense'),
    'norm': norm('cls.predictions.LayerNorm'),
    'output_embedding': padded(theirs['cls.predictions.decoder.weight']),
    'bias': padded(theirs['cls.predictions.decoder.bias']),
  }
  return {'encoder': encoder, 'mlm': mlm}


def tensors(tree: dict) -> dict[str, np.ndarray]:
  """The tree's leaves by name, each layer apart, so that a small tensor is not measured by a large one's maximum.

  Query's, key's and value's biases stay together: the softmax does not feel a key's bias, its gradient is rounding.
  """
  leaves = {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
    name = '/'.join(key.key for key in path)
    leaf = np.asarray(leaf)
    if 'layers/' not in name:
      leaves[name] = leaf
      continue
    for index, per_layer in enumerate(leaf):
      if name.endswith('qkv/kernel'):
        leaves |= {f'{name}[{index}, {part}]': per_layer[:, i] for i, part in enumerate(('query', 'key', 'value'))}
      else:
        leaves[f'{name}[{index}]'] = per_layer
  return leaves


# --- running both -----------------------------------------------------------------------------------------------------


def random_batch(config: RemBertConfig) -> dict[str, np.ndarray]:
  """Rows of different lengths with two or more token types; K masked positions, of which some rows use fewer."""
  random = np.random.default_rng(1)
  rows, length, slots = 5, config.max_position_embeddings, 4
  lengths = np.array([length, length - 1, length // 2, 7, 5])
  attention_mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
  input_ids = random.integers(1, config.vocab_size, (rows, length)) * attention_mask
  positions = np.stack([np.sort(random.choice(n, slots, replace=False)) for n in lengths])
  weights = np.ones((rows, slots), np.float32)
  weights[2, 3] = weights[4, 1:] = 0
  targets = random.integers(1, config.vocab_size, (rows, slots))
  labels = np.full((rows, length), -100)
  for row, slot in zip(*np.nonzero(weights), strict=True):
    labels[row, positions[row, slot]] = targets[row, slot]
  return {
    'input_ids': input_ids.astype(np.int32),
    'attention_mask': attention_mask,
    'token_type_ids': random.integers(0, config.type_vocab_size, (rows, length)).astype(np.int32),
    'masked_positions': positions.astype(np.int32),
    'targets': targets.astype(np.int32),
    'weights': weights,
    'labels': labels,
  }


@dataclasses.dataclass
class Outputs:
  """Of one model; `gradients` as this project's tree, `logits` on all positions and without padding rows."""

  hidden_states: np.ndarray
  pooled: np.ndarray
  logits: np.ndarray
  logits_at_masked: np.ndarray
  loss: float
  gradients: dict


def run_hugging_face(config: RemBertConfig, batch: dict) -> tuple[Outputs, dict, dict]:
  """Their outputs, their weights as our tree, their pooler's weights."""
  import torch

  masked_lm, pooled = hugging_face_models(config)
  names = ('input_ids', 'attention_mask', 'token_type_ids')
  inputs = {name: torch.tensor(batch[name], dtype=torch.long) for name in names}
  output = masked_lm(**inputs, labels=torch.tensor(batch['labels']), output_hidden_states=True)
  output.loss.backward()
  numpy = lambda tensor: tensor.detach().numpy()
  logits = numpy(output.logits)
  weights = {name: numpy(parameter) for name, parameter in masked_lm.named_parameters()}
  gradients = {name: numpy(parameter.grad) for name, parameter in masked_lm.named_parameters()}
  pooler = {'kernel': numpy(pooled.pooler.dense.weight).T, 'bias': numpy(pooled.pooler.dense.bias)}
  outputs = Outputs(
    hidden_states=np.stack([numpy(states) for states in output.hidden_states]),
    pooled=numpy(pooled(**inputs).pooler_output),
    logits=logits,
    logits_at_masked=np.take_along_axis(logits, batch['masked_positions'][..., None], axis=1),
    loss=output.loss.item(),
    gradients=as_our_tree(gradients, config),
  )
  return outputs, as_our_tree(weights, config), pooler


def run_ours(config: RemBertConfig, batch: dict, parameters: dict, pooler: dict) -> Outputs:
  graphdef, abstract = nnx.split(nnx.eval_shape(lambda: RemBertForMaskedLM(config, rngs=nnx.Rngs(0))))
  encoder_graphdef = nnx.graphdef(nnx.eval_shape(lambda: RemBertEncoder(config, rngs=nnx.Rngs(0))))
  expected, given = (jax.tree_util.tree_map(jnp.shape, tree) for tree in (nnx.to_pure_dict(abstract), parameters))
  assert expected == given
  inputs = [batch[name] for name in ('input_ids', 'token_type_ids', 'attention_mask')]

  @jax.jit
  def encode(parameters):
    return nnx.merge(encoder_graphdef, parameters)(*inputs, output_hidden_states=True)

  @jax.jit
  def all_logits(parameters):
    return nnx.merge(graphdef, parameters)(*inputs).logits[..., : config.vocab_size]

  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def loss_of(parameters):
    logits = nnx.merge(graphdef, parameters)(*inputs, masked_positions=batch['masked_positions']).logits
    sums = jax.tree.map(jnp.sum, mlm_row_sums(logits, batch['targets'], batch['weights']))
    return sums.loss / sums.weight, logits[..., : config.vocab_size]

  encoded = encode({**parameters['encoder'], 'pooler': pooler})
  (loss, logits_at_masked), gradients = loss_of(parameters)
  return Outputs(
    hidden_states=np.asarray(encoded.hidden_states),
    pooled=np.asarray(encoded.pooler_output),
    logits=np.asarray(all_logits(parameters)),
    logits_at_masked=np.asarray(logits_at_masked),
    loss=float(loss),
    gradients=gradients,
  )


# --- figures: every test writes its own, the terminal summary shows them ----------------------------------------------


class Figures:
  """Also a pytest plugin, for the sake of the table at the end."""

  def __init__(self):
    self.worst: dict[tuple[str, str], tuple[float, str]] = {}

  def pytest_terminal_summary(self, terminalreporter):
    if self.worst:
      terminalreporter.section('largest |difference| / largest |reference|, Hugging Face in float32')
    for (configuration, quantity), (figure, tensor) in self.worst.items():
      terminalreporter.write_line(f'{configuration:24}{quantity:28}{figure:9.1e}  {tensor}'.rstrip())


@pytest.fixture(scope='session')
def figures(pytestconfig):
  figures = Figures()
  pytestconfig.pluginmanager.register(figures)
  return figures


@dataclasses.dataclass
class Pair:
  configuration: str
  config: RemBertConfig
  ours: Outputs
  theirs: Outputs
  figures: Figures

  def assert_close(self, quantity: str, ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]):
    assert ours.keys() == theirs.keys()
    differences = {}
    for name, reference in theirs.items():
      assert np.shape(ours[name]) == np.shape(reference), name
      differences[name] = float(np.max(np.abs(ours[name] - reference)) / np.max(np.abs(reference)))
    worst = max(differences, key=differences.get)
    self.figures.worst[self.configuration, quantity] = differences[worst], worst
    too_far = {name: figure for name, figure in differences.items() if not figure <= TOLERANCE}
    assert not too_far


@pytest.fixture(scope='module', params=CONFIGURATIONS)
def pair(request, figures) -> Pair:
  config = CONFIGURATIONS[request.param]
  batch = random_batch(config)
  theirs, parameters, pooler = run_hugging_face(config, batch)
  return Pair(request.param, config, run_ours(config, batch, parameters, pooler), theirs, figures)


# --- claims -----------------------------------------------------------------------------------------------------------


def test_every_hidden_state_agrees(pair):
  by_layer = lambda states_LxBxSxH: {f'after layer {i}': states for i, states in enumerate(states_LxBxSxH)}
  pair.assert_close('hidden states', by_layer(pair.ours.hidden_states), by_layer(pair.theirs.hidden_states))


def test_pooled_output_agrees(pair):
  pair.assert_close('pooled output', {'': pair.ours.pooled}, {'': pair.theirs.pooled})


def test_logits_on_all_positions_agree(pair):
  pair.assert_close('logits', {'': pair.ours.logits}, {'': pair.theirs.logits})


def test_logits_at_masked_positions_agree(pair):
  pair.assert_close('logits at masked positions', {'': pair.ours.logits_at_masked}, {'': pair.theirs.logits_at_masked})


def test_loss_agrees(pair):
  pair.assert_close('loss', {'': pair.ours.loss}, {'': pair.theirs.loss})


def test_gradient_of_every_parameter_agrees(pair):
  pair.assert_close('gradients', tensors(pair.ours.gradients), tensors(pair.theirs.gradients))


def test_rows_that_pad_the_vocabulary_get_no_gradient(pair):
  gradients = pair.ours.gradients
  tables = (
    gradients['encoder']['embeddings']['word']['embedding'],
    *map(gradients['mlm'].get, ('output_embedding', 'bias')),
  )
  for table in tables:
    assert not np.any(table[pair.config.vocab_size :])
