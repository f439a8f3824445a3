"""Programs of others (gcloud, xpk, sbatch): run, or in a dry run only printed, each as a list of arguments."""

import collections
import contextlib
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


class Failed(RunError):
  """A command that ended with another code than 0.

  Attributes:
    exit_code: 1, that of this program.
    said: the last lines that the command wrote to stderr.
  """

  def __init__(self, command: Sequence[str], code: int, lines: Sequence[str]):
    self.said = '\n'.join(lines)
    super().__init__(
      f'{command[0]} ended with exit code {code}' + ''.join(f'\n  said   {line}' for line in lines),
      where=shlex.join(command),
    )


class Commands:
  """Runs commands, or prints them.

  Attributes:
    is_dry: nothing is run, and what would be read is assumed.
  """

  def __init__(self, is_dry: bool = False, say: Callable[[str], None] = print):
    self.is_dry, self.say = is_dry, say

  def note(self, text: str) -> None:
    """A comment between the commands of a dry run; nothing otherwise."""
    if self.is_dry:
      self.say(f'# {text}')

  def run(self, command: Sequence[str]) -> None:
    """Shows the command and what it writes, and waits for its end. `Failed` unless that is 0."""
    self.say(shlex.join(command) if self.is_dry else f'+ {shlex.join(command)}')
    if not self.is_dry:
      self._wait(command, is_shown=True)

  def read(self, command: Sequence[str], assumed: str = '') -> str:
    """What the command writes to stdout; `assumed` in a dry run. `Failed` unless it ends with 0."""
    if self.is_dry:
      self.say(shlex.join(command))
      return assumed
    return self._wait(command, is_shown=False)

  def _wait(self, command: Sequence[str], *, is_shown: bool) -> str:
    sys.stdout.flush()
    last = collections.deque(maxlen=_LAST_LINES)
    with contextlib.ExitStack() as stack:
      try:
        # What is shown may ask (gcloud, before it makes the first ssh key); what is read may not.
        stdin, stdout = (None, None) if is_shown else (subprocess.DEVNULL, subprocess.PIPE)
        process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)
      except FileNotFoundError as error:
        raise UsageError(
          f'{command[0]} is not installed',
          where='looked for in PATH',
          fix=[_INSTALL.get(command[0], ''), '--dry_run prints the commands, to be run elsewhere'],
        ) from error
      stack.enter_context(process)
      if not is_shown:
        output, errors = process.communicate()
        last.extend(line for line in errors.decode(errors='replace').splitlines() if line.strip())
      else:
        output = b''
        for line in process.stderr or ():
          text = line.decode(errors='replace').rstrip()
          print(text, file=sys.stderr, flush=True)
          if text:
            last.append(text)
    if process.returncode:
      raise Failed(command, process.returncode, list(last))
    return output.decode(errors='replace')
