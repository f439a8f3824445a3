"""Runs that depend on each other, made one after the other or side by side, until all are done or stopped."""

import argparse
import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from etils import epath

from launch.command_line import check_command
from launch.experiment import ProgressView, Run, RunProgress, RunState, code_version, summary
from launch.processes import (
  ProcessGroup,
  RestartedProcess,
  RetryPolicy,
  bind_to_parent,
  format_exit,
  shell_exit_code,
)
from rembert.command_line import add_modules
from rembert.errors import UsageError
from rembert.files import is_remote
from rembert.jobs.workdir import locked
from rembert.tracking.console import Console
from rembert.validation import Count, number

RETRY_POLICY = RetryPolicy(max_short_runs=3)
_POLL_SECONDS = 0.1

# --- where runs go ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class DeviceSlot:
  """Room for one run at a time: an accelerator, or a share of the cores.

  Attributes:
    name: shown with the runs; empty if there is only one slot.
    environment: keeps the run to its device.
    cores: that the run may use; None for all.
  """

  name: str = ''
  environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
  cores: frozenset[int] | None = None


def device_slots(devices: Sequence[str]) -> list[DeviceSlot]:
  """A slot for each GPU or TPU chip of this machine, by its number.

  Both kinds of variables are set, for each is read by its own driver alone: `CUDA_VISIBLE_DEVICES` by CUDA, the others
  by libtpu, which takes a single chip for a slice of its own when the bounds of processes and chips are 1,1,1.
  """
  bounds = {'TPU_CHIPS_PER_PROCESS_BOUNDS': '1,1,1', 'TPU_PROCESS_BOUNDS': '1,1,1'}
  return [
    DeviceSlot(f'device {device}', {'CUDA_VISIBLE_DEVICES': device, 'TPU_VISIBLE_CHIPS': device, **bounds})
    for device in devices
  ]


