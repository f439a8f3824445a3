"""Memory in pages of 2 MB for runs on a CPU: glibc asks for them if the environment says so as a process starts.

A step of a small model walks through its parameters and temporaries several times, and a large one's temporaries are
given back to the kernel and fetched again, filled with zeros, at every step. In pages of 4 KB both take a good part of
the time: of the steps of `benchmarks/train_step.py` a tenth (small) and a quarter (base).
"""

import os
import pathlib
import platform
import sys
from collections.abc import Mapping

from rembert.machine import is_cpu_machine

_TUNABLE = 'glibc.malloc.hugetlb'
_KERNEL = pathlib.Path('/sys/kernel/mm/transparent_hugepage/enabled')


def environment() -> dict[str, str]:
  """Variables that a process needs for huge pages; none where it has them, cannot have them, or does not want them."""
  tunables = os.environ.get('GLIBC_TUNABLES', '')
  is_glibc = platform.libc_ver()[0] == 'glibc'
  if _TUNABLE in tunables or not is_glibc or not _gives_on_request(_KERNEL) or not is_cpu_machine():
    return {}
  return {'GLIBC_TUNABLES': ':'.join(filter(None, (tunables, f'{_TUNABLE}=1')))}


def begin_again(added: Mapping[str, str]) -> None:
  """Starts this very command anew, in the same process, with variables added; nothing happens if there are none."""
  if added:
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | added)


def _gives_on_request(setting: pathlib.Path) -> bool:
  """Whether the kernel has huge pages for those who ask: not `always`, which needs no asking, nor `never`."""
  try:
    return '[madvise]' in setting.read_text()
  except OSError:  # not Linux, or not to be seen here
    return False
