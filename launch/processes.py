"""Starts, signals and restarts external programs and child processes; no other module does."""

import ctypes
import dataclasses
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from types import FrameType
from typing import Any

from rembert.errors import RunError, UsageError
from rembert.runtime.signals import EXIT_STOPPED

_PR_SET_PDEATHSIG = 1  # Linux, prctl(2)
_INSTALL = {
  'gcloud': 'https://cloud.google.com/sdk/docs/install, then: gcloud auth login',
  'sbatch': 'submit from a login node of the cluster',
}
_LAST_LINES = 8


def log(text: str) -> None:
  """Prints a line at once, also into a pipe."""
  print(text, flush=True)


# --- external programs: gcloud, sbatch --------------------------------------------------------------------------------


class CommandFailed(RunError):
  """An external program ended with an error; `stderr` is its error output, if it was read."""

  def __init__(self, command: Sequence[str], code: int, stderr: str = ''):
    self.stderr = stderr
    lines = [line for line in stderr.splitlines() if line.strip()][-_LAST_LINES:]
    what = f'{command[0]} ended with exit code {code}' + ''.join(f'\n  output {line}' for line in lines)
    super().__init__(what, where=shlex.join(command))


class Commands:
  """Runs external programs, each given as a list of arguments; in a dry run they are only printed."""

  def __init__(self, is_dry: bool = False, log: Callable[[str], None] = log):
    self.is_dry, self.log = is_dry, log

  def note(self, text: str) -> None:
    """Prints a comment in a dry run; does nothing otherwise."""
    if self.is_dry:
      self.log(f'# {text}')

  def run(self, command: Sequence[str]) -> None:
    """Runs a command, showing it and its output; CommandFailed for an exit code other than 0."""
    self.log(shlex.join(command) if self.is_dry else f'+ {shlex.join(command)}')
    if not self.is_dry:
      _run(command)  # inherits stdin: gcloud asks before it creates the first ssh key

  def read(self, command: Sequence[str]) -> str:
    """Runs a command and returns its stdout; '' in a dry run. CommandFailed for an exit code other than 0."""
    if self.is_dry:
      self.log(shlex.join(command))
      return ''
    return _run(command, stdin=subprocess.DEVNULL, capture_output=True)


def _run(command: Sequence[str], **pipes: Any) -> str:
  sys.stdout.flush()
  try:
    done = subprocess.run(command, text=True, errors='replace', **pipes)
  except FileNotFoundError as error:
    fix = [_INSTALL.get(command[0], ''), '--dry_run prints the commands, for another machine']
    raise UsageError(f'{command[0]} is not installed', where='PATH', fix=fix) from error
  if done.returncode:
    raise CommandFailed(command, done.returncode, done.stderr or '')
  return done.stdout or ''