def core_slots(count: int) -> list[DeviceSlot]:
  """`count` slots of equally many cores; what is left over stays idle. UsageError if there are fewer cores."""
  cores = sorted(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else list(range(os.cpu_count() or 1))
  if count == 1:
    return [DeviceSlot()]
  if count > len(cores):
    raise UsageError(
      f'{count} runs side by side on {len(cores)} core(s)',
      where=f'--side_by_side={count}',
      fix=f'at most {len(cores)}; each would wait for the others',
    )
  each = len(cores) // count
  shares = [cores[index * each : (index + 1) * each] for index in range(count)]
  return [DeviceSlot(f'cores {share[0]}-{share[-1]}', cores=frozenset(share)) for share in shares]


def add_run_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
  """Adds where runs go, and what all of them are given."""
  where = parser.add_mutually_exclusive_group()
  help_text = 'GPUs or TPU chips of this machine, a run on each (default: one run on all)'
  where.add_argument('--devices', metavar='0,1,…', help=help_text)
  help_text = 'runs at a time, each on a share of the cores (a CPU)'
  where.add_argument('--side_by_side', type=number(Count), default=1, metavar='N', help=help_text)
  help_text = 'print the commands, for a cluster or to look at, and run nothing'
  parser.add_argument('--dry_run', action='store_true', help=help_text)
  add_modules(parser)


def shared_flags(options: argparse.Namespace) -> tuple[str, ...]:
  """Flags of `rembert.main` for every run, given by the options of `add_run_options`."""
  return tuple(f'--module={name}' for name in options.module)


def chosen_slots(options: argparse.Namespace) -> list[DeviceSlot]:
  """The slots given by the options of `add_run_options`."""
  return device_slots(options.devices.split(',')) if options.devices else core_slots(options.side_by_side)


# --- scheduling -------------------------------------------------------------------------------------------------------


class Scheduler:
  """Starts each run as soon as what it needs is done and a slot is free, and restarts what was killed.

  `all` has the runs in the order given, and where each stands.
  """

  def __init__(
    self,
    runs: Sequence[Run],
    slots: Sequence[DeviceSlot],
    on_change: Callable[[RunProgress], None] = lambda progress: None,
    on_poll: Callable[[], None] = lambda: None,
    policy: RetryPolicy = RETRY_POLICY,
  ):
    """
    Args:
      runs: with all that they need.
      slots: at least one.
      on_change: called for every run whose state has changed.
      on_poll: called some ten times per second.
      policy: for runs that are killed, or stop early by themselves.
    """
    for run in runs:
      run.check()
    self.all = [RunProgress(run, RunState.DONE if run.is_done() else RunState.WAITING) for run in runs]
    self._by_name = {progress.run.name: progress for progress in self.all}
    self._on_change, self._on_poll, self._policy = on_change, on_poll, policy
    self._free = list(slots)
    self._active: list[tuple[RunProgress, DeviceSlot, RestartedProcess]] = []
    self._code = code_version()
    # Children are in sessions of their own, so Ctrl-C reaches them only by way of this process, and as one SIGTERM: a
    # second Ctrl-C would end them before they have saved.
    self._group = ProcessGroup(forward_once=signal.SIGTERM)

  def run(self) -> bool:
    """Makes all that is not done. False if SIGTERM or Ctrl-C stopped it, and with it all runs, which save first."""
    with self._group as group:
      while True:
        self._poll()
        if group.stop_signal is None:
          for progress in self.all:
            if progress.state is RunState.WAITING:
              self._start_or_leave_out(progress)
        if not self._active:
          return group.stop_signal is None
        self._on_poll()
        time.sleep(_POLL_SECONDS)

  def _start_or_leave_out(self, progress: RunProgress) -> None:
    needs = [self._by_name[name] for name in progress.run.needs]
    if lost := [need for need in needs if need.state in (RunState.FAILED, RunState.LEFT_OUT)]:
      self._change(progress, RunState.LEFT_OUT, f'needs {lost[0].run.name}')
    elif self._free and all(need.state is RunState.DONE for need in needs):
      slot = self._free.pop(0)
      process = RestartedProcess(
        self._group,
        functools.partial(self._start, progress, slot),
        self._policy,
        functools.partial(setattr, progress, 'note'),
        functools.partial(self._ended, progress),
      )
      self._active.append((progress, slot, process))
      process.poll()

  def _start(self, progress: RunProgress, slot: DeviceSlot) -> subprocess.Popen:
    file = log_file(progress.run)
    file.parent.mkdir(parents=True, exist_ok=True)
    progress.run.record_start(self._code)
    with open(file, 'ab') as log:
      child = self._group.start(
        progress.run.command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, **slot.environment},
        start_new_session=True,
        preexec_fn=bind_to_parent(slot.cores),
      )
    progress.device, progress.began = slot.name, time.monotonic()
    self._change(progress, RunState.RUNNING)
    return child

  def _ended(self, progress: RunProgress, code: int, wait: float | None) -> None:
    reason = why_it_ended(progress.run, code) if code else ''
    progress.run.record_end(shell_exit_code(code), reason)
    if wait is not None:
      self._change(progress, RunState.RESTARTING, progress.note)
    else:
      progress.note = reason

  def _poll(self) -> None:
    for active in list(self._active):
      progress, slot, process = active
      if (code := process.poll()) is None:
        continue
      self._active.remove(active)
      self._free.append(slot)
      if code == 0:
        self._change(progress, RunState.DONE)
      elif self._group.stop_signal is not None:
        self._change(progress, RunState.STOPPED)
      else:
        self._change(progress, RunState.FAILED, progress.note)

  def _change(self, progress: RunProgress, state: RunState, note: str = '') -> None:
    progress.state, progress.note = state, note
    self._on_change(progress)


def log_file(run: Run) -> pathlib.Path:
  """Where a run's output goes: to its workdir; for one in a bucket, to this machine's `runs/logs`."""
  if is_remote(run.workdir):
    return pathlib.Path('runs/logs') / (re.sub(r'[^\w.=-]+', '_', os.fspath(run.workdir)) + '.txt')
  return pathlib.Path(os.fspath(run.workdir)) / 'log.txt'


