"""Shared by pre-training and fine-tuning: the start of a job, its checkpoints, and the training loop."""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator

import jax
from etils import epath

from rembert.aot import flops
from rembert.checkpoint.initialize import InitialParameters
from rembert.checkpoint.load import config_meta
from rembert.checkpoint.manager import Checkpoints, SaveSchedule
from rembert.data.masking import MaskingConfig
from rembert.data.packing import PackingConfig
from rembert.errors import RunError, UsageError
from rembert.files import write_whole
from rembert.jobs import workdir as workdirs
from rembert.jobs.config import JobConfig
from rembert.model.config import RemBertConfig
from rembert.plotting.training import plot_loss
from rembert.runtime import xla
from rembert.runtime.consensus import Hosts, joined
from rembert.runtime.signals import StopSignal
from rembert.tracking.console import Console
from rembert.tracking.goodput import Goodput
from rembert.tracking.metric_writers import (
  JsonlTracker,
  Metrics,
  TensorBoardTracker,
  Tracker,
  Trackers,
  WandbTracker,
  read_jsonl,
)
from rembert.tracking.profiler import Profiler
from rembert.train.anomaly_detection import LossGuard, Watchdog
from rembert.train.metrics import Meter
from rembert.train.optimizer import OptimizerConfig, learning_rate_schedule
from rembert.train.state import Trainable
from rembert.train.trainer import Position, TrainConfig, Trainer

# A field that did not exist when a checkpoint was written had the effect of its default.
_DEFAULTS = {
  **config_meta('RemBertConfig', RemBertConfig()),
  **config_meta('masking', MaskingConfig()),
  **config_meta('packing', PackingConfig()),
  **config_meta('optimizer', OptimizerConfig()),
  **config_meta('train', TrainConfig(), ('ema_decay',)),
}


@dataclasses.dataclass(frozen=True)
class JobRun:
  """One start of a job, on all of its hosts.

  Attributes:
    workdir: the locked workdir of the run.
    hosts: hosts of the run.
    console: console of the first host; those of the others are quiet.
    stop: set when a stop was requested from this process.
    goodput: goodput of the run.
    stack: closed at the end of the job.
  """

  workdir: epath.Path
  hosts: Hosts
  console: Console
  stop: StopSignal
  goodput: Goodput
  stack: contextlib.ExitStack

  @functools.cached_property
  def peak(self) -> tuple[float, str] | None:
    """FLOP/s of a device, and the source of that figure; None for an unknown device."""
    return flops.peak_flops_per_device()


@contextlib.contextmanager
def start(config: JobConfig, workdir: epath.Path, stop: StopSignal) -> Iterator[JobRun]:
  """Sets up JAX before it starts, joins the hosts, and creates and locks the workdir."""
  train = config.train
  length = max(config.at(step).train.sequence_length for step in (0, *config.borders))
  tokens = train.batch_size // train.accumulation_steps * length
  xla.keep_freed_memory_if_it_fits(flops.heap_bytes(config.model, tokens))
  flags = xla.set_flags(config.hardware, config.mesh.require_platform)
  not_kept = xla.enable_compilation_cache(config.hardware.compile_cache)
  with joined(config.hosts) as hosts, contextlib.ExitStack() as stack:
    console = Console(is_quiet=not hosts.is_first)
    for line in filter(None, (flags, not_kept)):
      console.say(line)
    if hosts.is_first:
      stack.enter_context(workdirs.locked(workdir, console.say))
    hosts.wait_for_all('workdir')
    goodput = Goodput(workdir / 'goodput.json', is_writer=hosts.is_first)
    yield JobRun(workdir, hosts, console, stop, goodput, stack)


# --- checkpoints ------------------------------------------------------------------------------------------------------


def refuse_other_run(before: dict, now: dict, workdir: epath.Path) -> None:
  """Raises UsageError with the differences if the workdir's checkpoints belong to another model or other data."""
  as_json = lambda value: list(value) if isinstance(value, tuple) else value
  olds = {name: before.get(name, _DEFAULTS.get(name)) for name in now}
  differing = [
    f'{name}: {old!r} → {now[name]!r}' for name, old in sorted(olds.items()) if as_json(old) != as_json(now[name])
  ]
  if differing:
    raise UsageError(
      'the workdir belongs to a run with different settings',
      where=f'{workdir}; ' + '; '.join(differing),
      fix=[
        'restore the old values to resume that run',
        'or use another directory for a new one: --workdir=DIR',
        f'which can be initialised from this one: --gin.train.init_from={workdir}',
      ],
    )


def open_checkpoints(job: JobRun, train: TrainConfig) -> Checkpoints:
  """The checkpoints of the workdir, open until the job ends."""
  checkpoints = Checkpoints(
    job.workdir / 'checkpoints', keep=train.keep_checkpoints, keep_every=train.keep_every, say=job.console.say
  )
  job.stack.callback(checkpoints.close)
  return checkpoints


