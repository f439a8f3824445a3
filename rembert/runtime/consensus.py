"""What any host wants, all hosts do, after the same step."""

import enum

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec


class Want(enum.IntFlag):
  """What a host may ask for between steps."""

  NOTHING = 0
  STOP = 1  # it has been told to: save, and end
  SAVE = 2  # its clock says so; only the first host's is asked
  PROFILE = 4  # somebody at the keyboard wants a profile


class Agreement:
  """Passes on what hosts want, a turn late: nobody waits for the answer while the device works.

  A host that stops while the others go on leaves them in a sum that never ends. So nobody acts on what he wants, only
  on what has come back from all. All hosts must call `exchange` equally often, in the same order as everything else
  that they do together.
  """

  def __init__(self):
    self._pending = None
    if jax.process_count() == 1:
      return
    devices = jax.devices()
    mesh = jax.make_mesh((len(devices),), ('hosts',), axis_types=(AxisType.Auto,), devices=devices)
    self._rows = NamedSharding(mesh, PartitionSpec('hosts'))
    whole = NamedSharding(mesh, PartitionSpec())
    self._any = jax.jit(lambda wants: wants.max(axis=0), in_shardings=self._rows, out_shardings=whole)

  def exchange(self, wanted: Want) -> Want:
    """Sends off what this host wants now, and returns what all of them wanted in the turn before."""
    if jax.process_count() == 1:
      return wanted
    before, self._pending = self._pending, self._send(wanted)
    return Want.NOTHING if before is None else self._read(before)

  def _send(self, wanted: Want) -> jax.Array:
    bits = np.array([bool(wanted & want) for want in (Want.STOP, Want.SAVE, Want.PROFILE)], np.int32)
    rows = np.tile(bits, (jax.local_device_count(), 1))
    return self._any(jax.make_array_from_process_local_data(self._rows, rows))

  def _read(self, answer: jax.Array) -> Want:
    bits = np.asarray(answer.addressable_data(0))
    wants = (want for want, bit in zip((Want.STOP, Want.SAVE, Want.PROFILE), bits, strict=True) if bit)
    return Want(sum(wants))
