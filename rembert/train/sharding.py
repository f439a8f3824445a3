"""The device mesh, and the sharding of parameters, optimizer state and batches."""

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
  """Number of devices per mesh axis; one of them may be −1, for all remaining devices.

  Attributes:
    data: number of replicas of the model, each with its part of the batch; over slices first, if there are several.
    fsdp: number of devices over which batch and parameters are sharded.
    tensor: number of devices over which attention heads, feed-forward layers and vocabulary are sharded.
    require_platform: `tpu`, `gpu` or `cpu`; training fails on another platform. None accepts any.
  """

  data: AxisSize = -1
  fsdp: AxisSize = 1
  tensor: AxisSize = 1
  require_platform: Annotated[str, OneOf(('tpu', 'gpu', 'cpu'))] | None = None

  def __post_init__(self):
    check_fields(self, 'mesh')


def make_mesh(config: MeshConfig, devices: list[jax.Device] | None = None) -> Mesh:
  """Makes a mesh of all devices; UsageError if the sizes do not use all of them.

  With several slices, `data` is split over the slices first, so that the DCN carries only the sum of
  the replicas' gradients.
  """
  devices = jax.devices() if devices is None else devices
  if config.require_platform not in (None, devices[0].platform):
    raise UsageError(
      f'the devices are {devices[0].platform}, not {config.require_platform}',
      where=f'mesh.require_platform = {config.require_platform!r}',
      fix='check the installation of jax (extras `tpu`, `cuda`), or --gin.mesh.require_platform=None',
    )
  sizes = {axis: getattr(config, axis) for axis in MESH_AXES}
  text = ' · '.join(f'{axis} {size}' for axis, size in sizes.items())
  free = [axis for axis, size in sizes.items() if size == -1]
  if len(free) == 1:
    sizes[free[0]] = len(devices) // max(1, -math.prod(sizes.values()))
  if min(sizes.values()) < 1 or math.prod(sizes.values()) != len(devices):
    raise UsageError(
      f'a mesh of {text} does not cover {len(devices)} device(s)',
      where='mesh.data, mesh.fsdp, mesh.tensor',
      fix='set sizes whose product is the number of devices, or one of them to -1 for the remaining devices',
    )
  slices = slice_count(devices)
  if sizes['data'] % slices:
    raise UsageError(
      f'{sizes["data"]} replicas cannot be divided over {slices} slices',
      where=f'mesh.data = {config.data}',
      fix=f"use a multiple of {slices}: the DCN is too slow for anything but replicas' gradients",
    )
  # A slice of 4 × 4 × 4 has no axis of 8, so a mesh axis may use a part of a physical axis.
  within = (sizes['data'] // slices, sizes['fsdp'], sizes['tensor'])
  if slices == 1:
    arranged = mesh_utils.create_device_mesh(within, devices, allow_split_physical_axes=True)
  else:
    arranged = mesh_utils.create_hybrid_device_mesh(within, (slices, 1, 1), devices, allow_split_physical_axes=True)
  return Mesh(arranged, MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES))


def slice_count(devices: Iterable[jax.Device]) -> int:
  """The number of TPU slices of these devices; 1 on GPUs, for which JAX reports each machine as a slice."""
  return len({getattr(device, 'slice_index', None) if device.platform == 'tpu' else None for device in devices})


def parameter_shardings(axes: dict, abstract_params: dict, mesh: Mesh) -> dict:
  """NamedSharding for every parameter, by the rule table; `axes` are logical names (`nnx.get_partition_spec`).

  UsageError if an axis of a parameter is not divisible by the mesh axis that it is sharded over.
  """

  def sharding(path, leaf, names):
    spec = partition_spec(tuple(names))
    for dimension, name, mesh_axis in zip(leaf.shape, names, spec, strict=False):
      if mesh_axis is not None and dimension % mesh.shape[mesh_axis]:
        fix = f'choose another mesh.{mesh_axis}, or divisible sizes'
        if name == 'vocab':
          fix = f'RemBertConfig.pad_vocab_to_multiple_of = {128 * mesh.shape[mesh_axis]}'
        raise UsageError(
          f'{dimension} ({name}) is not divisible by the {mesh.shape[mesh_axis]} devices of the `{mesh_axis}` axis',
          where=f'parameter {jax.tree_util.keystr(path, simple=True, separator="/")}, mesh.{mesh_axis}',
          fix=fix,
        )
    return NamedSharding(mesh, spec)

  return jax.tree_util.tree_map_with_path(sharding, abstract_params, axes)


def optimizer_shardings(
  optimizer: optax.GradientTransformation, abstract_opt_state: optax.OptState, shardings: dict, mesh: Mesh
) -> optax.OptState:
  """Shardings of the optimizer state: moments like their parameters, counters replicated."""
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
  """Sharding of a batch: sequences over `data` and `fsdp`; other axes are not sharded."""
  return NamedSharding(mesh, partition_spec(('batch',)))


def batch_shards(mesh: Mesh) -> int:
  """The number of shards of a batch."""
  return mesh.shape['data'] * mesh.shape['fsdp']


def to_device(local_batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
  """Makes global sharded arrays of a batch from this process's sequences."""
  sharding = batch_sharding(mesh)
  return {name: jax.make_array_from_process_local_data(sharding, rows) for name, rows in local_batch.items()}


def bytes_per_device(abstract_tree, shardings) -> int:
  """Bytes per device of a tree of arrays."""
  shard = lambda leaf, sharding: math.prod(sharding.shard_shape(leaf.shape)) * np.dtype(leaf.dtype).itemsize
  return sum(jax.tree.leaves(jax.tree.map(shard, abstract_tree, shardings)))