def why_it_ended(run: Run, code: int) -> str:
  """How a run ended, and its error message, or else its last line."""
  lines = [line.strip() for line in log_file(run).read_text(errors='replace').splitlines() if line.strip()]
  errors = [line.removeprefix('rembert: ') for line in lines if line.startswith('rembert: ')]
  message = (errors or lines or [''])[-1] if code > 0 else ''
  return format_exit(code) + (f': {message}' if message else '')


# --- the whole of an experiment ---------------------------------------------------------------------------------------


def stages(runs: Sequence[Run]) -> list[list[Run]]:
  """Runs in stages: all that a run needs is in the stages before its own."""
  found, placed, left = [], set(), list(runs)
  while left:
    stage = [run for run in left if placed.issuperset(run.needs)]
    if not stage:
      raise ValueError(f'unsatisfied dependency: nobody makes what is needed by {[run.name for run in left]}')
    found.append(stage)
    placed |= {run.name for run in stage}
    left = [run for run in left if run.name not in placed]
  return found


def print_commands(runs: Sequence[Run], console: Console) -> None:
  """A line each, ready for a shell. Those of a stage may run side by side; the next stage needs all of them."""
  in_stages, done = stages(runs), sum(run.is_done() for run in runs)
  console.say(f'# {len(runs)} run(s), {done} of them done')
  for count, stage in enumerate(in_stages, 1):
    if len(in_stages) > 1:
      console.say(f'# stage {count} of {len(in_stages)}')
    for run in stage:
      if not run.is_done():
        console.say(shlex.join(['python', '-m', 'rembert.main', *run.arguments]))


def show_plan(runs: Sequence[Run], left_out: Mapping[str, str], options: argparse.Namespace, console: Console) -> bool:
  """Checks the commands, says which tasks are left out, and why; in a dry run prints the commands.

  Returns:
    whether the runs are to be made.

  Raises:
    UsageError: a run would refuse its settings.
  """
  made = {f'--gin_file={run.workdir / "config.gin"}' for run in runs}  # which others begin with
  for run in runs:
    if made & set(run.arguments):
      continue
    try:
      check_command(run.command)
    except UsageError as error:
      raise UsageError(f'{run.name}: {error.what}', where=error.where, fix=error.fix) from error
  for task, reason in left_out.items():
    console.say(f'left out: {task} ({reason})')
  if options.dry_run:
    print_commands(runs, console)
  return not options.dry_run


def run_all(
  runs: Sequence[Run], slots: Sequence[DeviceSlot], workdir: epath.Path, console: Console
) -> tuple[list[RunProgress], bool]:
  """Makes all runs that are not done, shows their progress, and what failed in the end.

  Returns:
    where each run stands, and whether the experiment was not stopped.
  """
  workdir.mkdir(parents=True, exist_ok=True)
  with contextlib.ExitStack() as stack:
    stack.enter_context(locked(workdir, console.say))
    view = stack.enter_context(ProgressView(console, len(slots)))
    scheduler = Scheduler(runs, slots, view.changed, lambda: view.update(scheduler.all))
    done = sum(progress.state is RunState.DONE for progress in scheduler.all)
    console.say(f'{len(runs)} run(s), {done} of them done')
    is_finished = scheduler.run()
  if not is_finished:
    console.say(f'stopped: {summary(scheduler.all, len(slots), 0.0)}. Repeat the command to go on.')
  for progress in scheduler.all:
    if progress.state in (RunState.FAILED, RunState.LEFT_OUT):
      console.say(f'{progress.state.value}: {progress.run.name} ({progress.note})')
  return scheduler.all, is_finished


def write_report(workdir: epath.Path, console: Console) -> None:
  """Writes the page of whatever is done; one that fails costs nothing else."""
  from rembert.report.__main__ import main

  if main([os.fspath(workdir)]):
    console.say(f'there is no report; once that is mended: python -m rembert.report {shlex.quote(os.fspath(workdir))}')
