"""What commands share: one message and exit code for an error that a user can fix, and the nearest name for a typo."""

import argparse
import difflib
import importlib
import importlib.util
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence

from rembert.errors import UsageError, as_usage_error, first_line

# Jobs of `rembert.main`, here for `--help`, which imports nothing heavy.
MODES = ('pretrain', 'finetune', 'evaluate', 'analyze', 'compile')


def run_command(program: str, command: Callable[[], int | None], *, show_traceback: bool = False) -> int:
  """Runs a command and returns its exit code: its own or 0, or that of an error, which is told on standard error.

  SIGTERM ends it as an exception does, so that no file is left half-written: exit code 143; Ctrl-C: 130.
  """
  is_main = threading.current_thread() is threading.main_thread()
  before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)) if is_main else None
  try:
    return command() or 0
  except (UsageError, OSError) as error:
    told = as_usage_error(error)
    if show_traceback or told is None:
      raise
    sys.stdout.flush()
    print(f'{program}: {told}', file=sys.stderr)
    return told.exit_code
  except KeyboardInterrupt:
    return 128 + signal.SIGINT
  finally:
    if is_main:
      signal.signal(signal.SIGTERM, before)


def command_parser(module: str, description: str | None, epilog: str) -> argparse.ArgumentParser:
  """The parser of `python -m MODULE`, whose help shows both texts as they are."""
  return argparse.ArgumentParser(
    prog=f'python -m {module}',
    description=description,
    epilog=epilog,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )


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


def add_modules(flags: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
  """Adds `--module`, for `import_modules`."""
  flags.add_argument(
    '--module',
    action='append',
    default=[],
    metavar='NAME',
    help='import a Python module that registers SeqIO tasks; repeatable; the current directory is searched first',
  )


def import_modules(names: Sequence[str]) -> None:
  """Imports modules of users, which register SeqIO tasks.

  TensorFlow is imported before them, where the accelerator is hidden from it.

  Raises:
    UsageError: a module does not exist, or raises while it is imported; with its own line.
  """
  if not names:
    return
  from tasks import tensorflow_import  # noqa: F401

  if not {'', os.getcwd()} & set(sys.path):  # `python -m` puts it there, an entry point does not
    sys.path.insert(0, os.getcwd())
  for name in names:
    try:
      importlib.import_module(name)
    except Exception as error:
      if isinstance(error, ModuleNotFoundError) and f'{name}.'.startswith(f'{error.name}.'):
        what, where = f'there is no module {name!r}', f'searched: {os.getcwd()}, and then the rest of sys.path'
      else:
        own = error.what if isinstance(error, UsageError) else f'{type(error).__name__}: {first_line(error)}'
        what, where = f'the module {name!r} cannot be imported: {own}', _line_of(error, name)
      fix = error.fix if isinstance(error, UsageError) else f'python -c "import {name}" shows all of it'
      raise UsageError(what, where=f'--module={name}: {where}', fix=fix) from error


def _line_of(error: Exception, module: str) -> str:
  """File and line at which a module failed: the last of its own directory, or of a syntax error."""
  if isinstance(error, SyntaxError) and error.filename:
    return f'{error.filename}, line {error.lineno}'
  spec = importlib.util.find_spec(module)
  directory = os.path.dirname(spec.origin) if spec and spec.origin else ''
  frames = traceback.extract_tb(error.__traceback__)
  own = [frame for frame in frames if directory and frame.filename.startswith(directory)] or frames
  return f'{own[-1].filename}, line {own[-1].lineno}'
