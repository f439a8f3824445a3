"""The largest batch whose training step fits: on a GPU into its memory, on a CPU into so many bytes.

The steps are those of `train_step`. Everybody is measured alone, for side by side nobody would have all of the memory:
batches are doubled until one does not fit, then the gap is halved until it is an eighth. Each batch has a process of
its own, since a process that ran out of memory once is not to be trusted again. At the largest the step is timed, too.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence

from benchmarks import train_step
from benchmarks.settings import LARGE, SMALL, Setting
from benchmarks.turns import Contestant, Measurement, Run, measure_in_turn

FITS, ROWS = 'fits', 'rows'
MOST_ROWS = 2**16
RECOMPUTING, TORCH_RECOMPUTING = '… layers computed again', 'torch, layers computed again'


@dataclasses.dataclass(frozen=True)
class Search:
  """Where it begins, and on a CPU how many bytes the process may take; on a GPU, None, what it has."""

  setting: Setting
  bytes: float | None

  @property
  def description(self) -> str:
    """One line."""
    memory = f'{self.bytes / 1e9:g} GB' if self.bytes else 'the memory of one GPU'
    return f'the largest that fits into {memory}, from {self.setting.description}'


SETTINGS = {
  'small': Search(Setting(SMALL, rows=16, length=128, slots=20), 4e9),
  'large': Search(Setting(LARGE, rows=16, length=512, slots=77, dtype='bfloat16'), None),
}


def largest(fits: Callable[[int], bool], start: int) -> int:
  """The largest batch that fits, to an eighth of it; 0 if not even a row does.

  Args:
    fits: whether a batch of so many rows does; if one does, all smaller ones do.
    start: rows to begin with.
  """
  low, high = 0, start
  while high < MOST_ROWS and fits(high):
    low, high = high, 2 * high
  while high - low > max(1, low // 8):
    middle = (low + high) // 2
    low, high = (middle, high) if fits(middle) else (low, middle)
  return low


def is_out_of_memory(error: Exception) -> bool:
  """As JAX, torch and the C library say it."""
  said = r"RESOURCE_EXHAUSTED|out of memory|not enough memory|can't allocate memory"
  return isinstance(error, MemoryError) or bool(re.search(said, str(error), re.IGNORECASE))


def prepare(setting: Setting, prepare_step: Callable[..., Run], *arguments) -> Run:
  """A step of a batch, or its confession that there is no room for it."""
  try:
    step = prepare_step(setting, *arguments)
    step()
    step()  # beside the optimizer's state, which the first one has made
  except Exception as error:
    if not is_out_of_memory(error):
      raise
    return lambda: {FITS: 0}
  return lambda: dict(step() or {}) | {FITS: 1}


def of_rows(contestant: Contestant, rows: int) -> Contestant:
  """The same with another batch."""
  setting, *rest = contestant.arguments
  setting = dataclasses.replace(setting, rows=rows)
  return dataclasses.replace(contestant, arguments=(setting, *rest), work=train_step.work_of(setting))


def measure(
  setting_name: str, contestants: Sequence[Contestant], rounds: int, say: Callable[[str], None]
) -> tuple[list[Contestant], dict[str, Measurement]]:
  """Each contestant at its largest batch, and what a step of it took."""
  found = [_at_its_largest(contestant, SETTINGS[setting_name], rounds, say) for contestant in contestants]
  return [contestant for contestant, _ in found], {contestant.name: measurement for contestant, measurement in found}


def _at_its_largest(
  contestant: Contestant, search: Search, rounds: int, say: Callable[[str], None]
) -> tuple[Contestant, Measurement]:
  failures = []

  def fits(rows: int) -> bool:
    measurement = _measured(contestant, rows, rounds=1)
    if measurement.failure and not _was_killed(measurement):
      failures.append(measurement.failure)
    does_fit = not measurement.failure and measurement.facts[FITS] == 1
    if search.bytes is not None:
      does_fit = does_fit and measurement.peak_bytes <= search.bytes
    taken = f', {measurement.peak_bytes / 1e9:.1f} GB' if search.bytes else ''
    say(f'{contestant.name}, {rows} rows: {measurement.failure or ("fits" if does_fit else "does not fit") + taken}')
    return does_fit

  rows = largest(fits, search.setting.rows)
  if failures or not rows:
    return contestant, Measurement(failure=failures[0] if failures else 'not even one row fits')
  say(f'{contestant.name}: {rows} rows at most; now a step of them')
  measurement = _measured(contestant, rows, rounds=rounds)
  if measurement.facts.pop(FITS, 0) != 1:
    return contestant, Measurement(failure=measurement.failure or f'{rows} rows did not fit again')
  measurement.facts.pop('loss', None)  # of batches of their own
  measurement.facts[ROWS] = rows
  return of_rows(contestant, rows), measurement


def _measured(contestant: Contestant, rows: int, *, rounds: int) -> Measurement:
  return measure_in_turn([of_rows(contestant, rows)], rounds, lambda line: None)[contestant.name]


def _was_killed(measurement: Measurement) -> bool:
  """By the system, as it does for want of memory."""
  return 'exit code -9' in measurement.failure


def contestants(setting_name: str, scratch: pathlib.Path) -> list[Contestant]:
  """At the batch to begin with; see `measure`."""
  del scratch
  search = SETTINGS[setting_name]
  is_on_gpu = search.bytes is None
  if is_on_gpu:
    train_step.require_gpu()
  platform, device = ('cuda', 'cuda') if is_on_gpu else ('cpu', 'cpu')
  autocast = search.setting.dtype == 'bfloat16'
  all_of_it = {'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.95'} if is_on_gpu else {}
  ours = functools.partial(Contestant, prepare=prepare, environment=all_of_it, work={})
  theirs = functools.partial(Contestant, prepare=prepare, work={})
  step, torch_step = train_step.prepare_ours, train_step.prepare_torch
  made = [
    ours(train_step.OURS, arguments=(search.setting, step, platform, False)),
    ours(RECOMPUTING, arguments=(search.setting, step, platform, False, 'full')),
    theirs('torch', arguments=(search.setting, torch_step, autocast, device)),
    theirs(TORCH_RECOMPUTING, arguments=(search.setting, torch_step, autocast, device, False, True)),
  ]
  return [of_rows(contestant, search.setting.rows) for contestant in made]


def conclusion(setting_name: str, measured: Mapping[str, Measurement]) -> str:
  """How many times as many rows as theirs."""
  del setting_name
  rows = {name: measurement.facts[ROWS] for name, measurement in measured.items() if ROWS in measurement.facts}
  pairs = [(train_step.OURS, 'torch'), (RECOMPUTING, TORCH_RECOMPUTING)]
  return ', '.join(
    f'{rows[ours]:,} rows to {rows[theirs]:,} of {theirs}: {rows[ours] / rows[theirs]:.1f} times as many'
    for ours, theirs in pairs
    if ours in rows and theirs in rows
  )
