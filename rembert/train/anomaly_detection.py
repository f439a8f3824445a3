"""Anomalies of long runs: non-finite values, loss spikes, divergence, slow steps."""

import collections
import dataclasses
import math
import statistics
import time

from rembert.errors import RunError
from rembert.train.step import StepMetrics
from rembert.validation import CountOrZero, NotNegative, check_fields

_WINDOW = 100  # recent steps that a loss or a time is compared with
_LEAST = 20  # the fewest steps to compare with


@dataclasses.dataclass(frozen=True)
class GuardsConfig:
  """When to skip, warn and stop.

  Attributes:
    max_skipped_updates: an update whose loss or gradient is not finite is skipped; the run stops at the first that
      follows this many in a row.
    spike_deviations: a loss this many standard deviations above the mean of the last 100 steps is a spike, which is
      logged and counted. 0 for never.
    diverged_nats: the run stops if the mean loss of 100 steps is this much above the lowest such mean. 0 for never.
    slow_step_factor: a step that takes this many times the median is logged, with its wait for data. 0 for never.
    stuck_after_seconds: the stacks of all threads are printed and kept if a step, or a batch of an evaluation, takes
      longer. 0 for never.
  """

  max_skipped_updates: CountOrZero = 10
  spike_deviations: NotNegative = 6.0
  diverged_nats: NotNegative = 0.0
  slow_step_factor: NotNegative = 4.0
  stuck_after_seconds: NotNegative = 600.0

  def __post_init__(self):
    check_fields(self, 'guards')


@dataclasses.dataclass
class LossGuard:
  """Checks the loss and gradient of every step; the same on all hosts, and after a restart.

  Attributes:
    config: when to skip, warn and stop.
    skipped: total number of skipped updates.
    spikes: total number of loss spikes.
    skipped_in_a_row: of the last updates.
    losses: the last 100.
    lowest_mean: of 100 losses.
  """

  config: GuardsConfig
  skipped: int = 0
  spikes: int = 0
  skipped_in_a_row: int = 0
  losses: list[float] = dataclasses.field(default_factory=list)
  lowest_mean: float | None = None

  def saved(self) -> dict:
    """JSON, whose items are arguments of the same guard."""
    return {name: value for name, value in dataclasses.asdict(self).items() if name != 'config'}

  def check(self, step: int, metrics: StepMetrics) -> str | None:
    """Checks the metrics of update number `step`; returns a warning, or raises RunError to stop."""
    loss, weight, grad_norm = float(metrics.sums.loss), float(metrics.sums.weight), float(metrics.grad_norm)
    if not metrics.is_finite:
      return self._skip(step, loss, grad_norm)
    self.skipped_in_a_row = 0
    spike = self._look_for_spike(step, loss / max(weight, 1.0))
    self._look_for_divergence(step)
    return spike

  def _skip(self, step: int, loss: float, grad_norm: float) -> str:
    self.skipped += 1
    self.skipped_in_a_row += 1
    what = 'loss' if not math.isfinite(loss) else 'gradient'
    if self.skipped_in_a_row > self.config.max_skipped_updates:
      in_a_row = f', after {self.skipped_in_a_row - 1} skipped updates in a row' if self.skipped_in_a_row > 1 else ''
      raise RunError(
        f'the {what} of step {step} is not finite{in_a_row}',
        where=f'loss sum {loss}, gradient norm {grad_norm}',
        fix=[
          'the checkpoints before it are good: repeat the command with a lower optimizer.learning_rate',
          'a longer optimizer.warmup_steps or optimizer.clip_norm = 1.0 steadies the start',
        ],
      )
    return (
      f'the {what} of step {step} is not finite (loss sum {loss}, gradient norm {grad_norm}): the update is skipped, '
      f'{self.skipped_in_a_row} of at most {self.config.max_skipped_updates} in a row'
    )

  def _look_for_spike(self, step: int, loss: float) -> str | None:
    usual = self.losses
    self.losses = [*usual, loss][-_WINDOW:]
    if not self.config.spike_deviations or len(usual) < _LEAST:
      return None
    mean, deviation = statistics.fmean(usual), statistics.pstdev(usual)
    if loss <= mean + self.config.spike_deviations * deviation:
      return None
    self.spikes += 1
    return f'warning: loss spike at step {step}: {loss:.3f}, after {mean:.3f} ± {deviation:.3f} over {len(usual)} steps'

  def _look_for_divergence(self, step: int) -> None:
    if not self.config.diverged_nats or len(self.losses) < _WINDOW:
      return
    mean = statistics.fmean(self.losses)
    if self.lowest_mean is None or mean < self.lowest_mean:
      self.lowest_mean = mean
    if mean > self.lowest_mean + self.config.diverged_nats:
      raise RunError(
        f'the run has diverged: by step {step} the mean loss of {_WINDOW} steps is {mean:.3f}, and was '
        f'{self.lowest_mean:.3f} before',
        where=f'guards.diverged_nats = {self.config.diverged_nats:g}',
        fix='repeat it in another workdir with a lower optimizer.learning_rate or a longer optimizer.warmup_steps',
      )


class StepTimes:
  """Detects steps that take far longer than the median, with a warning at most once a minute."""

  _SAY_EVERY_SECONDS = 60

  def __init__(self, config: GuardsConfig):
    self._factor = config.slow_step_factor
    self._seconds: collections.deque[float] = collections.deque(maxlen=_WINDOW)
    self._said = -math.inf

  def check(self, step: int, seconds: float, seconds_waiting: float) -> str | None:
    """Checks the duration of a step; returns a warning with the time that it waited for data."""
    usual = statistics.median(self._seconds) if len(self._seconds) >= _LEAST else math.inf
    self._seconds.append(seconds)
    is_slow = self._factor and seconds > self._factor * usual
    if not is_slow or time.monotonic() - self._said < self._SAY_EVERY_SECONDS:
      return None
    self._said = time.monotonic()
    return (
      f'step {step} took {seconds:.2f} s, {seconds_waiting:.2f} s of it waiting for data; the median is {usual:.2f} s'
    )