def restore_or_init(
  config: JobConfig,
  job: JobRun,
  checkpoints: Checkpoints,
  trainable: Trainable,
  initial: InitialParameters | None,
  *,
  is_begun: bool,
) -> Position:
  """The position of the newest valid checkpoint if the run `is_begun`; else step 0, with `initial` parameters."""
  if not is_begun:
    state = trainable.init(config.train.seed)
    if initial is not None:
      with job.console.task(f'parameters from {config.train.init_from}') as progress:
        state = initial.put_into(state, progress)
    return Position(step=0, state=state, data={}, meter=Meter(), guard=LossGuard(config.guards))
  restored = checkpoints.restore_newest(trainable.restore_target())
  if restored is None:  # they existed at the start of the job
    raise RunError(
      'the checkpoints were deleted', where=str(checkpoints.directory), fix='check whether another program deletes them'
    )
  job.console.say(f'resuming from step {restored.step}')
  return Position(
    step=restored.step,
    state=restored.state,
    data=restored.data,
    meter=Meter(restored.meta['interval']),
    guard=LossGuard(config.guards, **restored.meta.get('guard', {})),
    is_evaluation_due=restored.meta['is_evaluation_due'],
  )


# --- the loop ---------------------------------------------------------------------------------------------------------


class RunTrackers(Trackers):
  """The trackers of a run. They end it if its workdir has been deleted, and draw loss.png after every evaluation."""

  def __init__(self, workdir: epath.Path, *trackers: Tracker):
    super().__init__(*trackers)
    self._workdir = workdir

  def log(self, metrics: Metrics, *, step: int) -> None:
    """See `rembert.tracking.metric_writers.Tracker`."""
    if not (self._workdir / 'config.gin').exists():
      raise RunError(
        f'the workdir was deleted while the run was at step {step}',
        where=str(self._workdir),
        fix='run the command again to start from scratch, or choose another directory: --workdir=DIR',
      )
    super().log(metrics, step=step)
    if 'eval/loss' in metrics:
      self.draw()

  def draw(self) -> None:
    """Writes loss.png."""
    write_whole(self._workdir / 'loss.png', plot_loss(read_jsonl(self._workdir / 'metrics.jsonl')))


def run_loop(
  config: JobConfig,
  job: JobRun,
  position: Position,
  batches: Iterator[tuple[dict, dict]],
  *,
  train_step: Callable,
  evaluate: Callable[[dict, Callable[[], bool]], Metrics | None] | None,
  identity: dict,
  checkpoints: Checkpoints,
  choices: int = 1,
) -> bool:
  """Trains from `position`, which is updated, to the last step or until the run is stopped; saves before it returns.

  `batches`, `train_step` and `evaluate` are those of `Trainer`; `identity` becomes part of the metadata of every
  checkpoint. A row of the batch has as many sequences as `choices`. Returns whether the end was reached.
  """
  train, workdir, hosts, console, peak = config.train, job.workdir, job.hosts, job.console, job.peak

  def throughput(step: int) -> dict:
    now = config.at(step - 1)
    return {
      'positions_per_step': choices * train.batch_size * now.train.sequence_length,
      'flops_per_step': choices * now.train_flops_per_step,
      'peak_flops': peak[0] * jax.device_count() if peak else None,
    }

  with contextlib.ExitStack() as stack:
    # --- trackers --------------------------------------------------------------
    trackers = Trackers()
    if hosts.is_first:
      trackers = RunTrackers(
        workdir,
        JsonlTracker(
          workdir / 'metrics.jsonl', resume_step=position.step, is_evaluation_due=position.is_evaluation_due
        ),
        TensorBoardTracker(workdir / 'tensorboard', resume_step=position.step),
        *([WandbTracker(config.tracking, workdir, identity, console.say)] if config.tracking.uses_wandb else []),
      )
    progress = stack.enter_context(console.training(position.step, train.steps))
    watchdog = Watchdog(config.guards.stuck_after_seconds, workdir / 'stacks', name=hosts.name)
    profiler = Profiler(config.profile, workdir)
    for closes in (trackers, watchdog, profiler):
      stack.callback(closes.close)

    # --- saves -----------------------------------------------------------------
    schedule = SaveSchedule(
      steps=train.steps,
      every=train.checkpoint_every,
      temporary_seconds=60 * train.temporary_checkpoint_minutes,
      now=time.monotonic(),
    )

    def save(position: Position) -> None:
      meta = {
        **identity,
        'interval': position.meter.saved(),
        'guard': position.guard.saved(),
        'is_evaluation_due': position.is_evaluation_due,
      }
      is_temporary = not schedule.is_permanent(position.step)
      checkpoints.save(position.step, position.state, position.data, meta, is_temporary=is_temporary)
      schedule.saved(time.monotonic())

    # --- loop ------------------------------------------------------------------
    loop = Trainer(
      train,
      config.guards,
      position,
      train_step=train_step,
      evaluate=evaluate,
      save=save,
      is_save_permanent=schedule.is_permanent,
      # The first host's clock decides for all, and no save starts while another is being written.
      wants_to_save=lambda step: (
        hosts.is_first and schedule.is_due(step, time.monotonic()) and not checkpoints.is_saving()
      ),
      learning_rate=learning_rate_schedule(config.optimizer, train.steps),
      throughput=throughput,
      stop=job.stop,
      console=console,
      progress=progress,
      trackers=trackers,
      goodput=job.goodput,
      watchdog=watchdog,
      profiler=profiler,
      borders=config.borders,
    )
    with job.stop.deferred():
      loop.run(batches)
      with job.goodput.activity('checkpoint'):
        checkpoints.wait()
      job.goodput.write()

  if isinstance(trackers, RunTrackers):
    trackers.draw()
  is_done = position.step == train.steps and not position.is_evaluation_due
  if not is_done:
    reason = job.stop.requested or 'another host'
    console.say(f'stopped by {reason} at step {position.step}, checkpoint saved. Run the same command again to resume.')
  return is_done
