"""Compiled programs kept on disk from one start to the next: JAX's own persistent cache, with a place and a limit."""

import contextlib
import hashlib
import os
import pathlib
import platform
from typing import Any

import jax

from rembert.files import is_remote

AUTO = 'auto'
# What takes less to compile is not worth a file. JAX's own limit, 1 s, leaves out most of a small model's start.
LEAST_SECONDS = 0.5
MOST_BYTES = 4 * 2**30


def use(folder: str | None) -> str:
  """Has JAX keep what it compiles from now on, unless its own settings say where, or that it shall not.

  Args:
    folder: `hardware.compile_cache`.

  Returns:
    A line that says why nothing is kept where it should be; else nothing.
  """
  settings: Any = jax.config  # its attributes are made as JAX is imported
  is_set_already = settings.jax_compilation_cache_dir or not settings.jax_enable_compilation_cache
  if folder is None or is_set_already:
    return ''
  path = str(default_folder() if folder == AUTO else folder)
  if not is_remote(path):
    try:
      os.makedirs(path, exist_ok=True)
      forget_oldest(pathlib.Path(path))
    except OSError as error:
      return (
        f'compiled programs are not kept: {path}: {error.strerror or error} (hardware.compile_cache names a folder)'
      )
  jax.config.update('jax_compilation_cache_dir', path)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', LEAST_SECONDS)
  return ''


def default_folder() -> pathlib.Path:
  """One for this user and this kind of processor: a home folder may be shared by machines of several kinds."""
  home = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
  return pathlib.Path(home) / 'rembert' / 'compiled' / _processor()


def forget_oldest(folder: pathlib.Path, most_bytes: int = MOST_BYTES) -> None:
  """Deletes what was written first until no more than `most_bytes` are left; others may be doing the same."""
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


def _processor() -> str:
  """A name for what XLA compiles for on a CPU: its instructions."""
  features = [platform.machine(), platform.processor()]
  with contextlib.suppress(OSError), open('/proc/cpuinfo', encoding='utf-8', errors='replace') as lines:
    features += [line for line in lines if line.startswith(('flags', 'Features', 'model name'))][:2]
  return hashlib.sha256('\n'.join(features).encode()).hexdigest()[:12]
