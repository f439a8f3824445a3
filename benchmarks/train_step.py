"""One masked-LM training step: forward, backward, clipping by global norm, AdamW.

The same model, the same batch. On a CPU in float32 this project, Hugging Face's torch RemBERT as its users train it,
and a plain JAX sketch (`benchmarks/sketch.py`); in bfloat16 this project, and torch under autocast. The large settings
want an NVIDIA GPU: this project in bfloat16 as `gin/hardware/h200.gin` has it. Torch is measured as it is, and compiled
by `torch.compile`, which wants a C++ compiler on a CPU; its AdamW is the fused one. Weights and data are random.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping

import numpy as np

from benchmarks.settings import BASE, LARGE, SMALL, USEFUL, Setting, random_batch, torch_config
from benchmarks.turns import Contestant, Measurement, NotHere
from benchmarks.updates import STEPS_IN_A_ROW, STEPS_TO_WARM_UP, our_optimizer, torch_step
from rembert.model.config import Execution

SETTINGS = {
  'small': Setting(SMALL, rows=16, length=128, slots=20),
  'base': Setting(BASE, rows=2, length=512, slots=77),
  'base_compiled': Setting(BASE, rows=2, length=512, slots=77),
  'small_bfloat16': Setting(SMALL, rows=16, length=128, slots=20, dtype='bfloat16'),
  'base_bfloat16': Setting(BASE, rows=2, length=512, slots=77, dtype='bfloat16'),
  'large': Setting(LARGE, rows=16, length=512, slots=77, dtype='bfloat16'),
  'large64': Setting(LARGE, rows=64, length=512, slots=77, dtype='bfloat16'),
}
ON_GPU = ('large', 'large64')
LEARNING_RATE = 2e-4
OF_THE_GPU, PEAK = 'GB of the GPU', 'TFLOP/s at most'
WARM_UP_RUNS, RUNS_IN_A_ROW = STEPS_TO_WARM_UP, STEPS_IN_A_ROW

OURS, GIVEN_BACK, IN_FLOAT32 = 'this project', '… memory given back', '… in float32'
SKETCH = 'plain JAX sketch'
TORCH, TORCH_COMPILED = 'torch, float32', 'torch, float32, compiled'
TORCH_BF16, TORCH_BF16_COMPILED = 'torch, bfloat16 autocast', 'torch, bfloat16, compiled'


# --- contestants: each returns a function that makes one step and says its loss ---------------------------------------


def execution_of(setting: Setting, platform: str) -> Execution:
  """How pre-training would compute this setting: `gin/hardware/cpu.gin` and `gin/hardware/h200.gin`."""
  if platform == 'cpu':
    return Execution(setting.dtype, unroll=setting.config.num_hidden_layers, trim_last_layer=True)
  return Execution(setting.dtype, attention='cudnn', remat='dots_and_attention', trim_last_layer=True)


def our_step(setting: Setting, platform: str = 'cpu', keeps_memory: bool = True, remat: str | None = None):
  """The step that pre-training runs, its first state, its batch (packed rows), its mesh; on a CPU layers unrolled."""
  import jax

  from rembert.training import cpu_memory, sharding, state, step

  if platform == 'cpu' and keeps_memory:
    cpu_memory.keep_freed_memory_if_it_fits(setting.config, setting.rows * setting.length)
  jax.config.update('jax_platforms', platform)
  mesh = sharding.make_mesh(sharding.MeshConfig())
  execution = execution_of(setting, platform)
  trainable = state.masked_lm(
    setting.config,
    dataclasses.replace(execution, remat=remat or execution.remat),
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
    return step.make_train_step(trainable), trainable.init(0), batch, mesh


def prepare_ours(setting: Setting, *options):
  """This project's step; `options` as `our_step` has them."""
  import jax

  from rembert.training import chips

  train_step, train_state, batch, mesh = our_step(setting, *options)
  device = mesh.devices.flat[0]

  def run() -> dict[str, float]:
    nonlocal train_state
    with jax.set_mesh(mesh):
      train_state, metrics = jax.block_until_ready(train_step(train_state, batch))
    facts = {'loss': float(metrics.sums.loss / metrics.sums.weight)}
    if memory := device.memory_stats():
      facts[OF_THE_GPU] = memory['peak_bytes_in_use'] / 1e9
    if chip := chips.chip_of(device.device_kind):
      facts[PEAK] = chip[1].bf16_flops / 1e12
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


