"""Runs a command again for as long as that helps: after a preemption, and after a process that vanished."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from types import FrameType
from typing import Any

from launch.commands import add_command, command_parser, wrapped_command
from launch.retry import RetryCounter, RetryPolicy, add_retry_options, retry_policy, shell_exit_code

EXAMPLES = """
examples
  a run that survives preemptions of its machine's devices and its own crashes:
    python -m launch.supervise -- python -m rembert.main --gin_file=gin/pretrain_large.gin --workdir=gs://BUCKET/large
  the same as a service of the machine (systemd, a start-up script): the command is the same at every boot, and goes on
  from where the workdir stands

what is repeated
  75             the program was stopped early, saved, and says that it can be resumed
  killed         by a signal: out of memory, a machine that shuts down, an abort of JAX because another host failed
what is not
  0              done
  1, 2, others   an error: it would come again. The code is passed on.

SIGTERM and Ctrl-C are passed on to the command; afterwards nothing is repeated.
"""
_POLL_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1  # Linux, prctl(2)


# --- child processes: they are started, signalled and restarted here alone --------------------------------------------


class ProcessGroup:
  """The children of a launcher. While it is entered, SIGTERM and Ctrl-C are passed on to all of them.

  `stop_signal` is the first signal that was received, None before.
  """

  def __init__(self, forward_once: signal.Signals | None = None):
    """`forward_once` is sent once, in place of every signal received: a second one would end children that save."""
    self._forward_once = forward_once
    self.stop_signal: int | None = None
    self._children: list[subprocess.Popen] = []
    self._previous: dict[int, Any] = {}

  def __enter__(self) -> 'ProcessGroup':
    self._previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    return self

  def __exit__(self, *_) -> None:
    for number, handler in self._previous.items():
      signal.signal(number, handler)

  def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen:
    """Starts a child; the options are those of `subprocess.Popen`."""
    child = subprocess.Popen(list(command), **options)
    self._children = [*(each for each in self._children if each.poll() is None), child]
    if self.stop_signal is not None:  # received in this very moment
      child.send_signal(signal.SIGTERM)
    return child

  def send(self, number: int) -> None:
    """Sends a signal to all children that run."""
    for child in self._children:
      if child.poll() is None:
        child.send_signal(number)

  def _on_signal(self, number: int, _: FrameType | None) -> None:
    is_first = self.stop_signal is None
    self.stop_signal = self.stop_signal or number
    if self._forward_once is None:
      self.send(number)
    elif is_first:
      self.send(self._forward_once)


class RestartedProcess:
  """A command that is started again as long as a retry policy allows. `poll` has to be called often.

  Nothing waits for the command in a blocking call: Python's signal handlers run between its own instructions, so a
  signal that arrives right before such a call would be handled only after the command has ended.
  """

  def __init__(
    self,
    group: ProcessGroup,
    start: Callable[[], subprocess.Popen],
    policy: RetryPolicy,
    log: Callable[[str], None],
    on_end: Callable[[int, float | None], None] = lambda code, wait: None,
  ):
    """
    Args:
      group: when it has received a signal, nothing is started again.
      start: starts the command in the group.
      policy: limits on restarts.
      log: called with a line for each restart, and for the reason why there is none.
      on_end: called after each run with its exit code, and the seconds until the next; None if there is none.
    """
    self._group, self._start, self._on_end = group, start, on_end
    self._counter = RetryCounter(policy, log)
    self._child: subprocess.Popen | None = None
    self._code: int | None = None
    self._began = self._next_start = 0.0

  def poll(self) -> int | None:
    """The exit code (-N for signal N) once the command has ended for good; starts it when a start is due."""
    if self._child is None:
      if self._group.stop_signal is not None and self._code is not None:
        return self._code
      if time.monotonic() >= self._next_start:
        self._child, self._began = self._start(), time.monotonic()
      return None
    self._code = self._child.poll()
    if self._code is None:
      return None
    lived = time.monotonic() - self._began
    wait = None if self._group.stop_signal is not None else self._counter.wait_after(self._code, lived)
    self._child, self._next_start = None, time.monotonic() + (wait or 0.0)
    self._on_end(self._code, wait)
    return self._code if wait is None else None


def bind_to_parent(cores: Collection[int] | None) -> Callable[[], None]:
  """A `preexec_fn`: the child takes these cores (None: all), and gets SIGTERM when this process ends (on Linux)."""
  prctl = ctypes.CDLL(None).prctl if sys.platform == 'linux' else None  # looked up before the fork

  def prepare() -> None:
    if prctl is not None:
      prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if cores is not None and hasattr(os, 'sched_setaffinity'):
      os.sched_setaffinity(0, cores)

  return prepare


# --- the command ------------------------------------------------------------------------------------------------------


def supervise(command: Sequence[str], policy: RetryPolicy, log: Callable[[str], None] = print) -> int:
  """Runs and restarts a command; the exit code of its last run, 128 + N for signal N, as in a shell."""
  with ProcessGroup() as group:
    process = RestartedProcess(group, lambda: group.start(command), policy, lambda text: log(f'supervise: {text}'))
    while (code := process.poll()) is None:
      time.sleep(_POLL_SECONDS)
    return shell_exit_code(code)


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = command_parser('launch.supervise', __doc__, EXAMPLES)
  add_retry_options(parser, RetryPolicy())
  add_command(parser, 'what to run')
  options = parser.parse_args(argv)
  command = wrapped_command(parser, options)
  return supervise(command, retry_policy(options), lambda text: print(text, flush=True))


if __name__ == '__main__':
  sys.exit(main())
