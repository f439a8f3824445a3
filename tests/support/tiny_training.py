"""Fixtures: a model of two layers, random packed rows, and training steps compiled once for every mesh."""

import contextlib
import functools
import math
import os
import tempfile

import jax
import numpy as np
import optax
import pytest

from rembert.model.config import Execution, RemBertConfig
from rembert.train.optimizer import OptimizerConfig, make_optimizer
from rembert.train.sharding import MeshConfig, make_mesh, to_device
from rembert.train.state import Trainable, masked_lm
from rembert.train.step import make_train_step

# Every width divides by eight devices, and all of them differ. 60 pieces are stored as 64 rows. Kernels begin large:
# every gradient is far above rounding.
TINY = RemBertConfig(
  vocab_size=60,
  input_embedding_size=8,
  output_embedding_size=24,
  hidden_size=16,
  num_hidden_layers=2,
  num_attention_heads=4,
  intermediate_size=32,
  max_position_embeddings=20,
  initializer_range=0.2,
  pad_vocab_to_multiple_of=16,
)
ADAMW = make_optimizer(OptimizerConfig(learning_rate=1e-2, warmup_steps=2), total_steps=8)
B, S, K, LANGUAGES = 16, 12, 4, 3


def _packed_batch(seed: int) -> dict[str, np.ndarray]:
  """Rows of up to three documents and padding, with 0 to K predictions each: row 0 has K of them, row 1 none."""
  random = np.random.default_rng(seed)
  batch = {name: np.zeros((B, S), np.int32) for name in ('input_ids', 'segment_ids', 'position_ids')}
  batch |= {name: np.zeros((B, K), np.int32) for name in ('masked_positions', 'targets')}
  batch |= {'weights': np.zeros((B, K), np.float32), 'language': random.integers(0, LANGUAGES, B).astype(np.int32)}
  for row in range(B):
    length = 0
    for segment in range(1, random.integers(2, 5)):
      end = min(S, length + int(random.integers(K, 6)))
      batch['segment_ids'][row, length:end] = segment
      batch['position_ids'][row, length:end] = np.arange(end - length)
      length = end
    batch['input_ids'][row, :length] = random.integers(1, TINY.vocab_size, length)
    count = {0: K, 1: 0}.get(row, int(random.integers(0, K + 1)))
    batch['masked_positions'][row, :count] = np.sort(random.permutation(length)[:count])
    batch['targets'][row, :count] = random.integers(1, TINY.vocab_size, count)
    batch['weights'][row, :count] = 1
  return batch


@functools.cache
def _trainable(
  sizes: tuple[int, int, int] = (1, 1, 1),
  *,
  config: RemBertConfig = TINY,
  execution: Execution = Execution(),
  optimizer: optax.GradientTransformation = ADAMW,
  ema_decay: float = 0.0,
) -> Trainable:
  """`masked_lm` on a mesh of `sizes` (data, fsdp, tensor), over as many of the devices as it takes."""
  mesh = make_mesh(MeshConfig(*sizes), jax.devices()[: math.prod(sizes)])
  return masked_lm(config, execution, optimizer, mesh, ema_decay=ema_decay)


@contextlib.contextmanager
def _standard_error(said: list[str]):
  """Collects what a compiler writes there."""
  kept = os.dup(2)
  with tempfile.TemporaryFile() as file:
    os.dup2(file.fileno(), 2)
    try:
      yield
    finally:
      os.dup2(kept, 2)
      os.close(kept)
      file.seek(0)
      said.append(file.read().decode(errors='replace'))


class Step:
  """A training step and its first state, compiled for one mesh as the job compiles them, when they are asked for.

  `said` is what the compiler has written to standard error.
  """

  def __init__(self, trainable: Trainable, **options):
    self.trainable, self.options, self.said = trainable, options, []

  @functools.cached_property
  def compiled(self):
    """(state, batch on the devices, None) to the next state and `StepMetrics`."""
    with jax.set_mesh(self.trainable.mesh), _standard_error(self.said):
      placed = to_device(_packed_batch(0), self.trainable.mesh)
      train_step = make_train_step(self.trainable, **self.options)
      return train_step.lower(self.trainable.restore_target(), placed, None).compile()

  @functools.cached_property
  def init(self):
    """Seed to a fresh state."""
    with jax.set_mesh(self.trainable.mesh):
      return self.trainable.init.lower(0).compile()

  def __call__(self, state, batch):
    """One update: the state, and the metrics as NumPy."""
    state, metrics = self.compiled(state, to_device(batch, self.trainable.mesh), None)
    return state, jax.device_get(metrics)

  def run(self, batches, seed: int = 0):
    """From a fresh state through all `batches`: the parameters and the metrics of each step, as NumPy."""
    state, metrics = self.init(seed), []
    for batch in batches:
      state, of_step = self(state, batch)
      metrics.append(of_step)
    return jax.device_get(state.params), metrics


@functools.cache
def _step(
  sizes: tuple[int, int, int] = (1, 1, 1),
  *,
  config: RemBertConfig = TINY,
  execution: Execution = Execution(),
  optimizer: optax.GradientTransformation = ADAMW,
  ema_decay: float = 0.0,
  **options,
) -> Step:
  """A `Step`; `options` are those of `make_train_step`."""
  described = _trainable(sizes, config=config, execution=execution, optimizer=optimizer, ema_decay=ema_decay)
  return Step(described, **options)


def _names(tree: dict) -> dict[str, jax.Array]:
  """Leaves of nested dicts by their path, `encoder/embeddings/norm/scale`."""
  return {'/'.join(key.key for key in path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _given(value):
  """A fixture that gives `value`."""
  return pytest.fixture(lambda: value, scope='session')


tiny, packed_batch, trainable, by_name = map(_given, (TINY, _packed_batch, _trainable, _names))
step = _given(_step)  # each is compiled once
