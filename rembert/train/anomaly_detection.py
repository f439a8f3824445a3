"""What goes wrong in long runs, noticed while it happens: numbers that are none, losses that leap, steps that crawl."""

import collections
import dataclasses
import math
import statistics
import time

from rembert.errors import RunError
from rembert.train.step import StepMetrics
from rembert.validation import CountOrZero, NotNegative, check_fields

_WINDOW = 100  # steps that the usual loss and the usual time are taken from
_LEAST = 20  # and the fewest that tell what is usual


@dataclasses.dataclass(frozen=True)
class GuardsConfig:
  """When to skip, warn and stop.

  Attributes:
    max_skipped_updates: an update whose loss or gradient is not finite is not made; the run stops at the first that
      follows this many in a row.
    spike_deviations: a loss that is this many standard deviations above the mean of the last 100 steps is a spike:
      said and counted, nothing else. 0 looks for none.
    diverged_nats: the run stops when the mean loss of 100 steps is this much above the lowest such mean that there
      was. 0 for never.
    slow_step_factor: so many times the median step is slow: said, with what it waited for. 0 for never.
    stuck_after_seconds: a step, or a batch of an evaluation, that is not over by then has the stacks of all threads
      printed and kept. 0 for never.
  """

  max_skipped_updates: CountOrZero = 10
  spike_deviations: NotNegative = 6.0
  diverged_nats: NotNegative = 0.0
  slow_step_factor: NotNegative = 4.0
  stuck_after_seconds: NotNegative = 600.0

  def __post_init__(self):
    check_fields(self, 'guards')


class LossGuard:
  """Looks at every step's loss and gradient. The same on all hosts, and the same after a restart.

  Attributes:
    skipped: updates that were not made, in all.
    spikes: in all.
  """

  def __init__(self, config: GuardsConfig, saved: dict | None = None):
    saved = {'skipped': 0, 'spikes': 0, 'skipped_in_a_row': 0, 'losses': (), 'lowest_mean': None} | (saved or {})
    self._config, self.skipped, self.spikes = config, saved['skipped'], saved['spikes']
    self._skipped_in_a_row, self._lowest_mean = saved['skipped_in_a_row'], saved['lowest_mean']
    self._losses = collections.deque(saved['losses'], maxlen=_WINDOW)

  def saved(self) -> dict:
    """JSON that makes the same guard again."""
    return {
      'skipped': self.skipped,
      'spikes': self.spikes,
      'skipped_in_a_row': self._skipped_in_a_row,
      'losses': list(self._losses),
      'lowest_mean': self._lowest_mean,
    }

  def check(self, step: int, metrics: StepMetrics) -> str | None:
    """Takes what update number `step` reported; returns what there is to say. RunError to stop."""
    loss, weight, grad_norm = float(metrics.sums.loss), float(metrics.sums.weight), float(metrics.grad_norm)
    if not metrics.is_finite:
      return self._skip(step, loss, grad_norm)
    self._skipped_in_a_row = 0
    spike = self._look_for_spike(step, loss / max(weight, 1.0))
    self._look_for_divergence(step)
    return spike

  def _skip(self, step: int, loss: float, grad_norm: float) -> str:
    self.skipped += 1
    self._skipped_in_a_row += 1
    what = 'loss' if not math.isfinite(loss) else 'gradient'
    if self._skipped_in_a_row > self._config.max_skipped_updates:
      in_a_row = f', after {self._skipped_in_a_row - 1} skipped updates in a row' if self._skipped_in_a_row > 1 else ''
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
      f'{self._skipped_in_a_row} of at most {self._config.max_skipped_updates} in a row'
    )

  def _look_for_spike(self, step: int, loss: float) -> str | None:
    usual = tuple(self._losses)
    self._losses.append(loss)
    if not self._config.spike_deviations or len(usual) < _LEAST:
      return None
    mean, deviation = statistics.fmean(usual), statistics.pstdev(usual)
    if loss <= mean + self._config.spike_deviations * deviation:
      return None
    self.spikes += 1
    return f'the loss of step {step} leaps to {loss:.3f}, from {mean:.3f} ± {deviation:.3f} over {len(usual)} steps'

  def _look_for_divergence(self, step: int) -> None:
    if not self._config.diverged_nats or len(self._losses) < _WINDOW:
      return
    mean = statistics.fmean(self._losses)
    if self._lowest_mean is None or mean < self._lowest_mean:
      self._lowest_mean = mean
    if mean > self._lowest_mean + self._config.diverged_nats:
      raise RunError(
        f'the run has diverged: by step {step} the mean loss of {_WINDOW} steps is {mean:.3f}, and was '
        f'{self._lowest_mean:.3f} before',
        where=f'guards.diverged_nats = {self._config.diverged_nats:g}',
        fix='repeat it in another workdir with a lower optimizer.learning_rate or a longer optimizer.warmup_steps',
      )


class StepTimes:
  """Notices steps that take far longer than the others."""

  _SAY_EVERY_SECONDS = 60

  def __init__(self, config: GuardsConfig):
    self._factor = config.slow_step_factor
    self._seconds: collections.deque[float] = collections.deque(maxlen=_WINDOW)
    self._said = -math.inf

  def check(self, step: int, seconds: float, seconds_waiting: float) -> str | None:
    """Takes how long a step took, and how much of it went by waiting for data; returns what there is to say."""
    usual = statistics.median(self._seconds) if len(self._seconds) >= _LEAST else math.inf
    self._seconds.append(seconds)
    is_slow = self._factor and seconds > self._factor * usual
    if not is_slow or time.monotonic() - self._said < self._SAY_EVERY_SECONDS:
      return None
    self._said = time.monotonic()
    return (
      f'step {step} took {seconds:.2f} s, {seconds_waiting:.2f} s of it waiting for data; the median is {usual:.2f} s'
    )
