"""Memory of a run on a CPU: kept, rather than given back to the kernel after every step."""

import ctypes
import os
import pathlib

# <malloc.h>
_SETTINGS = {
  -4: 0,  # M_MMAP_MAX: no block is mapped, and unmapped, by itself
  -1: 2**31 - 1,  # M_TRIM_THRESHOLD: the top of the heap is not given back
  -2: 64 * 2**20,  # M_TOP_PAD: and grows by much at a time
  -8: 1,  # M_ARENA_MAX: XLA's threads share that heap; those of their own would shrink after all
}


def keep_freed_memory() -> bool:
  """Tells glibc to keep what is freed; returns whether there is a glibc to tell.

  XLA allocates the temporaries of a step in large blocks and frees them afterwards. glibc maps a large block anew each
  time, and the kernel fills every page of it with zeros: a quarter of a small model's step. The resident size stays at
  its peak, where it would be a moment later anyway. Takes effect only before the process has threads.
  """
  try:
    mallopt = ctypes.CDLL(None).mallopt
  except (OSError, AttributeError):  # another C library
    return False
  return all([mallopt(name, value) for name, value in _SETTINGS.items()])


def is_cpu_machine() -> bool:
  """Whether JAX will run on the CPU, as far as can be told before it is imported."""
  if platforms := os.environ.get('JAX_PLATFORMS'):
    return platforms == 'cpu'
  return not any(list(pathlib.Path('/dev').glob(pattern)) for pattern in ('accel*', 'vfio/[0-9]*', 'nvidia[0-9]*'))
