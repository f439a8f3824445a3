"""What is set before JAX starts: XLA flags, the compilation cache, and memory on a CPU. Does not import JAX."""

import contextlib
import ctypes
import dataclasses
import hashlib
import os
import pathlib
import platform
from collections.abc import Mapping, MutableMapping
from typing import Any

from rembert.errors import UsageError
from rembert.files import is_remote
from rembert.runtime.hardware import available_bytes, is_cpu_machine
from rembert.validation import check_fields

AUTO = 'auto'


@dataclasses.dataclass(frozen=True)
class HardwareConfig:
  """Settings of a hardware file in addition to mesh, batch and execution.

  Attributes:
    xla_flags: `('--xla_tpu_…=true', …)`, passed by LIBTPU_INIT_ARGS if `mesh.require_platform` is `tpu`, else by
      XLA_FLAGS.
    compile_cache: directory of compiled programs for the next start; `auto` is `~/.cache/rembert/compiled`, None
      disables the cache. A pod needs one that all hosts can read, such as `gs://BUCKET/compiled`; only the first host
      writes. JAX's own settings (JAX_COMPILATION_CACHE_DIR) take precedence.
  """

  xla_flags: tuple[str, ...] = ()
  compile_cache: str | None = 'auto'

  def __post_init__(self):
    check_fields(self, 'hardware')
    if any(not flag.startswith('--xla') for flag in self.xla_flags):
      raise UsageError(
        'hardware.xla_flags must be a tuple of strings that begin with --xla',
        where=f'hardware.xla_flags = {self.xla_flags!r}',
        fix="hardware.xla_flags = ('--xla_…=true',)",
      )


def set_flags(config: HardwareConfig, platform: str | None, environment: MutableMapping[str, str] = os.environ) -> str:
  """Adds flags to the environment, except those that the user has set; call this before JAX starts.

  `platform` is `mesh.require_platform`. Returns a line for the log, or '' if nothing was added.
  """
  variable = 'LIBTPU_INIT_ARGS' if platform == 'tpu' else 'XLA_FLAGS'
  set_by_user = environment.get(variable, '').split()
  name = lambda flag: flag.split('=')[0].lstrip('-')
  taken = {name(flag) for flag in set_by_user}
  added = [flag for flag in config.xla_flags if name(flag) not in taken]
  if added:
    environment[variable] = ' '.join([*set_by_user, *added])
  return f'{variable}: {" ".join(added)}' if added else ''


# --- compilation cache ------------------------------------------------------------------------------------------------

# The minimum compile time of cached programs. JAX's default, 1 s, excludes most programs of a small model.
_LEAST_SECONDS = 0.5
_MOST_BYTES = 4 * 2**30


def enable_compilation_cache(folder: str | None) -> str:
  """Turns on JAX's persistent compilation cache in `hardware.compile_cache`, unless it is set by JAX's own settings.

  Returns a line for the log if the directory cannot be used, else ''.
  """
  import jax

  settings: Any = jax.config  # its attributes are defined at run time
  is_set_already = settings.jax_compilation_cache_dir or not settings.jax_enable_compilation_cache
  if folder is None or is_set_already:
    return ''
  path = str(default_cache_folder() if folder == AUTO else folder)
  if not is_remote(path):
    try:
      os.makedirs(path, exist_ok=True)
      delete_oldest(pathlib.Path(path))
    except OSError as error:
      return f'compilation cache disabled: {path}: {error.strerror or error} (hardware.compile_cache)'
  jax.config.update('jax_compilation_cache_dir', path)
  if 'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS' not in os.environ:
    jax.config.update('jax_persistent_cache_min_compile_time_secs', _LEAST_SECONDS)
  return ''


def default_cache_folder() -> pathlib.Path:
  """The cache directory of this user and kind of processor, since machines may share a home directory."""
  home = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
  features = [platform.machine(), platform.processor()]  # XLA compiles for these on a CPU
  with contextlib.suppress(OSError), open('/proc/cpuinfo', encoding='utf-8', errors='replace') as lines:
    features += [line for line in lines if line.startswith(('flags', 'Features', 'model name'))][:2]
  return pathlib.Path(home) / 'rembert' / 'compiled' / hashlib.sha256('\n'.join(features).encode()).hexdigest()[:12]


def delete_oldest(folder: pathlib.Path, most_bytes: int = _MOST_BYTES) -> None:
  """Deletes the oldest files until at most `most_bytes` are left; safe if other processes do so at the same time.

  Not JAX's `jax_compilation_cache_max_size`, which stops writing if one program lacks its access time (from an older
  version, or truncated by a kill).
  """
  entries = []
  for file in folder.iterdir():
    with contextlib.suppress(FileNotFoundError):
      status = file.stat()
      entries.append((status.st_mtime_ns, status.st_size, file))
  excess = sum(size for _, size, _ in entries) - most_bytes
  for _, size, file in sorted(entries):
    if excess <= 0:
      return
    file.unlink(missing_ok=True)
    excess -= size


# --- memory on a CPU: freed memory stays in the process, in huge pages ------------------------------------------------

# <malloc.h>
_ONE_HEAP = {-8: 1}  # M_ARENA_MAX: all threads share the main heap; those of further arenas would shrink
_MALLOC_OPTIONS = _ONE_HEAP | {
  -4: 0,  # M_MMAP_MAX: no separate mappings for large blocks
  -1: -1,  # M_TRIM_THRESHOLD: never return the top of the heap
  -2: 64 * 2**20,  # M_TOP_PAD: grow in large steps
}
_HEAP_SHARE = 0.5  # of the free memory
_LEAST_HEAP_BYTES = 4 * 2**30  # of addresses; pages are allocated when used
_HUGE_PAGE = 2 * 2**20
_MADV_HUGEPAGE = 14  # <sys/mman.h>


def use_one_heap() -> None:
  """Makes all threads allocate in glibc's main heap if the run is on a CPU.

  Call this before the first thread: a heap that another thread has made is used by XLA's threads too, and returns
  freed memory to the kernel whatever `keep_freed_memory_if_it_fits` sets.
  """
  if is_cpu_machine():
    _set_malloc_options(_ONE_HEAP)


def keep_freed_memory_if_it_fits(needed: int, available: int | None = None) -> bool:
  """Makes glibc keep freed memory in a heap of `needed` bytes if memory suffices; returns whether it does.

  XLA allocates the temporaries of a step in large blocks and frees them afterwards. glibc maps a large block again each
  time, and the kernel zeroes every page: a quarter of a step. A heap needs more room, because of fragmentation.

  Call this before JAX starts its threads, and `use_one_heap` before any other. `available` is the free memory in bytes;
  None detects it.
  """
  available = available_bytes() if available is None else available
  if not is_cpu_machine() or needed > _HEAP_SHARE * (available or 0):
    return False
  if libc := _set_malloc_options(_MALLOC_OPTIONS):
    _ask_for_huge_pages(libc, max(needed, _LEAST_HEAP_BYTES))
  return libc is not None


def _set_malloc_options(options: Mapping[int, int]) -> ctypes.CDLL | None:
  """The C library with these options, or None if it is not glibc."""
  try:
    libc = ctypes.CDLL(None)
    is_set = all([libc.mallopt(name, value) for name, value in options.items()])
  except (OSError, AttributeError):  # another C library
    return None
  return libc if is_set else None


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
