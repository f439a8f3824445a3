"""Joining the processes of a run: a TPU pod, a Slurm job, or anything that sets three environment variables."""

import dataclasses
import os
import socket
import sys
from typing import Annotated

import jax

from rembert.errors import RunError, UsageError, first_line
from rembert.runtime import ADDRESS, COUNT, INDEX
from rembert.runtime.hardware import has_tpu
from rembert.validation import Range, check_fields

_FIX = f'set {ADDRESS}=HOST:PORT, {COUNT} and {INDEX} on every host, or none of them for a run on this one alone'


@dataclasses.dataclass(frozen=True)
class HostsConfig:
  """How the hosts of a run wait for each other.

  Attributes:
    join_seconds: how long the first waits for the last at the start.
    lost_after_seconds: a host that is silent for so long is given up, and the others end too, to be started again
      (exit code 75). One whose process ends is noticed at once.
  """

  join_seconds: Annotated[int, Range(5)] = 300
  lost_after_seconds: Annotated[int, Range(5)] = 60

  def __post_init__(self):
    check_fields(self, 'hosts')


def join(config: HostsConfig) -> None:
  """Joins the other processes if there are any; a process on its own goes on as it is. Before any use of a device.

  Raises:
    UsageError: the environment names a cluster, but not all of it.
    RunError: not everybody came.
  """
  # JAX's own service would take SIGTERM away from `rembert.runtime.signals`.
  jax.config.update('jax_enable_preemption_service', False)
  explicit = _explicit()
  if explicit is None and not _is_part_of_a_cluster():
    return
  try:
    jax.distributed.initialize(
      **(explicit or {}),
      initialization_timeout=config.join_seconds,
      heartbeat_timeout_seconds=config.lost_after_seconds,
      # How long a host that is done waits for the others: for as long as it takes to notice that one is gone.
      shutdown_timeout_seconds=2 * config.lost_after_seconds,
    )
  except ValueError as error:
    raise UsageError(f'the cluster cannot be made out: {error}', where='the environment', fix=_FIX) from error
  except RuntimeError as error:
    address = explicit['coordinator_address'] if explicit else 'the first host'
    raise RunError(
      f'not all hosts joined within {config.join_seconds} s: {first_line(error)}',
      where=f'{address}, hosts.join_seconds',
      fix=['start the same command on every host', f'is {address} reachable from {socket.gethostname()}?'],
    ) from error


def _explicit() -> dict | None:
  """Arguments of `jax.distributed.initialize` from the environment; None where they are to be found out."""
  given = {name: os.environ[name] for name in (ADDRESS, COUNT, INDEX) if os.environ.get(name)}
  if len(given) < 3:
    # Slurm and Open MPI know their numbers: an address alone is enough there.
    if given and not _is_part_of_a_cluster():
      raise UsageError('only a part of the cluster is named', where=', '.join(given), fix=_FIX)
    return None
  try:
    count, index = int(given[COUNT]), int(given[INDEX])
  except ValueError:
    count, index = 0, 0
  if not 0 <= index < count:
    raise UsageError(
      f'process {given[INDEX]} of {given[COUNT]} cannot be', where=f'{INDEX}, {COUNT}', fix='count from 0'
    )
  return {'coordinator_address': given[ADDRESS], 'num_processes': count, 'process_id': index}


def _is_part_of_a_cluster() -> bool:
  """Whether JAX can find the other processes by itself."""
  if any(int(os.environ.get(name) or 1) > 1 for name in ('SLURM_NTASKS', 'OMPI_COMM_WORLD_SIZE')):
    return True
  is_tpu_wanted = (jax.config.jax_platforms or 'tpu').split(',')[0] == 'tpu'
  # A Cloud TPU VM is one host of a slice or all of it: its metadata say which. On Kubernetes the environment does.
  is_slice = has_tpu() or ',' in os.environ.get('TPU_WORKER_HOSTNAMES', '')
  return is_tpu_wanted and is_slice


def leave(exit_code: int) -> None:
  """Ends the process. After an error nobody waits for the others: they have been told, and end too."""
  if jax.distributed.is_initialized() and exit_code not in (0, 75):
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
  sys.exit(exit_code)
