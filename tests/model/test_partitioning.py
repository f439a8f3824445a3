"""The table of logical axes, and what it does to the model's parameters and activations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from rembert.model.config import RemBertConfig
from rembert.model.heads import RemBertForMaskedLM
from rembert.model.partitioning import (
  LOGICAL_AXIS_RULES,
  MESH_AXES,
  constrain,
  on_shards,
  partition_spec,
)
from rembert.train.sharding import MeshConfig, make_mesh


def test_logical_names_become_axes_of_the_mesh():
  assert partition_spec(('batch', None, 'vocab')) == PartitionSpec(('data', 'fsdp'), None, 'tensor')
  assert partition_spec(('layers', 'embed', 'mlp')) == PartitionSpec(None, 'fsdp', 'tensor')
  assert partition_spec(()) == PartitionSpec()
  named = {axis for rule in LOGICAL_AXIS_RULES.values() if rule for axis in ([rule] if isinstance(rule, str) else rule)}
  assert named == set(MESH_AXES)


@pytest.mark.parametrize('tied', [False, True])
def test_every_parameter_names_its_axes_and_no_mesh_axis_twice(tied):
  config = RemBertConfig(input_embedding_size=1664, tie_word_embeddings=tied)
  model = nnx.eval_shape(lambda: RemBertForMaskedLM(config, add_pooler=True, rngs=nnx.Rngs(0)))
  state = nnx.state(model, nnx.Param)
  specs = nnx.to_pure_dict(nnx.get_partition_spec(state))
  shapes = nnx.to_pure_dict(state)
  large = 0
  for (path, names), leaf in zip(jax.tree_util.tree_leaves_with_path(specs), jax.tree.leaves(shapes), strict=True):
    mesh_axes = [axis for axis in partition_spec(tuple(names)) if axis is not None]
    assert len(mesh_axes) == len(set(mesh_axes)), path
    assert len(names) <= len(leaf.shape), path
    if leaf.size > 1_000_000:
      large += 1
      assert 'fsdp' in mesh_axes, f'{path} would be whole on every device'
  assert large >= 6


def test_an_activation_is_laid_out_by_the_table_if_there_is_a_mesh():
  mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
  x = np.arange(32.0, dtype=np.float32).reshape(4, 8)
  assert constrain(x, 'batch', 'mlp') is x
  with jax.set_mesh(mesh):
    y = jax.jit(lambda x: constrain(x, 'batch', 'mlp') * 2)(x)
  expected = NamedSharding(mesh, PartitionSpec(('data', 'fsdp'), 'tensor'))
  assert y.sharding.is_equivalent_to(expected, y.ndim)
  np.testing.assert_array_equal(y, 2 * x)


def test_on_shards_every_device_sees_its_own_part():
  x, whole = jnp.arange(32.0).reshape(4, 8), jnp.ones(3)
  largest = lambda x, nothing, whole: x.max(keepdims=True) + whole.sum()
  split = lambda: on_shards(largest, inputs=(('batch', 'mlp'), ('batch',), (None,)), output=('batch', 'mlp'))
  assert split() is largest  # without a mesh there is one part, the whole
  with jax.set_mesh(make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))):
    parts = jax.jit(split())(x, None, whole)
  np.testing.assert_array_equal(parts, np.arange(32.0).reshape(4, 2, 4).max(-1) + 3)
