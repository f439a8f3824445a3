"""The hosts of a run: barriers, sums, and requests of one host that all hosts act on after the same step."""

import contextlib
import enum
import re
import traceback
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from rembert.errors import UsageError
from rembert.runtime.distributed import HostsConfig, Peers, join, leave
from rembert.runtime.signals import EXIT_STOPPED, Stopped

# Parts of connection errors between hosts (Gloo, NCCL, gRPC, JAX's coordination service), often the first sign of
# a lost host.
_ACROSS_HOSTS = re.compile(r'gloo|nccl|coordination|heartbeat|connection|socket|UNAVAILABLE|ABORTED', re.IGNORECASE)


class HostRequest(enum.IntFlag):
  """Requests of a host between steps."""

  NOTHING = 0
  STOP = 1  # save and end
  SAVE = 2  # by the first host's clock
  PROFILE = 4


class HostConsensus:
  """Exchanges requests of hosts with a latency of one call, so that no host waits for the answer.

  If one host stopped alone, the others would wait in a collective forever. So no host acts on its own request, only on
  the combined ones. All hosts must call `exchange` equally often, in the same order as all other collectives.
  """

  def __init__(self):
    self._pending = None
    if jax.process_count() == 1:
      return
    devices = jax.devices()
    mesh = jax.make_mesh((len(devices),), ('hosts',), axis_types=(AxisType.Auto,), devices=devices)
    self._rows = NamedSharding(mesh, PartitionSpec('hosts'))
    replicated = NamedSharding(mesh, PartitionSpec())
    self._max = jax.jit(lambda flags: flags.max(axis=0), in_shardings=self._rows, out_shardings=replicated)

  def exchange(self, wanted: HostRequest) -> HostRequest:
    """Sends the requests of this host; returns those of all hosts from the previous call."""
    if jax.process_count() == 1:
      return wanted
    rows = np.tile(np.array([wanted & flag for flag in HostRequest], np.int32), (jax.local_device_count(), 1))
    before, self._pending = self._pending, self._max(jax.make_array_from_process_local_data(self._rows, rows))
    return HostRequest.NOTHING if before is None else HostRequest(int(np.asarray(before.addressable_data(0)).sum()))


class Hosts:
  """The processes of the run, by name; often only one. The first prepares data, prints and writes metrics for all."""

  def __init__(self, names: list[str]):
    self.names = names
    self.name = names[jax.process_index()] if len(names) > 1 else ''
    self.is_first = jax.process_index() == 0

  def wait_for_all(self, what: str) -> None:
    """A barrier, with a name for messages."""
    if len(self.names) > 1:
      multihost_utils.sync_global_devices(what)

  @contextlib.contextmanager
  def first_goes_first(self, what: str) -> Iterator[None]:
    """The first host runs the body first, then the others, which find its results."""
    if not self.is_first:
      self.wait_for_all(what)
    yield
    if self.is_first:
      self.wait_for_all(what)

  def total(self, counts: np.ndarray) -> np.ndarray:
    """The sum over all hosts, of integers below 2³¹."""
    if len(self.names) == 1:
      return counts
    return multihost_utils.process_allgather(counts.astype(np.int32)).astype(np.int64).sum(axis=0)


@contextlib.contextmanager
def joined(config: HostsConfig) -> Iterator[Hosts]:
  """Joins the hosts. If one of them is lost or fails inside the block, the others end with a message that names it."""
  join(config)
  peers = Peers(lost_after_seconds=config.lost_after_seconds)
  try:
    yield Hosts(peers.names)
  except Stopped as stopped:
    peers.fail(f'stopped by {stopped}', EXIT_STOPPED)
    raise
  except UsageError as error:
    peers.fail(error.what, error.exit_code)
    raise
  except BaseException as error:
    if _ACROSS_HOSTS.search(str(error)):
      peers.await_loss()
    peers.fail(f'{type(error).__name__}: {error}', 1)
    if len(peers.names) > 1:
      traceback.print_exc()
      leave(1)
    raise
  else:
    peers.depart()
