"""What is compared with Hugging Face's RemBERT: configurations, inputs, losses; and how this project runs them.

Nothing here imports torch: `tests/parity` brings the other side live, `tests/golden` as files.
"""

import dataclasses
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict

from rembert.model.config import RemBertConfig
from rembert.model.heads import build_model
from rembert.train.losses import mlm_row_sums

# The one tolerance: max |ours − theirs| / max |theirs|, for each tensor by itself.
TOLERANCE = 1e-5
NUM_LABELS = 5

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
  bos_token_id=1,
  eos_token_id=2,
)
CONFIGURATIONS = {
  'odd sizes': TINY,
  'odd sizes, tanh': dataclasses.replace(TINY, hidden_act='gelu_tanh'),
  'I = H': dataclasses.replace(TINY, input_embedding_size=33),
  'I = H, projected': dataclasses.replace(TINY, input_embedding_size=33, always_project_embeddings=True),
  'E = H, 1 layer, 1 head': dataclasses.replace(
    TINY, output_embedding_size=33, num_hidden_layers=1, num_attention_heads=1
  ),
  'released widths': dataclasses.replace(
    RemBertConfig(), vocab_size=1003, num_hidden_layers=2, max_position_embeddings=64
  ),
}
HEADS = ('mlm', 'classification', 'tagging', 'qa', 'multiple_choice', 'regression')
# Every head on the plain configuration, on I = H as Hugging Face has it, and at the released widths.
CASES = [(name, 'mlm') for name in CONFIGURATIONS]
CASES += [(name, head) for name in ('odd sizes', 'I = H, projected', 'released widths') for head in HEADS[1:]]
# Stored as files next to the tests, for machines without torch.
GOLDEN_CASES = [('odd sizes', head) for head in HEADS if head != 'regression'] + [
  ('odd sizes, tanh', 'mlm'),
  ('I = H, projected', 'mlm'),
]
GOLDEN = pathlib.Path(__file__).parent.parent / 'golden'


def golden_file(name: str, head: str) -> pathlib.Path:
  """The file of a case."""
  return GOLDEN / f'{re.sub("[^a-z]+", "_", name.lower())}.{head}.npz'


