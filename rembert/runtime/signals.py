"""Stop requests: SIGTERM, Ctrl-C and maintenance notices end a run at the next safe point, after saving."""

import contextlib
import os
import signal
import socket
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

from rembert.runtime.hardware import has_tpu

EXIT_STOPPED = 75  # sysexits.h EX_TEMPFAIL: stopped early, run the same command again to resume

# Time for Python code to raise an exception and clean up. A main thread that has not handled the signal by then is
# in a compiler or waits for a network, possibly for minutes.
_GRACE_SECONDS = 2


class Stopped(BaseException):
  """Raised if a signal arrives while there is nothing to save. Not an Exception, so that no handler swallows it."""


class StopSignal:
  """A context manager that catches SIGTERM and SIGINT.

  While there is nothing to save (preparation, compilation), a signal ends the program at once: by `Stopped` in Python
  code, and by a thread if the main one is in a compiler or waits for a network. Inside `deferred` it only sets
  `requested`, which the loop reads between steps and between evaluation batches. A second Ctrl-C is not caught.
  """

  def __init__(self):
    self.requested: str | None = None
    self._is_deferred = False
    self._is_heard = threading.Event()
    self._reason: str | None = None
    self._previous: dict[int, Any] = {}

  @contextlib.contextmanager
  def deferred(self) -> Iterator[None]:
    """Inside, signals only set `requested`."""
    self._is_deferred = True
    try:
      yield
    finally:
      self._is_deferred = False

  def request(self, reason: str) -> None:
    """Requests a stop like a signal, from any thread."""
    self._reason = reason
    os.kill(os.getpid(), signal.SIGTERM)

  def __enter__(self) -> 'StopSignal':
    for number in (signal.SIGTERM, signal.SIGINT):
      self._previous[number] = signal.signal(number, self._on_signal)
    # Python runs signal handlers in the main thread only; this pipe can be read in any thread.
    arrivals, self._wakeup = socket.socketpair()
    self._wakeup.setblocking(False)
    self._previous_wakeup = signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=self._watch, args=(arrivals,), name='stop-signal', daemon=True).start()
    return self

  def __exit__(self, *_) -> None:
    signal.set_wakeup_fd(self._previous_wakeup)
    self._wakeup.close()  # ends the thread
    for number, handler in self._previous.items():
      if handler is not None:  # None: not set by Python, so it cannot be restored
        signal.signal(number, handler)

  def _on_signal(self, number: int, frame: FrameType | None) -> None:
    del frame
    self._is_heard.set()
    if number == signal.SIGINT and self.requested:
      raise KeyboardInterrupt
    self.requested = self._reason or signal.Signals(number).name
    if not self._is_deferred:
      raise Stopped(self.requested)

  def _watch(self, arrivals: socket.socket) -> None:
    with arrivals:
      while number := arrivals.recv(1):
        if number[0] not in (signal.SIGTERM, signal.SIGINT):
          continue
        is_heard = self._is_heard.wait(_GRACE_SECONDS)
        if not is_heard and not self._is_deferred:
          reason = self._reason or signal.Signals(number[0]).name
          exit_stopped(reason)


def exit_stopped(reason: str) -> NoReturn:
  """Ends a process that has nothing to save at once, from any thread."""
  cursor = '\x1b[?25h' if sys.stderr.isatty() else ''  # a progress bar may have hidden it
  message = f'rembert: stopped by {reason} between steps; nothing is lost. Run the same command again.'
  print(f'{cursor}{message}', file=sys.stderr, flush=True)
  sys.stdout.flush()
  os._exit(EXIT_STOPPED)


# --- threads ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def repeating(action: Callable[[], object], *, every_seconds: float, name: str) -> Iterator[None]:
  """Calls `action` periodically in a thread, until it returns something true or the context ends.

  The end waits for a running action, for at most five seconds.
  """
  is_over = threading.Event()

  def repeat() -> None:
    while not is_over.wait(every_seconds) and not action():
      pass

  thread = threading.Thread(target=repeat, name=name, daemon=True)
  thread.start()
  try:
    yield
  finally:
    is_over.set()
    thread.join(timeout=5)


# --- maintenance notices of Google Cloud ------------------------------------------------------------------------------

_METADATA_HOST = 'GCE_METADATA_HOST'  # Google's own libraries read it too
_NOTICES = {
  'instance/maintenance-event': ('TERMINATE_ON_HOST_MAINTENANCE', 'maintenance notice'),
  'instance/preempted': ('TRUE', 'preemption notice'),
}


@contextlib.contextmanager
def watch_maintenance(stop: StopSignal, *, every_seconds: float = 5.0) -> Iterator[None]:
  """Polls the metadata server of a Cloud TPU VM, or of GCE_METADATA_HOST, for maintenance and preemption.

  Does nothing on other machines.
  """
  if not (os.environ.get(_METADATA_HOST) or has_tpu()):
    yield
    return

  def look() -> bool:
    notice = maintenance_notice()
    if notice:
      stop.request(notice)
    return bool(notice)

  with repeating(look, every_seconds=every_seconds, name='maintenance'):
    yield


def maintenance_notice() -> str | None:
  """The notice of the metadata server for this machine; None without a notice or server."""
  host = os.environ.get(_METADATA_HOST) or 'metadata.google.internal'
  for path, (alarm, notice) in _NOTICES.items():
    request = urllib.request.Request(f'http://{host}/computeMetadata/v1/{path}', headers={'Metadata-Flavor': 'Google'})
    try:
      with urllib.request.urlopen(request, timeout=5) as response:
        event = response.read().decode().strip()
    except OSError:  # no such server, or no answer
      continue
    if event == alarm:
      return notice
  return None
