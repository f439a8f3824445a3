"""Shared by the command lines of launchers: verbs, the command after `--`, dry runs."""

import argparse
import re
import sys
from collections.abc import Callable, Sequence

from rembert.command_line import command_parser, parse_flags, run_command

EXIT_CODES = """
exit codes
  0 done · 2 wrong usage or rejected · 1 a gcloud command failed (its output is shown) · 75 run again to resume
"""


def launcher_parser(
  module: str, description: str | None, examples: str
) -> tuple[argparse.ArgumentParser, argparse._SubParsersAction]:
  """Returns the parser of a launcher, and its verbs."""
  parser = command_parser(module, description, examples + EXIT_CODES)
  return parser, parser.add_subparsers(dest='verb', required=True, metavar='VERB')


def matching(pattern: str, example: str) -> Callable[[str], str]:
  """Returns a `type=` for argparse that accepts a pattern; the message for other values has the example."""

  def check(text: str) -> str:
    if not re.fullmatch(pattern, text):
      raise argparse.ArgumentTypeError(f'invalid: {text!r}; for example {example}')
    return text

  return check


def add_verb(
  verbs: argparse._SubParsersAction,
  name: str,
  help_text: str,
  action: Callable[[argparse.Namespace], int | None],
  *,
  takes_command: bool = False,
) -> argparse.ArgumentParser:
  """Adds a verb with a NAME: `run_launcher` calls its action, with the command after `--` as `options.command`."""
  # Compute Engine's rule (RFC 1035), the strictest of all.
  resource_name = matching(r'[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?', 'rembert-large, of a-z, 0-9 and -, at most 63')
  parser = verbs.add_parser(name, help=help_text, description=help_text, allow_abbrev=False)
  parser.add_argument('name', type=resource_name, metavar='NAME', help='name of the machine or the job')
  parser.add_argument('--dry_run', action='store_true', help='print the commands without running them')
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
      parser.error(f'{options.verb} takes no command: -- {" ".join(options.command)}')
    check_command(options.command)
    return options.action(options)

  return run_command('rembert', act)


def check_command(command: Sequence[str]) -> None:
  """Checks flags, gin files and settings of `rembert.main` before anything is launched; does not check other commands.

  A missing gin file and an invalid setting are UsageErrors; an unknown flag ends the program, after its usage.
  """
  if 'rembert.main' not in command:
    return
  from rembert import configuration, main

  options, bindings = main.parse(command[list(command).index('rembert.main') + 1 :])
  configuration.load(options.gin_file, bindings)
  configuration.check_bound()


def parse_wrapper(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
  """Returns the options, and the command after `--`, in which `python` becomes this interpreter."""
  options, command = parse_flags(parser, sys.argv[1:] if argv is None else argv)
  if not command:
    parser.error('nothing to run: … -- python -m rembert.main --gin_file=gin/pretrain_smoke.gin')
  return options, [sys.executable if command[0] == 'python' else command[0], *command[1:]]
