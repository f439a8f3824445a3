"""Shared by benchmarks: sizes of models, random weights, the start of JAX, a vocabulary of the sample text."""

import dataclasses
import functools
import importlib.resources
import json
import math
import pathlib
import subprocess
import sys

import numpy as np

from benchmarks.interleaved import Unavailable
from rembert.model.config import Execution, RemBertConfig

USEFUL = 'useful GFLOP'  # matmuls that the model needs, with its head at masked positions only; the same for all
SMOKE = 'gin/pretrain_smoke.gin'
SAMPLE = str(importlib.resources.files('tasks.wikipedia') / 'sample')  # dumps
FIRST_TOKEN = 315  # ids below are special
ADAMW, CLIP_NORM = {'eps': 1e-6, 'weight_decay': 0.01}, 1.0

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
  """A model, its head, the shape of its batch, and how it is computed."""

  config: RemBertConfig
  rows: int  # B
  length: int  # S
  slots: int = 0  # masked positions per sequence, K, for the head 'mlm'
  head: str = 'mlm'  # of `rembert.model.heads.HEADS`
  num_labels: int | None = None  # of a classifier
  dtype: str = 'float32'  # in bfloat16 torch runs under autocast
  platform: str = 'cpu'  # or 'cuda'
  baselines: tuple[str, ...] = ()  # names of the candidates to compare; all if empty

  @property
  def description(self) -> str:
    labels = f'{self.num_labels} labels' if self.num_labels else 'spans'
    targets, sizes = f'{self.slots} masked per sequence' if self.slots else labels, encoder_sizes(self.config)
    output = f', E {self.config.output_embedding_size}' if self.head == 'mlm' else ''
    return f'batch {self.rows} × {self.length}, {targets}, {self.dtype} · {sizes}{output}'

  @property
  def last_queries(self) -> int | None:
    """Positions at which the last layer is needed; None for all. A classifier only reads the first."""
    return self.slots or (1 if self.num_labels else None)

  @property
  def work(self) -> dict[str, float]:
    """Work of one training step: tokens, and FLOPs that the model needs."""
    from rembert.aot import flops

    row_flops = flops.train_flops_per_row(self.config, self.length, self.slots, last_queries=self.last_queries)
    return {'tokens': self.rows * self.length, USEFUL: self.rows * row_flops / 1e9}

  @property
  def learning_rate(self) -> float:
    """Constant learning rate."""
    return 2e-4 if self.head == 'mlm' else 1e-5

  @property
  def execution(self) -> Execution:
    """As in `gin/hardware/cpu.gin` and `gin/hardware/h200.gin`."""
    if self.platform == 'cpu':
      return Execution(self.dtype, unroll=self.config.num_hidden_layers, trim_last_layer=True)
    layers = self.config.num_hidden_layers
    return Execution(self.dtype, attention='cudnn', unroll=layers, trim_last_layer=True, loss_chunk=8192)


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


def start_jax(setting: Setting):
  """Starts JAX on the setting's platform; returns a mesh. On a CPU, freed memory is kept, as in training."""
  import jax

  from rembert.aot.flops import heap_bytes
  from rembert.runtime.xla import keep_freed_memory_if_it_fits
  from rembert.train import sharding

  if setting.platform == 'cpu':
    keep_freed_memory_if_it_fits(heap_bytes(setting.config, setting.rows * setting.length))
  jax.config.update('jax_platforms', setting.platform)
  return sharding.make_mesh(sharding.MeshConfig())


def our_optimizer(learning_rate: float):
  """This project's optimizer at a constant learning rate, an `optax.GradientTransformation`."""
  from rembert.train import optimizer

  options = optimizer.OptimizerConfig(learning_rate, warmup_steps=0, clip_norm=CLIP_NORM, **ADAMW)
  return optimizer.make_optimizer(options, total_steps=1_000_000)


# --- the sample text --------------------------------------------------------------------------------------------------


def make_vocabulary(size: int, file: pathlib.Path) -> None:
  """Trains a vocabulary on the sample dumps, as the smoke run does (five seconds)."""
  call('tasks.vocabulary', f'--dumps={SAMPLE}', f'--size={size}', f'--output={file}')


def call(module: str, *flags: str) -> None:
  """Runs `python -m module flags` without output; raises Unavailable with its output if it fails."""
  done = subprocess.run([sys.executable, '-m', module, *flags], capture_output=True, text=True)
  if done.returncode:
    raise Unavailable(f'python -m {module} failed: {done.stderr.strip()}')
