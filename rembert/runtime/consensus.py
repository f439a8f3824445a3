"""The hosts of a run: barriers, sums, and requests of one host that all of them act on after the same step."""

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
from rembert.runtime.distributed import HostsConfig, join, leave
from rembert.runtime.peers import Peers
from rembert.runtime.signals import EXIT_STOPPED, Stopped

# Errors of a connection between hosts, as Gloo, NCCL, gRPC and JAX's coordination service word them. They may be the
# first sign that a host is gone.
_ACROSS_HOSTS = re.compile(r'gloo|nccl|coordination|heartbeat|connection|socket|UNAVAILABLE|ABORTED', re.IGNORECASE)


class HostRequest(enum.IntFlag):
  """What a host may ask for between steps."""

  NOTHING = 0
  STOP = 1  # it has been told to: save, and end
  SAVE = 2  # its clock says so; only the first host's is asked
  PROFILE = 4  # somebody at the keyboard wants a profile


class HostConsensus:
  """Passes on requests, one turn late: nobody waits for the answer while the device works.

  A host that stops while the others go on leaves them in a sum that never ends. So no host acts on its own request,
  only on what has come back from all. All hosts must call `exchange` equally often, in the same order as everything
  else that they do together.
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
    """Sends what this host wants now; returns what any of them wanted in the turn before."""
    if jax.process_count() == 1:
      return wanted
    rows = np.tile(np.array([wanted & flag for flag in HostRequest], np.int32), (jax.local_device_count(), 1))
    before, self._pending = self._pending, self._max(jax.make_array_from_process_local_data(self._rows, rows))
    return HostRequest.NOTHING if before is None else HostRequest(int(np.asarray(before.addressable_data(0)).sum()))


class Hosts:
  """All processes of the run; mostly one.

  Attributes:
    names: of all.
    name: of this one, '' where it is alone.
    is_first: whether this one does what is done once: prepare, print, write metrics.
  """

  def __init__(self, names: list[str]):
    self.names = names
    self.name = names[jax.process_index()] if len(names) > 1 else ''
    self.is_first = jax.process_index() == 0

  def wait_for_all(self, what: str) -> None:
    """Returns when all hosts have called it."""
    if len(self.names) > 1:
      multihost_utils.sync_global_devices(what)

  @contextlib.contextmanager
  def first_goes_first(self, what: str) -> Iterator[None]:
    """The first host is in here alone, then all the others are: they find what it leaves."""
    if not self.is_first:
      self.wait_for_all(what)
    yield
    if self.is_first:
      self.wait_for_all(what)

  def total(self, counts: np.ndarray) -> np.ndarray:
    """The sum of what each host has; whole numbers below 2³¹."""
    if len(self.names) == 1:
      return counts
    return multihost_utils.process_allgather(counts.astype(np.int32)).astype(np.int64).sum(axis=0)


@contextlib.contextmanager
def joined(config: HostsConfig) -> Iterator[Hosts]:
  """Joins the hosts; inside, if one of them is lost or fails, the others say so and end too."""
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
