"""What a person sees of many runs: a live table in a terminal, lines in a log."""

import collections
import json
import os
import statistics
import time
from collections.abc import Sequence

import rich.box
import rich.console
import rich.live
import rich.table
from etils import epath

from launch.execution import Progress, State
from launch.runs import seconds
from rembert.storage import is_remote
from rembert.training.console import Console, human_duration

_LIVE_EVERY_SECONDS = 1.0
_PLAIN_EVERY_SECONDS = 60.0
_TAIL_BYTES = 4096
_STYLES = {
  State.RUNNING: 'bold',
  State.RESTARTING: 'yellow',
  State.FAILED: 'red',
  State.LEFT_OUT: 'red',
  State.DONE: 'green',
}


class RunView:
  """Shows runs while they are made; a context that ends the live table."""

  def __init__(self, console: Console, slots: int):
    self._console, self._slots = console, slots
    self._began = self._shown = time.monotonic()
    self._live: rich.live.Live | None = None

  def __enter__(self) -> 'RunView':
    if self._console.is_live:
      # Without a thread of its own: processes are forked beside it.
      self._live = rich.live.Live(console=self._console.rich, auto_refresh=False, transient=True)
      self._live.start()
    return self

  def __exit__(self, *_) -> None:
    if self._live is not None:
      self._live.stop()

  def changed(self, progress: Progress) -> None:
    """To be told of every change of state."""
    if progress.state is State.WAITING:
      return
    took = ''
    if progress.state is State.DONE and (record := progress.run.record()):
      took = human_duration(seconds(record))
    where = progress.slot.name if progress.slot and progress.state is State.RUNNING else ''
    parts = [progress.state.value, progress.run.name, took, where, progress.note]
    self._console.say(' · '.join(part for part in parts if part))

  def look(self, runs: Sequence[Progress]) -> None:
    """To be called often."""
    every = _LIVE_EVERY_SECONDS if self._live else _PLAIN_EVERY_SECONDS
    if time.monotonic() - self._shown < every:
      return
    self._shown = time.monotonic()
    if self._live is not None:
      self._live.update(self.table(runs), refresh=True)
      return
    for progress in runs:
      if progress.state is State.RUNNING:
        self._console.say(f'  {progress.run.name} · {_time(progress)} · {last_metrics(progress.run.workdir)}')
    self._console.say(f'  {summary(runs, self._slots, time.monotonic() - self._began)}')

  def table(self, runs: Sequence[Progress]) -> rich.table.Table:
    """What runs, what went wrong, what comes next; the rest as numbers in the caption."""
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, expand=True)
    table.add_column('run', overflow='fold', ratio=3)
    table.add_column('state')
    table.add_column('time', justify='right')
    table.add_column('at', overflow='fold', ratio=3)
    room = max(6, self._console.rich.size.height - 8)
    of_state = lambda *states: [progress for progress in runs if progress.state in states]
    active = of_state(State.RUNNING, State.RESTARTING)
    wrong = of_state(State.FAILED, State.LEFT_OUT)
    for progress in (active + wrong + of_state(State.WAITING))[:room]:
      at = last_metrics(progress.run.workdir) if progress.state is State.RUNNING else progress.note
      table.add_row(
        progress.run.name, progress.state.value, _time(progress), at, style=_STYLES.get(progress.state, 'dim')
      )
    table.caption = summary(runs, self._slots, time.monotonic() - self._began)
    table.caption_justify = 'left'
    return table


def summary(runs: Sequence[Progress], slots: int, so_far: float) -> str:
  """Numbers by state, time so far, and time left if runs of the same kind go on taking what they took."""
  counts = collections.Counter(progress.state for progress in runs)
  parts = [f'{counts[State.DONE]} of {len(runs)} done']
  parts += [f'{counts[state]} {state.value}' for state in State if counts[state] and state is not State.DONE]
  left = seconds_left(runs)
  parts.append(human_duration(so_far) + ' so far')
  if left is not None:
    parts.append(f'about {human_duration(left / slots)} left')
  return ' · '.join(parts)


def seconds_left(runs: Sequence[Progress]) -> float | None:
  """Of one slot: what runs of the same kind took on the average, or else all runs; None if none has ended.

  A run's kind is the first word of its name.
  """
  took = collections.defaultdict(list)
  for progress in runs:
    if progress.state is State.DONE and (record := progress.run.record()):
      took[_kind(progress)].append(seconds(record))
  if not took:
    return None
  overall = statistics.fmean(value for values in took.values() for value in values)
  left = 0.0
  for progress in runs:
    if progress.state in (State.WAITING, State.RUNNING, State.RESTARTING):
      usual = statistics.fmean(took[_kind(progress)]) if _kind(progress) in took else overall
      spent = time.monotonic() - progress.began if progress.state is State.RUNNING else 0.0
      left += max(0.0, usual - spent)
  return left


def last_metrics(workdir: epath.Path) -> str:
  """Step, loss and speed, of the end of `metrics.jsonl`; empty where there is none yet, or it is far away."""
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


def _kind(progress: Progress) -> str:
  return progress.run.name.split()[0]


def _time(progress: Progress) -> str:
  return human_duration(time.monotonic() - progress.began) if progress.state is State.RUNNING else ''
