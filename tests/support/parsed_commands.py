"""What programs of the project make of a command line, found out in this process and without running anything."""

import argparse
import contextlib
import importlib
import io
import pathlib
from collections.abc import Iterator, Sequence
from unittest import mock

from rembert import configuration, main
from rembert.command_line import parse_flags
from rembert.errors import UsageError

# With --dry_run these say what they would do, and check more than their flags.
DRY = ('launch.tpu_vm', 'launch.queued_resource', 'launch.slurm', 'launch.sweep', 'launch.xtreme')

PROGRAMS = (
  *('rembert.main', 'rembert.convert', 'rembert.doctor', 'rembert.report', 'rembert.jobs.predict'),
  'benchmarks.run',
  *('tasks.corpus', 'tasks.vocabulary', 'tasks.token_store', 'tasks.xtreme.download', 'tasks.metrics'),
  *('launch.supervise', 'launch.local_cluster'),
  *DRY,
)
# What follows -- is what they run.
WRAPPERS = ('launch.supervise', 'launch.local_cluster')


class Refused(Exception):
  """A command line is refused: the message of the program."""


class _Parsed(Exception):
  """A command line was parsed to its end."""


def check(words: Sequence[str], *, dry_run: bool = False) -> None:
  """Raises Refused if `python -m MODULE …` would be refused for how it is written.

  Args:
    words: of the command, from `python` on.
    dry_run: for rembert.main: whether the job says what it would do as well; without, flags are parsed, gin files read
      and the objects built that they speak of.
  """
  module, arguments = words[words.index('-m') + 1], list(words[words.index('-m') + 2 :])
  with _errors_as_exceptions():
    if module == 'rembert.main':
      _check_main(arguments, dry_run)
    elif module in DRY:
      _dry_run(module, arguments)
    else:
      _parse(module, arguments)


def known_options() -> frozenset[str]:
  """The options of all programs of the project, those of verbs included."""
  found = set()
  add_argument = argparse._ActionsContainer.add_argument

  def noted(self, *names, **arguments):
    found.update(name for name in names if name.startswith('--'))
    return add_argument(self, *names, **arguments)

  with mock.patch.object(argparse._ActionsContainer, 'add_argument', noted):
    for module in PROGRAMS:
      with _errors_as_exceptions(), contextlib.suppress(Refused):
        _program(module).main(['--help'])
  return frozenset(found)


def _check_main(arguments: list[str], is_dry: bool) -> None:
  options, bindings = main.parse(arguments)
  if options.gin_file and all(
    name.startswith('runs/') and not pathlib.Path(name).exists() for name in options.gin_file[:1]
  ):
    return  # the file of a run that is to be made first
  if is_dry:
    _dry_run('rembert.main', arguments)
    return
  try:
    configuration.load(options.gin_file, bindings)
    configuration.check_bound()
  except UsageError as error:
    raise Refused(str(error)) from None


def _dry_run(module: str, arguments: list[str]) -> None:
  if '--dry_run' not in arguments and '--help' not in arguments:
    cut = arguments.index('--') if '--' in arguments else len(arguments)
    arguments = [*arguments[:cut], '--dry_run', *arguments[cut:]]
  errors = io.StringIO()
  try:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
      code = _program(module).main(arguments)
  except UsageError as error:
    raise Refused(str(error)) from None
  # A model that another command of the page makes is not there, and the command is written as it should be.
  if code and not ('no model found' in errors.getvalue() and '  where  runs/' in errors.getvalue()):
    raise Refused(errors.getvalue() or f'exit code {code}')


def _program(module: str):
  """The module that `python -m` runs."""
  found = importlib.import_module(module)
  return found if hasattr(found, 'main') else importlib.import_module(f'{module}.__main__')


def _parse(module: str, arguments: list[str]) -> None:
  found = _program(module)
  if hasattr(found, 'parse'):  # it looks at what argparse does not know
    found.parse(arguments)
    return
  if module in ('tasks.corpus', 'tasks.token_store'):
    if arguments[:1] != ['verify']:
      parse_flags(found.parser(), arguments)
    return
  if module in WRAPPERS and '--help' not in arguments and '--' not in arguments[:-1]:
    raise Refused('nothing to run')
  with _stopped_after_parsing():
    found.main(arguments)


def _stopped_after_parsing() -> contextlib.AbstractContextManager:
  """`parse_args` raises _Parsed where it would return."""
  parse_args = argparse.ArgumentParser.parse_args

  def parse_and_stop(self, args=None, namespace=None):
    parse_args(self, args, namespace)
    raise _Parsed

  return mock.patch.object(argparse.ArgumentParser, 'parse_args', parse_and_stop)


@contextlib.contextmanager
def _errors_as_exceptions() -> Iterator[None]:
  def error(self, message):
    raise Refused(f'{self.prog}: {message}')

  def leave(self, status=0, message=None):
    raise Refused(message) if status else _Parsed

  with (
    mock.patch.multiple(argparse.ArgumentParser, error=error, exit=leave),
    contextlib.suppress(_Parsed),
    contextlib.redirect_stdout(io.StringIO()),
  ):
    yield
