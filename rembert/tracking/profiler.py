"""Profiles of a few steps: planned ones at the start, and on demand from a run that is under way."""

import contextlib
import dataclasses
import math
import signal
import time

import jax
from etils import epath

from rembert.files import is_remote
from rembert.validation import Count, CountOrZero, check_fields

REQUEST_FILE = 'profile_now'


@dataclasses.dataclass(frozen=True)
class ProfileConfig:
  """Which steps to profile, into `WORKDIR/profiles`, for TensorBoard's or XProf's trace viewer.

  `touch WORKDIR/profile_now`, or `kill -USR1` of any host's process, profiles the next steps of a run under way.

  Attributes:
    first_step: the first update of this process to profile, counted from 1: the first ones compile and warm up. 0 for
      none.
    steps: how many.
  """

  first_step: CountOrZero = 0
  steps: Count = 5

  def __post_init__(self):
    check_fields(self, 'profile')


class Profiler:
  """Starts and stops the trace of JAX between steps. All hosts begin at the same step; each writes its own file."""

  def __init__(self, config: ProfileConfig, workdir: epath.Path):
    self._config, self._folder, self._request = config, workdir / 'profiles', workdir / REQUEST_FILE
    # In a bucket a look costs as much as a step may take.
    self._look_every_seconds, self._looked = (10.0 if is_remote(workdir) else 0.0), -math.inf
    self._updates = 0
    self._left = 0
    self._is_asked = False
    self._previous = signal.signal(signal.SIGUSR1, self._on_signal)

  def _on_signal(self, *_) -> None:
    self._is_asked = True

  def is_wanted(self) -> bool:
    """Whether somebody asked this process since the last call."""
    if not self._is_asked and time.monotonic() - self._looked >= self._look_every_seconds:
      self._looked = time.monotonic()
      if self._request.exists():
        self._is_asked = True
        self._request.unlink(missing_ok=True)
    wanted, self._is_asked = self._is_asked, False
    return wanted

  def before_step(self, step: int, *, is_wanted: bool) -> str | None:
    """To be called before every update, with the number that it will have; returns what there is to say."""
    self._updates += 1
    if self._left or not (is_wanted or self._updates == self._config.first_step):
      return None
    folder = self._folder / f'step-{step}'
    folder.mkdir(parents=True, exist_ok=True)
    jax.profiler.start_trace(str(folder))
    self._left = self._config.steps
    return f'profiling {self._left} steps from step {step} on'

  def after_step(self, last_result: jax.Array) -> str | None:
    """To be called after every update, with something that it computes; returns what there is to say."""
    if not self._left:
      return None
    self._left -= 1
    if self._left:
      return None
    jax.block_until_ready(last_result)
    return self._stop()

  def _stop(self) -> str:
    jax.profiler.stop_trace()
    return f'profile written to {self._folder}: tensorboard --logdir={self._folder}'

  def close(self) -> None:
    """Ends a trace that is under way."""
    signal.signal(signal.SIGUSR1, self._previous)
    if self._left:
      self._left = 0
      with contextlib.suppress(RuntimeError):
        self._stop()