def git_output(folder: pathlib.Path, *arguments: str) -> str:
  """Runs git in a directory and returns its stdout; OSError or SubprocessError if it fails."""
  return subprocess.run(['git', *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


# --- exit codes -------------------------------------------------------------------------------------------------------


def is_retryable(code: int) -> bool:
  """Whether running the command again may help: it was stopped after saving, or killed."""
  return code == EXIT_STOPPED or code < 0 or code in (128 + signal.SIGKILL, 128 + signal.SIGABRT)


def shell_exit_code(code: int) -> int:
  """The exit code in a shell's convention: 128 + N for a process killed by signal N."""
  return code if code >= 0 else 128 - code


def joint_exit_code(codes: Sequence[int]) -> int:
  """One exit code for several processes; errors that the user can fix come first."""
  return next((code for code in (2, 1, EXIT_STOPPED) if code in codes), 1 if any(codes) else 0)


def format_exit(code: int) -> str:
  """How a process ended, in words."""
  if code == EXIT_STOPPED:
    return 'stopped early, can be resumed'
  return f'killed by {signal.Signals(-code).name}' if code < 0 else f'ended with {code}'


# --- restarts ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
  """Limits on restarts. The wait before a restart is one second, and doubles with every consecutive short run."""

  max_restarts: int = 1000
  max_short_runs: int = 10  # consecutive
  short_seconds: float = 120.0  # a run is short below this: more than a start and a few steps take
  max_wait: float = 300.0


class RetryCounter:
  """Counts the restarts of one command or machine, and decides on the next."""

  def __init__(self, policy: RetryPolicy, log: Callable[[str], None]):
    self._policy, self._log = policy, log
    self._count = self._short_runs = 0

  def wait_after(self, code: int, lived: float) -> float | None:
    """Seconds until the next start, after a run of `lived` seconds; None for no restart."""
    policy = self._policy
    if not is_retryable(code):
      return None
    self._short_runs = self._short_runs + 1 if lived < policy.short_seconds else 0
    if self._count == policy.max_restarts:
      self._log(f'{format_exit(code)} after {self._count} restarts, the maximum (--max_restarts)')
      return None
    if self._short_runs >= policy.max_short_runs:
      self._log(
        f'{format_exit(code)}; {self._short_runs} consecutive runs ended within {policy.short_seconds:g} s: '
        'no restart, find the cause first'
      )
      return None
    self._count += 1
    wait = min(policy.max_wait, 2.0 ** max(0, self._short_runs - 1))
    self._log(f'{format_exit(code)} after {lived:.0f} s; restart {self._count} in {wait:.0f} s')
    return wait


# --- child processes --------------------------------------------------------------------------------------------------


class ProcessGroup:
  """The child processes of a launcher. As a context, it forwards SIGTERM and Ctrl-C to all of them.

  `forward_once` is sent once instead of all received signals, since a second one would end children that save.
  """

  def __init__(self, forward_once: signal.Signals | None = None):
    self._forward_once = forward_once
    self.stop_signal: int | None = None  # the first that was received
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
    if self.stop_signal is not None:  # received meanwhile
      child.send_signal(signal.SIGTERM)
    return child

  def send(self, number: int) -> None:
    """Sends a signal to all running children."""
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


def keep_running(
  group: ProcessGroup,
  start: Callable[[], subprocess.Popen],
  policy: RetryPolicy,
  log: Callable[[str], None],
  on_end: Callable[[int, float | None], None] = lambda code, wait: None,
) -> Iterator[int | None]:
  """Starts a command, and restarts it as long as the policy allows; yields None until it has ended finally.

  It never waits for the command in a blocking call: Python's signal handlers run between its instructions, so a
  signal that arrives right before such a call would be handled only after the command has ended.

  Args:
    group: group of the command; after it has received a signal, nothing is restarted.
    start: starts the command in the group.
    policy: limits on restarts.
    log: called with a line for each restart, and for the reason of the last end.
    on_end: called after each run with its exit code (-N for signal N), and the seconds until the next, or None.

  Yields:
    None while the command runs or will be restarted; finally its exit code.
  """
  counter = RetryCounter(policy, log)
  while True:
    child, began = start(), time.monotonic()
    yield None  # even if it has already ended: the first value means that it was started
    while (code := child.poll()) is None:
      yield None
    ended = time.monotonic()
    wait = None if group.stop_signal is not None else counter.wait_after(code, ended - began)
    on_end(code, wait)
    while wait is not None and group.stop_signal is None and time.monotonic() < ended + wait:
      yield None
    if wait is None or group.stop_signal is not None:
      break
  yield code


def bind_to_parent(cores: Collection[int] | None) -> Callable[[], None]:
  """Returns a `preexec_fn` that restricts the child to `cores` (None: all), and ends it with this process (Linux)."""
  prctl = ctypes.CDLL(None).prctl if sys.platform == 'linux' else None  # looked up before the fork

  def prepare() -> None:
    if prctl is not None:
      prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if cores is not None and hasattr(os, 'sched_setaffinity'):
      os.sched_setaffinity(0, cores)

  return prepare
