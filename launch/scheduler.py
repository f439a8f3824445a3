"""Schedules runs with dependencies, sequentially or in parallel, until all are done or stopped."""

import argparse
import collections
import dataclasses
import enum
import functools
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from etils import epath

from launch.experiment import Run, code_version
from launch.processes import ProcessGroup, RetryPolicy, bind_to_parent, format_exit, keep_running, shell_exit_code
from rembert.command_line import add_modules
from rembert.errors import UsageError
from rembert.files import is_remote
from rembert.jobs.workdir import locked
from rembert.tracking.console import Console, human_duration
from rembert.validation import Count, number

RETRY_POLICY = RetryPolicy(max_short_runs=3)
_POLL_SECONDS = 0.1

# --- devices ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class DeviceSlot:
  """A device for one run at a time: an accelerator, or a part of the cores."""

  name: str = ''  # empty if there is only one slot
  environment: Mapping[str, str] = dataclasses.field(default_factory=dict)  # restricts the run to its device
  cores: frozenset[int] | None = None  # None for all


def device_slots(devices: Sequence[str]) -> list[DeviceSlot]:
  """A slot for each GPU or TPU chip of this machine, by its number.

  Sets the variables of both drivers: `CUDA_VISIBLE_DEVICES` for CUDA, the others for libtpu, which treats a single chip
  as a slice of its own if the bounds of processes and chips are 1,1,1.
  """
  bounds = {'TPU_CHIPS_PER_PROCESS_BOUNDS': '1,1,1', 'TPU_PROCESS_BOUNDS': '1,1,1'}
  return [
    DeviceSlot(f'device {device}', {'CUDA_VISIBLE_DEVICES': device, 'TPU_VISIBLE_CHIPS': device, **bounds})
    for device in devices
  ]


def core_slots(count: int) -> list[DeviceSlot]:
  """`count` slots with equal numbers of cores; remaining cores are idle. UsageError if there are fewer cores."""
  cores = sorted(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else list(range(os.cpu_count() or 1))
  if count == 1:
    return [DeviceSlot()]
  if count > len(cores):
    raise UsageError(
      f'{count} runs in parallel on {len(cores)} core(s)',
      where=f'--parallel_runs={count}',
      fix=f'use at most {len(cores)}; more would slow each other down',
    )
  each = len(cores) // count
  shares = [cores[index * each : (index + 1) * each] for index in range(count)]
  return [DeviceSlot(f'cores {share[0]}-{share[-1]}', cores=frozenset(share)) for share in shares]


def add_run_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
  """Adds the options for devices (`chosen_slots`), dry runs and modules."""
  where = parser.add_mutually_exclusive_group()
  help_text = 'GPUs or TPU chips of this machine, one run on each (default: one run on all)'
  where.add_argument('--devices', metavar='0,1,…', help=help_text)
  help_text = 'number of parallel runs, each on a part of the CPU cores (default: 1); --side_by_side is the old name'
  where.add_argument('--parallel_runs', '--side_by_side', type=number(Count), default=1, metavar='N', help=help_text)
  help_text = 'print the commands without running them'
  parser.add_argument('--dry_run', action='store_true', help=help_text)
  add_modules(parser)


def chosen_slots(options: argparse.Namespace) -> list[DeviceSlot]:
  """The slots that the options choose."""
  return device_slots(options.devices.split(',')) if options.devices else core_slots(options.parallel_runs)


# --- scheduling -------------------------------------------------------------------------------------------------------


class RunState(enum.Enum):
  """How far a run is."""

  WAITING = 'waiting'
  RUNNING = 'running'
  RESTARTING = 'restarting'
  DONE = 'done'
  STOPPED = 'stopped'
  FAILED = 'failed'
  LEFT_OUT = 'skipped'


@dataclasses.dataclass
class RunProgress:
  """A run and its state."""

  run: Run
  state: RunState = RunState.WAITING
  note: str = ''  # why it failed or was skipped; how it will be restarted
  slot: DeviceSlot = DeviceSlot()  # current or last
  process: Iterator[int | None] | None = None  # of `keep_running`, until the run has ended finally


class Scheduler:
  """Starts each run as soon as its dependencies are done and a slot is free; restarts runs that were killed.

  `runs` have all their dependencies; `all` has them in the same order, with their states, each change of which is
  reported to `on_change`.
  """

  def __init__(
    self,
    runs: Sequence[Run],
    slots: Sequence[DeviceSlot],
    on_change: Callable[[RunProgress], None] = lambda progress: None,
    policy: RetryPolicy = RETRY_POLICY,
  ):
    for run in runs:
      run.check()
    self.all = [RunProgress(run, RunState.DONE if run.is_done() else RunState.WAITING) for run in runs]
    self._by_name = {progress.run.name: progress for progress in self.all}
    self._on_change, self._policy = on_change, policy
    self._free = list(slots)
    self._code = code_version()
    # Children are in their own sessions, so Ctrl-C reaches them only through this process, as one SIGTERM: a
    # second Ctrl-C would end them before they have saved.
    self._group = ProcessGroup(forward_once=signal.SIGTERM)

  def run(self) -> bool:
    """Runs everything that is not done. Returns False if a signal stopped it and all runs, which save first."""
    with self._group as group:
      while True:
        self._poll()
        for progress in self.all:
          if progress.state is RunState.WAITING and group.stop_signal is None:
            self._start_or_leave_out(progress)
        if all(progress.process is None for progress in self.all):
          return group.stop_signal is None
        time.sleep(_POLL_SECONDS)

  def _start_or_leave_out(self, progress: RunProgress) -> None:
    needs = [self._by_name[name] for name in progress.run.needs]
    if lost := [need for need in needs if need.state in (RunState.FAILED, RunState.LEFT_OUT)]:
      self._change(progress, RunState.LEFT_OUT, f'depends on {lost[0].run.name}')
    elif self._free and all(need.state is RunState.DONE for need in needs):
      progress.slot = self._free.pop(0)
      start, end = functools.partial(self._start, progress), functools.partial(self._end, progress)
      log = functools.partial(setattr, progress, 'note')
      progress.process = keep_running(self._group, start, self._policy, log, end)
      next(progress.process)  # starts it

  def _start(self, progress: RunProgress) -> subprocess.Popen:
    file = log_file(progress.run)
    file.parent.mkdir(parents=True, exist_ok=True)
    progress.run.record_start(self._code)
    with open(file, 'ab') as log:
      child = self._group.start(
        progress.run.command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, **progress.slot.environment},
        start_new_session=True,
        preexec_fn=bind_to_parent(progress.slot.cores),
      )
    self._change(progress, RunState.RUNNING)
    return child

  def _end(self, progress: RunProgress, code: int, wait: float | None) -> None:
    reason = why_it_ended(progress.run, code) if code else ''
    progress.run.record_end(shell_exit_code(code), reason)
    if wait is not None:
      self._change(progress, RunState.RESTARTING, progress.note)
    else:
      progress.note = reason

  def _poll(self) -> None:
    for progress in self.all:
      if progress.process is not None and (code := next(progress.process)) is not None:
        progress.process = None
        self._free.append(progress.slot)
        is_stopped = self._group.stop_signal is not None
        state = RunState.DONE if code == 0 else RunState.STOPPED if is_stopped else RunState.FAILED
        self._change(progress, state, progress.note if state is RunState.FAILED else '')

  def _change(self, progress: RunProgress, state: RunState, note: str = '') -> None:
    progress.state, progress.note = state, note
    self._on_change(progress)


