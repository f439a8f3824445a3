"""Shared by all commands: argument parsing, suggestions for typos, and error messages with their exit codes."""

import argparse
import contextlib
import difflib
import importlib
import importlib.util
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from rembert.errors import UsageError, as_usage_error, first_line

# Jobs of `rembert.main`, here for `--help`, which imports nothing heavy.
MODES = ('pretrain', 'finetune', 'evaluate', 'analyze', 'compile')


def run_command(program: str, command: Callable[[], int | None], *, show_traceback: bool = False) -> int:
  """Runs a command and returns its exit code (0 for None); prints errors that a user can fix to standard error.

  SIGTERM raises an exception, so that no file is left half-written (exit code 143); Ctrl-C exits with 130.
  """
  is_main = threading.current_thread() is threading.main_thread()
  before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)) if is_main else None
  try:
    return command() or 0
  except (UsageError, OSError) as error:
    return report_error(program, error, show_traceback=show_traceback)
  except KeyboardInterrupt:
    return 128 + signal.SIGINT
  finally:
    if is_main:
      signal.signal(signal.SIGTERM, before)


def report_error(program: str, error: UsageError | OSError, *, show_traceback: bool) -> int:
  """Prints an error that a user can fix and returns its exit code; raises any other, or all if `show_traceback`."""
  reported = as_usage_error(error)
  if show_traceback or reported is None:
    raise error
  sys.stdout.flush()
  print(f'{program}: {reported}', file=sys.stderr)
  return reported.exit_code


def command_parser(module: str, description: str | None, epilog: str) -> argparse.ArgumentParser:
  """Returns the parser of `python -m MODULE`, whose help shows both texts verbatim."""
  return argparse.ArgumentParser(
    prog=f'python -m {module}',
    description=description,
    epilog=epilog,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )


def parse_flags(flags: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """Returns options, and arguments after a bare `--`; exits with 2 on an unknown flag and suggests the nearest."""
  end = list(argv).index('--') if '--' in argv else len(argv)
  for argument in argv[:end]:
    if argument.startswith('--') and argument.partition('=')[0] not in flags._option_string_actions:
      refuse_argument(flags, argument)
  return flags.parse_args(argv[:end]), list(argv[end + 1 :])


def parse_bindings(
  flags: argparse.ArgumentParser, argv: Sequence[str], prefixes: Sequence[str] = ('gin',)
) -> tuple[argparse.Namespace, dict[str, list[str]]]:
  """Returns the options, and bindings `--PREFIX.NAME=VALUE` by prefix; exits with 2 on any other argument."""
  options, rest = flags.parse_known_args(argv)
  bindings: dict[str, list[str]] = {prefix: [] for prefix in prefixes}
  for argument in rest:
    prefix, _, binding = argument.removeprefix('--').partition('.')
    if not argument.startswith('--') or prefix not in bindings or '=' not in binding:
      refuse_argument(flags, argument)
    bindings[prefix].append(binding)
  return options, bindings


def refuse_argument(flags: argparse.ArgumentParser, argument: str) -> NoReturn:
  """Exits with 2 for an unknown argument, and suggests the nearest flag."""
  near = difflib.get_close_matches(argument.partition('=')[0], flags._option_string_actions, n=1, cutoff=0.7)
  if argument.startswith('--gin.'):
    near = ['--gin.NAME.FIELD=VALUE']
  flags.error(f'unknown argument {argument}' + (f': did you mean {near[0]}?' if near else ''))


@contextlib.contextmanager
def quiet_stderr(*, show_on_error: bool = False) -> Iterator[None]:
  """Hides output to file descriptor 2, where C++ libraries and child processes log; optionally shows it on an error."""
  sys.stderr.flush()
  shown = os.dup(2)
  with tempfile.TemporaryFile() as log:
    os.dup2(log.fileno(), 2)
    try:
      yield
    except BaseException:
      if show_on_error:
        log.seek(0)
        os.write(shown, log.read())
      raise
    finally:
      os.dup2(shown, 2)
      os.close(shown)


@contextlib.contextmanager
def without_modules(*names: str) -> Iterator[None]:
  """Makes imports of these modules fail, unless they are imported already.

  For packages that import large modules if they are installed, of which nothing here is used.
  """
  modules: dict[str, Any] = sys.modules
  hidden = [name for name in names if modules.setdefault(name, None) is None]
  try:
    yield
  finally:
    for name in hidden:
      del modules[name]


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
  """Imports user modules that register SeqIO tasks.

  TensorFlow is imported first, with the accelerator hidden from it.

  Raises:
    UsageError: a module does not exist, or raises an exception when it is imported; names the line.
  """
  if not names:
    return
  from tasks import tensorflow_import  # noqa: F401

  if not {'', os.getcwd()} & set(sys.path):  # `python -m` adds it, an entry point does not
    sys.path.insert(0, os.getcwd())
  for name in names:
    try:
      importlib.import_module(name)
    except Exception as error:
      fix: str | list[str] = f'for the full traceback: python -c "import {name}"'
      if isinstance(error, ModuleNotFoundError) and f'{name}.'.startswith(f'{error.name}.'):
        what, where = f'there is no module {name!r}', f'searched: {os.getcwd()}, and then the rest of sys.path'
      else:
        reason = f'{type(error).__name__}: {first_line(error)}'
        if isinstance(error, UsageError):
          reason, fix = error.what, error.fix
        what, where = f'the module {name!r} cannot be imported: {reason}', _line_of(error, name)
      raise UsageError(what, where=f'--module={name}: {where}', fix=fix) from error


def _line_of(error: Exception, module: str) -> str:
  """File and line at which a module failed: the last frame in its own directory, or the syntax error."""
  if isinstance(error, SyntaxError) and error.filename:
    return f'{error.filename}, line {error.lineno}'
  spec = importlib.util.find_spec(module)
  directory = os.path.dirname(spec.origin) if spec and spec.origin else ''
  frames = traceback.extract_tb(error.__traceback__)
  own = [frame for frame in frames if directory and frame.filename.startswith(directory)] or frames
  return f'{own[-1].filename}, line {own[-1].lineno}'
