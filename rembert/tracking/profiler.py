"""Profiles a few steps, planned or on demand."""

import contextlib
import dataclasses
import math
import time

import jax
from etils import epath

from rembert.files import is_remote
from rembert.validation import Count, CountOrZero, check_fields

REQUEST_FILE = 'profile_now'


@dataclasses.dataclass(frozen=True)
class ProfileConfig:
  """Steps to profile. Profiles are in `WORKDIR/profiles`, for the trace viewer of TensorBoard or XProf.

  `touch WORKDIR/profile_now` profiles the next steps of a running job.

  Attributes:
    first_step: the first update of this process to profile, counted from 1 (the first ones compile); 0 for none.
    steps: number of steps.
  """

  first_step: CountOrZero = 0
  steps: Count = 5

  def __post_init__(self):
    check_fields(self, 'profile')


class Profiler:
  """Starts and stops JAX's trace between steps, on all hosts at the same step; each writes its own file."""

  def __init__(self, config: ProfileConfig, workdir: epath.Path):
    self._config, self._folder, self._request = config, workdir / 'profiles', workdir / REQUEST_FILE
    # A request to a bucket can take as long as a step.
    self._look_every_seconds, self._looked = (10.0 if is_remote(workdir) else 0.0), -math.inf
    self._updates = 0
    self._left = 0

  def is_wanted(self) -> bool:
    """Whether this process received a request for a profile since the last call."""
    if time.monotonic() - self._looked < self._look_every_seconds:
      return False
    self._looked = time.monotonic()
    is_requested = self._request.exists()
    if is_requested:
      self._request.unlink(missing_ok=True)
    return is_requested

  def before_step(self, step: int, *, is_wanted: bool) -> str | None:
    """Call this before every update, with its number; returns a line for the log."""
    self._updates += 1
    if self._left or not (is_wanted or self._updates == self._config.first_step):
      return None
    folder = self._folder / f'step-{step}'
    folder.mkdir(parents=True, exist_ok=True)
    jax.profiler.start_trace(str(folder))
    self._left = self._config.steps
    return f'profiling {self._left} steps, starting with step {step}'

  def after_step(self, last_result: jax.Array) -> str | None:
    """Call this after every update, with one of its results; returns a line for the log."""
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
    """Ends a running trace."""
    if self._left:
      self._left = 0
      with contextlib.suppress(RuntimeError):
        self._stop()
