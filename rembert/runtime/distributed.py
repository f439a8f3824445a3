"""Joins the processes of a run: of a TPU pod, a Slurm job, or anything that sets three environment variables."""

import dataclasses
import os
import socket
import sys
from typing import Annotated, Any

import jax

from rembert.errors import RunError, UsageError, first_line
from rembert.runtime import ADDRESS, COUNT, INDEX
from rembert.runtime.hardware import has_tpu
from rembert.validation import Range, check_fields

_FIX = f'set {ADDRESS}=HOST:PORT, {COUNT} and {INDEX} on every host, or none of them to run on this host only'


@dataclasses.dataclass(frozen=True)
class HostsConfig:
  """Timeouts of the hosts of a run.

  Attributes:
    join_seconds: timeout, in seconds, for all hosts to join at the start.
    lost_after_seconds: timeout, in seconds, after which a silent host counts as lost, and the others end with exit code
      75. The end of a process is noticed at once.
  """

  join_seconds: Annotated[int, Range(5)] = 300
  lost_after_seconds: Annotated[int, Range(5)] = 60

  def __post_init__(self):
    check_fields(self, 'hosts')


def join(config: HostsConfig) -> None:
  """Joins the other processes, if there are any. Call this before any use of a device.

  Raises:
    UsageError: the environment describes the cluster incompletely.
    RunError: not all processes joined in time.
  """
  # JAX's own service would take over SIGTERM from `rembert.runtime.signals`.
  jax.config.update('jax_enable_preemption_service', False)
  explicit = _explicit()
  if explicit is None and not _is_part_of_a_cluster():
    return
  try:
    jax.distributed.initialize(
      **(explicit or {}),
      initialization_timeout=config.join_seconds,
      heartbeat_timeout_seconds=config.lost_after_seconds,
      # A host that is done waits for the others until a lost one would be noticed.
      shutdown_timeout_seconds=2 * config.lost_after_seconds,
    )
  except ValueError as error:
    raise UsageError(
      f'the cluster cannot be detected from the environment: {error}', where='the environment', fix=_FIX
    ) from error
  except RuntimeError as error:
    address = explicit['coordinator_address'] if explicit else 'the first host'
    raise RunError(
      f'not all hosts joined within {config.join_seconds} s: {first_line(error)}',
      where=f'{address}, hosts.join_seconds',
      fix=['start the same command on every host', f'is {address} reachable from {socket.gethostname()}?'],
    ) from error


def _explicit() -> dict | None:
  """Arguments of `jax.distributed.initialize` from the environment; None if JAX has to detect them."""
  given = {name: os.environ[name] for name in (ADDRESS, COUNT, INDEX) if os.environ.get(name)}
  if len(given) < 3:
    # With Slurm and Open MPI, an address alone is enough.
    if given and not _is_part_of_a_cluster():
      raise UsageError('incomplete cluster configuration', where=', '.join(given), fix=_FIX)
    return None
  try:
    count, index = int(given[COUNT]), int(given[INDEX])
  except ValueError:
    count, index = 0, 0
  if not 0 <= index < count:
    raise UsageError(
      f'{INDEX}={given[INDEX]} is out of range for {COUNT}={given[COUNT]}',
      where=f'{INDEX}, {COUNT}',
      fix='count from 0',
    )
  return {'coordinator_address': given[ADDRESS], 'num_processes': count, 'process_id': index}


def _is_part_of_a_cluster() -> bool:
  """Whether JAX can detect the other processes."""
  if any(int(os.environ.get(name) or 1) > 1 for name in ('SLURM_NTASKS', 'OMPI_COMM_WORLD_SIZE')):
    return True
  settings: Any = jax.config  # its attributes are defined at run time
  is_tpu_wanted = (settings.jax_platforms or 'tpu').split(',')[0] == 'tpu'
  # A Cloud TPU VM is one host of a slice or all of it, by its metadata, or the environment on Kubernetes.
  is_slice = has_tpu() or ',' in os.environ.get('TPU_WORKER_HOSTNAMES', '')
  return is_tpu_wanted and is_slice


def leave(exit_code: int) -> None:
  """Ends the process; after an error, without waiting for the other hosts, which end too."""
  if jax.distributed.is_initialized() and exit_code not in (0, 75):
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
  sys.exit(exit_code)
