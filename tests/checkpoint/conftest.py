"""States of the tiny model on any mesh, at random: checkpoints do not ask how they came about."""

import functools

import jax
import numpy as np
import pytest
from tiny_training import trainable

__all__ = ['random_state', 'trainable']


@pytest.fixture(scope='session')
def random_state(trainable):
  """Mesh sizes and a seed to a state in which nothing is zero, and the same as NumPy."""

  @functools.cache
  def build(sizes, seed=0):
    random = np.random.default_rng(seed)
    target = trainable(sizes).restore_target()
    arrays = jax.tree.map(lambda leaf: (1 + 9 * random.random(leaf.shape)).astype(leaf.dtype), target)
    return jax.tree.map(lambda array, leaf: jax.device_put(array, leaf.sharding), arrays, target), arrays

  return build
