"""The device mesh, and where parameters, optimizer state and batches live on it."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Annotated

import jax
import numpy as np
import optax
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from rembert.errors import UsageError
from rembert.model.partitioning import MESH_AXES, partition_spec
from rembert.validation import OneOf, Range, check_fields

AxisSize = Annotated[int, Range(-1)]


@dataclasses.dataclass(frozen=True)
class MeshConfig:
  """Number of devices per mesh axis; one of them may be −1, for all devices that the others leave.

  Attributes:
    data: replicas of the model, each with its part of the batch; over slices first, if there are several.
    fsdp: batch and parameters split.
    tensor: attention heads, feed-forward width and vocabulary split.
    require_platform: `tpu`, `gpu` or `cpu`; training refuses to start elsewhere. None accepts any.
  """

  data: AxisSize = -1
  fsdp: AxisSize = 1
  tensor: AxisSize = 1
  require_platform: Annotated[str, OneOf(('tpu', 'gpu', 'cpu'))] | None = None

  def __post_init__(self):
    check_fields(self, 'mesh')


def make_mesh(config: MeshConfig, devices: list[jax.Device] | None = None) -> Mesh:
  """A mesh over all devices, or UsageError: a smaller one would silently leave devices idle.

  With several slices, `data` is split over the slices first, so that the network between them carries only the sum of
  the replicas' gradients.
  """
  devices = jax.devices() if devices is None else devices
  if config.require_platform not in (None, devices[0].platform):
    raise UsageError(
      f'these devices are {devices[0].platform}, not {config.require_platform}',
      where=f'mesh.require_platform = {config.require_platform!r}',
      fix='check the installation of jax (extras `tpu`, `cuda`), or --gin.mesh.require_platform=None',
    )
  sizes = {axis: getattr(config, axis) for axis in MESH_AXES}
  text = ' · '.join(f'{axis} {size}' for axis, size in sizes.items())
  free = [axis for axis, size in sizes.items() if size == -1]
  if len(free) > 1 or any(size < 1 for axis, size in sizes.items() if axis not in free):
    raise UsageError(f'mesh sizes must be positive, not {text}', where='mesh.*', fix='one of them may be -1')
  for axis in free:
    taken = math.prod(size for other, size in sizes.items() if other != axis)
    sizes[axis] = max(1, len(devices) // taken)
  if math.prod(sizes.values()) != len(devices):
    raise UsageError(
      f'a mesh of {text} does not cover {len(devices)} device(s)',
      where='mesh.data, mesh.fsdp, mesh.tensor',
      fix='make their product the number of devices, or one of them -1: it takes what the others leave',
    )
  slices = slice_count(devices)
  if sizes['data'] % slices:
    raise UsageError(
      f'{sizes["data"]} replicas do not divide over {slices} slices',
      where=f'mesh.data = {config.data}',
      fix=f"a multiple of {slices}: the links between slices are too slow for anything but replicas' gradients",
    )
  # A slice of 4 × 4 × 4 has no axis of 8: then a mesh axis takes a part of a physical axis.
  within = (sizes['data'] // slices, sizes['fsdp'], sizes['tensor'])
  if slices == 1:
    arranged = mesh_utils.create_device_mesh(within, devices, allow_split_physical_axes=True)
  else:
    arranged = mesh_utils.create_hybrid_device_mesh(within, (slices, 1, 1), devices, allow_split_physical_axes=True)
  return Mesh(arranged, MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES))


def slice_count(devices: Iterable[jax.Device]) -> int:
  """The number of TPU slices of these devices; 1 on GPUs, where JAX calls every machine a slice."""
  return len({getattr(device, 'slice_index', None) if device.platform == 'tpu' else None for device in devices})


def parameter_shardings(axes: dict, abstract_params: dict, mesh: Mesh) -> dict:
  """NamedSharding for every parameter, by the rule table; `axes` are logical names (`nnx.get_partition_spec`).

  Raises:
    UsageError: an axis of a parameter does not divide by the mesh axis that it is split over.
  """

  def sharding(path, leaf, names):
    spec = partition_spec(tuple(names))
    for dimension, name, mesh_axis in zip(leaf.shape, names, spec, strict=False):
      if mesh_axis is not None and dimension % mesh.shape[mesh_axis]:
        fix = f'choose another mesh.{mesh_axis}, or sizes that divide'
        if name == 'vocab':
          fix = f'RemBertConfig.pad_vocab_to_multiple_of = {128 * mesh.shape[mesh_axis]}'
        raise UsageError(
          f'{dimension} ({name}) does not divide over {mesh.shape[mesh_axis]} devices of the `{mesh_axis}` axis',
          where=f'parameter {jax.tree_util.keystr(path, simple=True, separator="/")}, mesh.{mesh_axis}',
          fix=fix,
        )
    return NamedSharding(mesh, spec)

  return jax.tree_util.tree_map_with_path(sharding, abstract_params, axes)


def optimizer_shardings(
  optimizer: optax.GradientTransformation, abstract_opt_state: optax.OptState, shardings: dict, mesh: Mesh
) -> optax.OptState:
  """Moments have the shardings of their parameters; counters are replicated. Frozen parameters have no moments."""
  is_absent = lambda leaf: isinstance(leaf, optax.MaskedNode)
  return optax.tree.map_params(
    optimizer,
    lambda leaf, sharding: leaf if is_absent(leaf) else sharding,
    abstract_opt_state,
    shardings,
    transform_non_params=lambda _: NamedSharding(mesh, PartitionSpec()),
    is_leaf=is_absent,
  )


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Rows are split over `data` and `fsdp`; other axes of a batch are not split."""
  return NamedSharding(mesh, partition_spec(('batch',)))


def batch_shards(mesh: Mesh) -> int:
  """The number of shards of a batch."""
  return mesh.shape['data'] * mesh.shape['fsdp']


def to_device(local_batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
  """This process's rows of a batch as its part of the global, sharded arrays."""
  sharding = batch_sharding(mesh)
  return {name: jax.make_array_from_process_local_data(sharding, rows) for name, rows in local_batch.items()}


def bytes_per_device(abstract_tree, shardings) -> int:
  """Bytes per device of a tree of arrays."""
  shard = lambda leaf, sharding: math.prod(sharding.shard_shape(leaf.shape)) * np.dtype(leaf.dtype).itemsize
  return sum(jax.tree.leaves(jax.tree.map(shard, abstract_tree, shardings)))
