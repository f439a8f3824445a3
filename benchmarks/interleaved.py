"""Measures candidates in separate processes, interleaved (A B C A B C …), never two at once.

Two numerical libraries in one process would compete for threads. The speed of a shared machine changes over minutes, so
each time is compared with its neighbours in time, not with averages.
"""

import dataclasses
import multiprocessing
import os
import pathlib
import re
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

OURS = 'this project'
Run = Callable[[], Mapping[str, float] | None]


class Unavailable(Exception):
  """This machine lacks something that a setting requires; the message names it, and how to get it."""


@dataclasses.dataclass(frozen=True)
class Candidate:
  """One implementation of a piece of work.

  `prepare` is called with `arguments` (which pickle) in a process of the candidate, in which JAX uses the CPU only
  unless `prepare` changes that. It returns a function that does the work once, blocks until it is done, and returns
  facts about the result (a loss, characters kept) or None. Its ImportError means that a library is not installed.

  `work` is the amount of work per run, by unit: `{'rows': 6400, 'tokens': 409600}` is shown in rows/s and tokens/s.
  Candidates that have the first unit of the first candidate are compared with it, per unit.
  """

  name: str
  prepare: Callable[..., Run]  # importable by name
  arguments: tuple
  work: Mapping[str, float]
  one_core: bool = False  # all its threads share one
  environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Measurement:
  """Times of a candidate, one per round. CPU seconds are those of all threads and children."""

  seconds: list[float] = dataclasses.field(default_factory=list)
  cpu_seconds: list[float] = dataclasses.field(default_factory=list)
  facts: dict[str, float] = dataclasses.field(default_factory=dict)  # about the result of the first run
  preparation_seconds: float = 0.0  # imports, initialisation, compilation and warm-up
  peak_bytes: int = 0  # resident size of the process or of one of its children
  failure: str = ''  # why there are no times

  @property
  def median(self) -> float:
    """Seconds of one run."""
    return statistics.median(self.seconds)

  @property
  def cpu_median(self) -> float:
    """CPU seconds of one run."""
    return statistics.median(self.cpu_seconds)


Measurements = Mapping[str, Measurement]  # by the names of candidates


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """A comparison, in several settings by name, each with a `description` of one line."""

  settings: Mapping[str, Any]
  candidates: Callable[[Any, pathlib.Path], list[Candidate]]  # (setting, scratch directory), this project first
  warm_up_runs: int = 2  # of each candidate before the first turn
  runs_per_turn: int = 1
  conclusion: Callable[[Any, Measurements], str] = lambda setting, measured: ''  # a line below the table


def measure_interleaved(
  candidates: Sequence[Candidate],
  rounds: int,
  log: Callable[[str], None],
  *,
  warm_up_runs: int = 2,
  runs_per_turn: int = 1,
) -> dict[str, Measurement]:
  """Measures candidates; returns measurements by name. Prepares all candidates first, one by one; then they take turns.

  A turn averages `runs_per_turn` runs. If more than one, an unmeasured run precedes them, for repeated work such as
  training steps: directly after other candidates, caches contain none of a candidate's data. `log` receives a line per
  step.
  """
  processes = {}
  for candidate in candidates:
    process = processes[candidate.name] = _Process(candidate, warm_up_runs, runs_per_turn)
    measurement = process.measurement
    log(f'{candidate.name}: {measurement.failure or f"ready after {measurement.preparation_seconds:.1f} s"}')
  for turn in range(rounds):
    for process in processes.values():
      if not process.measurement.failure:
        process.take_turn()
    times = [f'{process.measurement.seconds[-1]:.3f}' for process in processes.values() if process.measurement.seconds]
    log(f'round {turn + 1} of {rounds}: {" · ".join(times)} s')
  return {name: process.finish() for name, process in processes.items()}


