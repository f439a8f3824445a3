"""Waiting for what other threads and processes do."""

import subprocess
import time
from collections.abc import Callable


def wait_for(is_so: Callable[[], object], *processes: subprocess.Popen, seconds: float = 60) -> None:
  """Returns once it is so; fails after some seconds, or if one of the processes has ended before."""
  end = time.monotonic() + seconds
  while not is_so():
    assert all(process.poll() is None for process in processes)
    assert time.monotonic() < end
    time.sleep(0.01)
