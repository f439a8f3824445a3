"""Whether a command that has ended is worth another start, and how soon."""

import argparse
import dataclasses
import math
import signal
from collections.abc import Callable

from rembert.training.preemption import EXIT_STOPPED

_FIRST_WAIT = 1.0


@dataclasses.dataclass(frozen=True)
class Patience:
  """How often, and how soon.

  Attributes:
    max_restarts: in all.
    max_short_runs: in a row that did not live for `short_seconds`: something is wrong that restarts do not mend.
    short_seconds: what a start and a few steps take.
    max_wait: seconds; the wait doubles with every short run, from one second on.
  """

  max_restarts: int = 1000
  max_short_runs: int = 10
  short_seconds: float = 120.0
  max_wait: float = 300.0


def add_patience(parser: argparse.ArgumentParser, patience: Patience) -> None:
  """Adds an option for each field, with that default."""
  kinds = {'max_restarts': 'in all', 'max_short_runs': 'in a row', 'short_seconds': 'what counts as a short run'}
  for field in dataclasses.fields(Patience):
    parser.add_argument(
      f'--{field.name}',
      type=field.type,
      default=getattr(patience, field.name),
      help=f'{kinds.get(field.name, "longest wait before a restart, seconds")}; default %(default)s',
    )


def patience_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Patience:
  """What `add_patience` has read; ends the program where it cannot be."""
  values = {field.name: getattr(options, field.name) for field in dataclasses.fields(Patience)}
  if any(value < 0 or not math.isfinite(value) for value in values.values()):
    parser.error('limits must be ≥ 0')
  return Patience(**values)


def is_worth_repeating(exit_code: int) -> bool:
  """Whether the same command can be expected to go further than it came."""
  return exit_code == EXIT_STOPPED or exit_code < 0 or exit_code in (128 + signal.SIGKILL, 128 + signal.SIGABRT)


class Restarts:
  """The starts of one command, counted.

  Attributes:
    count: starts after the first.
  """

  def __init__(self, patience: Patience, say: Callable[[str], None]):
    self._patience, self._say = patience, say
    self.count = self._short_runs = 0

  def wait_after(self, code: int, lived: float) -> float | None:
    """Seconds until the next start; None if there is to be none.

    Args:
      code: that the command ended with; -N when signal N killed it.
      lived: seconds.
    """
    patience = self._patience
    if not is_worth_repeating(code):
      return None
    self._short_runs = self._short_runs + 1 if lived < patience.short_seconds else 0
    if self.count == patience.max_restarts:
      self._say(f'{in_words(code)} after {self.count} restarts; that is enough (--max_restarts)')
      return None
    if self._short_runs >= patience.max_short_runs:
      self._say(
        f'{in_words(code)}; {self._short_runs} runs in a row lived for less than {patience.short_seconds:g} s '
        '(--max_short_runs): it needs somebody to look at it'
      )
      return None
    self.count += 1
    wait = min(patience.max_wait, _FIRST_WAIT * 2 ** max(0, self._short_runs - 1))
    self._say(f'{in_words(code)} after {lived:.0f} s; restart {self.count} in {wait:.0f} s')
    return wait


def as_in_a_shell(code: int) -> int:
  """128 + N for a process that signal N has killed."""
  return code if code >= 0 else 128 - code


def in_words(code: int) -> str:
  """How a process ended."""
  if code == EXIT_STOPPED:
    return 'stopped early, to be resumed'
  return f'killed by {signal.Signals(-code).name}' if code < 0 else f'ended with {code}'
