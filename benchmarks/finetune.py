"""Runs one step of fine-tuning on a CPU: forward, backward, clipping by global norm, AdamW.

The tasks are sentence pairs with three labels, as in XNLI, and answer spans, as in SQuAD. The step of
`rembert.jobs.finetune` is compared with Hugging Face's `RemBertForSequenceClassification` and
`RemBertForQuestionAnswering` in torch as their users train them, in float32 and under bfloat16 autocast. All candidates
start from the same random weights, from one directory, and train on the same batch. Dropout is the default of
fine-tuning: 0.1 before the classifier, and none elsewhere.

Sequences are full; shorter ones would be padded to the same length by both, and take as long. With padding the losses
of spans would differ: in Hugging Face, the softmax over positions includes padding. This project's AdamW is BERT's,
without bias correction and without decay of LayerNorms and biases; torch's is torch's. Both take one pass over the
parameters.
"""

import functools
import pathlib

import numpy as np

from benchmarks.interleaved import OURS, Benchmark, Candidate, Run
from benchmarks.settings import (
  FIRST_TOKEN,
  SMALL,
  STEPS,
  Setting,
  our_optimizer,
  our_steps,
  start_jax,
  torch_steps,
  write_random_model,
)

LEARNING_RATE = 1e-5
TORCH = {'float32': 'torch, float32', 'bfloat16': 'torch, bfloat16 autocast'}
SETTINGS = {
  'xnli': Setting(SMALL, rows=32, length=128, head='classification', num_labels=3),
  'squad': Setting(SMALL, rows=8, length=384, head='qa'),
  'xnli_bfloat16': Setting(SMALL, rows=32, length=128, head='classification', num_labels=3, dtype='bfloat16'),
  'squad_bfloat16': Setting(SMALL, rows=8, length=384, head='qa', dtype='bfloat16'),
}


def random_batch(setting: Setting) -> dict[str, np.ndarray]:
  """Sequences of two texts, as in `rembert.data.finetune_batches`; labels [B], or first and last position [B, 2]."""
  random, (rows, length) = np.random.default_rng(0), (setting.rows, setting.length)
  second_text = random.integers(1, length, (rows, 1))  # its first position
  spans = np.sort(random.integers(0, length, (rows, 2)))
  return {
    'input_ids': random.integers(FIRST_TOKEN, setting.config.vocab_size, (rows, length)).astype(np.int32),
    'token_type_ids': (np.arange(length) >= second_text).astype(np.int32),
    'segment_ids': np.ones((rows, length), np.int32),
    'labels': (random.integers(0, setting.num_labels, rows) if setting.num_labels else spans).astype(np.int32),
  }


# --- candidates: each returns a function that makes one step and returns its loss -------------------------------------


def prepare_ours(setting: Setting, folder: pathlib.Path) -> Run:
  """The fine-tuning step of this project on a CPU."""
  import jax

  from rembert.checkpoint.initialize import open_initial
  from rembert.model.heads import build_model
  from rembert.train import sharding, state, step

  mesh = start_jax(setting)
  config, head, num_labels, execution = setting.config, setting.head, setting.num_labels, setting.execution
  build = lambda rngs: build_model(head, config, execution, num_labels=num_labels, rngs=rngs)
  trainable = state.trainable(build, our_optimizer(LEARNING_RATE), mesh)
  initial = open_initial(folder, 'all', config, head=head, num_labels=num_labels)
  dropout_seed = 0 if config.classifier_dropout_prob else None
  with jax.set_mesh(mesh):
    batch = sharding.to_device(random_batch(setting), mesh)
    train_step = step.make_train_step(trainable, sums_of=step.head_sums(head), dropout_seed=dropout_seed)
    return our_steps(train_step, initial.put_into(trainable.init(0)), batch, mesh)


def prepare_torch(setting: Setting, folder: pathlib.Path) -> Run:
  """Hugging Face's model with labels."""
  import torch
  import transformers

  torch.manual_seed(0)
  batch = {name: torch.tensor(array, dtype=torch.long) for name, array in random_batch(setting).items()}
  labels = batch.pop('labels')
  inputs = {'attention_mask': batch.pop('segment_ids'), **batch}
  if setting.head == 'classification':
    model = transformers.RemBertForSequenceClassification.from_pretrained(folder).train()
    inputs |= {'labels': labels}
  else:
    model = transformers.RemBertForQuestionAnswering.from_pretrained(folder).train()
    inputs |= {'start_positions': labels[:, 0], 'end_positions': labels[:, 1]}
  return torch_steps(model, lambda: model(**inputs).loss, LEARNING_RATE, setting)


def candidates(setting: Setting, scratch: pathlib.Path) -> list[Candidate]:
  """The candidates, this project first."""
  folder = scratch / 'model'
  write_random_model(folder, setting.config, setting.head, num_labels=setting.num_labels)
  candidate = functools.partial(Candidate, arguments=(setting, folder), work=setting.work)
  return [candidate(OURS, prepare_ours), candidate(TORCH[setting.dtype], prepare_torch)]


FINETUNING = Benchmark(SETTINGS, candidates, **STEPS)
