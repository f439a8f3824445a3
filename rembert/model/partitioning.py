"""Logical axis names, and the one table that says which mesh axis each of them is split over.

Modules name the axes of their parameters and activations; nobody but this table knows about the mesh. The mesh has
three axes: `data` (replicas), `fsdp` (batch and parameters split), `tensor` (heads, feed-forward and vocabulary split).
"""

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


def with_axes(initializer: nnx.Initializer, *axes: str | None) -> nnx.Initializer:
  """`initializer`, naming the axes of the parameter that it fills."""
  return nnx.with_partitioning(initializer, axes, eager_sharding=False)
