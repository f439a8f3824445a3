"""What commands share: one message and exit code for an error that a user can fix, and the nearest name for a typo."""

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence

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


def parse_flags(flags: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """The options, and what follows a bare `--`; exits with 2 on an unknown flag and names the nearest one."""
  end = list(argv).index('--') if '--' in argv else len(argv)
  known = list(flags._option_string_actions)
  for argument in argv[:end]:
    name = argument.partition('=')[0]
    if name.startswith('--') and name not in known:
      near = difflib.get_close_matches(name, known, n=1)
      flags.error(f'unknown flag {name}' + (f': did you mean {near[0]}?' if near else ''))
  return flags.parse_args(argv[:end]), list(argv[end + 1 :])
