"""What the training loop needs beside the step: its configuration, and a meter that turns sums into metrics."""

import dataclasses
import math
import time

import jax

from rembert.errors import RunError, UsageError
from rembert.training.step import StepMetrics


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """How long, how large, how often. The defaults are RemBERT's (paper, Table 14).

  Attributes:
    steps: updates in all; the learning rate reaches zero there.
    batch_size: rows of the global batch.
    sequence_length: tokens per row.
    seed: of initialisation, sampling, masks and dropout.
    accumulation_steps: run the batch in this many parts, for memory.
    log_every: steps between rows of metrics.
    eval_every: steps between evaluations; one is made at the end in any case. 0 for none.
    eval_rows: held-out rows per language.
    checkpoint_every: steps between permanent checkpoints; one is saved at the end in any case.
    keep_checkpoints: how many of the newest permanent ones are kept.
    keep_every: permanent ones at multiples of this step are kept for ever, whatever their number; 0 for none.
    temporary_checkpoint_minutes: time without a checkpoint after which a temporary one is saved; 0 for none. It is
      deleted when there is a newer one of either kind, and so is the one that is saved when the run is stopped.
    init_from: a workdir, a checkpoint or a folder of Hugging Face whose parameters a new run begins with. A run that is
      resumed does not look at it.
    init_from_parts: `all` parameters, or the `encoder` alone: the head is then drawn as ever.
  """

  steps: int = 1_760_000
  batch_size: int = 2048
  sequence_length: int = 512
  seed: int = 0
  accumulation_steps: int = 1
  log_every: int = 100
  eval_every: int = 10_000
  eval_rows: int = 64
  checkpoint_every: int = 5_000
  keep_checkpoints: int = 3
  keep_every: int = 0
  temporary_checkpoint_minutes: float = 10
  init_from: str | None = None
  init_from_parts: str = 'all'

  def __post_init__(self):
    for field in dataclasses.fields(self):
      if field.type is not int:
        continue
      value = getattr(self, field.name)
      least = 0 if field.name in ('seed', 'eval_every', 'keep_every') else 1
      if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f'{field.name} must be a whole number ≥ {least}', where=f'train.{field.name} = {value!r}')
    if self.keep_every % self.checkpoint_every:
      raise UsageError(
        f'there are no checkpoints at every {self.keep_every} steps to be kept',
        where=f'train.keep_every = {self.keep_every}, train.checkpoint_every = {self.checkpoint_every}',
        fix=f'a multiple of it, --gin.train.keep_every={10 * self.checkpoint_every} for one',
      )
    minutes = self.temporary_checkpoint_minutes
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 <= minutes < math.inf:
      raise UsageError(
        'temporary_checkpoint_minutes must be a number ≥ 0', where=f'train.temporary_checkpoint_minutes = {minutes!r}'
      )
    if self.init_from_parts not in ('all', 'encoder'):
      raise UsageError(
        f'{self.init_from_parts!r} is no part of a model',
        where='train.init_from_parts',
        fix="'all', or 'encoder' for the encoder alone",
      )

  def check_divides(self, batch_shards: int) -> None:
    """Raises UsageError unless every device gets equally many rows of every part of the batch."""
    parts = batch_shards * self.accumulation_steps
    if self.batch_size % parts:
      up = math.ceil(self.batch_size / parts) * parts
      raise UsageError(
        f'a batch of {self.batch_size} rows does not divide over {batch_shards} device group(s)'
        + (f' × {self.accumulation_steps} accumulation steps' if self.accumulation_steps > 1 else ''),
        where='train.batch_size, mesh.data × mesh.fsdp, train.accumulation_steps',
        fix=f'--gin.train.batch_size={up}',
      )


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

  def add(self, step: int, metrics: StepMetrics) -> None:
    """Takes the metrics of update number `step`; RunError if they are not finite. Waits for the device."""
    metrics = jax.device_get(metrics)
    loss, grad_norm = float(metrics.sums.loss), float(metrics.grad_norm)
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
      raise RunError(
        f'the {"loss" if not math.isfinite(loss) else "gradient"} of step {step} is not finite',
        where=f'loss sum {loss}, gradient norm {grad_norm}',
        fix=[
          'the checkpoints before it are good: repeat the command with a lower optimizer.learning_rate',
          'a longer optimizer.warmup_steps or optimizer.clip_norm = 1.0 steadies the start',
        ],
      )
    self._sums['steps'] += 1
    self._sums['loss'] += loss
    self._sums['correct'] += float(metrics.sums.correct)
    self._sums['weight'] += float(metrics.sums.weight)
    self._sums['tokens'] += float(metrics.tokens)
    self._grad_norm = grad_norm

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
