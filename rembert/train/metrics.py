"""Training metrics by interval, evaluation metrics by language, and the unigram baseline."""

import math
import time
from collections.abc import Callable, Iterable, Sequence

import jax
import numpy as np

from rembert.train.losses import LossSums
from rembert.train.step import StepMetrics


class Meter:
  """Accumulates the metrics of steps, for means over an interval.

  The sums of an unfinished interval are part of a checkpoint, so a resumed run logs the same as an uninterrupted one.
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
    """Adds the metrics of an update, on the host; a skipped update does not count."""
    if not metrics.is_finite:
      return
    for name, value in {'steps': 1, **metrics.sums._asdict(), 'tokens': metrics.tokens}.items():
      self._sums[name] += float(value)
    self._grad_norm = float(metrics.grad_norm)

  def add_time(self, seconds: float, seconds_waiting: float) -> None:
    """Adds the duration of a step, and the part of it spent waiting for data."""
    self._steps_timed += 1
    self._seconds += seconds
    self._seconds_waiting += seconds_waiting

  def saved(self) -> dict[str, float]:
    """The sums of the interval so far."""
    return dict(self._sums)

  def interval(self, *, positions_per_step: int, flops_per_step: float, peak_flops: float | None) -> dict[str, float]:
    """Returns metrics since the last call, and starts a new interval.

    `tokens_per_second` counts all positions, including padding, as is usual. `mfu` is FLOP/s over the peak.
    """
    sums, weight = self._sums, max(self._sums['weight'], 1.0)
    metrics = {
      'loss': sums['loss'] / weight,
      **({} if math.isnan(sums['correct']) else {'accuracy': sums['correct'] / weight}),
      'grad_norm': self._grad_norm,
      'padding': 1 - sums['tokens'] / max(sums['steps'] * positions_per_step, 1),
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
  """Measures seconds between readings."""

  def __init__(self):
    self._start = time.perf_counter()

  def read(self) -> float:
    """Seconds since the last reading or the start."""
    now = time.perf_counter()
    seconds, self._start = now - self._start, now
    return seconds


# --- evaluation -------------------------------------------------------------------------------------------------------


def evaluate(
  eval_step: Callable[..., LossSums],
  params: dict,
  batches: Iterable[dict[str, jax.Array]],
  languages: Sequence[str],
  *,
  is_stopped: Callable[[], bool] = lambda: False,
) -> dict[str, float] | None:
  """Metrics `eval/loss`, `eval/accuracy`, and both per language with `/LANGUAGE`; None if stopped midway."""
  totals = language_sums(eval_step, params, batches, len(languages), is_stopped=is_stopped)
  if totals is None:
    return None
  weight = max(float(totals.weight.sum()), 1.0)
  metrics = {'eval/loss': totals.loss.sum() / weight, 'eval/accuracy': totals.correct.sum() / weight}
  for index, language in enumerate(languages):
    if totals.weight[index]:
      metrics[f'eval/loss/{language}'] = totals.loss[index] / totals.weight[index]
      metrics[f'eval/accuracy/{language}'] = totals.correct[index] / totals.weight[index]
  return {name: float(value) for name, value in metrics.items()}


def language_sums(
  eval_step: Callable[..., LossSums],
  params: dict,
  batches: Iterable[dict[str, jax.Array]],
  num_languages: int,
  *,
  is_stopped: Callable[[], bool] = lambda: False,
) -> LossSums | None:
  """Sums over all batches for each language, float64 [num_languages]; None if stopped midway."""
  totals = LossSums(*(np.zeros(num_languages) for _ in LossSums._fields))
  for batch in batches:
    if is_stopped():
      return None
    totals = jax.tree.map(np.add, totals, jax.device_get(eval_step(params, batch)))
  return totals


def piece_counts(batches: Iterable[dict[str, np.ndarray]], *, vocab_size: int) -> np.ndarray:
  """The number of occurrences of each token in batches before masking, int64 [V]."""
  counts = np.zeros(vocab_size, np.int64)
  for batch in batches:
    ids = np.array(batch['input_ids'])
    rows, slots = np.nonzero(batch['weights'])
    ids[rows, batch['masked_positions'][rows, slots]] = batch['targets'][rows, slots]
    counts += np.bincount(ids[batch['segment_ids'] > 0], minlength=vocab_size)
  return counts


def unigram_entropy(counts_V: np.ndarray, *, first_piece: int) -> float:
  """Entropy in nats of tokens with these counts; ids before `first_piece` are special tokens, not text.

  This is the lowest loss of a model without context: the frequencies are those of the text itself.
  """
  counts = counts_V[first_piece:]
  shares = counts[counts > 0] / max(counts.sum(), 1)
  return float(-(shares * np.log(shares)).sum())
