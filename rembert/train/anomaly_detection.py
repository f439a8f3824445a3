"""Anomalies of long runs: non-finite values, loss spikes, divergence, slow steps, steps that hang."""

import collections
import dataclasses
import faulthandler
import math
import queue
import statistics
import sys
import threading
import time

from etils import epath

from rembert.errors import RunError
from rembert.files import is_remote
from rembert.train.step import StepMetrics
from rembert.validation import CountOrZero, NotNegative, check_fields

_WINDOW = 100  # recent steps that a loss or a time is compared with
_LEAST = 20  # the fewest steps to compare with


@dataclasses.dataclass(frozen=True)
class GuardsConfig:
  """Limits for skipping an update, warning and stopping.

  Attributes:
    max_skipped_updates: maximum number of consecutive updates that are skipped because their loss or gradient is not
      finite; the run stops at the next one.
    spike_deviations: warn, and count a spike, if the loss exceeds the mean of the last 100 steps by this many standard
      deviations. 0 disables.
    diverged_nats: stop if the mean loss of 100 steps exceeds the lowest such mean by this many nats. 0 disables.
    slow_step_factor: warn if a step takes this many times the median. 0 disables.
    stuck_after_seconds: timeout in seconds of a step, or of a batch of an evaluation, after which the stacks of all
      threads are logged. 0 disables.
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
  """Checks the loss and gradient of every step; the same on all hosts, and after a restart."""

  config: GuardsConfig
  skipped: int = 0  # updates in total, as are spikes
  spikes: int = 0
  skipped_in_a_row: int = 0
  losses: list[float] = dataclasses.field(default_factory=list)  # the last 100
  lowest_mean: float | None = None  # of 100 losses

  def saved(self) -> dict:
    """JSON whose items are arguments that recreate the guard."""
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
      in_a_row = f', after {self.skipped_in_a_row - 1} consecutive skipped updates' if self.skipped_in_a_row > 1 else ''
      raise RunError(
        f'the {what} of step {step} is not finite{in_a_row}',
        where=f'loss sum {loss}, gradient norm {grad_norm}',
        fix=[
          'the earlier checkpoints are valid: run the command again with a lower optimizer.learning_rate',
          'or with a longer optimizer.warmup_steps or optimizer.clip_norm = 1.0',
        ],
      )
    return (
      f'warning: the {what} of step {step} is not finite (loss sum {loss}, gradient norm {grad_norm}); update skipped '
      f'({self.skipped_in_a_row} of at most {self.config.max_skipped_updates} consecutive)'
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
    return f'warning: loss spike at step {step}: {loss:.3f} (mean {mean:.3f} ± {deviation:.3f} of {len(usual)} steps)'

  def _look_for_divergence(self, step: int) -> None:
    if not self.config.diverged_nats or len(self.losses) < _WINDOW:
      return
    mean = statistics.fmean(self.losses)
    if self.lowest_mean is None or mean < self.lowest_mean:
      self.lowest_mean = mean
    if mean > self.lowest_mean + self.config.diverged_nats:
      raise RunError(
        f'the run has diverged: the mean loss of {_WINDOW} steps is {mean:.3f} at step {step}, its minimum was '
        f'{self.lowest_mean:.3f}',
        where=f'guards.diverged_nats = {self.config.diverged_nats:g}',
        fix='train in another workdir with a lower optimizer.learning_rate or a longer optimizer.warmup_steps',
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
    return f'warning: step {step} took {seconds:.2f} s ({seconds_waiting:.2f} s waiting for data), median {usual:.2f} s'


class Watchdog:
  """A thread that expects regular progress, and otherwise reports the stacks of all threads.

  It changes nothing: a run that was only slow continues. The stacks show the collective, file or compiler that it waits
  for; on a pod, the host whose stacks differ from the others' is usually the cause. The timeout since the last `beat`,
  `after_seconds` (0 for never), is doubled after each report, until there is progress again. Reports go to the log and,
  unless it is in a bucket, to a file of `folder` each.
  """

  def __init__(self, after_seconds: float, folder: epath.PathLike, *, name: str = ''):
    self._after, self._folder, self._name = after_seconds, epath.Path(folder), name
    # The activity that begins; '' for none that could hang; None ends the thread.
    self._beats: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    if after_seconds:
      threading.Thread(target=self._watch, name='watchdog', daemon=True).start()

  def beat(self, doing: str) -> None:
    """Reports progress: the activity `doing` begins now."""
    if self._after:
      self._beats.put(doing)

  def rest(self) -> None:
    """Suspends the timeout until the next `beat`."""
    self.beat('')

  def close(self) -> None:
    """Ends the thread."""
    self._beats.put(None)

  def _watch(self) -> None:
    doing, elapsed = '', 0.0
    patience = self._after
    while True:
      try:
        beat = self._beats.get(timeout=patience - elapsed if doing else None)
      except queue.Empty:
        self._report(doing, patience)
        elapsed, patience = patience, 2 * patience
        continue
      if beat is None:
        return
      doing = beat
      elapsed, patience = 0.0, self._after

  def _report(self, doing: str, seconds: float) -> None:
    print(
      f'rembert: {self._name} {doing} has not finished after {seconds:.0f} s; stacks of its threads:', file=sys.stderr
    )
    if sys.__stderr__ is not None:  # a process may have no standard error
      faulthandler.dump_traceback(sys.__stderr__, all_threads=True)
    if not is_remote(self._folder):
      self._folder.mkdir(parents=True, exist_ok=True)
      name = f'{time.strftime("%Y%m%d-%H%M%S")}-{self._name or "process"}'.replace(' ', '-').replace('/', '-')
      with open(self._folder / f'{name}.txt', 'w') as file:
        file.write(f'{doing}, for {seconds:.0f} s\n')
        file.flush()
        faulthandler.dump_traceback(file, all_threads=True)
    sys.stderr.flush()
