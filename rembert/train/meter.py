"""From the sums that steps report to metrics of an interval."""

import time

from rembert.train.step import StepMetrics


class Meter:
  """Adds up what steps report and gives the mean of an interval.

  The sums of an unfinished interval are part of a checkpoint, so that a resumed run logs what an uninterrupted one
  would.
  """

  def __init__(self, saved: dict[str, float] | None = None):
    self._grad_norm = 0.0
    self._begin_interval()
    self._sums |= saved or {}

  def _begin_interval(self) -> None:
    self._sums = dict.fromkeys(('steps', 'loss', 'correct', 'weight', 'tokens'), 0.0)
    self._steps_timed = 0
    self._seconds = self._seconds_waiting = 0.0

  def add(self, metrics: StepMetrics) -> None:
    """Takes what an update reported, on the host. One that was skipped says nothing."""
    if not metrics.is_finite:
      return
    self._sums['steps'] += 1
    self._sums['loss'] += float(metrics.sums.loss)
    self._sums['correct'] += float(metrics.sums.correct)
    self._sums['weight'] += float(metrics.sums.weight)
    self._sums['tokens'] += float(metrics.tokens)
    self._grad_norm = float(metrics.grad_norm)

  def add_time(self, seconds: float, seconds_waiting: float) -> None:
    """Takes how long a step took, and how much of it went by waiting for data."""
    self._steps_timed += 1
    self._seconds += seconds
    self._seconds_waiting += seconds_waiting

  def saved(self) -> dict[str, float]:
    """The sums of the interval so far."""
    return dict(self._sums)

  def interval(self, *, positions_per_step: int, flops_per_step: float, peak_flops: float | None) -> dict[str, float]:
    """Metrics since the last call; begins a new interval.

    `tokens_per_second` counts positions, padding included, as everybody's throughput figures do; `padding` is their
    share. `mfu` is FLOPs done per second over the peak.
    """
    weight = max(self._sums['weight'], 1.0)
    metrics = {
      'loss': self._sums['loss'] / weight,
      'accuracy': self._sums['correct'] / weight,
      'grad_norm': self._grad_norm,
      'padding': 1 - self._sums['tokens'] / max(self._sums['steps'] * positions_per_step, 1),
    }
    if self._steps_timed:
      step_seconds = self._seconds / self._steps_timed
      metrics |= {
        'step_seconds': step_seconds,
        'tokens_per_second': positions_per_step / step_seconds,
        'data_wait_share': self._seconds_waiting / self._seconds,
      }
      if peak_flops:
        metrics['mfu'] = flops_per_step / step_seconds / peak_flops
    self._begin_interval()
    return metrics


class Stopwatch:
  """Seconds since it was made or last read."""

  def __init__(self):
    self._start = time.perf_counter()

  def read(self) -> float:
    """Seconds since the last reading; starts anew."""
    now = time.perf_counter()
    seconds, self._start = now - self._start, now
    return seconds
