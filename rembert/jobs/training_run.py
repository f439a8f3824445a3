"""What every job that trains does around its own matter: open the workdir, find the place, run the loop to its end."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, get_type_hints

import jax
from etils import epath

from rembert import configuration
from rembert.aot.flops import heap_bytes
from rembert.checkpoint.initialize import InitialParameters
from rembert.checkpoint.load import architecture, config_meta
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
from rembert.runtime.cpu_memory import keep_freed_memory_if_it_fits
from rembert.runtime.signals import StopSignal
from rembert.tracking.console import Console
from rembert.tracking.goodput import Goodput
from rembert.tracking.metric_writers import (
  JsonlTracker,
  Metrics,
  TensorBoardTracker,
  Trackers,
  WandbTracker,
  read_jsonl,
)
from rembert.tracking.profiler import Profiler
from rembert.tracking.watchdog import Watchdog
from rembert.train.anomaly_detection import LossGuard
from rembert.train.metrics import Meter
from rembert.train.optimizer import OptimizerConfig, learning_rate_schedule
from rembert.train.state import Trainable
from rembert.train.trainer import Numbers, Position, TrainConfig, Trainer, Watchers

# A field that did not exist when a checkpoint was written had the effect of its default.
_DEFAULTS = {
  **config_meta('RemBertConfig', RemBertConfig()),
  **config_meta('masking', MaskingConfig()),
  **config_meta('packing', PackingConfig()),
  **config_meta('optimizer', OptimizerConfig()),
}


Config = TypeVar('Config')


def build_config(cls: type[Config], **given: Any) -> Config:
  """A job's configuration: what gin has been told of the class of each field, but for those that are `given`."""
  fields = {name: field for name, field in get_type_hints(cls).items() if name not in given}
  return cls(**given, **{name: configuration.build(field) for name, field in fields.items()})


def model_config(path: str | None) -> RemBertConfig:
  """The architecture of the model at `path`, but for fields that are bound; without a path, that of the gin files."""
  if path is None:
    return configuration.build(RemBertConfig)
  return dataclasses.replace(architecture(path), **configuration.bound(RemBertConfig))


@dataclasses.dataclass(frozen=True)
class JobRun:
  """One start of a job, on all of its hosts.

  Attributes:
    workdir: of the run, locked.
    hosts: of the run.
    console: where the first host tells what happens.
    stack: what is closed in the end.
  """

  workdir: epath.Path
  hosts: Hosts
  console: Console
  stack: contextlib.ExitStack


@contextlib.contextmanager
def start(config: JobConfig, workdir: epath.Path) -> Iterator[JobRun]:
  """Settles what must be before JAX looks for devices, joins the hosts, makes the workdir and locks it.

  UsageError if the workdir is another's.
  """
  train = config.train
  tokens = train.batch_size // train.accumulation_steps * train.sequence_length
  keep_freed_memory_if_it_fits(heap_bytes(config.model, tokens))
  flags = xla.set_flags(config.hardware, config.mesh.require_platform)
  not_kept = xla.enable_compilation_cache(config.hardware.compile_cache)
  with joined(config.hosts) as hosts, contextlib.ExitStack() as stack:
    console = Console(is_quiet=not hosts.is_first)
    for line in filter(None, (flags, not_kept)):
      console.say(line)
    if hosts.is_first:
      workdirs.prepare(workdir)
      stack.enter_context(workdirs.locked(workdir, console.say))
    hosts.wait_for_all('workdir')
    yield JobRun(workdir, hosts, console, stack)


def refuse_other_run(before: dict, now: dict, workdir: epath.Path) -> None:
  """Raises UsageError with the differences if the workdir's checkpoints belong to another model or other data."""
  differing = configuration.differences({name: before.get(name, _DEFAULTS.get(name)) for name in now}, now)
  if differing:
    raise UsageError(
      'the workdir holds checkpoints of another run',
      where=f'{workdir}; ' + '; '.join(differing),
      fix=[
        'take the old values to go on with that run',
        'or another folder for a new one: --workdir=DIR',
        f'which can begin with these parameters, if they fit: --gin.train.init_from={workdir}',
      ],
    )


def open_checkpoints(job: JobRun, train: TrainConfig) -> Checkpoints:
  """Those of the workdir, kept as `train` says, until the run ends."""
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
  """Where the newest whole checkpoint stands, if the run `is_begun`; else its beginning, with `initial` parameters."""
  if not is_begun:
    position = Position(
      step=0, state=trainable.init(config.train.seed), data={}, meter=Meter(), guard=LossGuard(config.guards)
    )
    if initial is not None:
      with job.console.task(f'parameters from {config.train.init_from}') as progress:
        position.state = initial.put_into(position.state, progress)
    return position
  restored = checkpoints.restore_newest(trainable.restore_target())
  if restored is None:  # what was there when the run began to look
    raise RunError('the checkpoints have gone', where=str(checkpoints.directory), fix='does somebody else delete them?')
  job.console.say(f'resuming from step {restored.step}')
  return Position(
    step=restored.step,
    state=restored.state,
    data=restored.data,
    meter=Meter(restored.meta['interval']),
    guard=LossGuard(config.guards, restored.meta.get('guard')),
    is_evaluation_due=restored.meta['is_evaluation_due'],
  )


