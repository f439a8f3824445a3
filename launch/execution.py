"""Runs that wait for each other, made one after the other or side by side, until all are done or stopped."""

import ctypes
import dataclasses
import enum
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from launch.restarts import Patience, Restarts, as_in_a_shell, in_words
from launch.runs import Record, Run, code_version
from launch.slots import Slot
from rembert.storage import is_remote

PATIENCE = Patience(max_short_runs=3)
_LOOK_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1  # Linux, prctl(2)


class State(enum.Enum):
  """Where a run stands."""

  WAITING = 'waiting'
  RUNNING = 'running'
  RESTARTING = 'restarting'
  DONE = 'done'
  STOPPED = 'stopped'
  FAILED = 'failed'
  LEFT_OUT = 'left out'


@dataclasses.dataclass
class Progress:
  """A run and where it stands.

  Attributes:
    run: the run.
    state: where it stands.
    note: why it failed or was left out; how it will be restarted.
    slot: where it runs, or ran last.
    began: of the present start, by the monotonic clock.
  """

  run: Run
  state: State = State.WAITING
  note: str = ''
  slot: Slot | None = None
  began: float = 0.0


@dataclasses.dataclass
class _Start:
  """A run that holds a slot: its process, or the moment of its next start."""

  progress: Progress
  slot: Slot
  record: Record
  restarts: Restarts
  process: subprocess.Popen | None = None
  next_start: float = 0.0
  is_told: bool = False


class Execution:
  """Makes runs.

  Attributes:
    all: the runs in the order given, and where each stands.
  """

  def __init__(
    self,
    runs: Sequence[Run],
    slots: Sequence[Slot],
    on_change: Callable[[Progress], None] = lambda progress: None,
    on_look: Callable[[], None] = lambda: None,
    patience: Patience = PATIENCE,
  ):
    """
    Args:
      runs: with all that they need.
      slots: at least one.
      on_change: told of every run whose state has changed.
      on_look: called some ten times a second.
      patience: with runs that are killed, or stop early by themselves.
    """
    for run in runs:
      run.check()
    self.all = [Progress(run, State.DONE if run.is_done() else State.WAITING) for run in runs]
    self._by_name = {progress.run.name: progress for progress in self.all}
    self._on_change, self._on_look, self._patience = on_change, on_look, patience
    self._free, self._starts = list(slots), []
    self._code = code_version()
    self._is_told = False

  def run(self) -> bool:
    """Makes all that is not done. False if it was told to stop: SIGTERM and Ctrl-C stop all runs, which save first."""
    previous = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
      while True:
        self._look_at_processes()
        if not self._is_told:
          self._leave_out()
          self._start_waiting()
        if not self._starts:
          return not self._is_told
        self._on_look()
        time.sleep(_LOOK_SECONDS)
    finally:
      for number, handler in previous.items():
        signal.signal(number, handler)

  def _start_waiting(self) -> None:
    for progress in self.all:
      if not self._free:
        return
      needs = [self._by_name[name] for name in progress.run.needs]
      if progress.state is State.WAITING and all(need.state is State.DONE for need in needs):
        slot = self._free.pop(0)
        restarts = Restarts(self._patience, lambda text, progress=progress: setattr(progress, 'note', text))
        start = _Start(progress, slot, Record(progress.run, self._code), restarts)
        self._starts.append(start)
        self._begin(start)

  def _begin(self, start: _Start) -> None:
    progress = start.progress
    file = log_file(progress.run)
    file.parent.mkdir(parents=True, exist_ok=True)
    start.record.began()
    with open(file, 'ab') as log:
      start.process = subprocess.Popen(
        progress.run.command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, **start.slot.environment},
        start_new_session=True,  # Ctrl-C is for this process, which passes it on once
        preexec_fn=_before_start(start.slot),
      )
    progress.slot, progress.began = start.slot, time.monotonic()
    self._change(progress, State.RUNNING)

  def _look_at_processes(self) -> None:
    for start in list(self._starts):
      if start.process is None:
        if self._is_told:
          self._end(start, State.STOPPED)
        elif time.monotonic() >= start.next_start:
          self._begin(start)
      elif (code := start.process.poll()) is not None:
        start.process = None
        self._ended(start, code)
      elif self._is_told and not start.is_told:
        start.is_told = True
        start.process.send_signal(signal.SIGTERM)

  def _ended(self, start: _Start, code: int) -> None:
    progress = start.progress
    reason = '' if code == 0 else why_it_ended(progress.run, code)
    start.record.ended(as_in_a_shell(code), reason)
    if code == 0:
      self._end(start, State.DONE)
    elif self._is_told:
      self._end(start, State.STOPPED)
    elif (wait := start.restarts.wait_after(code, time.monotonic() - progress.began)) is not None:
      start.next_start = time.monotonic() + wait
      self._change(progress, State.RESTARTING, progress.note)
    else:
      self._end(start, State.FAILED, reason)

  def _end(self, start: _Start, state: State, note: str = '') -> None:
    self._starts.remove(start)
    self._free.append(start.slot)
    self._change(start.progress, state, note)

  def _leave_out(self) -> None:
    """Whatever needs what has failed; again and again, for others may need that."""
    for progress in self.all:
      lost = [name for name in progress.run.needs if self._by_name[name].state in (State.FAILED, State.LEFT_OUT)]
      if progress.state is State.WAITING and lost:
        self._change(progress, State.LEFT_OUT, f'needs {lost[0]}')

  def _change(self, progress: Progress, state: State, note: str = '') -> None:
    progress.state, progress.note = state, note
    self._on_change(progress)

  def _stop(self, *_) -> None:
    self._is_told = True


def log_file(run: Run) -> pathlib.Path:
  """Where a run's output goes: to its workdir, or for one in a bucket to this machine's `runs/logs`."""
  if is_remote(run.workdir):
    return pathlib.Path('runs/logs') / (re.sub(r'[^\w.=-]+', '_', os.fspath(run.workdir)) + '.txt')
  return pathlib.Path(os.fspath(run.workdir)) / 'log.txt'


def why_it_ended(run: Run, code: int) -> str:
  """The error that a run ended with, as it said it; or its last line."""
  lines = [line.strip() for line in log_file(run).read_text(errors='replace').splitlines() if line.strip()]
  told = [line.removeprefix('rembert: ') for line in lines if line.startswith('rembert: ')]
  said = told[-1] if told and code > 0 else lines[-1] if lines and code > 0 else ''
  return in_words(code) + (f': {said}' if said else '')


def _before_start(slot: Slot) -> Callable[[], None]:
  """What the new process does before it becomes the program: takes its cores, and will not outlive this one."""
  prctl = ctypes.CDLL(None).prctl if sys.platform == 'linux' else None  # looked up before the fork
  cores = slot.cores

  def prepare() -> None:
    if prctl is not None:
      prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if cores is not None and hasattr(os, 'sched_setaffinity'):
      os.sched_setaffinity(0, cores)

  return prepare
