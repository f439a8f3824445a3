"""One masked-LM training step: forward, backward, clipping by global norm, AdamW.

The same model, the same batch. On a CPU in float32 this project, Hugging Face's torch RemBERT as its users train it,
and a plain JAX sketch (`benchmarks/sketch.py`); in bfloat16 this project, and torch under autocast. The large settings
want an NVIDIA GPU: this project in bfloat16 as `gin/hardware/h200.gin` has it, beside torch under autocast, as it is
and compiled. Torch's AdamW is the fused one everywhere. Weights and data are random.
"""

import dataclasses
import functools
import pathlib

import numpy as np

from benchmarks.settings import BASE, LARGE, SMALL, USEFUL, Setting, random_batch, torch_config
from benchmarks.turns import Contestant, NotHere
from benchmarks.updates import STEPS_IN_A_ROW, STEPS_TO_WARM_UP, our_optimizer, torch_step
from rembert.model.config import Execution

SETTINGS = {
  'small': Setting(SMALL, rows=16, length=128, slots=20),
  'base': Setting(BASE, rows=2, length=512, slots=77),
  'small_bfloat16': Setting(SMALL, rows=16, length=128, slots=20, dtype='bfloat16'),
  'base_bfloat16': Setting(BASE, rows=2, length=512, slots=77, dtype='bfloat16'),
  'large': Setting(LARGE, rows=16, length=512, slots=77, dtype='bfloat16'),
  'large64': Setting(LARGE, rows=64, length=512, slots=77, dtype='bfloat16'),
}
ON_GPU = ('large', 'large64')
LEARNING_RATE = 2e-4
WARM_UP_RUNS, RUNS_IN_A_ROW = STEPS_TO_WARM_UP, STEPS_IN_A_ROW

OURS, GIVEN_BACK, IN_FLOAT32 = 'this project', '… memory given back', '… in float32'
SKETCH = 'plain JAX sketch'
TORCH, TORCH_BF16, TORCH_COMPILED = 'torch, float32', 'torch, bfloat16 autocast', 'torch, bfloat16, compiled'


# --- contestants: each returns a function that makes one step and says its loss ---------------------------------------


def execution_of(setting: Setting, platform: str) -> Execution:
  """How pre-training would compute this setting: `gin/hardware/cpu.gin` and `gin/hardware/h200.gin`."""
  if platform == 'cpu':
    return Execution(setting.dtype, unroll=setting.config.num_hidden_layers, trim_last_layer=True)
  return Execution(setting.dtype, attention='cudnn', remat='dots_and_attention', trim_last_layer=True)


def prepare_ours(setting: Setting, platform: str = 'cpu', keeps_memory: bool = True):
  """The step that pre-training runs: packed rows, mesh, metrics; on a CPU layers unrolled, freed memory kept."""
  import jax

  from rembert.training import cpu_memory, sharding, state, step

  if platform == 'cpu' and keeps_memory:
    cpu_memory.keep_freed_memory_if_it_fits(setting.config, setting.rows * setting.length)
  jax.config.update('jax_platforms', platform)
  mesh = sharding.make_mesh(sharding.MeshConfig())
  trainable = state.masked_lm(
    setting.config,
    execution_of(setting, platform),
    our_optimizer(LEARNING_RATE),
    mesh,
  )
  drawn = random_batch(setting)
  packed = {
    'segment_ids': drawn['attention_mask'],
    'position_ids': np.tile(np.arange(setting.length, dtype=np.int32), (setting.rows, 1)),
    'language': np.zeros(setting.rows, np.int32),
  }
  names = ('input_ids', 'masked_positions', 'targets', 'weights')
  with jax.set_mesh(mesh):
    batch = sharding.to_device(packed | {name: drawn[name] for name in names}, mesh)
    train_step = step.make_train_step(trainable)
    train_state = trainable.init(0)

  def run() -> dict[str, float]:
    nonlocal train_state
    with jax.set_mesh(mesh):
      train_state, metrics = jax.block_until_ready(train_step(train_state, batch))
    facts = {'loss': float(metrics.sums.loss / metrics.sums.weight)}
    if memory := mesh.devices.flat[0].memory_stats():
      facts['GB of the GPU'] = memory['peak_bytes_in_use'] / 1e9
    return facts

  return run


