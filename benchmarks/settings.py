"""Shared by benchmarks: sizes, random batches and weights, one update, a vocabulary of the sample text."""

import dataclasses
import functools
import importlib.resources
import json
import math
import pathlib
import subprocess
import sys
from collections.abc import Callable

import numpy as np

from benchmarks.interleaved import Run, Unavailable
from rembert.model.config import Execution, RemBertConfig

USEFUL = 'useful GFLOP'  # matmuls that the model needs, with its head at masked positions only; the same for all
SMOKE = 'gin/pretrain_smoke.gin'
SAMPLE = str(importlib.resources.files('tasks.wikipedia') / 'sample')  # dumps
FIRST_TOKEN = 315  # ids below are special
WEIGHT_DECAY, EPSILON, CLIP_NORM = 0.01, 1e-6, 1.0
# For benchmarks of training steps, which real runs repeat. On a CPU, torch's first dozen are slower.
STEPS = {'warm_up_runs': 8, 'runs_per_turn': 3}

SMALL = RemBertConfig(
  vocab_size=32_000,
  input_embedding_size=128,
  output_embedding_size=512,
  hidden_size=256,
  num_hidden_layers=4,
  num_attention_heads=4,
  intermediate_size=1024,
)
BASE = RemBertConfig(
  vocab_size=120_000,
  input_embedding_size=128,
  output_embedding_size=768,
  hidden_size=768,
  num_hidden_layers=12,
  num_attention_heads=12,
  intermediate_size=3072,
)
LARGE = RemBertConfig()  # the released model


def encoder_sizes(config: RemBertConfig) -> str:
  """Sizes of an encoder, for descriptions."""
  return (
    f'L {config.num_hidden_layers}, H {config.hidden_size}, {config.num_attention_heads} heads, '
    f'V {config.vocab_size:,}, I {config.input_embedding_size}'
  )


@dataclasses.dataclass(frozen=True)
class Setting:
  """A model, its head, the shape of its batch, and how it is computed.

  Attributes:
    config: the model.
    rows: number of sequences in the batch, B.
    length: sequence length, S.
    slots: masked positions per sequence, K, for the head 'mlm'.
    head: see `rembert.model.heads.HEADS`.
    num_labels: number of labels of a classifier.
    dtype: dtype of the computation; in bfloat16 torch runs under autocast.
    platform: 'cpu' or 'cuda'.
    baselines: names of the candidates to compare; all if empty.
  """

  config: RemBertConfig
  rows: int
  length: int
  slots: int = 0
  head: str = 'mlm'
  num_labels: int | None = None
  dtype: str = 'float32'
  platform: str = 'cpu'
  baselines: tuple[str, ...] = ()

  @property
  def description(self) -> str:
    """One line."""
    labels = f'{self.num_labels} labels' if self.num_labels else 'spans'
    targets, sizes = f'{self.slots} masked per sequence' if self.slots else labels, encoder_sizes(self.config)
    output = f', E {self.config.output_embedding_size}' if self.head == 'mlm' else ''
    return f'batch {self.rows} × {self.length}, {targets}, {self.dtype} · {sizes}{output}'

  @property
  def work(self) -> dict[str, float]:
    """Work of one training step: tokens, and FLOPs that the model needs."""
    from rembert.aot import flops

    last_queries = self.slots or (1 if self.num_labels else None)  # a classifier only reads the first position
    row_flops = flops.train_flops_per_row(self.config, self.length, self.slots, last_queries=last_queries)
    return {'tokens': self.rows * self.length, USEFUL: self.rows * row_flops / 1e9}

  @property
  def execution(self) -> Execution:
    """As in `gin/hardware/cpu.gin` and `gin/hardware/h200.gin`."""
    if self.platform == 'cpu':
      return Execution(self.dtype, unroll=self.config.num_hidden_layers, trim_last_layer=True)
    return Execution(self.dtype, attention='cudnn', remat='dots_and_attention', trim_last_layer=True)


def random_batch(setting: Setting) -> dict[str, np.ndarray]:
  """Full sequences for masked language modelling; `labels` are the targets in Hugging Face's form, −100 elsewhere."""
  random = np.random.default_rng(0)
  rows, length, slots, vocabulary = setting.rows, setting.length, setting.slots, setting.config.vocab_size
  positions = np.stack([np.sort(random.choice(length, slots, replace=False)) for _ in range(rows)])
  targets = random.integers(FIRST_TOKEN, vocabulary, (rows, slots))
  labels = np.full((rows, length), -100)
  np.put_along_axis(labels, positions, targets, axis=1)
  return {
    'input_ids': random.integers(FIRST_TOKEN, vocabulary, (rows, length)).astype(np.int32),
    'attention_mask': np.ones((rows, length), np.int32),
    'masked_positions': positions.astype(np.int32),
    'targets': targets.astype(np.int32),
    'weights': np.ones((rows, slots), np.float32),
    'labels': labels,
  }


