"""Time breakdown of a run over all its restarts, and its goodput, the fraction of time in steps that were kept."""

import contextlib
import dataclasses
import itertools
import json
import time
from collections.abc import Iterator

from etils import epath

from rembert.files import write_whole

# Activities of a process; `start` is everything before the first compilation.
ACTIVITIES = ('start', 'compile', 'step', 'data wait', 'evaluation', 'checkpoint')
_WRITE_EVERY_SECONDS = 30


@dataclasses.dataclass
class Session:
  """One process of the run; times of day are seconds since 1970."""

  began: float
  last_seen: float  # when this was last written
  first_step: int | None = None  # the step that it started or resumed from; None before
  last_step: int | None = None  # number of updates when it was last written
  seconds: dict[str, float] = dataclasses.field(default_factory=lambda: dict.fromkeys(ACTIVITIES, 0.0))


class Goodput:
  """Measures this process and appends it to `goodput.json`; only one host writes, `is_writer`."""

  def __init__(self, file: epath.Path, *, is_writer: bool = True):
    self._file, self._is_writer = file, is_writer
    self._before = read_sessions(file)
    self.session = Session(began=time.time(), last_seen=time.time())
    self._written = self._mark = time.perf_counter()
    self._activity = 'start'

  @contextlib.contextmanager
  def activity(self, name: str) -> Iterator[None]:
    """Counts the time inside as `name` instead of the surrounding activity."""
    outer = self._switch(name)
    try:
      yield
    finally:
      self._switch(outer)

  def begin(self, step: int) -> None:
    """Marks the start of training at `step`; from here on, time counts as `step` unless in another activity."""
    self.session.first_step = self.session.last_step = step
    self._switch('step')

  def reached(self, step: int) -> None:
    """Records that `step` updates are done."""
    self.session.last_step = step
    if time.perf_counter() - self._written > _WRITE_EVERY_SECONDS:
      self.write()

  def write(self) -> None:
    """Updates the file."""
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
  """The sessions of a `goodput.json`; none if it cannot be read, which loses only timings."""
  try:
    return [Session(**session) for session in json.loads(file.read_text())]
  except (OSError, ValueError, TypeError):
    return []


@dataclasses.dataclass(frozen=True)
class Account:
  """Time breakdown of a run, wall-clock seconds."""

  total: float  # from the first start to the end
  by_activity: dict[str, float]  # of all processes; `step` excludes `lost`
  restart: float  # between processes
  lost: float  # in steps that were recomputed because a process ended before saving them
  productive_share: float  # the fraction of `total` in steps that were kept
  starts: int  # number of processes


def account(sessions: list[Session]) -> Account:
  """Adds up the sessions of a run."""
  seconds = {name: sum(session.seconds.get(name, 0.0) for session in sessions) for name in ACTIVITIES}
  lost = 0.0
  trained = [
    (session, session.first_step, session.last_step)
    for session in sessions
    if session.first_step is not None and session.last_step is not None
  ]
  for (session, first, last), (_, resumed, _) in itertools.pairwise(trained):
    repeated = max(0, min(last - resumed, last - first))
    lost += session.seconds['step'] * repeated / max(last - first, 1)
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
