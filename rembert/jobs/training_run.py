"""What every job that trains does around its own matter: open the workdir, find the place, run the loop to its end."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import jax
from etils import epath

from rembert.aot.flops import heap_bytes
from rembert.checkpoint.manager import Checkpoints, SaveSchedule
from rembert.errors import RunError
from rembert.files import write_whole
from rembert.jobs import workdir as workdirs
from rembert.jobs.workdir_lock import locked
from rembert.model.config import RemBertConfig
from rembert.plotting.training import plot_loss
from rembert.runtime import xla
from rembert.runtime.consensus import Hosts, joined
from rembert.runtime.cpu_memory import keep_freed_memory_if_it_fits
from rembert.runtime.distributed import HostsConfig
from rembert.runtime.signals import StopSignal
from rembert.runtime.xla import HardwareConfig
from rembert.tracking.console import Console
from rembert.tracking.goodput import Goodput
from rembert.tracking.metric_writers import (
  JsonlTracker,
  Metrics,
  TensorBoardTracker,
  Trackers,
  TrackingConfig,
  WandbTracker,
  read_jsonl,
)
from rembert.tracking.profiler import ProfileConfig, Profiler
from rembert.tracking.watchdog import Watchdog
from rembert.train.anomaly_detection import GuardsConfig, LossGuard
from rembert.train.metrics import Meter
from rembert.train.optimizer import OptimizerConfig, learning_rate_schedule
from rembert.train.sharding import MeshConfig
from rembert.train.state import Trainable, TrainState
from rembert.train.trainer import Numbers, Position, TrainConfig, Trainer, Watchers


class StartConfig(Protocol):
  """What a job's start needs to know of its configuration."""

  model: RemBertConfig
  train: TrainConfig
  hardware: HardwareConfig
  mesh: MeshConfig
  hosts: HostsConfig


class TrainingConfig(Protocol):
  """What the loop needs to know of a job's configuration."""

  train: TrainConfig
  optimizer: OptimizerConfig
  guards: GuardsConfig
  profile: ProfileConfig
  tracking: TrackingConfig
  train_flops_per_step: int


@contextlib.contextmanager
def begun(config: StartConfig) -> Iterator[tuple[Hosts, Console, contextlib.ExitStack]]:
  """Settles what must be before JAX looks for devices, and joins the hosts.

  Yields the hosts, where the first of them tells what happens, and what is closed in the end.
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
    yield hosts, console, stack


def hold_workdir(workdir: epath.Path, hosts: Hosts, console: Console, stack: contextlib.ExitStack) -> None:
  """Makes the workdir and locks it for as long as `stack` is open; UsageError if it is another's."""
  if hosts.is_first:
    workdirs.prepare(workdir)
    stack.enter_context(locked(workdir, console.say))
  hosts.wait_for_all('workdir')


def open_workdir(workdir: epath.Path, hosts: Hosts, console: Console, stack: contextlib.ExitStack) -> Goodput:
  """The same, and begins to count where the time goes."""
  hold_workdir(workdir, hosts, console, stack)
  return Goodput(workdir / 'goodput.json', is_writer=hosts.is_first)


def open_checkpoints(
  workdir: epath.Path, train: TrainConfig, console: Console, stack: contextlib.ExitStack
) -> Checkpoints:
  """Those of a workdir, kept as `train` says, until `stack` closes."""
  checkpoints = Checkpoints(
    workdir / 'checkpoints', keep=train.keep_checkpoints, keep_every=train.keep_every, say=console.say
  )
  stack.callback(checkpoints.close)
  return checkpoints


def restored_position(
  checkpoints: Checkpoints, trainable: Trainable, guards: GuardsConfig, console: Console
) -> Position:
  """Where the newest whole checkpoint stands; there is one."""
  restored = checkpoints.restore_newest(trainable.restore_target())
  if restored is None:  # what was there when the run began to look
    raise RunError('the checkpoints have gone', where=str(checkpoints.directory), fix='does somebody else delete them?')
  console.say(f'resuming from step {restored.step}')
  return Position(
    step=restored.step,
    state=restored.state,
    data=restored.data,
    meter=Meter(restored.meta['interval']),
    guard=LossGuard(guards, restored.meta.get('guard')),
    is_evaluation_due=restored.meta['is_evaluation_due'],
  )


def first_position(state: TrainState, guards: GuardsConfig) -> Position:
  """The beginning of a run."""
  return Position(step=0, state=state, data={}, meter=Meter(), guard=LossGuard(guards))


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
  config: TrainingConfig,
  position: Position,
  batches: Iterator[tuple[dict, dict]],
  *,
  train_step: Callable,
  evaluate: Callable[[dict, Callable[[], bool]], Metrics | None] | None,
  identity: dict,
  checkpoints: Checkpoints,
  workdir: epath.Path,
  hosts: Hosts,
  console: Console,
  goodput: Goodput,
  peak: tuple[float, str] | None,
  stop: StopSignal,
) -> bool:
  """Trains from `position` on, which moves; everything is saved when it returns.

  Args:
    config: of the job.
    position: where to begin.
    batches: see `Trainer.run`.
    train_step: the compiled update.
    evaluate: see `Trainer`.
    identity: what goes into the description of every checkpoint.
    checkpoints: of the workdir.
    workdir: where metrics, pictures, profiles and stacks go.
    hosts: of the run.
    console: tells.
    goodput: counts.
    peak: FLOP/s of a device, and where the figure comes from.
    stop: set when this process is asked to end.

  Returns:
    Whether the end was reached; otherwise the run was stopped.
  """
  train, metrics_file = config.train, workdir / 'metrics.jsonl'
  loss_picture = LossPicture(metrics_file, workdir / 'loss.png')
  with contextlib.ExitStack() as stack:
    # --- watchers --------------------------------------------------------------
    trackers = Trackers()
    if hosts.is_first:
      further = [WandbTracker(config.tracking, workdir, identity, console.say)] if config.tracking.uses_wandb else []
      trackers = Trackers(
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
