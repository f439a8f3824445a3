"""Devices that are not here, for programs that are traced and lowered only."""

from jax.sharding import AbstractDevice, AbstractMesh, AxisType

from rembert.model.partitioning import MESH_AXES


def tpu_mesh(*shape: int) -> AbstractMesh:
  """A mesh of TPU chips (v4), with the given size on each axis of `MESH_AXES`."""
  tpu = AbstractDevice(device_kind='TPU v4', num_cores=1, platform='tpu')
  return AbstractMesh(shape, MESH_AXES, axis_types=(AxisType.Auto,) * len(shape), abstract_device=tpu)
