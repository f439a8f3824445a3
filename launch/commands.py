"""External programs (gcloud, xpk, sbatch), run or only printed, and the command lines of launchers."""

import argparse
import collections
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence

from rembert.errors import RunError, UsageError

_INSTALL = {
  'gcloud': 'https://cloud.google.com/sdk/docs/install, then: gcloud auth login',
  'xpk': 'pip install xpk, in an environment of its own',
  'sbatch': 'submit from a login node of the cluster',
}
_LAST_LINES = 8


class CommandFailed(RunError):
  """An external program ended with an error; its last lines are `stderr`."""

  def __init__(self, command: Sequence[str], code: int, lines: Sequence[str]):
    self.stderr = '\n'.join(lines)
    super().__init__(
      f'{command[0]} ended with exit code {code}' + ''.join(f'\n  said   {line}' for line in lines),
      where=shlex.join(command),
    )


class Commands:
  """Runs external programs, each given as a list of arguments.

  In a dry run (`is_dry`) they are only printed, and the output that would be read is assumed. `log` prints a line.
  """

  def __init__(self, is_dry: bool = False, log: Callable[[str], None] | None = None):
    self.is_dry, self.log = is_dry, log or (lambda text: print(text, flush=True))

  def note(self, text: str) -> None:
    """A comment between the commands of a dry run; nothing otherwise."""
    if self.is_dry:
      self.log(f'# {text}')

  def run(self, command: Sequence[str]) -> None:
    """Shows the command and its output, and waits for its end; CommandFailed for an exit code other than 0."""
    self.log(shlex.join(command) if self.is_dry else f'+ {shlex.join(command)}')
    if self.is_dry:
      return
    last_lines = collections.deque(maxlen=_LAST_LINES)
    # stdin is ours: gcloud asks before it makes the first ssh key.
    with _started(command, stderr=subprocess.PIPE, text=True, errors='replace') as process:
      for line in process.stderr or ():
        print(line, end='', file=sys.stderr, flush=True)
        if line.strip():
          last_lines.append(line.rstrip())
    if process.returncode:
      raise CommandFailed(command, process.returncode, last_lines)

  def read(self, command: Sequence[str], assumed: str = '') -> str:
    """The command's stdout; `assumed` in a dry run. CommandFailed for an exit code other than 0."""
    if self.is_dry:
      self.log(shlex.join(command))
      return assumed
    pipes = {'stdin': subprocess.DEVNULL, 'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE}
    with _started(command, text=True, errors='replace', **pipes) as process:
      output, errors = process.communicate()
    if process.returncode:
      lines = [line for line in errors.splitlines() if line.strip()]
      raise CommandFailed(command, process.returncode, lines[-_LAST_LINES:])
    return output


def _started(command: Sequence[str], **options) -> subprocess.Popen:
  sys.stdout.flush()
  try:
    return subprocess.Popen(command, **options)
  except FileNotFoundError as error:
    raise UsageError(
      f'{command[0]} is not installed',
      where='looked for in PATH',
      fix=[_INSTALL.get(command[0], ''), '--dry_run prints the commands, to be run elsewhere'],
    ) from error


# --- command lines ----------------------------------------------------------------------------------------------------

EXIT_CODES = """
exit codes
  0 done · 2 wrong usage, or refused · 1 a command of gcloud failed: what it said last is shown · 75 run again to resume
"""


def command_parser(module: str, description: str | None, epilog: str) -> argparse.ArgumentParser:
  """The parser of `python -m MODULE`; its help ends with examples."""
  return argparse.ArgumentParser(
    f'python -m {module}',
    description=description,
    epilog=epilog,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )


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
    return options.action(options)

  return exit_code_of(act)


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
