"""Memory of a run on a CPU: kept, rather than given back to the kernel after every step."""

import ctypes

# <malloc.h>
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
  """Tells glibc to keep what is freed; returns whether there is a glibc to tell.

  XLA allocates the temporaries of a step as one block and frees it afterwards. glibc maps so large a block anew each
  time, and the kernel fills every page of it with zeros: a quarter of a small model's step. The resident size stays at
  its peak, where it would be a moment later anyway.
  """
  try:
    mallopt = ctypes.CDLL(None).mallopt
  except (OSError, AttributeError):  # another C library
    return False
  settings = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1, _M_TOP_PAD: 64 * 2**20}
  return all([mallopt(name, value) for name, value in settings.items()])
