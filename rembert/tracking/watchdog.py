"""Where a run stands when it stands still: the stacks of all threads, in the log and in a file."""

import faulthandler
import queue
import sys
import threading
import time
from typing import Any

from etils import epath

from rembert.files import is_remote

_END = object()


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
    self._beats: queue.SimpleQueue = queue.SimpleQueue()
    if after_seconds:
      threading.Thread(target=self._watch, name='watchdog', daemon=True).start()

  def beat(self, doing: str | None) -> None:
    """Progress: `doing` begins now."""
    if self._after:
      self._beats.put(doing)

  def rest(self) -> None:
    """Nothing is expected until the next `beat`."""
    self.beat(None)

  def close(self) -> None:
    """Ends the thread."""
    self._beats.put(_END)

  def _watch(self) -> None:
    doing: Any = None
    elapsed, patience = 0.0, float(self._after)
    while True:
      try:
        doing = self._beats.get(timeout=patience - elapsed if doing else None)
        elapsed, patience = 0.0, self._after
        if doing is _END:
          return
      except queue.Empty:
        self._report(doing, patience)
        elapsed, patience = patience, 2 * patience

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