def log_file(run: Run) -> pathlib.Path:
  """The log file of a run: in its workdir or, if that is in a bucket, in `runs/logs` of this machine."""
  if is_remote(run.workdir):
    return pathlib.Path('runs/logs') / (re.sub(r'[^\w.=-]+', '_', os.fspath(run.workdir)) + '.txt')
  return pathlib.Path(os.fspath(run.workdir)) / 'log.txt'


def why_it_ended(run: Run, code: int) -> str:
  """How a run ended, with its error message or last line."""
  lines = [line.strip() for line in log_file(run).read_text(errors='replace').splitlines() if line.strip()]
  errors = [line.removeprefix('rembert: ') for line in lines if line.startswith('rembert: ')]
  message = (errors or lines or [''])[-1] if code > 0 else ''
  return format_exit(code) + (f': {message}' if message else '')


# --- experiments ------------------------------------------------------------------------------------------------------


def format_change(progress: RunProgress) -> str:
  """Formats a change of state."""
  took = human_duration(progress.run.seconds()) if progress.state is RunState.DONE else ''
  device = progress.slot.name if progress.state is RunState.RUNNING else ''
  return ' · '.join(part for part in (progress.state.value, progress.run.name, took, device, progress.note) if part)


def summary(runs: Sequence[RunProgress]) -> str:
  """Formats the numbers of runs by state."""
  counts = collections.Counter(each.state for each in runs)
  parts = [f'{counts[state]} {state.value}' for state in RunState if counts[state] and state is not RunState.DONE]
  return ' · '.join([f'{counts[RunState.DONE]} of {len(runs)} done', *parts])


def run_all(
  runs: Sequence[Run], slots: Sequence[DeviceSlot], workdir: epath.Path, console: Console
) -> tuple[list[RunProgress], bool]:
  """Runs everything that is not done; returns the state of each run, and False if the experiment was stopped.

  Prints each change of state, and finally the failures.
  """
  workdir.mkdir(parents=True, exist_ok=True)
  with locked(workdir, console.say):
    scheduler = Scheduler(runs, slots, lambda progress: console.say(format_change(progress)))
    console.say(f'{len(runs)} run(s), {sum(each.state is RunState.DONE for each in scheduler.all)} already done')
    is_finished = scheduler.run()
  if not is_finished:
    console.say(f'stopped: {summary(scheduler.all)}. Run the same command again to resume.')
  for each in scheduler.all:
    if each.state in (RunState.FAILED, RunState.LEFT_OUT):
      console.say(f'{each.state.value}: {each.run.name} ({each.note})')
  return scheduler.all, is_finished


def write_report(workdir: epath.Path, console: Console) -> None:
  """Writes the report of all results; an error is only logged."""
  from rembert.report.__main__ import main

  if main([os.fspath(workdir)]):
    console.say(f'no report was written; to write it: python -m rembert.report {shlex.quote(os.fspath(workdir))}')
