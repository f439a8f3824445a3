"""Prepares batches, and moves them to the device, ahead of the step that needs them."""

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

In = TypeVar('In')
Out = TypeVar('Out')


def prefetch(items: Iterator[In], place: Callable[[In], Out], *, ahead: int = 2) -> Generator[Out, None, None]:
  """Yields `place(item)` for each item, prepared by a thread up to `ahead` items early.

  An exception in the thread is raised in place of the item. Closing the iterator ends the thread.
  """
  ready: queue.Queue = queue.Queue(maxsize=ahead)
  is_closed = threading.Event()

  def put(entry) -> bool:
    while not is_closed.is_set():
      try:
        ready.put(entry, timeout=0.1)
        return True
      except queue.Full:
        continue
    return False

  def work():
    try:
      for item in items:
        if not put((place(item), None)):
          return
      put((None, StopIteration()))
    except BaseException as error:  # raised in the consumer
      put((None, error))
    finally:
      if hasattr(items, 'close'):
        items.close()  # here, in the thread that runs it

  thread = threading.Thread(target=work, name='prefetch', daemon=True)
  thread.start()
  try:
    while True:
      item, error = ready.get()
      if isinstance(error, StopIteration):
        return
      if error is not None:
        raise error
      yield item
  finally:
    is_closed.set()
    thread.join(timeout=10)
