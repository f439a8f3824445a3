"""Measures candidates in separate processes, interleaved (A B C A B C …), never two at once.

Two numerical libraries in one process would compete for threads. The speed of a shared machine changes over minutes, so
each time is compared with its neighbours in time, not with averages.
"""

import concurrent.futures
import contextlib
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
  measured, executors = {}, {}
  with contextlib.ExitStack() as stack:
    context = multiprocessing.get_context('spawn')  # a fork would inherit locks, but not the threads that hold them
    for candidate in candidates:
      executor = stack.enter_context(concurrent.futures.ProcessPoolExecutor(1, context))
      with mock.patch.dict(os.environ, {'JAX_PLATFORMS': 'cpu', **candidate.environment}):
        found = measured[candidate.name] = _call(executor, _prepare, candidate, warm_up_runs)
      executors[candidate.name] = executor
      log(f'{candidate.name}: {found.failure or f"ready after {found.preparation_seconds:.1f} s"}')
    for turn in range(rounds):
      for name, executor in executors.items():
        if not measured[name].failure:
          measured[name] = _call(executor, _take_turn, measured[name], runs_per_turn)
      times = [f'{found.seconds[-1]:.3f}' for found in measured.values() if found.seconds]
      log(f'round {turn + 1} of {rounds}: {" · ".join(times)} s')
  return measured


def relative_times(other: Candidate, ours: Candidate, measured: Measurements) -> tuple[list[float], list[float]]:
  """Other ÷ ours for the same work, by round, in seconds and in CPU seconds; empty if not comparable."""
  theirs, own, unit = measured[other.name], measured[ours.name], next(iter(ours.work), None)
  if other is ours or unit not in other.work or theirs.failure or own.failure:
    return [], []
  share = ours.work[unit] / other.work[unit]
  ratios = lambda others, ours: [other / our * share for other, our in zip(others, ours, strict=True)]
  return ratios(theirs.seconds, own.seconds), ratios(theirs.cpu_seconds, own.cpu_seconds)


# --- a candidate's process --------------------------------------------------------------------------------------------

_run: Run  # of the candidate of this process


def _call(executor: concurrent.futures.Executor, function: Callable[..., Measurement], *arguments) -> Measurement:
  try:
    return executor.submit(function, *arguments).result()
  except ImportError as error:
    return Measurement(failure=f'{error.name or error} is not installed')
  except concurrent.futures.BrokenExecutor:
    return Measurement(failure='its process has ended (out of memory?)')
  except Exception as error:
    return Measurement(failure=repr(error))


def _prepare(candidate: Candidate, warm_up_runs: int) -> Measurement:
  global _run
  if candidate.one_core:
    _stay_on_one_core()
  start = time.perf_counter()
  _run = candidate.prepare(*candidate.arguments)
  facts = dict(_run() or {})
  for _ in range(warm_up_runs - 1):
    _run()
  return Measurement(facts=facts, preparation_seconds=time.perf_counter() - start)


def _take_turn(measurement: Measurement, runs: int) -> Measurement:
  """The measurement with the mean of some runs, timed in this process."""
  if runs > 1:
    _run()  # the caches still contain data of other candidates
  start, cpu_start = time.perf_counter(), _cpu_seconds()
  for _ in range(runs):
    _run()
  measurement.seconds.append((time.perf_counter() - start) / runs)
  measurement.cpu_seconds.append((_cpu_seconds() - cpu_start) / runs)
  measurement.peak_bytes = _peak_bytes()
  return measurement


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
