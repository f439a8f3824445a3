"""Runs only the MLM head and its loss, forward and backward, with small to very large vocabularies.

Inputs are hidden states; outputs are the loss and the gradients of states and parameters, without encoder and update.
All candidates have the same states, weights and targets. This project runs in three ways (`Execution.loss_chunk`): in
chunks of positions, as in training; with all logits at masked positions; and with logits at every position. The
comparison is with Hugging Face's `RemBertOnlyMLMHead` and torch's cross-entropy: at every position, as in
`RemBertForMaskedLM`, and only at masked positions.
"""

import dataclasses
import functools
import pathlib

import numpy as np

from benchmarks.interleaved import OURS, Benchmark, Candidate, Run
from benchmarks.settings import SMALL, USEFUL, Setting, random_batch, start_jax, torch_config


def at_vocabulary(vocab_size: int, rows: int = 8, length: int = 128, slots: int = 20) -> Setting:
  """The sizes of the small setting of `train_step`, without layers."""
  return Setting(dataclasses.replace(SMALL, vocab_size=vocab_size, num_hidden_layers=0), rows, length, slots)


SETTINGS = {
  'v32k': at_vocabulary(32_000),
  'v120k': at_vocabulary(120_000),
  'v250k': at_vocabulary(250_300),
  'v500k': at_vocabulary(500_000),
}
# Names of the three ways of this project.
WAYS = {'chunked': OURS, 'gathered': '… all masked logits', 'dense': '… logits everywhere'}
TORCH, TORCH_MASKED = 'torch, everywhere', 'torch, masked positions'


def problem(setting: Setting) -> dict[str, np.ndarray]:
  """A random batch with hidden states instead of tokens, and weights of the head."""
  random, config = np.random.default_rng(1), setting.config
  normal = lambda *shape: (0.02 * random.standard_normal(shape, np.float32)).astype(np.float32)
  return random_batch(setting) | {
    'states': random.standard_normal((setting.rows, setting.length, config.hidden_size), np.float32),
    'transform': normal(config.hidden_size, config.output_embedding_size),
    'output_embedding': normal(config.vocab_size, config.output_embedding_size),
  }


# --- candidates: each returns a function that runs forward and backward once, and returns the loss --------------------


def prepare_ours(setting: Setting, way: str) -> Run:
  """The head of pre-training, in one of the `WAYS`."""
  import jax
  import jax.numpy as jnp
  from flax import nnx

  from rembert.model.config import Execution
  from rembert.model.heads import MlmHead
  from rembert.train.chunked_loss import chunked_mlm_sums
  from rembert.train.losses import mlm_row_sums

  start_jax(setting)
  given = problem(setting)
  graphdef, state = nnx.split(MlmHead(setting.config, Execution(), rngs=nnx.Rngs(0)))
  params = nnx.to_pure_dict(state)
  params['transform']['kernel'] = jnp.asarray(given['transform'])
  vocab_size = setting.config.vocab_size
  padding = setting.config.padded_vocab_size - vocab_size
  params['output_embedding'] = jnp.pad(given['output_embedding'], ((0, padding), (0, 0)))
  word = jnp.zeros((1, 1))  # unused: the head has an output embedding
  positions, targets, weights = given['masked_positions'], given['targets'], given['weights']
  if way == 'dense':
    positions, targets, weights = None, np.maximum(given['labels'], 0), (given['labels'] >= 0).astype(np.float32)

  def mean_loss(params, states_BxSxH, positions, targets, weights):
    head = nnx.merge(graphdef, params)
    if way == 'chunked':
      x_BxKxE, table_VxE = head.hidden_for_logits(states_BxSxH, positions), head.table(word)
      chunk = Execution().loss_chunk
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
  from transformers.models.rembert.modeling_rembert import RemBertOnlyMLMHead

  head, given = RemBertOnlyMLMHead(torch_config(setting.config)), problem(setting)
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
    loss = torch.nn.functional.cross_entropy(head(picked).reshape(-1, setting.config.vocab_size), targets.reshape(-1))
    loss.backward()
    return {'loss': loss.item()}

  return run


def candidates(setting: Setting, scratch: pathlib.Path) -> list[Candidate]:
  """The candidates, this project first."""
  del scratch
  config, predictions = setting.config, setting.rows * setting.slots
  products = config.output_embedding_size * (config.hidden_size + config.vocab_size)
  work = {'predictions': predictions, USEFUL: 3 * 2 * predictions * products / 1e9}
  candidate = functools.partial(Candidate, work=work)
  return [
    *(candidate(name, prepare_ours, (setting, way)) for way, name in WAYS.items()),
    candidate(TORCH, prepare_torch, (setting, False)),
    candidate(TORCH_MASKED, prepare_torch, (setting, True)),
  ]


HEAD = Benchmark(SETTINGS, candidates)
