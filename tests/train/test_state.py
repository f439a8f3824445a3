"""The state at birth: decided by the seed alone, wherever it is born; and nothing is allocated before."""

import dataclasses
import functools

import jax
import numpy as np
import optax
import pytest

from rembert.model.config import RemBertConfig

TOLERANCE = 1e-7  # of kernels of 0.2: the last bit of the inverse error function, which depends on the mesh


@pytest.fixture(scope='module')
def on_one_device(step):
  return jax.device_get(step().init(0))


def test_it_is_decided_by_the_seed_and_has_made_no_step(step, by_name, on_one_device):
  assert on_one_device.params.keys() == {'encoder', 'mlm'}
  assert on_one_device.params['encoder'].keys() == {'embeddings', 'layers', 'projection'}  # no pooler to train
  assert {x.dtype for x in jax.tree.leaves(on_one_device.params)} == {np.dtype('float32')}
  assert (on_one_device.step, on_one_device.step.dtype) == (0, np.int32)
  for moment in 'mu', 'nu':
    assert not any(np.any(x) for x in jax.tree.leaves(optax.tree.get(on_one_device.opt_state, moment)))
  jax.tree.map(np.testing.assert_array_equal, jax.device_get(step().init(0)), on_one_device)
  other, drawn = by_name(jax.device_get(step().init(1).params)), 0
  for name, x in by_name(on_one_device.params).items():
    if name.endswith(('kernel', 'embedding')):
      assert np.mean(x != other[name]) > 0.9, name
      drawn += 1
    else:
      np.testing.assert_array_equal(x, other[name])
  assert drawn == 10


def test_the_mesh_changes_nothing_but_how_the_last_bit_is_rounded(eight, on_one_device):
  close = functools.partial(np.testing.assert_allclose, rtol=0, atol=TOLERANCE)
  jax.tree.map(close, jax.device_get(dataclasses.replace(eight.init(0), ema=None)), on_one_device)


def test_the_restore_target_is_the_shape_type_and_place_of_what_init_makes(eight):
  born, target = eight.init(0), eight.trainable.restore_target()
  assert jax.tree.structure(born) == jax.tree.structure(target)
  for array, expected in zip(jax.tree.leaves(born), jax.tree.leaves(target), strict=True):
    assert isinstance(expected, jax.ShapeDtypeStruct)
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
    assert array.sharding.is_equivalent_to(expected.sharding, array.ndim)
    assert array.sharding.device_set == expected.sharding.device_set


def test_the_released_model_is_described_without_allocating_anything(trainable):
  before = {id(array) for array in jax.live_arrays()}
  described = trainable(config=RemBertConfig())
  assert not [array.shape for array in jax.live_arrays() if id(array) not in before]
  padding = 68 * (256 + 1664 + 1)  # 250,300 rows of both tables and of the output bias are stored as 250,368
  pooler = 1152 * 1153
  parameters = sum(x.size for x in jax.tree.leaves(described.abstract_state.params))
  assert parameters == 994_591_804 - pooler + padding