def prepare_torch(
  setting: Setting, autocast: bool, device: str = 'cpu', is_compiled: bool = False, is_recomputed: bool = False
):
  """Hugging Face's model with labels; `is_recomputed`: with its layers checkpointed, as `gradient_checkpointing` is."""
  import torch
  import transformers

  torch.manual_seed(0)
  torch.backends.cuda.matmul.allow_tf32 = True
  model = transformers.RemBertForMaskedLM(torch_config(setting.config)).to(device).train()
  if is_recomputed:
    model.gradient_checkpointing_enable()
  forward = torch.compile(model) if is_compiled else model
  batch = random_batch(setting)
  names = ('input_ids', 'attention_mask', 'labels')
  inputs = {name: torch.tensor(batch[name], dtype=torch.long, device=device) for name in names}
  step = torch_step(model, lambda: forward(**inputs).loss, LEARNING_RATE, device=device, autocast=autocast)

  def run() -> dict[str, float]:
    facts = step()
    if device == 'cuda':
      facts[OF_THE_GPU] = torch.cuda.max_memory_allocated() / 1e9
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


def prepare_torch_matmul(size: int):
  """The same product in torch."""
  import torch

  x = torch.ones((size, size))

  def run() -> None:
    torch.matmul(x, x)

  return run


def conclusion(setting_name: str, measured: Mapping[str, Measurement]) -> str:
  """On a GPU, the share of its peak that goes into useful products (MFU)."""
  peak = measured[OURS].facts.get(PEAK)
  if not peak:
    return ''
  useful = work_of(SETTINGS[setting_name])[USEFUL] / 1e3
  shares = [f'{useful / each.median / peak:.1%} {name}' for name, each in measured.items() if each.seconds]
  return f'Of {peak:g} TFLOP/s, useful: ' + ', '.join(shares)


def require_gpu() -> None:
  """NotHere where there is none."""
  if not pathlib.Path('/dev/nvidia0').exists():
    raise NotHere('no NVIDIA GPU')


def work_of(setting: Setting) -> dict[str, float]:
  """Of one step: tokens, and the products that the model needs."""
  from rembert.training import flops

  row_flops = flops.train_flops_per_row(setting.config, setting.length, setting.slots, last_queries=setting.slots)
  return {'tokens': setting.rows * setting.length, USEFUL: setting.rows * row_flops / 1e9}


def contestants(setting_name: str, scratch: pathlib.Path) -> list[Contestant]:
  """In the order in which they run; the first is this project, and ratios are taken to it."""
  del scratch
  setting = SETTINGS[setting_name]
  contestant = functools.partial(Contestant, work=work_of(setting))
  if setting_name in ON_GPU:
    require_gpu()
    # Side by side on one GPU: nobody may take all of its memory at once.
    shared = {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'}
    return [
      contestant(OURS, prepare_ours, (setting, 'cuda'), environment=shared),
      contestant(TORCH_BF16, prepare_torch, (setting, True, 'cuda')),
      contestant(TORCH_BF16_COMPILED, prepare_torch, (setting, True, 'cuda', True)),
    ]
  ours = contestant(OURS, prepare_ours, (setting,))
  is_small = setting.config == SMALL  # all of base at a time would want more memory than 24 GB
  if setting.dtype == 'bfloat16':
    in_float32 = contestant(IN_FLOAT32, prepare_ours, (dataclasses.replace(setting, dtype='float32'),))
    return [
      ours,
      *([in_float32] if is_small else []),
      contestant(TORCH_BF16, prepare_torch, (setting, True)),
      contestant(TORCH_BF16_COMPILED, prepare_torch, (setting, True, 'cpu', True)),
    ]
  compiled = contestant(TORCH_COMPILED, prepare_torch, (setting, False, 'cpu', True))
  if setting_name == 'base_compiled':
    return [ours, compiled]
  size = 2048
  product = {USEFUL: 2 * size**3 / 1e9}
  return [
    ours,
    *([contestant(GIVEN_BACK, prepare_ours, (setting, 'cpu', False))] if is_small else []),
    contestant(SKETCH, prepare_sketch, (setting,)),
    contestant(TORCH, prepare_torch, (setting, False)),
    *([compiled] if is_small else []),
    Contestant(f'({size}³ float32 product)', prepare_matmul, (size,), product),
    Contestant(f'({size}³ float32 product in torch)', prepare_torch_matmul, (size,), product),
  ]
