"""A corrupt checkpoint is noticed, put aside and said; the one before is used. Where none is whole, nothing begins."""

import json
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from rembert.checkpoint.integrity import (
  _device_checksum,
  array_checksum,
  is_corruption,
  json_checksum,
  refuse_other_state,
  tree_checksums,
)
from rembert.checkpoint.manager import Checkpoints
from rembert.errors import RunError, UsageError

ONE, EIGHT = (1, 1, 1), (2, 2, 2)
DATA, META = {'de': 17}, {'interval': {'loss': 0.25}}


@pytest.fixture(scope='module')
def states(step, packed_batch):
  """States after one and after two updates, on one device, and as NumPy."""
  state, _ = step(ONE)(step(ONE).init(0), packed_batch(0))
  first, saved_first = jax.tree.map(np.array, state), jax.tree.map(lambda leaf: leaf.copy(), state)
  state, _ = step(ONE)(state, packed_batch(1))
  return {1: saved_first, 2: state}, {1: first, 2: jax.tree.map(np.array, state)}


@pytest.fixture(scope='module')
def pristine(states, tmp_path_factory):
  """A folder with the checkpoints of steps 1 and 2."""
  folder = tmp_path_factory.mktemp('pristine') / 'checkpoints'
  writing = Checkpoints(folder)
  for number, state in states[0].items():
    writing.save(number, state, DATA, META)
  writing.close()
  return folder


@pytest.fixture
def folder(pristine, tmp_path):
  """A copy to be damaged."""
  return shutil.copytree(pristine, tmp_path / 'checkpoints')


@pytest.fixture
def restored(step):
  """Restores from a folder: what came, and the lines that were said."""

  def restore(folder, sizes=ONE):
    said = []
    checkpoints = Checkpoints(folder, say=said.append)
    try:
      return checkpoints.restore_newest(step(sizes).trainable.restore_target()), said
    finally:
      checkpoints.close()

  return restore


def data_file(checkpoint):
  """The largest file: arrays."""
  return max(
    (file for file in (checkpoint / 'state').rglob('*') if file.is_file()), key=lambda file: file.stat().st_size
  )


def delete_arrays(checkpoint):
  data_file(checkpoint).unlink()


