"""Lower bound of the step time (roofline), from FLOPs, memory traffic, collectives and the chips' data sheets."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from rembert.aot.hlo import Collective
from rembert.runtime.hardware import Chip

ASSUMPTIONS = (
  'the longest of arithmetic, memory and links, each at its data-sheet rate, the others fully overlapped; '
  'collectives one after another, as rings over every axis of the slice that a group spans'
)


@dataclasses.dataclass(frozen=True)
class Roofline:
  """Seconds of a step on one chip, by resource.

  Attributes:
    compute: matmuls, recomputation included.
    memory: HBM reads and writes; None if the compiled text cannot be read.
    ici: collectives within a slice; None as above.
    dcn: collectives between slices; None as above, or if the bandwidth is unknown.
  """

  compute: float
  memory: float | None
  ici: float | None
  dcn: float | None

  @property
  def step_seconds(self) -> float:
    """The lower bound of the step time."""
    return max(self.compute, self.memory or 0, self.ici or 0, self.dcn or 0)

  @property
  def unhidden_seconds(self) -> float:
    """The step time if no collective overlaps with computation."""
    return max(self.compute, self.memory or 0) + (self.ici or 0) + (self.dcn or 0)

  @property
  def bound_by(self) -> str:
    """The resource that takes longest."""
    times = {'compute': self.compute, 'memory': self.memory, 'ICI': self.ici, 'DCN': self.dcn}
    return max(times, key=lambda name: times[name] or 0)


def roofline(
  chip: Chip,
  devices: np.ndarray,
  *,
  flops_per_chip: float,
  hbm_bytes: float | None,
  collectives: Sequence[Collective] | None,
) -> Roofline:
  """The bound for a program on the devices of a mesh, from FLOPs, HBM bytes and collectives of one chip.

  None means unknown.
  """
  ici = dcn = None
  if collectives is not None:
    flat = list(devices.flat)
    seconds = [_seconds(collective, chip, flat) for collective in collectives]
    ici, dcn = (float(sum(on_network)) for on_network in zip((0, 0), *seconds, strict=True))
  return Roofline(
    compute=flops_per_chip / chip.bf16_flops,
    memory=None if hbm_bytes is None else hbm_bytes / chip.hbm_bandwidth,
    ici=ici,
    dcn=dcn if chip.dcn_bandwidth else None,
  )


def crosses_slices(collective: Collective, devices: Sequence[jax.Device]) -> bool:
  """Whether a group has members in more than one slice."""
  if collective.is_between_slices:
    return True
  slices = lambda group: {getattr(devices[i], 'slice_index', None) for i in group}
  return any(len(slices(group)) > 1 for group in collective.groups[:1])


def ring_bandwidth(chip: Chip, group: Sequence[jax.Device], slice_shape: Sequence[int]) -> float:
  """Bytes/s that each member can send to the others: one link per direction for every axis that the group spans.

  An axis that forms a ring (spanned completely, and long enough) is used in both directions, any other in one.
  """
  bandwidth = 0.0
  for axis, length in enumerate(slice_shape):
    extent = len({device.coords[axis] for device in group})
    if extent > 1:
      closes = extent == length and chip.wraps is not None and length % chip.wraps == 0
      bandwidth += chip.link_bandwidth * (2 if closes else 1)
  return bandwidth


def _seconds(collective: Collective, chip: Chip, devices: list[jax.Device]) -> tuple[float, float]:
  if collective.is_between_slices:
    bandwidth = chip.dcn_bandwidth
    return 0.0, collective.times * collective.wire_bytes / bandwidth if bandwidth else 0.0
  group = [devices[i] for i in collective.groups[0]]
  by_slice: dict[int | None, list[jax.Device]] = {}
  for device in group:
    by_slice.setdefault(getattr(device, 'slice_index', None), []).append(device)
  own = next(iter(by_slice.values()))
  shape = [1 + max(device.coords[axis] for device in devices) for axis in range(3)]
  ici = dcn = 0.0
  if len(own) > 1:
    ici = collective.times * collective.wire_bytes / ring_bandwidth(chip, own, shape)
  if len(by_slice) > 1 and chip.dcn_bandwidth:
    # In two stages: within the slice first, then each member exchanges its part with its peers in other slices.
    share = dataclasses.replace(
      collective,
      operand_bytes=collective.operand_bytes / (len(own) if collective.kind != 'all-gather' else 1),
      groups=np.zeros((1, len(by_slice)), int),
    )
    dcn = collective.times * share.wire_bytes / chip.dcn_bandwidth
  return ici, dcn
