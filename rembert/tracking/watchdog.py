"""Where a run stands when it stands still: the stacks of all threads, in the log and in a file."""

import faulthandler
import sys
import threading
import time

from etils import epath

from rembert.files import is_remote


class Watchdog:
  """A thread that expects to hear of progress, and otherwise writes down what every thread is doing.

  It changes nothing: a run that only was slow goes on. The stacks say which collective, which file or which compiler is
  being waited for; on a pod, the host whose stacks differ from the others' is the one to look at.
  """

  def __init__(self, after_seconds: float, folder: epath.PathLike, *, name: str = ''):
    """
    Args:
      after_seconds: without a `beat`; 0 for never. Doubled after each report, until there is progress again.
      folder: where reports go, one file each; not written in a bucket, where the log has them.
      name: of this process, in the report.
    """
    self._after, self._folder, self._name = after_seconds, epath.Path(folder), name
    self._changed = threading.Condition()
    self._doing: str | None = None
    self._since = 0.0
    self._is_closed = False
    if after_seconds:
      threading.Thread(target=self._watch, name='watchdog', daemon=True).start()

  def beat(self, doing: str) -> None:
    """Progress: `doing` begins now."""
    with self._changed:
      self._doing, self._since = doing, time.monotonic()
      self._changed.notify()

  def rest(self) -> None:
    """Nothing is expected until the next `beat`."""
    with self._changed:
      self._doing = None
      self._changed.notify()

  def close(self) -> None:
    """Ends the thread."""
    with self._changed:
      self._is_closed = True
      self._changed.notify()

  def _watch(self) -> None:
    patience, since = self._after, 0.0
    with self._changed:
      while not self._is_closed:
        if self._since != since:
          patience, since = self._after, self._since
        left = since + patience - time.monotonic() if self._doing else None
        if left is None or left > 0:
          self._changed.wait(left)
          continue
        self._report(self._doing, patience)
        patience *= 2

  def _report(self, doing: str, seconds: float) -> None:
    print(f'rembert: {self._name} {doing} has been going on for {seconds:.0f} s; its threads:', file=sys.stderr)
    if sys.__stderr__ is not None:  # a process may have been started without one
      faulthandler.dump_traceback(sys.__stderr__, all_threads=True)
    if not is_remote(self._folder):
      self._folder.mkdir(parents=True, exist_ok=True)
      name = f'{time.strftime("%Y%m%d-%H%M%S")}-{self._name or "process"}'.replace(' ', '-').replace('/', '-')
      with open(self._folder / f'{name}.txt', 'w') as file:
        file.write(f'{doing}, for {seconds:.0f} s\n')
        file.flush()
        faulthandler.dump_traceback(file, all_threads=True)
    sys.stderr.flush()