def prepare_sketch(setting: Setting):
  """The sketch's step."""
  import jax

  from benchmarks import sketch

  jax.config.update('jax_platforms', 'cpu')
  config = setting.config
  params = sketch.init_params(
    jax.random.key(0),
    V=config.vocab_size,
    I=config.input_embedding_size,
    E=config.output_embedding_size,
    H=config.hidden_size,
    F=config.intermediate_size,
    L=config.num_hidden_layers,
    S=config.max_position_embeddings,
  )
  batch = {name: jax.numpy.asarray(array) for name, array in random_batch(setting).items()}
  opt_state = sketch.optimizer.init(params)

  def run() -> dict[str, float]:
    nonlocal params, opt_state
    step = sketch.train_step(params, opt_state, batch, heads=config.num_attention_heads)
    params, opt_state, loss = jax.block_until_ready(step)
    return {'loss': float(loss)}

  return run


def prepare_torch(setting: Setting, autocast: bool, device: str = 'cpu', is_compiled: bool = False):
  """Hugging Face's model with labels."""
  import torch
  import transformers

  torch.manual_seed(0)
  torch.backends.cuda.matmul.allow_tf32 = True
  model = transformers.RemBertForMaskedLM(torch_config(setting.config)).to(device).train()
  forward = torch.compile(model) if is_compiled else model
  batch = random_batch(setting)
  names = ('input_ids', 'attention_mask', 'labels')
  inputs = {name: torch.tensor(batch[name], dtype=torch.long, device=device) for name in names}
  step = torch_step(model, lambda: forward(**inputs).loss, LEARNING_RATE, device=device, autocast=autocast)

  def run() -> dict[str, float]:
    facts = step()
    if device == 'cuda':
      facts['GB of the GPU'] = torch.cuda.max_memory_allocated() / 1e9
    return facts

  return run


def prepare_matmul(size: int):
  """One large float32 product: what this machine gives at best."""
  import jax

  jax.config.update('jax_platforms', 'cpu')
  x = jax.numpy.ones((size, size), jax.numpy.float32)
  product = jax.jit(jax.numpy.matmul)

  def run() -> None:
    product(x, x).block_until_ready()

  return run


def contestants(setting_name: str, scratch: pathlib.Path) -> list[Contestant]:
  """In the order in which they run; the first is this project, and ratios are taken to it."""
  from rembert.training import flops

  del scratch
  setting = SETTINGS[setting_name]
  row_flops = flops.train_flops_per_row(setting.config, setting.length, setting.slots, last_queries=setting.slots)
  work = {'tokens': setting.rows * setting.length, USEFUL: setting.rows * row_flops / 1e9}
  contestant = functools.partial(Contestant, work=work)
  if setting_name in ON_GPU:
    if not pathlib.Path('/dev/nvidia0').exists():
      raise NotHere('no NVIDIA GPU')
    # Side by side on one GPU: nobody may take all of its memory at once.
    shared = {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'}
    return [
      contestant(OURS, prepare_ours, (setting, 'cuda'), environment=shared),
      contestant(TORCH_BF16, prepare_torch, (setting, True, 'cuda')),
      contestant(TORCH_COMPILED, prepare_torch, (setting, True, 'cuda', True)),
    ]
  if setting.dtype == 'bfloat16':
    return [
      contestant(OURS, prepare_ours, (setting,)),
      contestant(IN_FLOAT32, prepare_ours, (dataclasses.replace(setting, dtype='float32'),)),
      contestant(TORCH_BF16, prepare_torch, (setting, True)),
    ]
  size = 2048
  return [
    contestant(OURS, prepare_ours, (setting,)),
    *([contestant(GIVEN_BACK, prepare_ours, (setting, 'cpu', False))] if setting_name == 'small' else []),
    contestant(SKETCH, prepare_sketch, (setting,)),
    contestant(TORCH, prepare_torch, (setting, False)),
    Contestant(f'({size}³ float32 product)', prepare_matmul, (size,), {USEFUL: 2 * size**3 / 1e9}),
  ]
