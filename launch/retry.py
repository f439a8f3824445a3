"""Retry policy: whether what has ended is started again, and after how long."""

import argparse
import dataclasses
import signal
from collections.abc import Callable, Sequence

from rembert.runtime.signals import EXIT_STOPPED
from rembert.validation import CountOrZero, NotNegative, number

_FIRST_WAIT = 1.0


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
  """Limits on restarts. The wait before one is a second, and doubles with every short run."""

  max_restarts: int = 1000  # in total
  max_short_runs: int = 10  # consecutive ones, which restarts do not help
  short_seconds: float = 120.0  # longer than a start and a few steps take
  max_wait: float = 300.0  # seconds


def add_retry_options(parser: argparse.ArgumentParser, defaults: RetryPolicy) -> None:
  """Adds an option for each field of the policy."""
  kinds = {'max_restarts': 'in all', 'max_short_runs': 'in a row', 'short_seconds': 'what counts as a short run'}
  for name, default in dataclasses.asdict(defaults).items():
    help_text = f'{kinds.get(name, "longest wait before a restart, seconds")}; default %(default)s'
    limit = number(CountOrZero if isinstance(default, int) else NotNegative)
    parser.add_argument(f'--{name}', type=limit, default=default, help=help_text)


def retry_policy(options: argparse.Namespace) -> RetryPolicy:
  """The policy given by the options of `add_retry_options`."""
  return RetryPolicy(**{field.name: getattr(options, field.name) for field in dataclasses.fields(RetryPolicy)})


class RetryCounter:
  """Counts the restarts of one command or machine, and decides about the next."""

  def __init__(self, policy: RetryPolicy, log: Callable[[str], None]):
    self._policy, self._log = policy, log
    self._count = self._short_runs = 0

  def wait_after(self, code: int, lived: float) -> float | None:
    """Seconds until the next start; None if there is none.

    Args:
      code: exit code; -N for signal N.
      lived: seconds from the start to the end.
    """
    policy = self._policy
    if not is_retryable(code):
      return None
    self._short_runs = self._short_runs + 1 if lived < policy.short_seconds else 0
    if self._count == policy.max_restarts:
      self._log(f'{format_exit(code)} after {self._count} restarts; that is enough (--max_restarts)')
      return None
    if self._short_runs >= policy.max_short_runs:
      self._log(
        f'{format_exit(code)}; {self._short_runs} runs in a row lived for less than {policy.short_seconds:g} s '
        '(--max_short_runs): it needs somebody to look at it'
      )
      return None
    self._count += 1
    wait = min(policy.max_wait, _FIRST_WAIT * 2 ** max(0, self._short_runs - 1))
    self._log(f'{format_exit(code)} after {lived:.0f} s; restart {self._count} in {wait:.0f} s')
    return wait


# --- exit codes -------------------------------------------------------------------------------------------------------


def is_retryable(code: int) -> bool:
  """Whether the same command can be expected to get further: it was stopped and saved, or it was killed."""
  return code == EXIT_STOPPED or code < 0 or code in (128 + signal.SIGKILL, 128 + signal.SIGABRT)


def shell_exit_code(code: int) -> int:
  """The exit code as a shell has it: 128 + N for a process that signal N killed."""
  return code if code >= 0 else 128 - code


def joint_exit_code(codes: Sequence[int]) -> int:
  """One exit code for several processes: what the user can correct comes first."""
  return next((code for code in (2, 1, EXIT_STOPPED) if code in codes), 1 if any(codes) else 0)


def format_exit(code: int) -> str:
  """How a process ended, in words."""
  if code == EXIT_STOPPED:
    return 'stopped early, to be resumed'
  return f'killed by {signal.Signals(-code).name}' if code < 0 else f'ended with {code}'
