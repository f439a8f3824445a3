"""Devices that are not here: a TPU slice by its name, for compiling ahead of time, or several forced CPU devices."""

import contextlib
import dataclasses
import os
import re
import warnings
from collections.abc import Sequence

import jax

from rembert.errors import UsageError, first_line

EXAMPLES = 'v4:4x4x4, v5e:8x8, v5p:4x4x4, v6e:8x8, 2*v5e:16x16 (two slices), cpu:8'

# Of libtpu the compiler alone is wanted: it need not ask the metadata server what machine this is, nor take the lock on
# chips that another process may hold, nor complain that there are none.
_ENVIRONMENT = {
  'TPU_SKIP_MDS_QUERY': '1',
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
  'TPU_ACCELERATOR_TYPE': 'v4-8',
  'TPU_WORKER_HOSTNAMES': 'localhost',
  'TPU_WORKER_ID': '0',
}


@dataclasses.dataclass(frozen=True)
class Topology:
  """One or several equal slices.

  Attributes:
    name: as the user wrote it.
    family: `v4`, `v5e`, `v5p`, `v6e` or `cpu`.
    shape: chips along each axis of one slice.
    slices: how many, joined by the data-centre network.
  """

  name: str
  family: str
  shape: tuple[int, ...]
  slices: int = 1


def parse(name: str) -> Topology:
  """`v4:4x4x4`, `2*v5e:8x8` or `cpu:8` taken apart; UsageError for what is none of these."""
  match = re.fullmatch(r'(?:([1-9]\d*)\*)?(v\d+[a-z]?|cpu):([1-9]\d*(?:x[1-9]\d*)*)', name)
  if match is None:
    raise UsageError(f'no topology {name!r}', where='--topology', fix=f'such as {EXAMPLES}')
  slices, family, shape = int(match[1] or 1), match[2], tuple(map(int, match[3].split('x')))
  if family == 'cpu' and (slices > 1 or len(shape) > 1):
    raise UsageError('devices of a CPU have no slices and no shape', where=f'--topology={name}', fix='--topology=cpu:8')
  return Topology(name, family, shape, slices)


def devices(topology: Topology) -> Sequence[jax.Device]:
  """Its devices, as the compiler sees them; UsageError where libtpu is missing or knows no such slice.

  JAX must not have started: it is set to run on the CPU, since a TPU that is here may be busy, and is not asked.
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
      f'JAX runs already, with {len(found)} devices', where=f'--topology={topology.name}', fix='a process of its own'
    )
  return found[:count]


def _tpu_devices(topology: Topology) -> Sequence[jax.Device]:
  from jax.experimental import topologies

  for name, value in _ENVIRONMENT.items():
    os.environ.setdefault(name, value)
  options = {'chips_per_host_bounds': (2, 2, 1), 'num_slices': topology.slices}
  if topology.family == 'v4':  # else a chip would be two devices of half the memory
    options['chip_config_name'] = 'megacore'
  shape = 'x'.join(map(str, topology.shape))
  if topology.shape == (1,) * len(topology.shape):
    options['chips_per_host_bounds'] = (1, 1, 1)
  try:
    import libtpu  # noqa: F401  # looked for first: JAX's own words name a shared library
  except ImportError as error:
    raise UsageError(
      "libtpu, the TPU's compiler, is not installed (a TPU itself is not needed)",
      where=f'--topology={topology.name}',
      fix=f'pip install "jax[tpu]=={jax.__version__}"',
    ) from error
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      found = topologies.get_topology_desc(
        platform='tpu', topology_name=f'{topology.family}:{shape}', **options
      ).devices
  except Exception as error:  # whatever libtpu says: it knows which slices exist
    raise UsageError(
      f'libtpu has no such slice: {first_line(error)}',
      where=f'--topology={topology.name}',
      fix=f'such as {EXAMPLES}',
    ) from error
  return found
