"""The hosts of a run, as a job sees them."""

import contextlib
import re
import traceback
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils

from rembert.errors import UsageError
from rembert.runtime.distributed import HostsConfig, join, leave
from rembert.runtime.peers import Peers
from rembert.runtime.signals import EXIT_STOPPED, Stopped

# How errors speak of a connection between hosts: of Gloo, NCCL, gRPC, JAX's coordination service. They may be the first
# that is heard of a host that is gone.
_ACROSS_HOSTS = re.compile(r'gloo|nccl|coordination|heartbeat|connection|socket|UNAVAILABLE|ABORTED', re.IGNORECASE)


class Hosts:
  """All processes of the run; one, mostly.

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
