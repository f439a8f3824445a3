"""The MLM head and its loss alone, forward and backward, from small to very large vocabularies.

What goes in are hidden states, what comes out the loss and the gradients of states and parameters; no encoder, no
update. Everybody has the same states, weights and targets. This project does it in three ways (`Execution.loss_chunk`):
in chunks of positions, as it trains; with all logits of the masked positions; and with logits everywhere. Beside it
Hugging Face's `RemBertOnlyMLMHead` with torch's cross-entropy: everywhere, as its `RemBertForMaskedLM` does, and at the
masked positions, as somebody would who takes the model apart.
"""

import dataclasses
import functools
import pathlib

import numpy as np

from benchmarks.turns import Contestant, Run
from rembert.model.config import RemBertConfig


@dataclasses.dataclass(frozen=True)
class Setting:
  """A vocabulary, and what there is to predict."""

  vocab_size: int
  rows: int = 8
  length: int = 128
  slots: int = 20

  @property
  def config(self) -> RemBertConfig:
    """The widths of the small setting of `train_step`."""
    return RemBertConfig(
      vocab_size=self.vocab_size,
      input_embedding_size=128,
      output_embedding_size=512,
      hidden_size=256,
      num_hidden_layers=0,
      num_attention_heads=4,
    )

  @property
  def description(self) -> str:
    """One line."""
    return f'{self.rows} × {self.length} states of 256, {self.slots} masked a row, V {self.vocab_size:,}, E 512'


SETTINGS = {
  'v32k': Setting(32_000),
  'v120k': Setting(120_000),
  'v250k': Setting(250_300),
  'v500k': Setting(500_000),
}
USEFUL = 'useful GFLOP'
WAYS = {'chunked': 1024, 'gathered': 0, 'dense': 0}  # and their `loss_chunk`
OURS = {
  way: name for way, name in zip(WAYS, ('this project', '… all masked logits', '… logits everywhere'), strict=True)
}
TORCH, TORCH_MASKED = 'torch, everywhere', 'torch, masked positions'


def problem(setting: Setting) -> dict[str, np.ndarray]:
  """States, weights and targets. `labels` are the targets as torch wants them, −100 where there is none."""
  random, config = np.random.default_rng(0), setting.config
  normal = lambda *shape: (0.02 * random.standard_normal(shape, np.float32)).astype(np.float32)
  positions = np.stack(
    [np.sort(random.choice(setting.length, setting.slots, replace=False)) for _ in range(setting.rows)]
  )
  targets = random.integers(0, setting.vocab_size, positions.shape)
  labels = np.full((setting.rows, setting.length), -100)
  np.put_along_axis(labels, positions, targets, axis=1)
  return {
    'states': random.standard_normal((setting.rows, setting.length, config.hidden_size), np.float32),
    'transform': normal(config.hidden_size, config.output_embedding_size),
    'output_embedding': normal(setting.vocab_size, config.output_embedding_size),
    'positions': positions.astype(np.int32),
    'targets': targets.astype(np.int32),
    'labels': labels,
  }


# --- contestants: each returns a function that goes forward and backward once, and says the loss ----------------------


def prepare_ours(setting: Setting, way: str) -> Run:
  """The head of pre-training, in one of `WAYS`."""
  import jax
  import jax.numpy as jnp
  from flax import nnx

  from rembert.model.heads import MlmHead
  from rembert.training import cpu_memory
  from rembert.training.chunked_loss import chunked_mlm_sums
  from rembert.training.losses import mlm_row_sums

  cpu_memory.keep_freed_memory_if_small(setting.config)
  jax.config.update('jax_platforms', 'cpu')
  given = problem(setting)
  graphdef, state = nnx.split(MlmHead(setting.config, jnp.dtype('float32'), rngs=nnx.Rngs(0)))
  params = nnx.to_pure_dict(state)
  params['transform']['kernel'] = jnp.asarray(given['transform'])
  padding = setting.config.padded_vocab_size - setting.vocab_size
  params['output_embedding'] = jnp.pad(given['output_embedding'], ((0, padding), (0, 0)))
  word = jnp.zeros((1, 1))  # the head has a table of its own
  positions, targets, weights = given['positions'], given['targets'], np.ones(given['targets'].shape, np.float32)
  if way == 'dense':
    positions, targets, weights = None, np.maximum(given['labels'], 0), (given['labels'] >= 0).astype(np.float32)

  def mean_loss(params, states_BxSxH, positions, targets, weights):
    head = nnx.merge(graphdef, params)
    if chunk := WAYS[way]:
      x_BxKxE, table_VxE = head.before_logits(states_BxSxH, positions), head.table(word)
      vocab_size = setting.vocab_size
      sums = chunked_mlm_sums(x_BxKxE, table_VxE, head.bias[...], targets, weights, vocab_size=vocab_size, chunk=chunk)
    else:
      logits = head(states_BxSxH, positions, word_embedding_VxI=word)
      sums = jax.tree.map(jnp.sum, mlm_row_sums(logits, targets, weights))
    return sums.loss / sums.weight

  step = jax.jit(jax.value_and_grad(mean_loss, argnums=(0, 1)))
  arguments = jax.device_put((params, given['states'], positions, targets, weights))

  def run() -> dict[str, float]:
    return {'loss': float(jax.block_until_ready(step(*arguments))[0])}

  return run


def prepare_torch(setting: Setting, only_masked: bool) -> Run:
  """Hugging Face's head."""
  import torch
  import transformers
  from transformers.models.rembert.modeling_rembert import RemBertOnlyMLMHead

  fields = {field.name: getattr(setting.config, field.name) for field in dataclasses.fields(setting.config)}
  fields.pop('pad_vocab_to_multiple_of')
  head, given = RemBertOnlyMLMHead(transformers.RemBertConfig(**fields)), problem(setting)
  parts = head.predictions
  with torch.no_grad():
    parts.dense.weight.copy_(torch.from_numpy(given['transform'].T))
    parts.decoder.weight.copy_(torch.from_numpy(given['output_embedding']))
    parts.dense.bias.zero_()
    parts.decoder.bias.zero_()
  states, labels = torch.from_numpy(given['states']).requires_grad_(), torch.from_numpy(given['labels'])

  def run() -> dict[str, float]:
    head.zero_grad()
    states.grad = None
    is_masked = labels != -100
    picked, targets = (states[is_masked], labels[is_masked]) if only_masked else (states, labels)
    loss = torch.nn.functional.cross_entropy(head(picked).reshape(-1, setting.vocab_size), targets.reshape(-1))
    loss.backward()
    return {'loss': loss.item()}

  return run


def contestants(setting_name: str, scratch: pathlib.Path) -> list[Contestant]:
  """In the order in which they run; the first is this project, and ratios are taken to it."""
  del scratch
  setting = SETTINGS[setting_name]
  config, predictions = setting.config, setting.rows * setting.slots
  products = config.output_embedding_size * (config.hidden_size + setting.vocab_size)
  work = {'predictions': predictions, USEFUL: 3 * 2 * predictions * products / 1e9}
  contestant = functools.partial(Contestant, work=work)
  return [
    *(contestant(OURS[way], prepare_ours, (setting, way)) for way in WAYS),
    contestant(TORCH, prepare_torch, (setting, False)),
    contestant(TORCH_MASKED, prepare_torch, (setting, True)),
  ]
