"""The runs of an experiment: commands and records, and their progress as a live table or as lines in a log."""

import collections
import contextlib
import dataclasses
import datetime
import enum
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import rich.box
import rich.live
import rich.table
from etils import epath

import rembert
from launch.processes import git_output
from rembert.errors import UsageError
from rembert.files import is_remote, write_whole
from rembert.tracking.console import Console, human_duration

_RECORD = 'run.json'
_LIVE_EVERY_SECONDS = 1.0
_PLAIN_EVERY_SECONDS = 60.0
_TAIL_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of `python -m rembert.main`.

  The record beside it is JSON: `name`, `arguments`, `code` and `host` of the last start; `starts`, each with `began`,
  `ended` (ISO 8601, UTC) and `exit_code`; `reason` is the error message of a run that failed.

  Attributes:
    name: short and unique.
    workdir: its own.
    arguments: of `python -m rembert.main`.
    needs: names of the runs that have to be done before.
  """

  name: str
  workdir: epath.Path
  arguments: tuple[str, ...]
  needs: tuple[str, ...] = ()

  @property
  def command(self) -> list[str]:
    """With this Python."""
    return [sys.executable, '-m', 'rembert.main', *self.arguments]

  def record(self) -> dict[str, Any] | None:
    """The record; None if the run was never started."""
    file = self.workdir / _RECORD
    return json.loads(file.read_text()) if file.exists() else None

  def is_done(self) -> bool:
    """Whether its last start ended without an error."""
    record = self.record()
    return bool(record and record['starts'] and record['starts'][-1]['exit_code'] == 0)

  def seconds(self) -> float:
    """How long those of its starts took that have ended."""
    moment = datetime.datetime.fromisoformat
    starts = (self.record() or {'starts': []})['starts']
    return sum((moment(start['ended']) - moment(start['began'])).total_seconds() for start in starts if start['ended'])

  def check(self) -> None:
    """UsageError if it was done with other arguments; a run that is not done checks its workdir itself."""
    record = self.record()
    if record is None or not self.is_done() or record['arguments'] == list(self.arguments):
      return
    before, now = record['arguments'], list(self.arguments)
    changed = [f'- {argument}' for argument in before if argument not in now]
    changed += [f'+ {argument}' for argument in now if argument not in before]
    raise UsageError(
      f'{self.name} was run with other arguments: ' + ', '.join(changed or ['in another order']),
      where=str(self.workdir),
      fix=['take another folder: --workdir=DIR', 'or delete this one, and what was made of it'],
    )

  def record_start(self, code: dict[str, Any]) -> None:
    """Adds a start of this code (`code_version`) to the record."""
    starts = (self.record() or {'starts': []})['starts']
    content = {'name': self.name, 'arguments': list(self.arguments), 'code': code, 'host': platform.node()}
    start = {'began': _now(), 'ended': None, 'exit_code': None}
    self._write(content | {'reason': '', 'starts': [*starts, start]})

  def record_end(self, exit_code: int, reason: str = '') -> None:
    """Completes the last start in the record."""
    if (record := self.record()) is not None:  # else the workdir was deleted meanwhile
      record['starts'][-1] |= {'ended': _now(), 'exit_code': exit_code}
      self._write(record | {'reason': reason})

  def _write(self, content: dict[str, Any]) -> None:
    write_whole(self.workdir / _RECORD, json.dumps(content, indent=1, ensure_ascii=False) + '\n')


def _now() -> str:
  return datetime.datetime.now(datetime.UTC).isoformat(timespec='milliseconds')


def code_version() -> dict[str, Any]:
  """Version, git commit, and whether files differ from it; the last two are None for an installed copy."""
  folder = pathlib.Path(rembert.__file__).parent.parent
  commit = _git(folder, 'rev-parse', 'HEAD')
  changes = _git(folder, 'status', '--porcelain', '--untracked-files=no')
  return {'version': rembert.__version__, 'commit': commit, 'dirty': None if changes is None else bool(changes)}


def _git(folder: pathlib.Path, *arguments: str) -> str | None:
  with contextlib.suppress(OSError, subprocess.SubprocessError):
    return git_output(folder, *arguments).strip() if (folder / '.git').exists() else None
  return None


# --- progress ---------------------------------------------------------------------------------------------------------


class RunState(enum.Enum):
  """Where a run stands."""

  WAITING = 'waiting'
  RUNNING = 'running'
  RESTARTING = 'restarting'
  DONE = 'done'
  STOPPED = 'stopped'
  FAILED = 'failed'
  LEFT_OUT = 'left out'


_STYLES = {
  RunState.RUNNING: 'bold',
  RunState.RESTARTING: 'yellow',
  RunState.FAILED: 'red',
  RunState.LEFT_OUT: 'red',
  RunState.DONE: 'green',
}


@dataclasses.dataclass
class RunProgress:
  """A run and where it stands.

  Attributes:
    run: the run.
    state: where it stands.
    note: why it failed or was left out; how it will be restarted.
    device: where it runs, or ran last; empty if there is only one place.
    began: of the current start, monotonic.
  """

  run: Run
  state: RunState = RunState.WAITING
  note: str = ''
  device: str = ''
  began: float = 0.0

  @property
  def kind(self) -> str:
    """Runs of a kind take about as long: the first word of the name."""
    return self.run.name.split()[0]

  @property
  def seconds(self) -> float:
    """Since the start of a run that is running; 0 otherwise."""
    return time.monotonic() - self.began if self.state is RunState.RUNNING else 0.0


class ProgressView:
  """Shows the progress of runs; a context that ends the live table."""

  def __init__(self, console: Console, slots: int):
    self._console, self._slots = console, slots
    self._began = self._shown = time.monotonic()
    self._live: rich.live.Live | None = None

  def __enter__(self) -> 'ProgressView':
    if self._console.is_live:
      # Without a thread of its own: processes are forked beside it.
      self._live = rich.live.Live(console=self._console.rich, auto_refresh=False, transient=True)
      self._live.start()
    return self

  def __exit__(self, *_) -> None:
    if self._live is not None:
      self._live.stop()

  def changed(self, progress: RunProgress) -> None:
    """Shows a change of state."""
    if progress.state is RunState.WAITING:
      return
    took = human_duration(progress.run.seconds()) if progress.state is RunState.DONE else ''
    device = progress.device if progress.state is RunState.RUNNING else ''
    parts = [progress.state.value, progress.run.name, took, device, progress.note]
    self._console.say(' · '.join(part for part in parts if part))

  def update(self, runs: Sequence[RunProgress]) -> None:
    """Shows where all runs stand, if that was not done just now; to be called often."""
    every = _LIVE_EVERY_SECONDS if self._live else _PLAIN_EVERY_SECONDS
    if time.monotonic() - self._shown < every:
      return
    self._shown = time.monotonic()
    if self._live is not None:
      self._live.update(self.table(runs), refresh=True)
      return
    for each in runs:
      if each.state is RunState.RUNNING:
        self._console.say(f'  {each.run.name} · {human_duration(each.seconds)} · {last_metrics(each.run.workdir)}')
    self._console.say(f'  {summary(runs, self._slots, time.monotonic() - self._began)}')

  def table(self, runs: Sequence[RunProgress]) -> rich.table.Table:
    """What is running, what failed, what comes next; the rest as numbers in the caption."""
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, expand=True)
    table.add_column('run', overflow='fold', ratio=3)
    table.add_column('state')
    table.add_column('time', justify='right')
    table.add_column('at', overflow='fold', ratio=3)
    room = max(6, self._console.rich.size.height - 8)
    of_state = lambda *states: [each for each in runs if each.state in states]
    active = of_state(RunState.RUNNING, RunState.RESTARTING)
    failed = of_state(RunState.FAILED, RunState.LEFT_OUT)
    for each in (active + failed + of_state(RunState.WAITING))[:room]:
      is_running = each.state is RunState.RUNNING
      duration = human_duration(each.seconds) if is_running else ''
      at = last_metrics(each.run.workdir) if is_running else each.note
      table.add_row(each.run.name, each.state.value, duration, at, style=_STYLES.get(each.state, 'dim'))
    table.caption = summary(runs, self._slots, time.monotonic() - self._began)
    table.caption_justify = 'left'
    return table


def summary(runs: Sequence[RunProgress], slots: int, so_far: float) -> str:
  """Numbers by state, time so far, and an estimate of the time left."""
  counts = collections.Counter(each.state for each in runs)
  parts = [f'{counts[RunState.DONE]} of {len(runs)} done']
  parts += [f'{counts[state]} {state.value}' for state in RunState if counts[state] and state is not RunState.DONE]
  parts.append(human_duration(so_far) + ' so far')
  if (left := seconds_left(runs)) is not None:
    parts.append(f'about {human_duration(left / slots)} left')
  return ' · '.join(parts)


def seconds_left(runs: Sequence[RunProgress]) -> float | None:
  """If all are made one after the other: each takes the mean of its kind, or else of all; None if none is done yet."""
  took = collections.defaultdict(list)
  for each in runs:
    if each.state is RunState.DONE:
      took[each.kind].append(each.run.seconds())
  if not took:
    return None
  overall = statistics.fmean(value for values in took.values() for value in values)
  usual = lambda each: statistics.fmean(took[each.kind]) if each.kind in took else overall
  left = [each for each in runs if each.state in (RunState.WAITING, RunState.RUNNING, RunState.RESTARTING)]
  return sum(max(0.0, usual(each) - each.seconds) for each in left)


def last_metrics(workdir: epath.Path) -> str:
  """Step, loss and speed from the end of `metrics.jsonl`; empty if there are none yet, or they are far away."""
  file = workdir / 'metrics.jsonl'
  if is_remote(file) or not file.exists():
    return ''
  with open(os.fspath(file), 'rb') as opened:
    opened.seek(max(0, os.fstat(opened.fileno()).st_size - _TAIL_BYTES))
    lines = opened.read().decode(errors='replace').splitlines()
  for line in reversed(lines):
    try:
      row = json.loads(line)
    except json.JSONDecodeError:  # cut at either end
      continue
    if isinstance(row, dict) and 'loss' in row:
      speed = f' · {row["tokens_per_second"]:,.0f} tokens/s' if 'tokens_per_second' in row else ''
      return f'step {row["step"]:,} · loss {row["loss"]:.3f}{speed}'
  return ''
