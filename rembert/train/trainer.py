"""The training loop and its configuration."""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator
from typing import Annotated

import jax

from rembert.errors import Setting, UsageError
from rembert.runtime.consensus import HostConsensus, HostRequest
from rembert.runtime.signals import StopSignal
from rembert.tracking.console import Console, TrainingProgress
from rembert.tracking.goodput import Goodput
from rembert.tracking.metric_writers import Metrics, Tracker
from rembert.tracking.profiler import Profiler
from rembert.train.anomaly_detection import GuardsConfig, LossGuard, StepTimes, Watchdog
from rembert.train.metrics import Meter, Stopwatch
from rembert.train.state import TrainState
from rembert.train.step import StepMetrics
from rembert.validation import Count, CountOrZero, FractionBelowOne, NotNegative, OneOf, check_fields


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """Length, batch size, evaluations and checkpoints of training. Defaults are RemBERT's (paper, Table 14).

  Attributes:
    steps: total number of updates; the learning rate reaches zero there.
    batch_size: number of sequences in the global batch.
    sequence_length: tokens per sequence.
    seed: seed of initialisation, sampling, masks and dropout.
    accumulation_steps: number of micro-batches per step (gradient accumulation), to save memory.
    ema_decay: decay of an exponential moving average of the parameters, for example 0.9999; in step t, from 0, at most
      (1 + t) / (10 + t). 0 for no average. Evaluations, exports and `rembert.load` use the average if there is one.
    log_every: steps between logged metrics.
    eval_every: steps between evaluations; the last step always has one. 0 for none.
    eval_rows: number of eval sequences per language.
    checkpoint_every: steps between permanent checkpoints; the last step always has one.
    keep_checkpoints: number of permanent checkpoints to keep, the newest (Orbax's `max_to_keep`).
    keep_every: never delete permanent checkpoints at multiples of this step (Orbax's `keep_period`); 0 disables.
    temporary_checkpoint_minutes: minutes without a checkpoint after which a temporary one is saved; 0 disables. It is
      deleted when there is a newer checkpoint, and so is the one that is saved when the run is stopped.
    init_from: a workdir, a checkpoint, or a Hugging Face model directory or Hub id with the initial parameters of a new
      run. A resumed run ignores its parameters.
    init_from_parts: `all` parameters; the `encoder` only, with a randomly initialised head; or, in pre-training, those
      `available`: the encoder, and the existing parts of the head. The architecture is then the model's, except for
      fields of `RemBertConfig` that are set.
  """

  steps: Count = 1_760_000
  batch_size: Count = 2048
  sequence_length: Count = 512
  seed: CountOrZero = 0
  accumulation_steps: Count = 1
  ema_decay: FractionBelowOne = 0.0
  log_every: Count = 100
  eval_every: CountOrZero = 10_000
  eval_rows: Count = 64
  checkpoint_every: Count = 5_000
  keep_checkpoints: Count = 3
  keep_every: CountOrZero = 0
  temporary_checkpoint_minutes: NotNegative = 10
  init_from: str | None = None
  init_from_parts: Annotated[str, OneOf(('all', 'available', 'encoder'))] = 'all'

  def __post_init__(self):
    check_fields(self, 'train')
    if self.keep_every % self.checkpoint_every:
      raise UsageError(
        'train.keep_every must be a multiple of train.checkpoint_every',
        where=f'train.keep_every = {self.keep_every}, train.checkpoint_every = {self.checkpoint_every}',
        fix=Setting('train.keep_every', 10 * self.checkpoint_every),
      )
    self.check_divides(1)

  def check_divides(self, batch_shards: int) -> None:
    """UsageError unless every device gets the same number of sequences of every micro-batch."""
    parts = batch_shards * self.accumulation_steps
    if self.batch_size % parts:
      up = math.ceil(self.batch_size / parts) * parts
      raise UsageError(
        f'a batch of {self.batch_size} sequences cannot be divided over '
        + ' × '.join(
          f'{count} {unit}'
          for count, unit in ((batch_shards, 'device group(s)'), (self.accumulation_steps, 'accumulation steps'))
          if count > 1
        ),
        where='train.batch_size, mesh.data × mesh.fsdp, train.accumulation_steps',
        fix=Setting('train.batch_size', up),
      )


@dataclasses.dataclass
class Position:
  """The progress of a run after `step` updates, as checkpoints save it."""

  step: int
  state: TrainState
  data: dict  # position of the batch source; JSON
  meter: Meter  # sums of the current interval
  guard: LossGuard
  is_evaluation_due: bool = False  # this step has an evaluation, which has not finished


