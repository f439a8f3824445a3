"""What a check finds, and how checks are kept from each other's accidents."""

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping

from rembert.doctor.examined import Examined
from rembert.errors import UsageError, first_line


class Level(enum.Enum):
  """How bad it is."""

  WELL = 'ok'
  WARNING = 'warning'
  PROBLEM = 'problem'


@dataclasses.dataclass(frozen=True)
class Finding:
  """One row of the table.

  Attributes:
    level: how bad it is.
    text: what was found.
    fix: what to do; empty where all is well.
    check: what was looked at; `examine` fills it in.
  """

  level: Level
  text: str
  fix: str = ''
  check: str = ''


Check = Callable[[Examined], Iterable[Finding]]


def well(text: str) -> Finding:
  """Nothing to do."""
  return Finding(Level.WELL, text)


def warning(text: str, fix: str) -> Finding:
  """Runs work all the same, or may."""
  return Finding(Level.WARNING, text, fix)


def problem(text: str, fix: str) -> Finding:
  """A run would fail, or be wrong."""
  return Finding(Level.PROBLEM, text, fix)


def of_usage_error(error: UsageError) -> Finding:
  """What a run would be told."""
  return problem(f'{error.what} ({error.where})' if error.where else error.what, ' · '.join(error.fix))


def examine(checks: Mapping[str, Check], examined: Examined) -> Iterable[Finding]:
  """The findings of all checks, in order. A check that fails is itself a finding, and the others go on."""
  for name, check in checks.items():
    found: list[Finding] = []
    try:
      # One by one: what a check has found before it fails is kept.
      for finding in check(examined):
        found.append(finding)
    except UsageError as error:
      found.append(of_usage_error(error))
    except Exception as error:
      reason = f'{type(error).__name__}: {first_line(error)}'
      found.append(problem(f'this check itself failed: {reason}', f'--only={name} --traceback shows where'))
      if examined.show_traceback:
        raise
    for finding in found:
      yield dataclasses.replace(finding, check=name)
