"""Prints the stacks of all threads of a run that hangs, to the log and to a file."""

import faulthandler
import queue
import sys
import threading
import time

from etils import epath

from rembert.files import is_remote


class Watchdog:
  """A thread that expects regular progress, and otherwise reports the stacks of all threads.

  It changes nothing: a run that was only slow continues. The stacks show the collective, file or compiler that it waits
  for; on a pod, the host whose stacks differ from the others' is usually the cause.

  Args:
    after_seconds: timeout since the last `beat`; 0 for never. Doubled after each report, until there is progress again.
    folder: directory of the reports, one file each; None in a bucket, where only the log has them.
    name: name of this process, for the report.
  """

  def __init__(self, after_seconds: float, folder: epath.PathLike, *, name: str = ''):
    self._after, self._folder, self._name = after_seconds, epath.Path(folder), name
    # The activity that begins; '' for none that could hang; None ends the thread.
    self._beats: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    if after_seconds:
      threading.Thread(target=self._watch, name='watchdog', daemon=True).start()

  def beat(self, doing: str) -> None:
    """Reports progress: the activity `doing` begins now."""
    if self._after:
      self._beats.put(doing)

  def rest(self) -> None:
    """Suspends the timeout until the next `beat`."""
    self.beat('')

  def close(self) -> None:
    """Ends the thread."""
    self._beats.put(None)

  def _watch(self) -> None:
    doing, elapsed = '', 0.0
    patience = self._after
    while True:
      try:
        beat = self._beats.get(timeout=patience - elapsed if doing else None)
      except queue.Empty:
        self._report(doing, patience)
        elapsed, patience = patience, 2 * patience
        continue
      if beat is None:
        return
      doing = beat
      elapsed, patience = 0.0, self._after

  def _report(self, doing: str, seconds: float) -> None:
    print(
      f'rembert: {self._name} {doing} has not finished after {seconds:.0f} s; stacks of its threads:', file=sys.stderr
    )
    if sys.__stderr__ is not None:  # a process may have no standard error
      faulthandler.dump_traceback(sys.__stderr__, all_threads=True)
    if not is_remote(self._folder):
      self._folder.mkdir(parents=True, exist_ok=True)
      name = f'{time.strftime("%Y%m%d-%H%M%S")}-{self._name or "process"}'.replace(' ', '-').replace('/', '-')
      with open(self._folder / f'{name}.txt', 'w') as file:
        file.write(f'{doing}, for {seconds:.0f} s\n')
        file.flush()
        faulthandler.dump_traceback(file, all_threads=True)
    sys.stderr.flush()