def truncate_arrays(checkpoint):
  file = data_file(checkpoint)
  file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def alter_arrays(checkpoint):
  file = data_file(checkpoint)
  content = bytearray(file.read_bytes())
  content[len(content) // 2] ^= 0x10
  file.write_bytes(bytes(content))


def zero_a_block(checkpoint):
  file = data_file(checkpoint)
  content = bytearray(file.read_bytes())
  content[len(content) // 2 :][:4096] = bytes(4096)
  file.write_bytes(bytes(content))


def empty(checkpoint):
  shutil.rmtree(checkpoint)
  checkpoint.mkdir()


def alter_meta(checkpoint):
  file = checkpoint / 'meta' / 'metadata'
  file.write_text(file.read_text().replace('0.25', '0.26'))


def cut_meta(checkpoint):
  file = checkpoint / 'meta' / 'metadata'
  file.write_text(file.read_text()[:-10])


def alter_data(checkpoint):
  (checkpoint / 'data' / 'metadata').write_text(json.dumps({'de': 18}))


def without(item):
  return lambda checkpoint: shutil.rmtree(checkpoint / item)


def without_file(name):
  return lambda checkpoint: (checkpoint / name).unlink()


DAMAGES = {
  'arrays deleted': delete_arrays,
  'arrays cut off': truncate_arrays,
  'a bit of the arrays altered': alter_arrays,
  'a block of the arrays zero': lambda checkpoint: zero_a_block(checkpoint) or alter_arrays(checkpoint),
  'an empty folder': empty,
  'no meta': without('meta'),
  'no data': without('data'),
  'no state': without('state'),
  'meta altered': alter_meta,
  'meta cut off': cut_meta,
  'data altered': alter_data,
  'no metadata of the state': without_file('state/_METADATA'),
  'no index of the arrays': without_file('state/manifest.ocdbt'),
}


@pytest.mark.parametrize('damage', DAMAGES.values(), ids=DAMAGES)
def test_the_one_before_is_used_and_one_line_says_so(damage, folder, restored, states):
  damage(folder / '2')
  found, said = restored(folder)
  assert (found.step, found.data, found.meta) == (1, DATA, META)
  jax.tree.map(np.testing.assert_array_equal, found.state, states[1][1])
  [line] = said
  assert line.startswith('checkpoint 2 is damaged: ')
  assert line.endswith('It is put aside as checkpoints/damaged-2; 1 is used instead.')
  assert '\n' not in line
  assert (folder / 'damaged-2').is_dir()
  assert not (folder / '2').exists()


def test_the_step_can_be_saved_again_and_damaged_again(folder, restored, states):
  for names in (['damaged-2'], ['damaged-2', 'damaged-2-2']):
    alter_arrays(folder / '2')
    assert restored(folder)[0].step == 1
    assert sorted(path.name for path in folder.iterdir()) == ['1', *names]
    checkpoints = Checkpoints(folder)
    checkpoints.save(2, states[0][2], DATA, META)
    checkpoints.close()
    found, said = restored(folder)
    assert (found.step, said) == (2, [])


def test_no_altered_byte_comes_back_as_another_number(folder, restored, states):
  """In any file of the checkpoint: noticed, or of no effect."""
  shutil.rmtree(folder / '1')
  random = np.random.default_rng(0)
  files = sorted(file for file in (folder / '2').rglob('*') if file.is_file())
  noticed = 0
  for file in random.permutation(np.array(files, object))[:40]:
    good = file.read_bytes()
    bad = bytearray(good)
    bad[random.integers(len(bad))] ^= 1 << random.integers(8)
    file.write_bytes(bytes(bad))
    try:
      found, _ = restored(folder)
      jax.tree.map(np.testing.assert_array_equal, found.state, states[1][2])
      assert found.data == DATA
    except (RunError, UsageError):
      noticed += 1
      if (folder / 'damaged-2').exists():
        (folder / 'damaged-2').rename(folder / '2')
    file.write_bytes(good)
  assert noticed
  assert restored(folder)[0].step == 2


def test_where_none_is_whole_nothing_begins_and_repeating_does_not_help(folder, restored):
  alter_arrays(folder / '1')
  empty(folder / '2')
  for _ in range(2):
    with pytest.raises(RunError, match='no checkpoint is whole') as error:
      restored(folder)
    assert error.value.exit_code == 1
    assert 'damaged-1' in error.value.fix[0]
  assert (folder / 'damaged-1').is_dir()


def test_storage_out_of_reach_is_no_damage(folder, restored, monkeypatch):
  from orbax.checkpoint import StandardCheckpointHandler

  def unreachable(self, *_, **__):
    raise ValueError('UNAVAILABLE: connection reset')

  with monkeypatch.context() as patch:
    patch.setattr(StandardCheckpointHandler, 'restore', unreachable)
    with pytest.raises(RunError, match='cannot be read: UNAVAILABLE'):
      restored(folder)
  assert restored(folder)[0].step == 2


def test_a_hiccup_of_the_storage_is_no_damage_either(folder, restored, monkeypatch):
  from orbax.checkpoint import StandardCheckpointHandler

  read, calls = StandardCheckpointHandler.restore, []

  def once_broken(self, *arguments, **options):
    calls.append(1)
    if len(calls) == 1:
      raise OSError('Input/output error')
    return read(self, *arguments, **options)

  monkeypatch.setattr(StandardCheckpointHandler, 'restore', once_broken)
  found, said = restored(folder)
  assert (found.step, said, len(calls)) == (2, [], 2)


@pytest.mark.parametrize('error', [PermissionError('no'), ConnectionError('no'), RuntimeError('PERMISSION_DENIED: x')])
def test_files_out_of_reach_are_not_corrupt(error):
  assert not is_corruption(error)
  assert is_corruption(ValueError('checksum'))


def test_a_state_with_an_array_too_many_is_that_of_another_optimizer(tmp_path):
  arrays = {'mu/a': ['float32', [2]], 'nu/a': ['float32', [2]]}
  refuse_other_state(arrays, {name: tuple(value) for name, value in arrays.items()}, tmp_path)
  with pytest.raises(UsageError, match='another model or optimizer') as error:
    refuse_other_state(arrays, {'mu/a': ('float32', [2])}, tmp_path)
  assert 'nu/a has no place' in str(error.value)


def test_another_optimizer_is_no_damage(folder, trainable):
  from rembert.train.optimizer import OptimizerConfig, make_optimizer

  corrected = make_optimizer(OptimizerConfig(bias_correction=True), total_steps=8)
  checkpoints = Checkpoints(folder)
  with pytest.raises(UsageError, match='another model or optimizer') as error:
    checkpoints.restore_newest(trainable(ONE, optimizer=corrected).restore_target())
  checkpoints.close()
  assert 'count is missing' in error.value.where
  assert (folder / '2').is_dir()


# --- checksums: one number for the same bits, wherever they lie and however they are split ----------------------------


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
  assert array_checksum(array) == reference(array)
  assert int(jax.jit(_device_checksum)(jnp.asarray(array))) == reference(array)


def test_it_does_not_depend_on_how_an_array_is_split():
  mesh = jax.make_mesh((2, 2, 2), ('a', 'b', 'c'), axis_types=(AxisType.Auto,) * 3)
  array = random((8, 12, 16))
  for spec in (PartitionSpec(), PartitionSpec('a', 'b', 'c'), PartitionSpec(('c', 'a'), None, 'b')):
    split = jax.device_put(array, NamedSharding(mesh, spec))
    compiled = jax.jit(_device_checksum).lower(split).compile()
    assert int(compiled(split)) == reference(array)
    assert 'all-gather' not in compiled.as_text()
    assert tree_checksums({'x': [split, array]}) == {'x/0': reference(array), 'x/1': reference(array)}


def test_every_change_of_a_single_bit_shows():
  array = random((5, 7))
  before = array_checksum(array)
  words = array.view(np.uint32)
  for index in np.ndindex(array.shape):
    for bit in range(32):
      words[index] ^= np.uint32(1 << bit)
      assert array_checksum(array) != before
      words[index] ^= np.uint32(1 << bit)


def test_exchanged_rows_and_lost_blocks_show():
  array = random((64, 64))
  before = array_checksum(array)
  assert array_checksum(array[::-1]) != before
  array[10:20] = 0
  assert array_checksum(array) != before


def test_json_is_summed_by_content():
  content = {'b': (1, 2.5, None), 'a': {'10': 1, '9': 2}}
  assert json_checksum(content) == json_checksum({'a': {'9': 2, '10': 1}, 'b': [1, 2.5, None]})
  assert json_checksum(content) != json_checksum({**content, 'b': (1, 2.5, 0)})
  assert json_checksum({10: 1, 9: 2}) == json_checksum({'9': 2, '10': 1})
