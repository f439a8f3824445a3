"""What every source of training batches has in common, and the thread that prepares batches ahead of the step."""

import abc
import bisect
import contextlib
import dataclasses
import queue
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from rembert.data.masking import MaskingConfig, mask_rows
from rembert.data.mixture import MASK_STREAM
from rembert.data.packing import segments_and_positions
from rembert.tokenizer import SpecialIds

In = TypeVar('In')
Out = TypeVar('Out')

Batch = dict[str, np.ndarray]


def batch_shapes(rows: int, sequence_length: int, slots: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
  """Shape and type of every array of a batch: S = `sequence_length` positions, K = `slots` masked positions."""
  positions, predictions = (rows, sequence_length), (rows, slots)
  shapes = dict.fromkeys(('input_ids', 'segment_ids', 'position_ids'), (positions, np.dtype(np.int32)))
  shapes |= dict.fromkeys(('masked_positions', 'targets'), (predictions, np.dtype(np.int32)))
  return shapes | {'weights': (predictions, np.dtype(np.float32)), 'language': ((rows,), np.dtype(np.int32))}


class Sampling(NamedTuple):
  """How the steps from `begin` until before `end` are sampled and masked, with K `slots`.

  `rates` are in the order of the source's languages, 0 for those that are not sampled.
  """

  begin: int
  end: int
  rates: tuple[float, ...]
  masking_rate: float
  slots: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSource(abc.ABC):
  """Source of training batches: streamed text, or a store that is read by index."""

  rates: Mapping[str, float]  # sampling rate of each language; its order defines their indices
  batch_size: int  # sequences of the global batch
  vocab_size: int  # upper bound of random replacements
  seed: int
  masking: MaskingConfig = MaskingConfig()
  evaluation_rows: int = 32  # number of eval sequences per language
  process: tuple[int, int] = (0, 1)  # index of this process, and how many there are
  # Rates and mask rates of training by step, in ascending order; empty if they are `rates` and `masking` throughout.
  # Held-out batches are masked by `masking` either way.
  schedule: tuple[Sampling, ...] = ()

  @property
  def languages(self) -> tuple[str, ...]:
    """Codes, in the order of the indices `language` in a batch."""
    return tuple(self.rates)

  @property
  @abc.abstractmethod
  def special(self) -> SpecialIds:
    """Ids of special tokens."""

  @abc.abstractmethod
  def batches(self, step: int = 0, state: dict | None = None) -> Generator[tuple[Batch, dict], None, None]:
    """This process's part of the batches of steps `step`, `step` + 1, …, each with the state to resume after it."""

  @abc.abstractmethod
  def evaluation_batches(self) -> Iterator[Batch]:
    """This process's part of a fixed set of eval batches; the last is padded with sequences of weight 0."""

  @property
  def own_rows(self) -> slice:
    """This process's part of a global batch."""
    index, count = self.process
    share = self.batch_size // count
    return slice(index * share, (index + 1) * share)

  def sampling(self, step: int) -> Sampling:
    """How a step is sampled; a step after the last of the schedule as that one."""
    if not self.schedule:
      return Sampling(0, sys.maxsize, tuple(self.rates.values()), self.masking.rate, None)
    after = bisect.bisect_right(self.schedule, step, key=lambda sampling: sampling.begin)
    return self.schedule[max(0, after - 1)]

  def masked(self, ids_NxS: np.ndarray, languages: np.ndarray, *, stream: int, step: int) -> Batch:
    """A batch of this process's packed sequences of a step, int32 [N, S], and their languages [N]."""
    sampling = self.sampling(step) if stream == MASK_STREAM else None
    masking = dataclasses.replace(self.masking, rate=sampling.masking_rate) if sampling else self.masking
    masked = mask_rows(
      ids_NxS,
      seed=self.seed,
      stream=stream,
      step=step,
      first_row=self.own_rows.start,
      special=self.special,
      vocab_size=self.vocab_size,
      config=masking,
      slots=sampling and sampling.slots,
    )
    segments, positions = segments_and_positions(ids_NxS, self.special)
    return {**masked, 'segment_ids': segments, 'position_ids': positions, 'language': languages}


# --- prefetching ------------------------------------------------------------------------------------------------------


def prefetch(items: Iterator[In], place: Callable[[In], Out], *, ahead: int = 2) -> Generator[Out, None, None]:
  """Yields `place(item)` for each item, prepared by a thread up to `ahead` items early.

  An exception in the thread is raised in place of the item. Closing the iterator ends the thread.
  """
  ready: queue.Queue = queue.Queue(maxsize=ahead)
  is_closed = threading.Event()

  def put(item: Out | None, error: BaseException | None = None) -> None:
    while not is_closed.is_set():
      with contextlib.suppress(queue.Full):
        return ready.put((item, error), timeout=0.1)

  def work():
    try:
      for item in items:
        put(place(item))
        if is_closed.is_set():
          break
      put(None, StopIteration())
    except BaseException as error:  # raised in the consumer
      put(None, error)
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