def relative_times(other: Candidate, ours: Candidate, measured: Measurements) -> tuple[list[float], list[float]]:
  """Other ÷ ours for the same work, by round, in seconds and in CPU seconds; empty if not comparable."""
  theirs, own, unit = measured[other.name], measured[ours.name], next(iter(ours.work), None)
  if other is ours or unit not in other.work or theirs.failure or own.failure:
    return [], []
  share = ours.work[unit] / other.work[unit]
  ratios = lambda others, ours: [other / our * share for other, our in zip(others, ours, strict=True)]
  return ratios(theirs.seconds, own.seconds), ratios(theirs.cpu_seconds, own.cpu_seconds)


class _Process:
  """A candidate's process, waiting on a pipe between its turns."""

  def __init__(self, candidate: Candidate, warm_up_runs: int, runs_per_turn: int):
    context = multiprocessing.get_context('spawn')  # a fork would inherit locks, but not the threads that hold them
    self._connection, theirs = context.Pipe()
    self._process = context.Process(target=_serve, args=(theirs, candidate, warm_up_runs, runs_per_turn), daemon=True)
    with mock.patch.dict(os.environ, {'JAX_PLATFORMS': 'cpu', **candidate.environment}):
      self._process.start()
    theirs.close()  # otherwise the end of the child would not be detected
    self.measurement = self._receive() or Measurement(failure=self._exit())

  def take_turn(self) -> None:
    """Takes a turn, timed in the child, so that the pipe does not count."""
    self._connection.send(True)
    if times := self._receive():
      self.measurement.seconds.append(times[0])
      self.measurement.cpu_seconds.append(times[1])
    else:
      self.measurement = Measurement(failure=self._exit())

  def finish(self) -> Measurement:
    """Ends the process, and returns its measurement."""
    if not self.measurement.failure:
      self._connection.send(False)
      self.measurement.peak_bytes = self._receive() or 0
    self._process.join(timeout=30)
    return self.measurement

  def _receive(self):
    try:
      return self._connection.recv()
    except EOFError:
      return None

  def _exit(self) -> str:
    self._process.join()
    return f'exited with {self._process.exitcode}' + (' (out of memory?)' if self._process.exitcode < 0 else '')


def _serve(connection, candidate: Candidate, warm_up_runs: int, runs_per_turn: int) -> None:
  try:
    if candidate.one_core:
      _stay_on_one_core()
    start = time.perf_counter()
    run = candidate.prepare(*candidate.arguments)
    facts = dict(run() or {})
    for _ in range(warm_up_runs - 1):
      run()
    connection.send(Measurement(facts=facts, preparation_seconds=time.perf_counter() - start))
    while connection.recv():
      if runs_per_turn > 1:
        run()  # the caches still contain data of other candidates
      start, cpu_start = time.perf_counter(), _cpu_seconds()
      for _ in range(runs_per_turn):
        run()
      seconds, cpu_seconds = time.perf_counter() - start, _cpu_seconds() - cpu_start
      connection.send((seconds / runs_per_turn, cpu_seconds / runs_per_turn))
    connection.send(_peak_bytes())
  except ImportError as error:
    connection.send(Measurement(failure=f'{error.name or error} is not installed'))


def _cpu_seconds() -> float:
  """CPU seconds of this process, with all threads and its children that have ended."""
  times = os.times()
  return time.process_time() + times.children_user + times.children_system


def _peak_bytes() -> int:
  """Maximum resident size of this process, or of one of its children that have ended."""
  own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
  status = pathlib.Path('/proc/self/status')
  # A process inherits its parent's maximum; Linux also reports its own one.
  if status.exists() and (match := re.search(r'^VmHWM:\s+(\d+) kB$', status.read_text(), re.MULTILINE)):
    own = int(match[1])
  return max(own, children) * 1024


def _stay_on_one_core() -> None:
  """Restricts all threads, present and future, to one core (Linux only)."""
  if hasattr(os, 'sched_setaffinity'):
    core = {max(os.sched_getaffinity(0))}
    for thread in os.listdir('/proc/self/task'):
      os.sched_setaffinity(int(thread), core)
