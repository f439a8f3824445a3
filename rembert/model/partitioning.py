"""Logical axis names, and the one table that says which mesh axis each of them is split over.

Modules name the axes of their parameters and activations; nobody but this table knows about the mesh. The mesh has
three axes: `data` (replicas), `fsdp` (batch and parameters split), `tensor` (heads, feed-forward and vocabulary split).
"""

from collections.abc import Callable

import jax
from flax import nnx
from jax.sharding import PartitionSpec

MESH_AXES = ('data', 'fsdp', 'tensor')

LOGICAL_AXIS_RULES = {
  'batch': ('data', 'fsdp'),
  'vocab': 'tensor',  # rows of the word and output embeddings, and the logits
  'heads': 'tensor',
  'mlp': 'tensor',
  'embed': 'fsdp',  # the wide side of a kernel; no parameter names it twice
  'layers': None,  # the stacked axis that the layer loop walks
}


def partition_spec(axes: tuple[str | None, ...]) -> PartitionSpec:
  """Mesh axes for logical `axes`; None stays unsplit. Raises KeyError for a name that the table lacks."""
  return PartitionSpec(*(None if axis is None else LOGICAL_AXIS_RULES[axis] for axis in axes))


def constrain(x: jax.Array, *axes: str | None) -> jax.Array:
  """Fixes how an activation is laid out. Without a mesh (`jax.set_mesh`) there is nothing to lay out."""
  if jax.sharding.get_abstract_mesh().empty:
    return x
  return jax.lax.with_sharding_constraint(x, partition_spec(axes))


def on_shards(
  function: Callable, *, inputs: tuple[tuple[str | None, ...], ...], output: tuple[str | None, ...]
) -> Callable:
  """`function`, run by every device on its own part of the inputs; without a mesh, on all of them.

  Args:
    function: of arrays (or None) to one array; no part may need to know of another.
    inputs: logical axes of each input. What they leave unsplit is whole on every device.
    output: logical axes of what comes out.
  """
  if jax.sharding.get_abstract_mesh().empty:
    return function
  return jax.shard_map(
    function,
    in_specs=tuple(partition_spec(axes) for axes in inputs),
    out_specs=partition_spec(output),
    check_vma=False,  # Pallas kernels do not say over which mesh axes their outputs vary
  )


def platform() -> str:
  """`cpu`, `gpu` or `tpu`: what is traced now will run there. With a mesh, its devices; they need not be here."""
  device = jax.sharding.get_abstract_mesh().abstract_device
  return jax.default_backend() if device is None else device.platform


def with_axes(initializer: nnx.Initializer, *axes: str | None) -> nnx.Initializer:
  """`initializer`, naming the axes of the parameter that it fills."""
  return nnx.with_partitioning(initializer, axes, eager_sharding=False)