def torch_config(config: RemBertConfig):
  """The configuration of the same model in transformers."""
  import transformers

  fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
  fields.pop('pad_vocab_to_multiple_of')
  return transformers.RemBertConfig(**fields)


def write_random_model(
  folder: pathlib.Path, config: RemBertConfig, head: str | None = None, *, num_labels: int | None = None
) -> None:
  """Writes a Hugging Face model directory with random weights, for all candidates."""
  from rembert.convert import huggingface
  from rembert.convert.tensor_names import ENCODER_PREFIX, Tensor, slots
  from rembert.model.heads import FIXED_LABELS, POOLED

  random = np.random.default_rng(2)

  def read(name: str, shape: tuple[int, ...]) -> np.ndarray:
    center = 1 if name.endswith('LayerNorm.weight') else 0
    return center + config.initializer_range * random.standard_normal(shape, np.float32)

  prefix = '' if head is None else ENCODER_PREFIX
  shapes = {
    (prefix if slot.leaf.startswith('encoder/') else '') + slot.hugging_face: slot.shape_in(huggingface.FORM)
    for slot in slots(config, head, num_labels=num_labels, has_pooler=head in POOLED)
  }
  labels = [str(label) for label in range(num_labels or FIXED_LABELS.get(head, 0))]
  folder.mkdir()
  (folder / 'config.json').write_text(json.dumps(huggingface.config_json(config, head, labels), indent=2))
  tensors = {name: Tensor(shape, functools.partial(read, name, shape)) for name, shape in shapes.items()}
  huggingface.write_weights(folder, tensors, shard_bytes=sum(4 * math.prod(shape) for shape in shapes.values()))


# --- one update: BERT's AdamW at a constant learning rate, after clipping by global norm ------------------------------


def start_jax(setting: Setting):
  """Starts JAX on the setting's platform; returns a mesh. On a CPU, freed memory is kept, as in training."""
  import jax

  from rembert.aot.flops import heap_bytes
  from rembert.runtime.cpu_memory import keep_freed_memory_if_it_fits
  from rembert.train import sharding

  if setting.platform == 'cpu':
    keep_freed_memory_if_it_fits(heap_bytes(setting.config, setting.rows * setting.length))
  jax.config.update('jax_platforms', setting.platform)
  return sharding.make_mesh(sharding.MeshConfig())


def our_optimizer(learning_rate: float):
  """This project's optimizer, an `optax.GradientTransformation`."""
  from rembert.train import optimizer

  options = optimizer.OptimizerConfig(learning_rate, 0, eps=EPSILON, weight_decay=WEIGHT_DECAY, clip_norm=CLIP_NORM)
  return optimizer.make_optimizer(options, total_steps=1_000_000)


def our_steps(step: Callable, state, batch, mesh) -> Run:
  """Returns a run: one step, from the state of the previous one."""
  import jax

  def run() -> dict[str, float]:
    nonlocal state
    with jax.set_mesh(mesh):
      state, metrics = jax.block_until_ready(step(state, batch))
    return {'loss': float(metrics.sums.loss / metrics.sums.weight)}

  return run


def torch_steps(model, loss_of: Callable, learning_rate: float, setting: Setting) -> Run:
  """Returns a run of torch, with fused `AdamW` (the default of Hugging Face's Trainer) and `clip_grad_norm_`.

  Args:
    model: a `torch.nn.Module` on the setting's platform.
    loss_of: returns the model's loss on the batch; no arguments.
    learning_rate: constant learning rate.
    setting: the setting, for dtype and platform.
  """
  import torch

  parameters = list(model.parameters())
  options = {'lr': learning_rate, 'eps': EPSILON, 'weight_decay': WEIGHT_DECAY, 'fused': True}
  optimizer = torch.optim.AdamW(parameters, **options)

  def run() -> dict[str, float]:
    optimizer.zero_grad()
    with torch.autocast(setting.platform, torch.bfloat16, enabled=setting.dtype == 'bfloat16'):
      loss = loss_of()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
    optimizer.step()
    return {'loss': loss.item()}  # waits for the device

  return run


# --- the sample text --------------------------------------------------------------------------------------------------


def make_vocabulary(size: int, file: pathlib.Path) -> None:
  """Trains a vocabulary on the sample dumps, as the smoke run does (five seconds)."""
  call('tasks.vocabulary', f'--dumps={SAMPLE}', f'--size={size}', f'--output={file}')


def call(module: str, *flags: str) -> None:
  """Runs `python -m module flags` without output; raises Unavailable with its output if it fails."""
  done = subprocess.run([sys.executable, '-m', module, *flags], capture_output=True, text=True)
  if done.returncode:
    raise Unavailable(f'python -m {module} failed: {done.stderr.strip()}')
