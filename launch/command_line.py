"""The command lines of launchers: verbs, the command after `--`, dry runs, exit codes."""

import argparse
import dataclasses
import re
import sys
from collections.abc import Callable, Sequence

from launch.processes import RetryPolicy
from rembert.command_line import command_parser
from rembert.errors import UsageError
from rembert.validation import CountOrZero, NotNegative, number

EXIT_CODES = """
exit codes
  0 done · 2 wrong usage, or refused · 1 a command of gcloud failed: what it said last is shown · 75 run again to resume
"""


def launcher_parser(
  module: str, description: str | None, examples: str
) -> tuple[argparse.ArgumentParser, argparse._SubParsersAction]:
  """The parser of a launcher, and its verbs; see `add_verb` and `run_launcher`."""
  parser = command_parser(module, description, examples + EXIT_CODES)
  return parser, parser.add_subparsers(dest='verb', required=True, metavar='VERB')


def matching(pattern: str, what: str, *, where: str, fix: str) -> Callable[[str], str]:
  """The type of an argument that matches a pattern; UsageError for any other, `{}` in `what` standing for it."""

  def check(text: str) -> str:
    if not re.fullmatch(pattern, text):
      raise UsageError(what.format(repr(text)), where=where, fix=fix)
    return text

  return check


def add_verb(
  verbs: argparse._SubParsersAction,
  name: str,
  help_text: str,
  action: Callable[[argparse.Namespace], int | None],
  *,
  takes_command: bool = False,
  longest_name: int = 63,
) -> argparse.ArgumentParser:
  """A verb for one NAME: `run_launcher` calls its action, with the command after `--` as `options.command`."""
  resource_name = matching(
    # Compute Engine's rule (RFC 1035), the strictest of all.
    rf'[a-z](?:[-a-z0-9]{{0,{longest_name - 2}}}[a-z0-9])?',
    '{} cannot be a name',
    where='NAME',
    fix=f'a small letter, then small letters, digits and dashes, up to {longest_name}: rembert-large',
  )
  parser = verbs.add_parser(name, help=help_text, description=help_text, allow_abbrev=False)
  parser.add_argument('name', type=resource_name, metavar='NAME', help='of the machine or the job')
  parser.add_argument('--dry_run', action='store_true', help='print the commands, and run nothing')
  parser.set_defaults(action=action, takes_command=takes_command)
  return parser


def run_launcher(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
  """Parses the command line, runs the action of its verb, and returns the exit code."""
  argv = list(sys.argv[1:] if argv is None else argv)
  cut = argv.index('--') if '--' in argv else len(argv)

  def act() -> int | None:
    options = parser.parse_args(argv[:cut])
    options.command = argv[cut + 1 :]
    if options.takes_command and not options.command:
      parser.error(
        'nothing to run: … -- python -m rembert.main --gin_file=gin/pretrain_large.gin --workdir=gs://BUCKET/large'
      )
    if options.command and not options.takes_command:
      parser.error(f'no command is wanted here: -- {" ".join(options.command)}')
    check_command(options.command)
    return options.action(options)

  return exit_code_of(act)


def check_command(command: Sequence[str]) -> None:
  """Checks flags, gin files and settings of `rembert.main`, before anything is launched; other commands pass.

  Raises:
    UsageError: a gin file is missing, or a name or value of a setting is wrong.
    SystemExit: a flag is unknown; the usage is printed.
  """
  if 'rembert.main' not in command:
    return
  from rembert import configuration, main

  options, bindings = main.parse(command[list(command).index('rembert.main') + 1 :])
  configuration.load(options.gin_file, bindings)
  configuration.check_bound()


def exit_code_of(action: Callable[[], int | None]) -> int:
  """The exit code of an action; what a user can correct is printed to stderr."""
  try:
    return action() or 0
  except UsageError as error:
    sys.stdout.flush()
    print(f'rembert: {error}', file=sys.stderr)
    return error.exit_code
  except KeyboardInterrupt:
    return 130


def add_command(parser: argparse.ArgumentParser, help_text: str) -> None:
  """Adds `-- COMMAND`, the rest of the command line."""
  parser.add_argument('command', nargs=argparse.REMAINDER, metavar='-- COMMAND', help=help_text)


def wrapped_command(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
  """The command of `add_command` without its `--`; `python` is the one that runs this."""
  command = options.command[1:] if options.command[:1] == ['--'] else options.command
  if not command:
    parser.error('nothing to run: … -- python -m rembert.main --gin_file=gin/pretrain_smoke.gin')
  return [sys.executable if command[0] == 'python' else command[0], *command[1:]]


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
