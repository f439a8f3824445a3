"""Options that the launchers have in common, and how they end."""

import argparse
import sys
from collections.abc import Callable, Sequence

from launch.cloud import names
from launch.cloud.accelerators import EXAMPLES, accelerator_type
from launch.cloud.commands import Commands
from launch.cloud.tpu_nodes import Place, Wish
from rembert.errors import UsageError

EXIT_CODES = """
exit codes
  0 done · 2 wrong usage, or refused · 1 a command of gcloud failed: what it said last is shown · 75 run again to resume
"""


def parser_of(module: str, description: str, examples: str) -> argparse.ArgumentParser:
  """A parser whose help ends with examples."""
  return argparse.ArgumentParser(
    f'python -m {module}',
    description=description,
    epilog=examples + EXIT_CODES,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )


def add_verb(verbs: argparse._SubParsersAction, name: str, help_text: str) -> argparse.ArgumentParser:
  """A subcommand for one NAME, with what all of them take."""
  parser = verbs.add_parser(name, help=help_text, description=help_text, allow_abbrev=False)
  parser.add_argument('name', metavar='NAME', help='of the machine or the job')
  parser.add_argument('--dry_run', action='store_true', help='print the commands, and run nothing')
  return parser


def split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
  """What stands before the first `--`, and behind it."""
  argv = list(argv)
  cut = argv.index('--') if '--' in argv else len(argv)
  return argv[:cut], argv[cut + 1 :]


def checked_command(parser: argparse.ArgumentParser, command: Sequence[str], is_wanted: bool) -> list[str]:
  """The command behind `--`; ends the program where it is missing, or not wanted."""
  if is_wanted and not command:
    parser.error(
      'nothing to run: … -- python -m rembert.main --gin_file=gin/pretrain_large.gin --workdir=gs://BUCKET/large'
    )
  if command and not is_wanted:
    parser.error(f'no command is wanted here: -- {" ".join(command)}')
  return list(command)


def add_place(parser: argparse.ArgumentParser, *, is_reached: bool = False) -> None:
  """Adds where and whose; with `is_reached` also how machines are reached."""
  parser.add_argument('--zone', help="such as us-west4-a (default: gcloud's own setting)")
  parser.add_argument('--project', help="id of the project (default: gcloud's own setting)")
  parser.add_argument('--owner', help='label of what is created, looked for before it is deleted (default: your login)')
  if is_reached:
    parser.add_argument('--internal_ip', action='store_true', help='from a machine of the same network')


def place_of(options: argparse.Namespace) -> Place:
  """What `add_place` has read."""
  return Place(
    names.checked_zone(options.zone),
    names.checked_project(options.project),
    names.owner_of(options.owner),
    getattr(options, 'internal_ip', False),
  )


def add_wish(parser: argparse.ArgumentParser) -> None:
  """Adds what kind of slice."""
  parser.add_argument('--type', required=True, help=f'accelerator type: {EXAMPLES}')
  parser.add_argument('--spot', action='store_true', help='cheap, and taken away at any time')
  parser.add_argument('--runtime', help='software of the machines (default: the one that JAX wants on this type)')
  parser.add_argument(
    '--gcloud_flag',
    action='append',
    default=[],
    metavar='FLAG',
    help="another flag of gcloud's create, as it is: --gcloud_flag=--network=NAME; repeatable",
  )


def wish_of(options: argparse.Namespace) -> Wish:
  """What `add_wish` has read."""
  kind = accelerator_type(options.type)
  if wrong := [flag for flag in options.gcloud_flag if not flag.startswith('--') or flag.startswith('--labels')]:
    raise UsageError(
      f'{wrong[0]!r} cannot be passed on',
      where='--gcloud_flag',
      fix='--gcloud_flag=--network=NAME; labels are set here',
    )
  return Wish(kind, options.runtime or kind.generation.runtime, options.spot, tuple(options.gcloud_flag))


def add_joining(parser: argparse.ArgumentParser) -> None:
  """Adds how long machines wait for each other, which a cluster starts as it has them."""
  parser.add_argument(
    '--join_seconds',
    type=int,
    default=3600,
    help='how long the first machine waits for the last, added to the command of rembert.main; default %(default)s',
  )


def with_patience(command: Sequence[str], join_seconds: int) -> tuple[str, ...]:
  """The command of rembert.main with `hosts.join_seconds`, unless that is there: not to have joined is an error."""
  if 'rembert.main' not in command or any('hosts.join_seconds' in argument for argument in command):
    return tuple(command)
  return (*command, f'--gin.hosts.join_seconds={join_seconds}')


def commands_of(options: argparse.Namespace) -> Commands:
  """What runs, or prints."""
  return Commands(options.dry_run, lambda text: print(text, flush=True))


def ended(action: Callable[[], int | None]) -> int:
  """The exit code of an action; what a user can put right is said in the project's one way."""
  try:
    return action() or 0
  except UsageError as error:
    sys.stdout.flush()
    print(f'rembert: {error}', file=sys.stderr)
    return error.exit_code
  except KeyboardInterrupt:
    return 130
