"""Runs one masked-LM training step: forward, backward, clipping by global norm, AdamW.

All candidates have the same model, random weights and batch. On a CPU in float32 these are this project, Hugging Face's
torch RemBERT as its users train it, and plain JAX (`examples/minimal_rembert.py`); in bfloat16 this project, and torch
under autocast. Torch runs eagerly and compiled by `torch.compile`, which needs a C++ compiler on a CPU; its AdamW is
the fused one. The large settings need an NVIDIA GPU.
"""

import dataclasses
import functools
import pathlib

import numpy as np

from benchmarks import settings
from benchmarks.interleaved import OURS, Benchmark, Candidate, Measurements, Run, Unavailable
from benchmarks.settings import BASE, LARGE, SMALL, USEFUL, Setting, random_batch

LEARNING_RATE = 2e-4
GPU_MEMORY, PEAK = 'GB of the GPU', 'TFLOP/s at most'  # facts

IN_FLOAT32, SKETCH = '… in float32', 'plain JAX sketch'
TORCH, TORCH_COMPILED = 'torch, float32', 'torch, float32, compiled'
TORCH_BF16 = ('torch, bfloat16 autocast', 'torch, bfloat16, compiled')

# Not all candidates of a large model at once, which would need more than 24 GB, or the memory of a GPU.
SETTINGS = {
  'small': Setting(SMALL, rows=16, length=128, slots=20),
  'base': Setting(BASE, rows=2, length=512, slots=77, baselines=(SKETCH, TORCH)),
  'base_compiled': Setting(BASE, rows=2, length=512, slots=77, baselines=(TORCH_COMPILED,)),
  'small_bfloat16': Setting(SMALL, rows=16, length=128, slots=20, dtype='bfloat16'),
  'base_bfloat16': Setting(BASE, rows=2, length=512, slots=77, dtype='bfloat16', baselines=TORCH_BF16),
  'large': Setting(LARGE, 16, 512, slots=77, dtype='bfloat16', platform='cuda', baselines=TORCH_BF16),
  'large64': Setting(LARGE, 64, 512, slots=77, dtype='bfloat16', platform='cuda', baselines=TORCH_BF16),
}


# --- candidates: each returns a function that makes one step and returns its loss -------------------------------------


def prepare_ours(setting: Setting) -> Run:
  """The pre-training step of this project, on packed sequences."""
  import jax

  from rembert.runtime.hardware import chip_of
  from rembert.train import sharding, state, step

  mesh = settings.start_jax(setting)
  trainable = state.masked_lm(setting.config, setting.execution, settings.our_optimizer(LEARNING_RATE), mesh)
  drawn = random_batch(setting)
  packed = {name: drawn[name] for name in ('input_ids', 'masked_positions', 'targets', 'weights')} | {
    'segment_ids': drawn['attention_mask'],
    'position_ids': np.tile(np.arange(setting.length, dtype=np.int32), (setting.rows, 1)),
    'language': np.zeros(setting.rows, np.int32),
  }
  with jax.set_mesh(mesh):
    batch = sharding.to_device(packed, mesh)
    make_step = settings.our_steps(step.make_train_step(trainable), trainable.init(0), batch, mesh)
  device = mesh.devices.flat[0]

  def run() -> dict[str, float]:
    facts = dict(make_step())
    if memory := device.memory_stats():
      facts[GPU_MEMORY] = memory['peak_bytes_in_use'] / 1e9
    if chip := chip_of(device.device_kind):
      facts[PEAK] = chip[1].bf16_flops / 1e12
    return facts

  return run


def prepare_sketch(setting: Setting) -> Run:
  """The step of `examples/minimal_rembert.py`."""
  import jax

  from examples import minimal_rembert

  config = setting.config
  params = minimal_rembert.init_params(
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
  opt_state = minimal_rembert.optimizer.init(params)

  def run() -> dict[str, float]:
    nonlocal params, opt_state
    step = minimal_rembert.train_step(params, opt_state, batch, heads=config.num_attention_heads)
    params, opt_state, loss = jax.block_until_ready(step)
    return {'loss': float(loss)}

  return run


def prepare_torch(setting: Setting, is_compiled: bool = False) -> Run:
  """Hugging Face's model with labels."""
  import torch
  import transformers

  torch.manual_seed(0)
  torch.backends.cuda.matmul.allow_tf32 = True
  model = transformers.RemBertForMaskedLM(settings.torch_config(setting.config)).to(setting.platform).train()
  forward, batch = torch.compile(model) if is_compiled else model, random_batch(setting)
  names = ('input_ids', 'attention_mask', 'labels')
  inputs = {name: torch.tensor(batch[name], dtype=torch.long, device=setting.platform) for name in names}
  step = settings.torch_steps(model, lambda: forward(**inputs).loss, LEARNING_RATE, setting)

  def run() -> dict[str, float]:
    facts = dict(step())
    if setting.platform == 'cuda':
      facts[GPU_MEMORY] = torch.cuda.max_memory_allocated() / 1e9
    return facts

  return run


def candidates(setting: Setting, scratch: pathlib.Path) -> list[Candidate]:
  """The candidates, this project first."""
  del scratch
  if setting.platform == 'cuda' and not pathlib.Path('/dev/nvidia0').exists():
    raise Unavailable('no NVIDIA GPU')
  candidate = functools.partial(Candidate, work=setting.work)
  # Candidates share one GPU, so none may preallocate all of its memory.
  shared = {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'} if setting.platform == 'cuda' else {}
  if setting.dtype == 'bfloat16':
    others = [
      candidate(IN_FLOAT32, prepare_ours, (dataclasses.replace(setting, dtype='float32'),)),
      candidate(TORCH_BF16[0], prepare_torch, (setting,)),
      candidate(TORCH_BF16[1], prepare_torch, (setting, True)),
    ]
  else:
    others = [
      candidate(SKETCH, prepare_sketch, (setting,)),
      candidate(TORCH, prepare_torch, (setting,)),
      candidate(TORCH_COMPILED, prepare_torch, (setting, True)),
    ]
  chosen = [each for each in others if not setting.baselines or each.name in setting.baselines]
  return [candidate(OURS, prepare_ours, (setting,), environment=shared), *chosen]


def utilization(setting: Setting, measured: Measurements) -> str:
  """On a GPU, the MFU: the fraction of its peak FLOP/s in useful matmuls."""
  peak = measured[OURS].facts.get(PEAK)
  if not peak:
    return ''
  useful = setting.work[USEFUL] / 1e3
  shares = [f'{useful / each.median / peak:.1%} {name}' for name, each in measured.items() if each.seconds]
  return f'Of {peak:g} TFLOP/s, useful: ' + ', '.join(shares)


TRAIN_STEP = Benchmark(SETTINGS, candidates, **settings.STEPS, conclusion=utilization)
