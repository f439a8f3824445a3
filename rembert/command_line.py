"""What every command does with an error that a user can put right: one message, and the exit code that goes with it."""

import sys
from collections.abc import Callable

from rembert.errors import UsageError


def run_command(program: str, command: Callable[[], None], *, show_traceback: bool = False) -> int:
  """Runs a command and returns its exit code: 0, or that of a UsageError, which is told on standard error."""
  try:
    command()
  except UsageError as error:
    if show_traceback:
      raise
    print(f'{program}: {error}', file=sys.stderr)
    return error.exit_code
  return 0
