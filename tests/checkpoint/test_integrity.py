"""A corrupt checkpoint is detected, quarantined and logged; the one before is used. If none is whole, no run begins."""

import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from orbax.checkpoint import StandardCheckpointHandler

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
from rembert.train.optimizer import OptimizerConfig, make_optimizer

ONE = (1, 1, 1)
DATA, META = {'de': 17}, {'interval': {'loss': 0.25}}


@pytest.fixture(scope='module')
def states(random_state):
  """Two states on one device, and as NumPy."""
  (first, arrays_of_first), (second, arrays_of_second) = random_state(ONE, 1), random_state(ONE, 2)
  return {1: first, 2: second}, {1: arrays_of_first, 2: arrays_of_second}


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
def restored(trainable):
  """Restores from a folder: the checkpoint, and the lines that were logged."""

  def restore(folder):
    said = []
    checkpoints = Checkpoints(folder, say=said.append)
    try:
      return checkpoints.restore_newest(trainable(ONE).restore_target()), said
    finally:
      checkpoints.close()

  return restore


def data_file(checkpoint):
  """The largest file: arrays."""
  return max(
    (file for file in (checkpoint / 'state').rglob('*') if file.is_file()), key=lambda file: file.stat().st_size
  )


def rewrite(change, file=None):
  """Damages a file of a checkpoint, by default that of the arrays: its bytes become `change(bytes)`."""

  def damage(checkpoint):
    path = checkpoint / file if file else data_file(checkpoint)
    path.write_bytes(change(path.read_bytes()))

  return damage


def with_altered_bit(content):
  middle = len(content) // 2
  return content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :]


def empty(checkpoint):
  shutil.rmtree(checkpoint)
  checkpoint.mkdir()


alter_arrays = rewrite(with_altered_bit)
DAMAGES = {
  'arrays deleted': lambda checkpoint: data_file(checkpoint).unlink(),
  'arrays truncated': rewrite(lambda content: content[: len(content) // 2]),
  'a bit of the arrays altered': alter_arrays,
  'an empty folder': empty,
  **{
    f'no {item}': lambda checkpoint, item=item: shutil.rmtree(checkpoint / item) for item in ('meta', 'data', 'state')
  },
  'meta altered': rewrite(lambda content: content.replace(b'0.25', b'0.26'), 'meta/metadata'),
  'meta truncated': rewrite(lambda content: content[:-10], 'meta/metadata'),
  'data altered': rewrite(lambda content: b'{"de": 18}', 'data/metadata'),
  'no metadata of the state': lambda checkpoint: (checkpoint / 'state/_METADATA').unlink(),
  'no index of the arrays': lambda checkpoint: (checkpoint / 'state/manifest.ocdbt').unlink(),
}


@pytest.mark.parametrize('damage', DAMAGES.values(), ids=DAMAGES)
def test_the_one_before_is_used_and_one_line_says_so(damage, folder, restored, states):
  damage(folder / '2')
  found, said = restored(folder)
  assert (found.step, found.data, found.meta) == (1, DATA, META)
  jax.tree.map(np.testing.assert_array_equal, found.state, states[1][1])
  [line] = said
  assert line.startswith('warning: checkpoint 2 is corrupt: ')
  assert line.endswith('renamed to checkpoints/damaged-2; falling back to 1')
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
  for file in random.permutation(np.array(files, object))[:12]:
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
    with pytest.raises(RunError, match='there is no valid checkpoint') as error:
      restored(folder)
    assert error.value.exit_code == 1
    assert 'damaged-1' in error.value.fix[0]
  assert (folder / 'damaged-1').is_dir()


def test_storage_out_of_reach_and_a_transient_error_are_no_damage(folder, restored, monkeypatch):
  read = StandardCheckpointHandler.restore

  def fail(errors):
    """Raises them one after the other, then reads."""

    def restore(self, *arguments, **options):
      if errors:
        raise errors.pop(0)
      return read(self, *arguments, **options)

    monkeypatch.setattr(StandardCheckpointHandler, 'restore', restore)

  fail([ValueError('UNAVAILABLE: connection reset')] * 2)
  with pytest.raises(RunError, match='cannot be read: UNAVAILABLE'):
    restored(folder)
  fail([OSError('Input/output error')])
  found, said = restored(folder)
  assert (found.step, said) == (2, [])


@pytest.mark.parametrize('error', [PermissionError('no'), ConnectionError('no'), RuntimeError('PERMISSION_DENIED: x')])
def test_files_out_of_reach_are_not_corrupt(error):
  assert not is_corruption(error)
  assert is_corruption(ValueError('checksum'))


def test_a_state_with_an_array_too_many_is_that_of_another_optimizer(tmp_path):
  arrays = {'mu/a': ['float32', [2]], 'nu/a': ['float32', [2]]}
  refuse_other_state(arrays, {name: tuple(value) for name, value in arrays.items()}, tmp_path)
  with pytest.raises(UsageError, match='another model or optimizer') as error:
    refuse_other_state(arrays, {'mu/a': ('float32', [2])}, tmp_path)
  assert 'nu/a is unexpected' in str(error.value)


def test_another_optimizer_is_no_damage(folder, trainable):
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


def test_every_change_of_a_single_bit_and_exchanged_rows_show():
  array = random((3, 5))
  before, words = array_checksum(array), array.view(np.uint32)
  assert array_checksum(array[::-1]) != before
  for index in np.ndindex(array.shape):
    for bit in range(32):
      words[index] ^= np.uint32(1 << bit)
      assert array_checksum(array) != before
      words[index] ^= np.uint32(1 << bit)


def test_json_is_summed_by_content():
  content = {'b': (1, 2.5, None), 'a': {'10': 1, '9': 2}}
  assert json_checksum(content) == json_checksum({'a': {'9': 2, '10': 1}, 'b': [1, 2.5, None]})
  assert json_checksum(content) != json_checksum({**content, 'b': (1, 2.5, 0)})
  assert json_checksum({10: 1, 9: 2}) == json_checksum({'9': 2, '10': 1})
