"""Runs a command again for as long as that helps: after a preemption, and after a process that vanished."""

import argparse
import dataclasses
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from launch.wrapped_command import add_command, command_of
from rembert.training.preemption import EXIT_STOPPED

EXAMPLES = """
examples
  a run that survives preemptions of its machine's devices and its own crashes:
    python -m launch.supervise -- python -m rembert.main --gin_file=gin/pretrain_large.gin --workdir=gs://BUCKET/large
  the same as a service of the machine (systemd, a start-up script): the command is the same at every boot, and goes on
  from where the workdir stands

what is repeated
  75             the program was stopped early, saved, and says that it can be resumed
  killed         by a signal: out of memory, the machine's last breath, an abort of JAX because another host is gone
what is not
  0              done
  1, 2, others   an error: it would come again. The code is passed on.

SIGTERM and Ctrl-C are passed on to the command; afterwards nothing is repeated.
"""

_FIRST_WAIT = 1.0


@dataclasses.dataclass(frozen=True)
class Patience:
  """How often, and how soon.

  Attributes:
    max_restarts: in all.
    max_short_runs: in a row that did not live for `short_seconds`: something is wrong that restarts do not mend.
    short_seconds: what a start and a few steps take.
    max_wait: seconds; the wait doubles with every short run, from one second on.
  """

  max_restarts: int = 1000
  max_short_runs: int = 10
  short_seconds: float = 120.0
  max_wait: float = 300.0


def is_worth_repeating(exit_code: int) -> bool:
  """Whether the same command can be expected to go further than it came."""
  return exit_code == EXIT_STOPPED or exit_code < 0 or exit_code in (128 + signal.SIGKILL, 128 + signal.SIGABRT)


class Supervisor:
  """Starts a command, waits, and decides."""

  def __init__(self, command: Sequence[str], patience: Patience, say: Callable[[str], None] = print):
    self._command, self._patience, self._say = list(command), patience, say
    self._process: subprocess.Popen | None = None
    self._told: str | None = None

  def run(self) -> int:
    """The exit code of the last run; 128 + N for one killed by signal N, as in a shell."""
    previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
      return self._supervise()
    finally:
      for number, handler in previous.items():
        signal.signal(number, handler)

  def _supervise(self) -> int:
    patience, short_runs = self._patience, 0
    for restarts in range(patience.max_restarts + 1):
      began = time.monotonic()
      code = self._run_once()
      lived = time.monotonic() - began
      if self._told or not is_worth_repeating(code):
        return _as_in_a_shell(code)
      short_runs = short_runs + 1 if lived < patience.short_seconds else 0
      if restarts == patience.max_restarts:
        self._say(f'supervise: {_in_words(code)} after {restarts} restarts; that is enough (--max_restarts)')
      elif short_runs >= patience.max_short_runs:
        self._say(
          f'supervise: {_in_words(code)}; {short_runs} runs in a row lived for less than {patience.short_seconds:g} s '
          '(--max_short_runs): it needs somebody to look at it'
        )
        break
      else:
        wait = min(patience.max_wait, _FIRST_WAIT * 2 ** max(0, short_runs - 1))
        self._say(f'supervise: {_in_words(code)} after {lived:.0f} s; restart {restarts + 1} in {wait:.0f} s')
        self._wait(wait)
        if self._told:
          break
    return _as_in_a_shell(code)

  def _run_once(self) -> int:
    self._process = subprocess.Popen(self._command)
    if self._told:  # in this very moment
      self._process.send_signal(signal.SIGTERM)
    return self._process.wait()

  def _wait(self, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not self._told and (left := end - time.monotonic()) > 0:
      time.sleep(min(left, 0.2))

  def _on_signal(self, number: int, _) -> None:
    self._told = signal.Signals(number).name
    if self._process is not None and self._process.poll() is None:
      self._process.send_signal(number)


def _as_in_a_shell(code: int) -> int:
  return code if code >= 0 else 128 - code


def _in_words(code: int) -> str:
  if code == EXIT_STOPPED:
    return 'stopped early, to be resumed'
  return f'killed by {signal.Signals(-code).name}' if code < 0 else f'ended with {code}'


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = argparse.ArgumentParser(
    'python -m launch.supervise',
    description=__doc__,
    epilog=EXAMPLES,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  for field in dataclasses.fields(Patience):
    kind = {'max_restarts': 'in all', 'max_short_runs': 'in a row', 'short_seconds': 'what counts as a short run'}
    parser.add_argument(
      f'--{field.name}',
      type=field.type,
      default=field.default,
      help=f'{kind.get(field.name, "longest wait before a restart, seconds")}; default %(default)s',
    )
  add_command(parser, 'what to run')
  options = vars(parser.parse_args(argv))
  command = command_of(parser, options.pop('command'))
  if any(value < 0 or not math.isfinite(value) for value in options.values()):
    parser.error('limits must be ≥ 0')
  return Supervisor(command, Patience(**options), lambda text: print(text, flush=True)).run()


if __name__ == '__main__':
  sys.exit(main())