def batch(config: RemBertConfig, head: str) -> dict[str, np.ndarray]:
  """Rows of different lengths with all token types; labels −100 where nothing is asked, as Hugging Face has them."""
  random = np.random.default_rng(1)
  length, slots = config.max_position_embeddings, 4
  lengths = np.array([length, length - 1, length // 2, 7, 5, 6])
  rows = len(lengths)
  attention_mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
  inputs = {
    'input_ids': random.integers(1, config.vocab_size, (rows, length)) * attention_mask,
    'attention_mask': attention_mask,
    'token_type_ids': random.integers(0, config.type_vocab_size, (rows, length)),
  }
  if head == 'mlm':
    positions = np.stack([np.sort(random.choice(n, slots, replace=False)) for n in lengths])
    weights = np.ones((rows, slots), np.float32)
    weights[2, 3] = weights[4, 1:] = 0
    labels = np.full((rows, length), -100)
    for row, slot in zip(*np.nonzero(weights), strict=True):
      labels[row, positions[row, slot]] = random.integers(1, config.vocab_size)
    return inputs | {'labels': labels, 'masked_positions': positions, 'weights': weights}
  if head == 'classification':
    return inputs | {'labels': random.integers(0, NUM_LABELS, rows)}
  if head == 'regression':
    return inputs | {'labels': random.standard_normal(rows).astype(np.float32)}
  if head == 'tagging':
    labels = random.integers(0, NUM_LABELS, (rows, length))
    return inputs | {'labels': np.where((random.random((rows, length)) < 0.7) & (attention_mask > 0), labels, -100)}
  if head == 'qa':
    starts = random.integers(0, lengths)
    return inputs | {'start_positions': starts, 'end_positions': np.minimum(starts + 2, lengths - 1)}
  choices = {name: ids.reshape(2, 3, length) for name, ids in inputs.items()}
  return choices | {'labels': random.integers(0, 3, 2)}


@dataclasses.dataclass
class Outputs:
  """Of one model."""

  hidden_states: np.ndarray  # [L + 1, B, S, H]
  pooled: np.ndarray | None  # [B, H]; None where Hugging Face's model of this head has no pooler
  logits: np.ndarray  # of the head on all positions, without padding rows of the vocabulary
  loss: float  # mean over what is asked
  gradients: dict  # of the loss, by Hugging Face's name (theirs) or as this project's tree (ours)


def _loss(head: str, logits, batch: dict):
  """Mean cross-entropy over labels that are not −100, start and end count half each; mean squared error of numbers."""
  if head == 'regression':
    return jnp.mean((logits[:, 0] - batch['labels']) ** 2)
  mean = lambda logits, labels: (
    -jnp.sum(
      jnp.where(
        labels >= 0, jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.maximum(labels, 0)[..., None], -1)[..., 0], 0
      )
    )
    / jnp.sum(labels >= 0)
  )
  if head == 'qa':
    return (mean(logits[..., 0], batch['start_positions']) + mean(logits[..., 1], batch['end_positions'])) / 2
  return mean(logits, batch['labels'])


def run_ours(config: RemBertConfig, head: str, batch: dict[str, np.ndarray], parameters: dict) -> Outputs:
  """This project's model with the given parameter tree; with `mlm`, the loss takes the way of training.

  A pooler among the parameters of `mlm` is run, and gets no gradient.
  """
  has_pooler = 'pooler' in parameters['encoder']
  build = lambda: build_model(head, config, num_labels=NUM_LABELS, add_pooler=has_pooler, rngs=nnx.Rngs(0))
  graphdef, abstract = nnx.split(nnx.eval_shape(build))
  expected, given = (jax.tree.map(jnp.shape, tree) for tree in (nnx.to_pure_dict(abstract), parameters))
  assert expected == given
  inputs = [batch[name] for name in ('input_ids', 'token_type_ids', 'attention_mask')]

  def loss_and_output(parameters):
    model = nnx.merge(graphdef, parameters)
    output = model(*inputs, output_hidden_states=True)
    if head != 'mlm':
      return _loss(head, output.logits, batch), output
    targets = np.take_along_axis(batch['labels'], batch['masked_positions'], axis=1)
    word_embedding = model.encoder.embeddings.word.embedding[...]
    logits_BxKxV = model.mlm(output.last_hidden_state, batch['masked_positions'], word_embedding_VxI=word_embedding)
    sums = jax.tree.map(jnp.sum, mlm_row_sums(logits_BxKxV, np.maximum(targets, 0), batch['weights']))
    return sums.loss / sums.weight, output

  (loss, output), gradients = jax.jit(jax.value_and_grad(loss_and_output, has_aux=True))(parameters)
  return Outputs(
    hidden_states=np.asarray(output.hidden_states),
    pooled=None if output.pooler_output is None else np.asarray(output.pooler_output),
    logits=np.asarray(output.logits[..., : config.vocab_size] if head == 'mlm' else output.logits),
    loss=float(loss),
    gradients=jax.device_get(gradients),
  )


def as_our_tree(theirs: dict[str, np.ndarray], config: RemBertConfig) -> dict:
  """Their tensors by name (weights or gradients, with the prefix `rembert.`) as this project's parameter tree.

  Written out here a second time, apart from the name table of `rembert.convert`: each is a test of the other.
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
  if 'rembert.pooler.dense.weight' in theirs:
    encoder['pooler'] = dense('rembert.pooler.dense')
  tree = {'encoder': encoder}
  if 'cls.predictions.dense.weight' in theirs:
    tree['mlm'] = {
      'transform': dense('cls.predictions.dense'),
      'norm': norm('cls.predictions.LayerNorm'),
      'output_embedding': padded(theirs['cls.predictions.decoder.weight']),
      'bias': padded(theirs['cls.predictions.decoder.bias']),
    }
  for name in ('classifier', 'qa_outputs'):
    if f'{name}.weight' in theirs:
      tree[name] = dense(name)
  return tree


def by_tensor(tree: dict) -> dict[str, np.ndarray]:
  """The tree's leaves by name, each layer apart, so that a small tensor is not measured by a large one's maximum.

  What a softmax does not feel has a gradient of rounding alone, and stays together with what it does feel: query's,
  key's and value's biases; with questions and choices, where the softmax is over positions or choices, whatever shifts
  all of them at once.
  """
  leaves = {}
  if 'qa_outputs' in tree:
    last = jax.tree.map(lambda leaf: np.asarray(leaf)[-1], tree['encoder']['layers']['output_norm'])
    leaves['encoder/layers/output_norm[last]'] = np.stack([last['scale'], last['bias']])
    leaves['qa_outputs'] = _joined(tree['qa_outputs'])
    rest = jax.tree.map(lambda leaf: np.asarray(leaf)[:-1], tree['encoder']['layers']['output_norm'])
    layers = {**tree['encoder']['layers'], 'output_norm': rest}
    tree = {'encoder': {**tree['encoder'], 'layers': layers}}
  if 'classifier' in tree and tree['classifier']['kernel'].shape[1] == 1:
    leaves['classifier'] = _joined(tree['classifier'])
    tree = {'encoder': tree['encoder']}
  for name, leaf in flatten_dict(tree, sep='/').items():
    if 'layers/' not in name:
      leaves[name] = np.asarray(leaf)
      continue
    for index, per_layer in enumerate(np.asarray(leaf)):
      if name.endswith('qkv/kernel'):
        leaves |= {f'{name}[{index}, {part}]': per_layer[:, i] for i, part in enumerate(('query', 'key', 'value'))}
      else:
        leaves[f'{name}[{index}]'] = per_layer
  return leaves


def _joined(dense: dict) -> np.ndarray:
  return np.concatenate([dense['kernel'], np.asarray(dense['bias'])[None]])


def differences(ours: Outputs, theirs: Outputs, config: RemBertConfig) -> dict[str, dict[str, float]]:
  """Quantity → tensor → largest difference over the largest absolute value of theirs."""

  def relative(a, b):
    assert np.shape(a) == np.shape(b), (np.shape(a), np.shape(b))
    return float(np.max(np.abs(np.asarray(a) - b)) / np.max(np.abs(b)))

  found = {
    'hidden states': {
      f'after layer {index}': relative(ours.hidden_states[index], states)
      for index, states in enumerate(theirs.hidden_states)
    },
    'logits': {'': relative(ours.logits, theirs.logits)},
    'loss': {'': relative(ours.loss, theirs.loss)},
  }
  if theirs.pooled is not None:
    found['pooled output'] = {'': relative(ours.pooled, theirs.pooled)}
  if 'qa_outputs' in ours.gradients:
    # Their table ignores the gradient of [PAD], which this loss has: a span might begin on padding.
    table = ours.gradients['encoder']['embeddings']['word']['embedding']
    assert np.any(table[config.pad_token_id])
    table = np.where(np.arange(len(table))[:, None] == config.pad_token_id, 0, table)
    gradients = jax.tree.map(lambda leaf: leaf, ours.gradients)
    gradients['encoder']['embeddings']['word']['embedding'] = table
    ours = dataclasses.replace(ours, gradients=gradients)
  expected, actual = by_tensor(as_our_tree(theirs.gradients, config)), by_tensor(ours.gradients)
  assert expected.keys() == actual.keys(), expected.keys() ^ actual.keys()
  # A pooler that the head has no use for has no gradient, on either side.
  found['gradients'] = {
    name: relative(actual[name], gradient)
    for name, gradient in expected.items()
    if np.any(gradient) or np.any(actual[name])
  }
  return found


def save_golden(file, weights: dict[str, np.ndarray], outputs: Outputs) -> None:
  """One case as an `.npz`."""
  arrays = {f'weights/{name}': tensor for name, tensor in weights.items()}
  arrays |= {f'gradients/{name}': tensor for name, tensor in outputs.gradients.items()}
  for name in ('hidden_states', 'pooled', 'logits', 'loss'):
    if getattr(outputs, name) is not None:
      arrays[name] = getattr(outputs, name)
  np.savez_compressed(file, **arrays)


def load_golden(file) -> tuple[dict[str, np.ndarray], Outputs]:
  """Their weights by name, and their outputs."""
  with np.load(file) as arrays:
    tree = unflatten_dict({tuple(name.split('/', 1)): arrays[name] for name in arrays})
  return tree['weights'], Outputs(
    hidden_states=tree['hidden_states'],
    pooled=tree.get('pooled'),
    logits=tree['logits'],
    loss=float(tree['loss']),
    gradients=tree['gradients'],
  )
