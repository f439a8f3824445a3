"""What this machine has, found out without JAX: asking JAX for devices takes them."""

import contextlib
import os
import pathlib
import re

_GOOGLE = '0x1ae0'
# v2 and v3, an unnamed one, v4, v5p, v5e, v6e, v7: device ids as JAX and libtpu know them (jax/_src/hardware_utils.py).
_TPUS = ('0x0027', '0x0056', '0x005e', '0x0062', '0x0063', '0x006f', '0x0076')


def has_tpu(pci_devices: pathlib.Path = pathlib.Path('/sys/bus/pci/devices')) -> bool:
  """Whether TPU chips are plugged in.

  The files under /dev do not tell: they are `accel0`, … up to v4, and `vfio/0`, … from v5 on, as for other devices.
  """
  return any(_read(device / 'vendor') == _GOOGLE and _read(device / 'device') in _TPUS for device in _in(pci_devices))


def is_cpu_machine() -> bool:
  """Whether JAX will run on the CPU, as far as can be told before it has looked."""
  if platforms := os.environ.get('JAX_PLATFORMS'):
    return platforms == 'cpu'
  return not any(list(pathlib.Path('/dev').glob(pattern)) for pattern in ('accel*', 'vfio/[0-9]*', 'nvidia[0-9]*'))


def multiplies_bfloat16(cpuinfo: pathlib.Path = pathlib.Path('/proc/cpuinfo')) -> bool:
  """Whether the processor multiplies bfloat16 faster than float32.

  By a unit of its own (AMX: Intel's Sapphire Rapids and later), or by vectors (AVX512_BF16: AMD's Zen 4 and later).
  """
  return bool(re.search(r'^flags\s*:.*\b(amx_bf16|avx512_bf16)\b', _read(cpuinfo), re.MULTILINE))


def available_bytes() -> int | None:
  """Memory that this process may still take: what is free, or what its container leaves; None if nobody says."""
  limits = []
  if match := re.search(r'MemAvailable:\s+(\d+) kB', _read(pathlib.Path('/proc/meminfo'))):
    limits.append(int(match[1]) * 1024)
  limit, used = (_read(pathlib.Path('/sys/fs/cgroup') / name) for name in ('memory.max', 'memory.current'))
  if limit.isdigit() and used.isdigit():
    limits.append(int(limit) - int(used))
  return min(limits, default=None)


def _in(folder: pathlib.Path) -> list[pathlib.Path]:
  with contextlib.suppress(OSError):  # no PCI bus, or none that this process may see
    return list(folder.iterdir())
  return []


def _read(file: pathlib.Path) -> str:
  with contextlib.suppress(OSError):  # a device that was unplugged this very moment
    return file.read_text().strip()
  return ''
