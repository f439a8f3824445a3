"""One number for the same bits, wherever they lie and however they are split; another for any others."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from rembert.checkpoint import checksums


def reference(array):
  """Word by word, in Python's integers."""
  words = np.ascontiguousarray(array).reshape(-1).view(f'u{array.dtype.itemsize}').tolist()
  return sum((word ^ (word >> 15)) * (2 * position + 1) for position, word in enumerate(words)) % 2**32


def random(shape, dtype=np.float32):
  return np.random.default_rng(0).standard_normal(shape).astype(dtype)


ARRAYS = {
  'a table': random((70, 31)),
  'longer than one chunk': random((3, 50_000)),
  'four axes': random((3, 5, 2, 7)),
  'half precision': random((9, 8), ml_dtypes.bfloat16),
  'a scalar': np.int32(41),
  'nothing': random((0, 4)),
  'bytes': np.arange(100, dtype=np.int8),
}


@pytest.mark.parametrize('array', ARRAYS.values(), ids=ARRAYS)
def test_on_host_and_device_it_is_what_the_definition_says(array):
  assert checksums.of_array(array) == reference(array)
  assert int(jax.jit(checksums._of_device_array)(jnp.asarray(array))) == reference(array)


def test_it_does_not_depend_on_how_an_array_is_split():
  mesh = jax.make_mesh((2, 2, 2), ('a', 'b', 'c'), axis_types=(AxisType.Auto,) * 3)
  array = random((8, 12, 16))
  for spec in (PartitionSpec(), PartitionSpec('a', 'b', 'c'), PartitionSpec(('c', 'a'), None, 'b')):
    split = jax.device_put(array, NamedSharding(mesh, spec))
    compiled = jax.jit(checksums._of_device_array).lower(split).compile()
    assert int(compiled(split)) == reference(array)
    assert 'all-gather' not in compiled.as_text()
    assert checksums.of_tree({'x': [split, array]}) == {'x/0': reference(array), 'x/1': reference(array)}


def test_every_change_of_a_single_bit_shows():
  array = random((5, 7))
  before = checksums.of_array(array)
  words = array.view(np.uint32)
  for index in np.ndindex(array.shape):
    for bit in range(32):
      words[index] ^= np.uint32(1 << bit)
      assert checksums.of_array(array) != before
      words[index] ^= np.uint32(1 << bit)


def test_exchanged_rows_and_lost_blocks_show():
  array = random((64, 64))
  before = checksums.of_array(array)
  assert checksums.of_array(array[::-1]) != before
  array[10:20] = 0
  assert checksums.of_array(array) != before


def test_json_is_summed_by_content():
  content = {'b': (1, 2.5, None), 'a': {'10': 1, '9': 2}}
  assert checksums.of_json(content) == checksums.of_json({'a': {'9': 2, '10': 1}, 'b': [1, 2.5, None]})
  assert checksums.of_json(content) != checksums.of_json({**content, 'b': (1, 2.5, 0)})
  assert checksums.of_json({10: 1, 9: 2}) == checksums.of_json({'9': 2, '10': 1})
