"""Logical axis names, and the one table that maps them to mesh axes.

Modules name the axes of their parameters and activations; only this table refers to the mesh. The mesh has three axes:
`data` (replicas), `fsdp` (batch and parameters split), `tensor` (heads, feed-forward and vocabulary split).
"""

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx
from jax.sharding import PartitionSpec

MESH_AXES = ('data', 'fsdp', 'tensor')

LOGICAL_AXIS_RULES = {
  'batch': ('data', 'fsdp'),
  'vocab': 'tensor',  # rows of the word and output embeddings, and the logits
  'heads': 'tensor',
  'mlp': 'tensor',
  'embed': 'fsdp',  # one side of a kernel; no parameter has it twice
  'layers': None,  # the stacked axis of the layer loop
}


def partition_spec(axes: tuple[str | None, ...]) -> PartitionSpec:
  """Mesh axes for logical `axes`; None is not split. Raises KeyError for an unknown name."""
  return PartitionSpec(*(None if axis is None else LOGICAL_AXIS_RULES[axis] for axis in axes))


def constrain(x: jax.Array, *axes: str | None) -> jax.Array:
  """`x` with its sharding by the table; without a mesh (`jax.set_mesh`) `x` itself."""
  if jax.sharding.get_abstract_mesh().empty:
    return x
  return jax.lax.with_sharding_constraint(x, partition_spec(axes))


def on_shards(function: Callable, *, inputs: tuple[tuple[str | None, ...], ...], output: Any) -> Callable:
  """`function`, run by every device on its own shard of the inputs; without a mesh, on all of them.

  It maps arrays (or None), with logical axes `inputs`, to a tree of arrays with a tree `output` of logical axes. Shards
  communicate by `psum`, `all_max` and `all_gather`.
  """
  if jax.sharding.get_abstract_mesh().empty:
    return function
  are_axes = lambda node: isinstance(node, tuple) and all(axis is None or isinstance(axis, str) for axis in node)
  return jax.shard_map(
    function,
    in_specs=tuple(partition_spec(axes) for axes in inputs),
    out_specs=jax.tree.map(partition_spec, output, is_leaf=are_axes),
    check_vma=False,  # Pallas kernels do not declare over which mesh axes their outputs vary
  )


def _mesh_axes(axis: str) -> tuple[str, ...]:
  """The mesh axes, longer than 1, over which a logical axis is split."""
  names = LOGICAL_AXIS_RULES[axis] or ()
  sizes = jax.sharding.get_abstract_mesh().shape
  return tuple(name for name in ((names,) if isinstance(names, str) else names) if sizes.get(name, 1) > 1)


def is_split(axis: str) -> bool:
  """Whether a logical axis is split over several devices."""
  return bool(_mesh_axes(axis))


# --- collectives of the shards of `on_shards`; without a mesh there is one shard --------------------------------------


def shard_number(axis: str) -> jax.Array | int:
  """The index of this device's shard along a logical axis."""
  return jax.lax.axis_index(names) if (names := _mesh_axes(axis)) else 0


def psum(x: jax.Array, over: str, *, split: str | None = None, axis: int = 0) -> jax.Array:
  """The sum of `x` over all shards along the logical axis `over`.

  Given `split`, a logical axis that is split over some of the same mesh axes, each device gets its shard of the sum
  along `axis` (reduce-scatter), which saves most of the communication.
  """
  scattered = [name for name in _mesh_axes(split) if name in _mesh_axes(over)] if split else []
  rest = tuple(name for name in _mesh_axes(over) if name not in scattered)
  for name in scattered:
    x = jax.lax.psum_scatter(x, name, scatter_dimension=axis, tiled=True)
  return jax.lax.psum(x, rest) if rest else x


def all_max(x: jax.Array, over: str) -> jax.Array:
  """The elementwise maximum over all shards along a logical axis."""
  return jax.lax.pmax(x, names) if (names := _mesh_axes(over)) else x


def all_gather(x: jax.Array, split: str, *, axis: int) -> jax.Array:
  """All shards of `x` along a logical axis, concatenated along `axis`."""
  return jax.lax.all_gather(x, names, axis=axis, tiled=True) if (names := _mesh_axes(split)) else x


def with_axes(initializer: nnx.Initializer, *axes: str | None) -> nnx.Initializer:
  """`initializer` of a parameter with these logical axes."""
  return nnx.with_partitioning(initializer, axes, eager_sharding=False)
