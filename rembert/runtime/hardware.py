"""The hardware of this machine, detected without JAX, which would claim the devices; data sheets of chips."""

import contextlib
import dataclasses
import os
import pathlib
import re

_GOOGLE = '0x1ae0'
# v2 and v3, an unnamed one, v4, v5p, v5e, v6e, v7, 8t, 8i: device ids as in jax/_src/hardware_utils.py.
_TPUS = ('0x0027', '0x0056', '0x005e', '0x0062', '0x0063', '0x006f', '0x0076', '0x007c', '0x0083')


def has_tpu(pci_devices: pathlib.Path = pathlib.Path('/sys/bus/pci/devices')) -> bool:
  """Whether the PCI bus has TPU chips; from v5 on, their files under /dev do not identify them."""
  return any(
    _read(device / 'vendor') == _GOOGLE and _read(device / 'device') in _TPUS for device in pci_devices.glob('*')
  )


def is_cpu_machine() -> bool:
  """Whether JAX will run on the CPU, as far as is known before it starts."""
  if platforms := os.environ.get('JAX_PLATFORMS'):
    return platforms == 'cpu'
  return not any(list(pathlib.Path('/dev').glob(pattern)) for pattern in ('accel*', 'vfio/[0-9]*', 'nvidia[0-9]*'))


def multiplies_bfloat16(cpuinfo: pathlib.Path = pathlib.Path('/proc/cpuinfo')) -> bool:
  """Whether the processor multiplies bfloat16 faster than float32: AMX (Sapphire Rapids) or AVX512_BF16 (Zen 4)."""
  return bool(re.search(r'^flags\s*:.*\b(amx_bf16|avx512_bf16)\b', _read(cpuinfo), re.MULTILINE))


def available_bytes() -> int | None:
  """Memory that this process can still allocate, on the machine or in its container; None if unknown."""
  limits = []
  if match := re.search(r'MemAvailable:\s+(\d+) kB', _read(pathlib.Path('/proc/meminfo'))):
    limits.append(int(match[1]) * 1024)
  limit, used = (_read(pathlib.Path('/sys/fs/cgroup') / name) for name in ('memory.max', 'memory.current'))
  if limit.isdigit() and used.isdigit():
    limits.append(int(limit) - int(used))
  return min(limits, default=None)


def _read(file: pathlib.Path) -> str:
  with contextlib.suppress(OSError):  # a device may be unplugged at this moment
    return file.read_text().strip()
  return ''


# --- data sheets: the one table of hardware figures in the project ----------------------------------------------------
#
# Sources: Google's page on each TPU generation (docs.cloud.google.com/tpu/docs/v4, /v5e, /v5p, /v6e, /tpu7x); the links
# of v4: Jouppi et al. 2023 (arXiv:2304.01433), section 2; NVIDIA's data sheets. Google states all links of a chip
# together and in both directions: "bidirectional inter-chip interconnect bandwidth (per chip) 400 GBps" of a v5e with
# four ports is 50 GB/s a link each way. Rates are decimal (GB = 10⁹ bytes), as they are printed.

_GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
  """One JAX device: of v4, v5 and v6 a whole chip; of v2, v3 and TPU7x one of a chip's two cores, with half of it."""

  bf16_flops: float  # dense peak at bfloat16, FLOP/s
  hbm_bytes: float = 0  # memory; what a program can use is a little less
  hbm_bandwidth: float = 0  # of that memory, bytes/s
  # Of one inter-chip link in one direction, bytes/s; on GPUs of NVLink in one direction. 0 if unused.
  link_bandwidth: float = 0
  wraps: int | None = None  # the shortest axis of a slice that forms a ring; None without such links
  dcn_bandwidth: float = 0  # between slices, bytes/s per chip in one direction; 0 if not published


# Keys are the first words of `device_kind` (`NVIDIA L40S` is not an `NVIDIA L4`).
_V4 = Chip(275e12, 32 * _GIB, 1200e9, 50e9, wraps=4)
_V5E = Chip(197e12, 16 * _GIB, 819e9, 50e9, wraps=16, dcn_bandwidth=3.125e9)  # 6.4 Tbit/s for the 256 chips of a pod
_V5P = Chip(459e12, 95 * _GIB, 2765e9, 100e9, wraps=4, dcn_bandwidth=6.25e9)  # a NIC of 200 Gbit/s for four chips
_V6E = Chip(918e12, 32 * _GIB, 1638e9, 100e9, wraps=16, dcn_bandwidth=12.5e9)  # 25.6 Tbit/s for the 256 of a pod
_7X = Chip(2307e12 / 2, 96 * _GIB, 7380e9 / 2, 50e9, wraps=4, dcn_bandwidth=6.25e9)  # links of 100 GB/s per chip
CHIPS = {
  'TPU v2': Chip(22.5e12),
  'TPU v3': Chip(61.5e12),
  'TPU v4': _V4,
  'TPU v5 lite': _V5E,
  'TPU v5e': _V5E,
  'TPU v5': _V5P,
  'TPU v5p': _V5P,
  'TPU v6 lite': _V6E,
  'TPU v6e': _V6E,
  'TPU7x': _7X,
  'NVIDIA A100': Chip(312e12, 80e9, 2039e9),
  'NVIDIA H100': Chip(989e12, 80e9, 3350e9, 450e9),
  'NVIDIA H200': Chip(989e12, 141e9, 4800e9, 450e9),
  'NVIDIA L4': Chip(121e12, 24e9, 300e9),
}


def chip_of(device_kind: str) -> tuple[str, Chip] | None:
  """Name and data sheet of a `jax.Device.device_kind`; None if it is unknown."""
  for name in sorted(CHIPS, key=len, reverse=True):
    if re.match(rf'{name}\b', device_kind):
      return name, CHIPS[name]
  return None
