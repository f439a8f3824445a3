"""Runs a command again for as long as that helps: after a preemption, and after a process that vanished."""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from launch.restarts import Patience, Restarts, add_patience, as_in_a_shell, patience_of
from launch.wrapped_command import add_command, command_of

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
    restarts = Restarts(self._patience, lambda text: self._say(f'supervise: {text}'))
    while True:
      began = time.monotonic()
      code = self._run_once()
      wait = None if self._told else restarts.wait_after(code, time.monotonic() - began)
      if wait is not None:
        self._wait(wait)
      if wait is None or self._told:
        return as_in_a_shell(code)

  def _run_once(self) -> int:
    self._process = subprocess.Popen(self._command)
    if self._told:  # in this very moment
      self._process.send_signal(signal.SIGTERM)
    # Never in one blocking call: Python's handlers run between its own instructions, so a signal that arrives right
    # before the call is heard only when the call ends, and it would end only with the command.
    while True:
      try:
        return self._process.wait(timeout=1)
      except subprocess.TimeoutExpired:
        pass

  def _wait(self, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not self._told and (left := end - time.monotonic()) > 0:
      time.sleep(min(left, 0.2))

  def _on_signal(self, number: int, _) -> None:
    self._told = signal.Signals(number).name
    if self._process is not None and self._process.poll() is None:
      self._process.send_signal(number)


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = argparse.ArgumentParser(
    'python -m launch.supervise',
    description=__doc__,
    epilog=EXAMPLES,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  add_patience(parser, Patience())
  add_command(parser, 'what to run')
  options = parser.parse_args(argv)
  command, patience = command_of(parser, options.command), patience_of(parser, options)
  return Supervisor(command, patience, lambda text: print(text, flush=True)).run()


if __name__ == '__main__':
  sys.exit(main())
