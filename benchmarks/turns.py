"""Contestants in processes of their own, measured in turn: A B C A B C …, never two at once.

Of their own, because two numerical libraries in one process fight over its threads; in turn, because a shared machine
is faster in one minute than in the next, and neighbours in time can be compared where averages cannot.
"""

import dataclasses
import multiprocessing
import os
import pathlib
import re
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from unittest import mock

Run = Callable[[], Mapping[str, float] | None]


class NotHere(Exception):
  """What a setting is measured on is not on this machine; the message says what that is, and how to bring it here."""


@dataclasses.dataclass(frozen=True)
class Contestant:
  """One way to do a piece of work.

  Attributes:
    name: as it stands in the table.
    prepare: called once in the contestant's own process; returns a function that does the work once and returns only
      when it is done, with facts that show what it did (a loss, how much text it kept) or None. Must be importable by
      name. ImportError means that a library is missing here.
    arguments: of `prepare`; must pickle.
    work: how much one run gets done, by unit: `{'rows': 6400, 'tokens': 409600}` is shown in rows/s and tokens/s. Who
      shares the first unit of the first contestant is compared with it, for the same amount of that unit.
    one_core: whether it has to make do with a single core, all its threads together.
    environment: variables that its process is started with, beside those of this one.
  """

  name: str
  prepare: Callable[..., Run]
  arguments: tuple
  work: Mapping[str, float]
  one_core: bool = False
  environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Measurement:
  """What a contestant took.

  Attributes:
    seconds: of a run, in the order of the rounds; empty if there was none.
    cpu_seconds: of a run, over all threads, and all processes that it started and waited for; where others use the
      machine too, they say more than `seconds`.
    facts: what the first run returned, to see that contestants do the same work.
    preparation_seconds: imports, initialisation, compilation, warm-up.
    peak_bytes: largest resident size of the process, or of one that it started.
    failure: why there is nothing to show, or ''.
  """

  seconds: list[float] = dataclasses.field(default_factory=list)
  cpu_seconds: list[float] = dataclasses.field(default_factory=list)
  facts: dict[str, float] = dataclasses.field(default_factory=dict)
  preparation_seconds: float = 0.0
  peak_bytes: int = 0
  failure: str = ''

  @property
  def median(self) -> float:
    """Seconds of one run."""
    return statistics.median(self.seconds)

  @property
  def cpu_median(self) -> float:
    """CPU seconds of one run."""
    return statistics.median(self.cpu_seconds)


def _serve(connection: Connection, contestant: Contestant, warm_up_runs: int, runs_in_a_row: int) -> None:
  try:
    if contestant.one_core:
      _stay_on_one_core()
    start = time.perf_counter()
    run = contestant.prepare(*contestant.arguments)
    facts = dict(run() or {})
    for _ in range(warm_up_runs - 1):
      run()
    connection.send(Measurement(facts=facts, preparation_seconds=time.perf_counter() - start))
    while connection.recv():
      if runs_in_a_row > 1:
        run()  # the caches are still the others'
      start = time.perf_counter(), _cpu_seconds()
      for _ in range(runs_in_a_row):
        run()
      connection.send(((time.perf_counter() - start[0]) / runs_in_a_row, (_cpu_seconds() - start[1]) / runs_in_a_row))
    connection.send(_peak_bytes())
  except ImportError as error:
    connection.send(Measurement(failure=f'{error.name or error} is not installed'))


def _cpu_seconds() -> float:
  """Of this process, all its threads, and of those that it has started and that have ended."""
  times = os.times()
  return time.process_time() + times.children_user + times.children_system


def _peak_bytes() -> int:
  """The largest resident size of this process, or of one that it has started and that has ended."""
  own, of_children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
  status = pathlib.Path('/proc/self/status')
  # A process inherits what its parent took when it was made; Linux also says what it took itself.
  if status.exists() and (match := re.search(r'^VmHWM:\s+(\d+) kB$', status.read_text(), re.MULTILINE)):
    own = int(match[1])
  return max(own, of_children) * 1024


def _stay_on_one_core() -> None:
  """All threads that are there and all that they will start; everywhere but on Linux, only by their good will."""
  if hasattr(os, 'sched_setaffinity'):
    core = {max(os.sched_getaffinity(0))}
    for thread in os.listdir('/proc/self/task'):
      os.sched_setaffinity(int(thread), core)


class _Process:
  """A contestant's process, waiting on a pipe between its turns."""

  def __init__(self, contestant: Contestant, warm_up_runs: int, runs_in_a_row: int):
    # Not fork: the child would inherit the threads' locks without the threads.
    context = multiprocessing.get_context('spawn')
    self._connection, theirs = context.Pipe()
    self._process = context.Process(target=_serve, args=(theirs, contestant, warm_up_runs, runs_in_a_row), daemon=True)
    with mock.patch.dict(os.environ, contestant.environment):
      self._process.start()
    theirs.close()  # else the end of a dead child would never be noticed
    self.measurement = self._receive() or Measurement(failure=self._died())

  def take_turn(self) -> None:
    """One run, or the mean of several, timed in the child, so that the pipe costs nothing."""
    self._connection.send(True)
    taken = self._receive()
    if taken is None:
      self.measurement = Measurement(failure=self._died())
    else:
      self.measurement.seconds.append(taken[0])
      self.measurement.cpu_seconds.append(taken[1])

  def finish(self) -> Measurement:
    """Ends the process."""
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

  def _died(self) -> str:
    self._process.join()
    return f'died with exit code {self._process.exitcode}' + (' (out of memory?)' if self._process.exitcode < 0 else '')


def measure_in_turn(
  contestants: list[Contestant],
  rounds: int,
  say: Callable[[str], None],
  *,
  warm_up_runs: int = 2,
  runs_in_a_row: int = 1,
) -> dict[str, Measurement]:
  """Measurements by name. All contestants are prepared first, one after the other; then they take turns.

  Args:
    contestants: the first of them is what others are compared with.
    rounds: turns of each.
    say: is told of each step, a line.
    warm_up_runs: of each, before the first turn.
    runs_in_a_row: of a turn, which takes their mean; if more than one, another goes before them, unmeasured. For work
      that is done again and again, as a step of training is: right after others, a run finds none of its data in the
      caches.
  """
  processes = {}
  for contestant in contestants:
    process = processes[contestant.name] = _Process(contestant, warm_up_runs, runs_in_a_row)
    measurement = process.measurement
    say(f'{contestant.name}: {measurement.failure or f"ready after {measurement.preparation_seconds:.1f} s"}')
  for turn in range(rounds):
    for process in processes.values():
      if not process.measurement.failure:
        process.take_turn()
    taken = [f'{process.measurement.seconds[-1]:.3f}' for process in processes.values() if process.measurement.seconds]
    say(f'round {turn + 1} of {rounds}: {" · ".join(taken)} s')
  return {name: process.finish() for name, process in processes.items()}


def unit_of_comparison(other: Contestant, ours: Contestant) -> str | None:
  """The unit that both are compared by; None where they do not do the same kind of work."""
  unit = next(iter(ours.work), None)
  return unit if unit in other.work else None


def ratios(others: list[float], ours: list[float], share: float = 1.0) -> list[float]:
  """How many times as long the others took, round by round.

  Args:
    others: seconds of each run.
    ours: the same, in the same rounds.
    share: how much one of our runs gets done, for what one of theirs does.
  """
  return [theirs / own * share for theirs, own in zip(others, ours, strict=True)]
