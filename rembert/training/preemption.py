"""Stopping when asked: SIGTERM and Ctrl-C end the run at the next safe point, with everything saved."""

import signal
from types import FrameType

EXIT_STOPPED = 75  # sysexits.h EX_TEMPFAIL: stopped early, run the same command again to resume


class Stopped(BaseException):
  """Raised where a signal arrives before training has anything to save. Not an Exception: nothing should swallow it."""


class StopSignal:
  """Catches SIGTERM and SIGINT while it is entered.

  Until `defer` is called, a signal raises `Stopped` at once: preparation is repeatable. Afterwards it only sets
  `requested`, which the loop looks at between steps and between evaluation batches. A second Ctrl-C is not caught.
  """

  def __init__(self):
    self.requested: str | None = None
    self._is_deferred = False
    self._previous: dict[int, object] = {}

  def defer(self) -> None:
    """From now on signals wait for the loop."""
    self._is_deferred = True

  def __enter__(self) -> 'StopSignal':
    for number in (signal.SIGTERM, signal.SIGINT):
      self._previous[number] = signal.signal(number, self._on_signal)
    return self

  def __exit__(self, *_) -> None:
    for number, handler in self._previous.items():
      signal.signal(number, handler)

  def _on_signal(self, number: int, frame: FrameType | None) -> None:
    del frame
    if number == signal.SIGINT and self.requested:
      raise KeyboardInterrupt
    self.requested = signal.Signals(number).name
    if not self._is_deferred:
      raise Stopped(self.requested)
