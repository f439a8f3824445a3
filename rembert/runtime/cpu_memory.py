"""Memory of a run on a CPU: kept, rather than given back to the kernel after every step; large pages."""

import ctypes

from rembert.runtime.hardware import available_bytes, is_cpu_machine

# <malloc.h>
_SETTINGS = {
  -4: 0,  # M_MMAP_MAX: no block is mapped, and unmapped, by itself
  -1: -1,  # M_TRIM_THRESHOLD: the top of the heap is never given back
  -2: 64 * 2**20,  # M_TOP_PAD: and grows by much at a time
  -8: 1,  # M_ARENA_MAX: XLA's threads share that heap; those of their own would shrink after all
}
_SHARE = 0.5  # of the memory that is free
_LEAST_HEAP_BYTES = 4 * 2**30  # of addresses; pages are taken as they are used
_HUGE_PAGE = 2 * 2**20
_MADV_HUGEPAGE = 14  # <sys/mman.h>


def keep_freed_memory_if_it_fits(needed: int, available: int | None = None) -> bool:
  """Tells glibc to keep freed memory in a heap of `needed` bytes, on a CPU with enough; returns whether it was told.

  XLA allocates the temporaries of a step in large blocks and frees them afterwards. glibc maps a large block anew each
  time, and the kernel fills every page of it with zeros: a quarter of a step. In a heap, on the other hand, large
  blocks leave gaps, for which there has to be room.

  Takes effect only before JAX has started its threads. `available` are bytes of memory; None asks the machine.
  """
  available = available_bytes() if available is None else available
  if not is_cpu_machine() or needed > _SHARE * (available or 0):
    return False
  try:
    libc = ctypes.CDLL(None)
    is_told = all([libc.mallopt(name, value) for name, value in _SETTINGS.items()])
  except (OSError, AttributeError):  # another C library
    return False
  if is_told:
    _ask_for_huge_pages(libc, max(needed, _LEAST_HEAP_BYTES))
  return is_told


def _ask_for_huge_pages(libc: ctypes.CDLL, size: int) -> None:
  """Lets the heap grow once to what a run needs, in pages of 2 MB where the kernel has them; none is taken yet.

  A step walks through parameters, moments and temporaries several times, and spends a part of it looking up where their
  pages of 4 KB lie. Only here, where memory is kept: to be given back and fetched again, pages of 2 MB can cost more
  than they gain (on a virtual machine whose host takes free ones away, a quarter of a larger model's step).
  """
  libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
  libc.free.restype, libc.free.argtypes = None, (ctypes.c_void_p,)
  libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
  if block := libc.malloc(size):
    begin = -(-block // _HUGE_PAGE) * _HUGE_PAGE
    libc.madvise(begin, block + size - begin, _MADV_HUGEPAGE)  # a wish: without such pages nothing changes
    libc.free(block)