@dataclasses.dataclass
class Trainer:
  """The training loop: steps, metrics, evaluations, checkpoints and checks for stop requests.

  Every host runs the same loop. Their common actions (steps, evaluations, saves, the end) depend on the step number
  or on their `HostConsensus`, never on a clock or a signal of one host. Console, trackers, goodput, watchdog and
  profiler observe it; none of them affects the computation.
  """

  config: TrainConfig
  guards: GuardsConfig
  position: Position  # every step replaces its state and donates the old one
  _: dataclasses.KW_ONLY
  train_step: Callable[[TrainState, dict], tuple[TrainState, StepMetrics]]
  # (params, is_stopped) to metrics, or None if stopped midway; None for no evaluations.
  evaluate: Callable[[dict, Callable[[], bool]], Metrics | None] | None
  save: Callable[[Position], None]  # starts a checkpoint
  is_save_permanent: Callable[[int], bool]  # whether all hosts save a permanent checkpoint after a step
  wants_to_save: Callable[[int], bool]  # whether this host requests a save; all hosts then save one step later
  learning_rate: Callable[[int], jax.Array]  # of the next update, from the number of updates so far
  throughput: Callable[[int], dict]  # arguments of `Meter.interval` for an interval that ends at a step
  stop: StopSignal  # set when a stop was requested from this process
  console: Console
  progress: TrainingProgress
  trackers: Tracker
  goodput: Goodput
  watchdog: Watchdog
  profiler: Profiler
  borders: Collection[int] = ()  # steps where batches change their shape or text; an interval of metrics ends there
  is_stopping: bool = dataclasses.field(default=False, init=False)  # all hosts agreed to end before the last step

  def __post_init__(self):
    self._consensus, self._decided = HostConsensus(), HostRequest.NOTHING
    self._step_times = StepTimes(self.guards)
    self._pending: tuple[int, StepMetrics] | None = None
    self._saved_step: int | None = self.position.step or None

  def run(self, batches: Iterator[tuple[dict, dict]]) -> None:
    """Trains on (batch, position of its source) until the last step or an agreed stop, and saves."""
    position = self.position
    begun = position.step
    position.is_evaluation_due &= self.evaluate is not None
    self.goodput.begin(begun)
    watch = Stopwatch()
    if position.is_evaluation_due:
      self._run_evaluation()
      watch.read()
    while position.step < self.config.steps and not self.is_stopping:
      seconds_waiting = self._make_step(batches)
      step = position.step
      is_last, every = step == self.config.steps, self.config.eval_every
      position.is_evaluation_due = self.evaluate is not None and (is_last or (every > 0 and step % every == 0))
      self._exchange(self._wanted())
      is_save_due = self.is_save_permanent(step) or HostRequest.SAVE in self._decided
      is_log_due = step % self.config.log_every == 0 or step in self.borders
      if is_log_due or is_save_due or position.is_evaluation_due or self.is_stopping:
        self._take_metrics()
      seconds = watch.read()
      position.meter.add_time(seconds, seconds_waiting)
      self._say(self._step_times.check(step, seconds, seconds_waiting))
      self.progress.step(step)
      self.goodput.reached(step)
      if is_log_due:
        self._log()
      if step in self.borders:
        self._step_times = StepTimes(self.guards)
      if position.is_evaluation_due:
        self._run_evaluation()
      if is_save_due:
        self._begin_save()
      watch.read()
    self._take_metrics()
    if position.step != self._saved_step and position.step > begun:
      self._begin_save()
    self.watchdog.rest()

  def _make_step(self, batches: Iterator[tuple[dict, dict]]) -> float:
    """One update; returns the seconds of waiting for its batch."""
    position = self.position
    upcoming = position.step + 1
    self.watchdog.beat(f'step {upcoming}')
    self._say(self.profiler.before_step(upcoming, is_wanted=self._consume(HostRequest.PROFILE)))
    waiting = Stopwatch()
    with self.goodput.activity('data wait'):
      batch, position.data = next(batches)
    seconds_waiting = waiting.read()
    position.state, metrics = self.train_step(position.state, batch)
    position.step = upcoming
    # Reads metrics of the previous step, which has finished, so that the device never waits for the host.
    self._take_metrics()
    self._pending = (upcoming, metrics)
    self._say(self.profiler.after_step(metrics.grad_norm))
    return seconds_waiting

  def _take_metrics(self) -> None:
    """Waits for the last dispatched step and adds up its metrics."""
    if self._pending is None:
      return
    step, metrics = self._pending
    self._pending = None
    metrics = jax.device_get(metrics)
    self._say(self.position.guard.check(step, metrics))
    self.position.meter.add(metrics)

  def _log(self) -> None:
    position, guard = self.position, self.position.guard
    # The schedule does not count skipped updates.
    learning_rate = self.learning_rate(position.step - 1 - guard.skipped)
    row = position.meter.interval(**self.throughput(position.step)) | {'learning_rate': float(learning_rate)}
    row |= {'skipped_updates': guard.skipped, 'loss_spikes': guard.spikes}
    self.trackers.log(row, step=position.step)
    self.progress.metrics(position.step, row)

  def _run_evaluation(self) -> None:
    """Evaluates; if stopped midway, the evaluation stays due."""
    position = self.position
    assert self.evaluate is not None

    def is_stopped() -> bool:
      self.watchdog.beat(f'the evaluation at step {position.step}')
      self._exchange(self._stop_request())
      return self.is_stopping

    with self.goodput.activity('evaluation'):
      metrics = self.evaluate(position.state.model, is_stopped)
      if metrics is not None:
        self.trackers.log(metrics, step=position.step)
        self.progress.evaluation(position.step, metrics)
        position.is_evaluation_due = False

  def _begin_save(self) -> None:
    self.watchdog.beat(f'the checkpoint of step {self.position.step}')
    with self.goodput.activity('checkpoint'):
      self.save(self.position)
    self._consume(HostRequest.SAVE)
    self._saved_step = self.position.step

  # --- agreement of hosts --------------------------------------------------------

  def _stop_request(self) -> HostRequest:
    return HostRequest.STOP if self.stop.requested else HostRequest.NOTHING

  def _wanted(self) -> HostRequest:
    wanted = self._stop_request()
    if self.wants_to_save(self.position.step):
      wanted |= HostRequest.SAVE
    if self.profiler.is_wanted():
      wanted |= HostRequest.PROFILE
    return wanted

  def _exchange(self, wanted: HostRequest) -> None:
    self._decided |= self._consensus.exchange(wanted)
    self.is_stopping = HostRequest.STOP in self._decided

  def _consume(self, want: HostRequest) -> bool:
    is_wanted = want in self._decided
    self._decided &= ~want
    return is_wanted

  def _say(self, text: str | None) -> None:
    if text:
      self.console.say(text)
