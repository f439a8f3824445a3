"""Saves and restores a random training state: parameters and both moments.

This project saves as in training: `save` copies the state and returns; threads write it, compressed and with a checksum
per array; the directory gets its name when it is complete. `stall s` is the time until `save` returns, which training
waits for. The comparison is `torch.save` of the same model and its AdamW, for which training waits until the end. The
kernel is not forced to write to the device. Restoring in this project includes the verification of checksums.
"""

import dataclasses
import pathlib
import time

from benchmarks.interleaved import Benchmark, Candidate, Run
from benchmarks.settings import BASE, SMALL, encoder_sizes, our_optimizer, torch_config
from rembert.model.config import Execution, RemBertConfig
from rembert.model.parameter_count import count_parameters

WRITTEN, READ_BACK, TORCH = 'this project, written', '… read back', 'torch.save'


@dataclasses.dataclass(frozen=True)
class Setting:
  """The model of the state."""

  config: RemBertConfig

  @property
  def megabytes(self) -> float:
    """Size of the state: three float32 numbers per parameter."""
    return 12 * count_parameters(self.config).pre_training / 1e6

  @property
  def description(self) -> str:
    return f'{self.megabytes / 1e3:.2f} GB · {encoder_sizes(self.config)}, E {self.config.output_embedding_size}'


SETTINGS = {'small': Setting(SMALL), 'base': Setting(BASE)}


# --- candidates: each returns a function that saves, or restores, once ------------------------------------------------


def prepare_ours(setting: Setting, folder: pathlib.Path, reads: bool = False) -> Run:
  """The code that training runs every `train.checkpoint_every` steps, or when it resumes."""
  import jax

  from rembert.checkpoint.manager import Checkpoints
  from rembert.train import sharding, state

  mesh = sharding.make_mesh(sharding.MeshConfig())
  trainable = state.masked_lm(setting.config, Execution(), our_optimizer(1e-4), mesh)
  with jax.set_mesh(mesh):
    train_state = jax.block_until_ready(trainable.init(0))
  checkpoints, step = Checkpoints(folder / ('read' if reads else 'written'), keep=1), 0

  def save() -> dict[str, float]:
    nonlocal step
    step += 1
    start = time.perf_counter()
    checkpoints.save(step, train_state, {}, {})
    stall = time.perf_counter() - start
    checkpoints.wait()
    return {'stall s': stall}

  def restore() -> None:
    with jax.set_mesh(mesh):
      jax.block_until_ready(checkpoints.restore_newest(trainable.restore_target()).state)

  save()
  return restore if reads else save


def prepare_torch(setting: Setting, folder: pathlib.Path) -> Run:
  """`torch.save` of the `state_dict`s of Hugging Face's model and of AdamW after an update, in one file."""
  import torch
  import transformers

  model = transformers.RemBertForMaskedLM(torch_config(setting.config))
  optimizer = torch.optim.AdamW(model.parameters())
  for parameter in model.parameters():
    parameter.grad = torch.zeros_like(parameter)
  optimizer.step()
  optimizer.zero_grad()

  def run() -> dict[str, float]:
    start = time.perf_counter()
    torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, folder / 'torch.pt')
    return {'stall s': time.perf_counter() - start}

  return run


def candidates(setting: Setting, scratch: pathlib.Path) -> list[Candidate]:
  """This project first."""
  work = {'MB': setting.megabytes}
  return [
    Candidate(WRITTEN, prepare_ours, (setting, scratch), work),
    Candidate(READ_BACK, prepare_ours, (setting, scratch, True), work),
    Candidate(TORCH, prepare_torch, (setting, scratch), work),
  ]


CHECKPOINTING = Benchmark(SETTINGS, candidates)
