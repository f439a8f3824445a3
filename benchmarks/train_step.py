"""One masked-LM training step, forward, backward, clipping by global norm, AdamW; and the largest batch that fits.

All candidates have the same model, random weights and batch. On a CPU in float32 these are this project, Hugging Face's
torch RemBERT as its users train it, and plain JAX (`examples/minimal_rembert.py`); in bfloat16 this project, and torch
under autocast. Torch runs eagerly and compiled by `torch.compile`, which needs a C++ compiler on a CPU; its AdamW is
the fused one. The large settings need an NVIDIA GPU.

The largest batch is limited by the memory of the GPU, on a CPU by a number of bytes. Each candidate is measured alone,
with all of the memory: batches are doubled until one does not fit, then the gap is halved until it is an eighth. Each
batch has a process of its own, as one that ran out of memory is not to be trusted. A step of the largest is timed.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks import interleaved, settings
from benchmarks.interleaved import OURS, Benchmark, Candidate, Measurement, Measurements, Run, Unavailable
from benchmarks.settings import BASE, LARGE, SMALL, USEFUL, Setting, random_batch

LEARNING_RATE = 2e-4
GPU_MEMORY, PEAK = 'GB of the GPU', 'TFLOP/s at most'  # facts
PRODUCT_SIZE = 2048

MEMORY_RETURNED, IN_FLOAT32, SKETCH = '… memory given back', '… in float32', 'plain JAX sketch'
TORCH, TORCH_COMPILED = 'torch, float32', 'torch, float32, compiled'
TORCH_BF16 = ('torch, bfloat16 autocast', 'torch, bfloat16, compiled')
PRODUCTS = (f'({PRODUCT_SIZE}³ float32 product)', f'({PRODUCT_SIZE}³ float32 product in torch)')

# Not all candidates of a large model at a time: they would need more than 24 GB, or than the memory of a GPU.
SETTINGS = {
  'small': Setting(SMALL, rows=16, length=128, slots=20),
  'base': Setting(BASE, rows=2, length=512, slots=77, baselines=(SKETCH, TORCH, *PRODUCTS)),
  'base_compiled': Setting(BASE, rows=2, length=512, slots=77, baselines=(TORCH_COMPILED,)),
  'small_bfloat16': Setting(SMALL, rows=16, length=128, slots=20, dtype='bfloat16'),
  'base_bfloat16': Setting(BASE, rows=2, length=512, slots=77, dtype='bfloat16', baselines=TORCH_BF16),
  'large': Setting(LARGE, 16, 512, slots=77, dtype='bfloat16', platform='cuda', baselines=TORCH_BF16),
  'large64': Setting(LARGE, 64, 512, slots=77, dtype='bfloat16', platform='cuda', baselines=TORCH_BF16),
}


# --- candidates: each returns a function that makes one step and returns its loss -------------------------------------


def our_step(setting: Setting, keeps_memory: bool = True, remat: str | None = None):
  """The step of pre-training, its first state, its batch of packed rows, and its mesh."""
  import jax

  from rembert.train import sharding, state, step

  mesh = settings.start_jax(setting, keeps_memory)
  execution = dataclasses.replace(setting.execution, remat=remat or setting.execution.remat)
  trainable = state.masked_lm(setting.config, execution, settings.our_optimizer(LEARNING_RATE), mesh)
  drawn = random_batch(setting)
  packed = {name: drawn[name] for name in ('input_ids', 'masked_positions', 'targets', 'weights')} | {
    'segment_ids': drawn['attention_mask'],
    'position_ids': np.tile(np.arange(setting.length, dtype=np.int32), (setting.rows, 1)),
    'language': np.zeros(setting.rows, np.int32),
  }
  with jax.set_mesh(mesh):
    return step.make_train_step(trainable), trainable.init(0), sharding.to_device(packed, mesh), mesh


def prepare_ours(setting: Setting, *options) -> Run:
  """This project's step; `options` as `our_step` has them."""
  from rembert.runtime.hardware import chip_of

  step, state, batch, mesh = our_step(setting, *options)
  device, make_step = mesh.devices.flat[0], settings.our_steps(step, state, batch, mesh)

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


