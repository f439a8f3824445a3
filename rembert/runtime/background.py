"""Something done again and again beside what the program is at."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def repeating(action: Callable[[], object], *, every_seconds: float, name: str) -> Iterator[None]:
  """Calls `action` in a thread, first after `every_seconds`, until it returns something true or this is left.

  On leaving, an action that is under way is waited for, for five seconds at most.
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
