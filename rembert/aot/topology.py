"""Target devices of ahead-of-time compilation: a TPU slice by its name, or simulated CPU devices."""

import contextlib
import dataclasses
import os
import re
import warnings
from collections.abc import Sequence

import jax

from rembert.errors import UsageError, first_line

EXAMPLES = 'v4:4x4x4, v5e:8x8, v5p:4x4x4, v6e:8x8, tpu7x:4x4x4, 2*v5e:16x16 (two slices), cpu:8'

# libtpu is used as a compiler only: it need not ask the metadata server about this machine, lock chips that another
# process may hold, or report missing chips.
_ENVIRONMENT = {
  'TPU_SKIP_MDS_QUERY': '1',
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
  'TPU_ACCELERATOR_TYPE': 'v4-8',
  'TPU_WORKER_HOSTNAMES': 'localhost',
  'TPU_WORKER_ID': '0',
}


@dataclasses.dataclass(frozen=True)
class Topology:
  """One or more equal slices, joined by the DCN."""

  name: str  # as the user wrote it
  family: str  # `v4`, `v5e`, `v5p`, `v6e`, `tpu7x` or `cpu`
  shape: tuple[int, ...]  # chips along each axis of one slice
  slices: int = 1


def parse(name: str) -> Topology:
  """Parses `v4:4x4x4`, `2*v5e:8x8` or `cpu:8`; UsageError for anything else."""
  match = re.fullmatch(r'(?:([1-9]\d*)\*)?(v\d+[a-z]?|tpu7x):([1-9]\d*(?:x[1-9]\d*)*)|cpu:([1-9]\d*)', name)
  if match is None:
    raise UsageError(f'invalid topology {name!r}', where='--topology', fix=f'for example {EXAMPLES}')
  shape = tuple(map(int, (match[3] or match[4]).split('x')))
  return Topology(name, match[2] or 'cpu', shape, slices=int(match[1] or 1))


def devices(topology: Topology) -> Sequence[jax.Device]:
  """The devices of a topology, for the compiler; UsageError if libtpu is missing or does not know the slice.

  Call it before JAX starts: it sets JAX to run on the CPU, since a TPU of this machine is not needed and may be busy.
  """
  jax.config.update('jax_platforms', 'cpu')
  if topology.family != 'cpu':
    return _tpu_devices(topology)
  [count] = topology.shape
  with contextlib.suppress(RuntimeError):  # JAX has started already; there may be enough of them
    jax.config.update('jax_num_cpu_devices', count)
  found = jax.devices('cpu')
  if len(found) < count:
    raise UsageError(
      f'JAX has already started, with {len(found)} devices',
      where=f'--topology={topology.name}',
      fix='start another process',
    )
  return found[:count]


def _tpu_devices(topology: Topology) -> Sequence[jax.Device]:
  from jax.experimental import topologies

  for name, value in _ENVIRONMENT.items():
    os.environ.setdefault(name, value)
  is_one_chip = set(topology.shape) == {1}
  options = {'chips_per_host_bounds': (1, 1, 1) if is_one_chip else (2, 2, 1), 'num_slices': topology.slices}
  if topology.family == 'v4':  # otherwise a chip would be two devices, each with half the memory
    options['chip_config_name'] = 'megacore'
  try:
    import libtpu  # noqa: F401  # imported first: JAX's own error names a shared library only
  except ImportError as error:
    raise UsageError(
      'libtpu, the TPU compiler, is not installed (a TPU is not needed)',
      where=f'--topology={topology.name}',
      fix=f'pip install "jax[tpu]=={jax.__version__}"',
    ) from error
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      one_slice = f'{topology.family}:{"x".join(map(str, topology.shape))}'
      return topologies.get_topology_desc(platform='tpu', topology_name=one_slice, **options).devices
  except Exception as error:  # only libtpu knows which slices exist
    raise UsageError(
      f'libtpu does not know this slice: {first_line(error)}',
      where=f'--topology={topology.name}',
      fix=f'for example {EXAMPLES}',
    ) from error