def prepare_torch(setting: Setting, is_compiled: bool = False, is_recomputed: bool = False) -> Run:
  """Hugging Face's model with labels; `is_recomputed`: with `gradient_checkpointing` of its layers."""
  import torch
  import transformers

  torch.manual_seed(0)
  torch.backends.cuda.matmul.allow_tf32 = True
  model = transformers.RemBertForMaskedLM(settings.torch_config(setting.config)).to(setting.platform).train()
  if is_recomputed:
    model.gradient_checkpointing_enable()
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


def prepare_product(size: int) -> Run:
  """One large float32 product: the best that this machine can do."""
  import jax

  x = jax.numpy.ones((size, size), jax.numpy.float32)
  product = jax.jit(jax.numpy.matmul)

  def run() -> None:
    product(x, x).block_until_ready()

  return run


def prepare_torch_product(size: int) -> Run:
  """The same product in torch."""
  import torch

  x = torch.ones((size, size))

  def run() -> None:
    torch.matmul(x, x)

  return run


def require_gpu(setting: Setting) -> None:
  """Unavailable if the setting needs a GPU and there is none."""
  if setting.platform == 'cuda' and not pathlib.Path('/dev/nvidia0').exists():
    raise Unavailable('no NVIDIA GPU')


def candidates(setting: Setting, scratch: pathlib.Path) -> list[Candidate]:
  """This project first."""
  del scratch
  require_gpu(setting)
  candidate = functools.partial(Candidate, work=setting.work)
  product = functools.partial(Candidate, arguments=(PRODUCT_SIZE,), work={USEFUL: 2 * PRODUCT_SIZE**3 / 1e9})
  # Candidates share one GPU: none may allocate all of its memory at once.
  shared = {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'} if setting.platform == 'cuda' else {}
  if setting.dtype == 'bfloat16':
    others = [
      candidate(IN_FLOAT32, prepare_ours, (dataclasses.replace(setting, dtype='float32'),)),
      candidate(TORCH_BF16[0], prepare_torch, (setting,)),
      candidate(TORCH_BF16[1], prepare_torch, (setting, True)),
    ]
  else:
    others = [
      candidate(MEMORY_RETURNED, prepare_ours, (setting, False)),
      candidate(SKETCH, prepare_sketch, (setting,)),
      candidate(TORCH, prepare_torch, (setting,)),
      candidate(TORCH_COMPILED, prepare_torch, (setting, True)),
      product(PRODUCTS[0], prepare_product),
      product(PRODUCTS[1], prepare_torch_product),
    ]
  chosen = [each for each in others if not setting.baselines or each.name in setting.baselines]
  return [candidate(OURS, prepare_ours, (setting,), environment=shared), *chosen]


def utilization(setting: Setting, measured: Measurements) -> str:
  """On a GPU, the share of its peak that goes into useful products (MFU)."""
  peak = measured[OURS].facts.get(PEAK)
  if not peak:
    return ''
  useful = setting.work[USEFUL] / 1e3
  shares = [f'{useful / each.median / peak:.1%} {name}' for name, each in measured.items() if each.seconds]
  return f'Of {peak:g} TFLOP/s, useful: ' + ', '.join(shares)


TRAIN_STEP = Benchmark(SETTINGS, candidates, **settings.STEPS, conclusion=utilization)


# --- the largest batch ------------------------------------------------------------------------------------------------

FITS, ROWS, MAX_ROWS = 'fits', 'rows', 2**16
RECOMPUTED, TORCH_ANY, TORCH_RECOMPUTED = '… layers computed again', 'torch', 'torch, layers computed again'


@dataclasses.dataclass(frozen=True)
class Search:
  """The batch to begin with; on a CPU, the bytes that the process may take."""

  setting: Setting
  bytes: float | None = None

  @property
  def description(self) -> str:
    """One line."""
    memory = f'{self.bytes / 1e9:g} GB' if self.bytes else 'the memory of one GPU'
    return f'the largest that fits into {memory}, from {self.setting.description}'


SEARCHES = {
  'small': Search(SETTINGS['small'], 4e9),
  'large': Search(SETTINGS['large']),
}


def largest(fits: Callable[[int], bool], start: int) -> int:
  """The largest batch that fits, to an eighth of it; 0 if not even one row does.

  Args:
    fits: whether a batch of so many rows does; if one does, all smaller ones do.
    start: rows to begin with.
  """
  low, high = 0, start
  while high < MAX_ROWS and fits(high):
    low, high = high, 2 * high
  while high - low > max(1, low // 8):
    middle = (low + high) // 2
    low, high = (middle, high) if fits(middle) else (low, middle)
  return low


def is_out_of_memory(error: Exception) -> bool:
  """As JAX, torch and the C library report it."""
  messages = r"RESOURCE_EXHAUSTED|out of memory|not enough memory|can't allocate memory"
  return isinstance(error, MemoryError) or bool(re.search(messages, str(error), re.IGNORECASE))


def prepare_batch(setting: Setting, prepare_step: Callable[..., Run], *arguments) -> Run:
  """A step with the fact whether there is memory for it."""
  try:
    step = prepare_step(setting, *arguments)
    step()
    step()  # now with the optimizer's state, which the first one has made
  except Exception as error:
    if not is_out_of_memory(error):
      raise
    return lambda: {FITS: 0}
  return lambda: dict(step() or {}) | {FITS: 1}


def with_rows(candidate: Candidate, rows: int) -> Candidate:
  """The same with another batch."""
  setting, *rest = candidate.arguments
  setting = dataclasses.replace(setting, rows=rows)
  return dataclasses.replace(candidate, arguments=(setting, *rest), work=setting.work)


def measure_largest(
  search: Search, candidates: Sequence[Candidate], rounds: int, log: Callable[[str], None]
) -> tuple[list[Candidate], dict[str, Measurement]]:
  """Each candidate with its largest batch, and the times of a step of it."""
  found = [_at_largest(candidate, search, rounds, log) for candidate in candidates]
  return [candidate for candidate, _ in found], {candidate.name: measurement for candidate, measurement in found}


def _at_largest(
  candidate: Candidate, search: Search, rounds: int, log: Callable[[str], None]
) -> tuple[Candidate, Measurement]:
  failures = []

  def measure(rows: int, rounds: int) -> Measurement:
    return interleaved.measure_interleaved([with_rows(candidate, rows)], rounds, lambda line: None)[candidate.name]

  def fits(rows: int) -> bool:
    measurement, taken = measure(rows, 1), ''
    if measurement.failure and 'exit code -9' not in measurement.failure:  # which is how the system ends one too large
      failures.append(measurement.failure)
    does_fit = not measurement.failure and measurement.facts[FITS] == 1
    if search.bytes is not None:
      does_fit, taken = does_fit and measurement.peak_bytes <= search.bytes, f', {measurement.peak_bytes / 1e9:.1f} GB'
    log(f'{candidate.name}, {rows} rows: {measurement.failure or ("fits" if does_fit else "does not fit") + taken}')
    return does_fit

  rows = largest(fits, search.setting.rows)
  if failures or not rows:
    return candidate, Measurement(failure=failures[0] if failures else 'not even one row fits')
  log(f'{candidate.name}: {rows} rows at most; now a step of them')
  measurement = measure(rows, rounds)
  if measurement.facts.pop(FITS, 0) != 1:
    return candidate, Measurement(failure=measurement.failure or f'{rows} rows did not fit again')
  measurement.facts.pop('loss', None)  # of different batches
  measurement.facts[ROWS] = rows
  return with_rows(candidate, rows), measurement


def largest_candidates(search: Search, scratch: pathlib.Path) -> list[Candidate]:
  """With the batch to begin with."""
  del scratch
  require_gpu(search.setting)
  memory = {'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.95'} if search.setting.platform == 'cuda' else {}
  candidate = functools.partial(Candidate, prepare=prepare_batch, work=search.setting.work)
  return [
    candidate(OURS, arguments=(search.setting, prepare_ours, False), environment=memory),
    candidate(RECOMPUTED, arguments=(search.setting, prepare_ours, False, 'full'), environment=memory),
    candidate(TORCH_ANY, arguments=(search.setting, prepare_torch)),
    candidate(TORCH_RECOMPUTED, arguments=(search.setting, prepare_torch, False, True)),
  ]


def rows_compared(search: Search, measured: Measurements) -> str:
  """Our rows ÷ torch's."""
  del search
  rows = {name: measurement.facts[ROWS] for name, measurement in measured.items() if ROWS in measurement.facts}
  return ', '.join(
    f'{rows[ours]:,} rows to {rows[theirs]:,} of {theirs}: {rows[ours] / rows[theirs]:.1f} times as many'
    for ours, theirs in ((OURS, TORCH_ANY), (RECOMPUTED, TORCH_RECOMPUTED))
    if ours in rows and theirs in rows
  )


LARGEST_BATCH = Benchmark(SEARCHES, largest_candidates, measure=measure_largest, conclusion=rows_compared)
