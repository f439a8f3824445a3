"""Where the time of a run goes, over all its restarts, and which share of it made progress that was kept."""

import contextlib
import dataclasses
import itertools
import json
import time
from collections.abc import Iterator

from etils import epath

from rembert.files import write_whole

# Seconds of a process by what it does; `start` is everything before the first compilation.
ACTIVITIES = ('start', 'compile', 'step', 'data wait', 'evaluation', 'checkpoint')
_WRITE_EVERY_SECONDS = 30


@dataclasses.dataclass
class Session:
  """One process of the run, from its start to its last sign of life.

  Attributes:
    began: when, in seconds since 1970.
    last_seen: when this was written last.
    first_step: the step that it went on from; None before it has one.
    last_step: updates made when it was written last.
    seconds: by activity.
  """

  began: float
  last_seen: float
  first_step: int | None = None
  last_step: int | None = None
  seconds: dict[str, float] = dataclasses.field(default_factory=lambda: dict.fromkeys(ACTIVITIES, 0.0))


class Goodput:
  """Measures this process and adds it to `goodput.json`, beside those before it; one of all hosts `is_writer`."""

  def __init__(self, file: epath.Path, *, is_writer: bool = True):
    self._file, self._is_writer = file, is_writer
    self._before = read_sessions(file)
    self.session = Session(began=time.time(), last_seen=time.time())
    self._written = self._mark = time.perf_counter()
    self._activity = 'start'

  @contextlib.contextmanager
  def activity(self, name: str) -> Iterator[None]:
    """Time in here is spent on `name`, and not on what is around it."""
    outer = self._switch(name)
    try:
      yield
    finally:
      self._switch(outer)

  def begin(self, step: int) -> None:
    """Training goes on from `step`; from here on time belongs to steps unless said otherwise."""
    self.session.first_step = self.session.last_step = step
    self._switch('step')

  def reached(self, step: int) -> None:
    """`step` updates are made."""
    self.session.last_step = step
    if time.perf_counter() - self._written > _WRITE_EVERY_SECONDS:
      self.write()

  def write(self) -> None:
    """Brings the file up to date."""
    self._switch(self._activity)
    self._written = time.perf_counter()
    self.session.last_seen = time.time()
    if self._is_writer:
      sessions = [dataclasses.asdict(session) for session in self.sessions()]
      write_whole(self._file, json.dumps(sessions, indent=1) + '\n')

  def sessions(self) -> list[Session]:
    """All processes of this run so far, this one last."""
    return [*self._before, self.session]

  def _switch(self, name: str) -> str:
    now = time.perf_counter()
    self.session.seconds[self._activity] += now - self._mark
    before, self._activity, self._mark = self._activity, name, now
    return before


def read_sessions(file: epath.Path) -> list[Session]:
  """What `Goodput` has written; nothing where it cannot be read: it is only about time."""
  try:
    return [Session(**session) for session in json.loads(file.read_text())]
  except (OSError, ValueError, TypeError):
    return []


@dataclasses.dataclass(frozen=True)
class Account:
  """Where the time went, in seconds of wall-clock time.

  Attributes:
    total: from the first start to the last sign of life.
    by_activity: of all processes; `step` without what was lost.
    restart: between processes, when nothing ran.
    lost: steps that were made again because a process ended before it had saved them.
    productive_share: of `total`, that went into steps which were kept.
    starts: number of processes.
  """

  total: float
  by_activity: dict[str, float]
  restart: float
  lost: float
  productive_share: float
  starts: int


def account(sessions: list[Session]) -> Account:
  """Adds up a run."""
  seconds = {name: sum(session.seconds.get(name, 0.0) for session in sessions) for name in ACTIVITIES}
  lost = 0.0
  for session, following in itertools.pairwise(session for session in sessions if session.first_step is not None):
    steps = session.last_step - session.first_step
    repeated = max(0, min(session.last_step - following.first_step, steps))
    lost += session.seconds['step'] * repeated / max(steps, 1)
  seconds['step'] -= lost
  restart = sum(max(0.0, following.began - session.last_seen) for session, following in itertools.pairwise(sessions))
  total = sessions[-1].last_seen - sessions[0].began
  return Account(
    total=total,
    by_activity=seconds,
    restart=restart,
    lost=lost,
    productive_share=seconds['step'] / total if total > 0 else 0.0,
    starts=len(sessions),
  )
