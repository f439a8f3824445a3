"""Memory of a small model's run on a CPU: kept, rather than given back to the kernel after every step."""

import ctypes

from rembert.machine import is_cpu_machine
from rembert.model.config import RemBertConfig
from rembert.model.parameter_counts import count_parameters

# <malloc.h>
_SETTINGS = {
  -4: 0,  # M_MMAP_MAX: no block is mapped, and unmapped, by itself
  -1: -1,  # M_TRIM_THRESHOLD: the top of the heap is never given back
  -2: 64 * 2**20,  # M_TOP_PAD: and grows by much at a time
  -8: 1,  # M_ARENA_MAX: XLA's threads share that heap; those of their own would shrink after all
}
_MOST_PARAMETERS = 50_000_000


def keep_freed_memory_if_small(config: RemBertConfig) -> bool:
  """Tells glibc to keep what is freed, on a CPU and for up to 50 million parameters; returns whether it is told.

  XLA allocates the temporaries of a step in large blocks and frees them afterwards. glibc maps a large block anew each
  time, and the kernel fills every page of it with zeros: a quarter of a small model's step. In a heap, on the other
  hand, large blocks leave gaps, which a large model cannot afford; zeroing is a small part of its step.

  Takes effect only before JAX has started its threads.
  """
  if not is_cpu_machine() or count_parameters(config).pre_training > _MOST_PARAMETERS:
    return False
  try:
    mallopt = ctypes.CDLL(None).mallopt
  except (OSError, AttributeError):  # another C library
    return False
  return all([mallopt(name, value) for name, value in _SETTINGS.items()])
