"""Configures glibc malloc on a CPU so that freed memory stays in the process, in huge pages."""

import ctypes

from rembert.runtime.hardware import available_bytes, is_cpu_machine

# <malloc.h>
_SETTINGS = {
  -4: 0,  # M_MMAP_MAX: no separate mappings for large blocks
  -1: -1,  # M_TRIM_THRESHOLD: never return the top of the heap
  -2: 64 * 2**20,  # M_TOP_PAD: grow in large steps
  -8: 1,  # M_ARENA_MAX: one heap for all of XLA's threads; further arenas would shrink
}
_SHARE = 0.5  # of the free memory
_LEAST_HEAP_BYTES = 4 * 2**30  # of addresses; pages are allocated when used
_HUGE_PAGE = 2 * 2**20
_MADV_HUGEPAGE = 14  # <sys/mman.h>


def keep_freed_memory_if_it_fits(needed: int, available: int | None = None) -> bool:
  """Makes glibc keep freed memory in a heap of `needed` bytes if memory suffices; returns whether it does.

  XLA allocates the temporaries of a step in large blocks and frees them afterwards. glibc maps a large block again each
  time, and the kernel zeroes every page: a quarter of a step. A heap needs more room, because of fragmentation.

  Call this before JAX starts its threads. `available` is the free memory in bytes; None detects it.
  """
  available = available_bytes() if available is None else available
  if not is_cpu_machine() or needed > _SHARE * (available or 0):
    return False
  try:
    libc = ctypes.CDLL(None)
    is_set = all([libc.mallopt(name, value) for name, value in _SETTINGS.items()])
  except (OSError, AttributeError):  # another C library
    return False
  if is_set:
    _ask_for_huge_pages(libc, max(needed, _LEAST_HEAP_BYTES))
  return is_set


def _ask_for_huge_pages(libc: ctypes.CDLL, size: int) -> None:
  """Grows the heap once to `size` bytes of address space, in 2 MB pages if the kernel supports them; allocates nothing.

  A step reads parameters, moments and temporaries several times, and spends part of its time on TLB misses with 4 KB
  pages. If 2 MB pages are returned to the kernel and fetched again, they can cost more than they gain (on a virtual
  machine whose host reclaims free pages, a quarter of a larger model's step), so only memory that is kept uses them.
  """
  libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
  libc.free.restype, libc.free.argtypes = None, (ctypes.c_void_p,)
  libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
  if block := libc.malloc(size):
    begin = -(-block // _HUGE_PAGE) * _HUGE_PAGE
    libc.madvise(begin, block + size - begin, _MADV_HUGEPAGE)  # ignored if the kernel does not support them
    libc.free(block)