class WorkdirMarker:
  """A tracker that ends the run at the next log if the workdir is deleted: what is written after that is lost."""

  def __init__(self, workdir: epath.Path):
    self._workdir = workdir

  def log(self, metrics: Mapping[str, float], *, step: int) -> None:
    """See `rembert.tracking.metric_writers.Tracker`."""
    del metrics
    if not (self._workdir / 'config.gin').exists():
      raise RunError(
        f'the workdir was deleted while the run was at step {step}',
        where=str(self._workdir),
        fix='repeat the command: it begins anew; or give another place: --workdir=DIR',
      )

  def close(self) -> None:
    """Nothing is open."""


class LossPicture:
  """A tracker that draws the losses of a metrics file after every evaluation; it must follow the file's writer."""

  def __init__(self, metrics_file: epath.Path, picture: epath.Path):
    self._metrics_file, self._picture = metrics_file, picture

  def log(self, metrics: Mapping[str, float], *, step: int) -> None:
    """See `rembert.tracking.metric_writers.Tracker`."""
    del step
    if 'eval/loss' in metrics:
      self.draw()

  def draw(self) -> None:
    """Writes the picture."""
    write_whole(self._picture, plot_loss(read_jsonl(self._metrics_file)))

  def close(self) -> None:
    """Nothing is open."""


def run_loop(
  config: JobConfig,
  job: JobRun,
  stop: StopSignal,
  position: Position,
  batches: Iterator[tuple[dict, dict]],
  *,
  train_step: Callable,
  evaluate: Callable[[dict, Callable[[], bool]], Metrics | None] | None,
  identity: dict,
  checkpoints: Checkpoints,
  goodput: Goodput,
  peak: tuple[float, str] | None,
) -> bool:
  """Trains from `position` on, which moves; everything is saved when it returns.

  Args:
    config: of the job.
    job: this start of it.
    stop: set when this process is asked to end.
    position: where to begin.
    batches: see `Trainer.run`.
    train_step: the compiled update.
    evaluate: see `Trainer`.
    identity: what goes into the description of every checkpoint.
    checkpoints: of the workdir.
    goodput: counts.
    peak: FLOP/s of a device, and where the figure comes from.

  Returns:
    Whether the end was reached; otherwise the run was stopped.
  """
  train, workdir, hosts, console = config.train, job.workdir, job.hosts, job.console
  metrics_file = workdir / 'metrics.jsonl'
  loss_picture = LossPicture(metrics_file, workdir / 'loss.png')
  with contextlib.ExitStack() as stack:
    # --- watchers --------------------------------------------------------------
    trackers = Trackers()
    if hosts.is_first:
      further = [WandbTracker(config.tracking, workdir, identity, console.say)] if config.tracking.uses_wandb else []
      trackers = Trackers(
        WorkdirMarker(workdir),
        JsonlTracker(metrics_file, resume_step=position.step, is_evaluation_due=position.is_evaluation_due),
        TensorBoardTracker(workdir / 'tensorboard', resume_step=position.step),
        loss_picture,
        *further,
      )
    watchers = Watchers(
      console=console,
      progress=stack.enter_context(console.training(position.step, train.steps)),
      trackers=trackers,
      goodput=goodput,
      watchdog=Watchdog(config.guards.stuck_after_seconds, workdir / 'stacks', name=hosts.name),
      profiler=Profiler(config.profile, workdir),
    )
    for closes in (trackers, watchers.watchdog, watchers.profiler):
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
      # The first host's clock decides for all; and a save that is still being written is not waited for.
      wants_to_save=lambda step: (
        hosts.is_first and schedule.is_due(step, time.monotonic()) and not checkpoints.is_saving()
      ),
      learning_rate=learning_rate_schedule(config.optimizer, train.steps),
      numbers=Numbers(
        positions_per_step=train.batch_size * train.sequence_length,
        flops_per_step=config.train_flops_per_step,
        peak_flops=peak[0] * jax.device_count() if peak else None,
      ),
      stop=stop,
      watchers=watchers,
    )
    with stop.deferred():
      loop.run(batches)
      with goodput.activity('checkpoint'):
        checkpoints.wait()
      goodput.write()

  if hosts.is_first:
    loss_picture.draw()
  is_done = position.step == train.steps and not position.is_evaluation_due
  if not is_done:
    console.say(
      f'stopped by {stop.requested or "another host"} at step {position.step}, all saved. Repeat the command to go on.'
    )
  return is_done
