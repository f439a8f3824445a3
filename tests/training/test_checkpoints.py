"""Checkpoints give back the very bits, onto any mesh; what was not written whole was never there."""

import json
import pathlib
import shutil

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint._src.path.atomicity import TMP_DIR_SUFFIX, AtomicRenameTemporaryPath

from rembert.errors import RunError
from rembert.training.checkpoints import Checkpoints
from rembert.training.optimizer import OptimizerConfig, make_optimizer

ONE, EIGHT = (1, 1, 1), (2, 2, 2)
DATA = {'de': {'epoch': 0, 'document': 17}, 'sw': {'epoch': 2, 'document': 0}}
META = {'RemBertConfig.hidden_size': 16, 'interval': {'loss': 1 / 3, 'steps': 2.0}, 'is_evaluation_due': True}


@pytest.fixture(scope='module')
def trained(step, packed_batch):
  """Mesh sizes to a state in which nothing is zero any more, and the same as NumPy."""

  def states(sizes):
    state = step(sizes).init(0)
    for seed in range(2):
      state, _ = step(sizes)(state, packed_batch(seed))
    return state, jax.tree.map(np.array, state)

  return states


@pytest.fixture(scope='module')
def small(trained):
  """A state on one device."""
  return trained(ONE)[0]


@pytest.fixture(scope='module')
def target(step):
  """Mesh sizes to what a checkpoint is restored into there."""
  return lambda sizes: step(sizes).trainable.restore_target()


@pytest.fixture
def opened(tmp_path):
  """Opens the checkpoints of one folder; closes them at the end."""
  everything = []

  def open_checkpoints(**options):
    everything.append(Checkpoints(tmp_path / 'checkpoints', **options))
    return everything[-1]

  yield open_checkpoints
  for checkpoints in everything:
    checkpoints._manager.close()


@pytest.mark.parametrize('restored_on', [ONE, EIGHT], ids=['to one device', 'to eight'])
@pytest.mark.parametrize('saved_on', [ONE, EIGHT], ids=['from one device', 'from eight'])
def test_a_state_comes_back_to_the_bit_and_to_its_place(opened, trained, target, saved_on, restored_on):
  state, expected = trained(saved_on)
  writing = opened()
  writing.save(2, state, DATA, META)
  writing.wait()
  restored = opened().restore(2, target(restored_on))
  assert (restored.step, restored.data, restored.meta) == (2, DATA, META)
  jax.tree.map(np.testing.assert_array_equal, restored.state, expected)
  for array, place in zip(jax.tree.leaves(restored.state), jax.tree.leaves(target(restored_on)), strict=True):
    assert array.dtype == place.dtype
    assert array.sharding.is_equivalent_to(place.sharding, array.ndim)
    assert array.sharding.device_set == place.sharding.device_set


@pytest.mark.parametrize('sizes', [ONE, EIGHT], ids=['one device', 'eight'])
def test_what_is_saved_is_the_state_of_that_moment_though_its_buffers_are_given_away(
  opened, trained, target, step, packed_batch, sizes
):
  state, expected = trained(sizes)
  checkpoints = opened()
  checkpoints.save(2, state, DATA, META)
  for seed in range(3):  # the step writes into the buffers of the state before it
    state, _ = step(sizes)(state, packed_batch(seed))
  checkpoints.wait()
  assert np.any(np.asarray(state.params['mlm']['bias']) != expected.params['mlm']['bias'])
  jax.tree.map(np.testing.assert_array_equal, checkpoints.restore(2, target(sizes)).state, expected)


@pytest.mark.parametrize('sizes', [ONE, EIGHT], ids=['one device', 'eight'])
def test_a_first_moment_is_converted_to_the_dtype_of_the_run_that_goes_on(opened, trained, trainable, sizes):
  state, expected = trained(sizes)
  half = trainable(sizes, optimizer=make_optimizer(OptimizerConfig(mu_dtype='bfloat16'), total_steps=8))
  checkpoints = opened()
  checkpoints.save(2, state, DATA, META)
  checkpoints.wait()
  rounded = checkpoints.restore(2, half.restore_target()).state
  for array, original in zip(jax.tree.leaves(rounded), jax.tree.leaves(expected), strict=True):
    np.testing.assert_array_equal(array, original.astype(array.dtype))
  dtypes = lambda state, moment: {str(x.dtype) for x in jax.tree.leaves(optax.tree.get(state.opt_state, moment))}
  assert (dtypes(rounded, 'mu'), dtypes(rounded, 'nu')) == ({'bfloat16'}, {'float32'})
  # And back: nothing is lost that was not lost before.
  checkpoints.save(3, rounded, DATA, META)
  checkpoints.wait()
  again = checkpoints.restore(3, trainable(sizes).restore_target()).state
  assert dtypes(again, 'mu') == {'float32'}
  jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, np.asarray(b).astype(a.dtype)), again, rounded)


def test_before_the_first_there_is_none(opened):
  assert opened().latest_step() is None


def test_only_the_newest_are_kept(opened, small):
  checkpoints = opened(keep=2)
  for number in (3, 7, 10, 12):
    checkpoints.save(number, small, DATA, META)
  checkpoints.wait()
  assert checkpoints.latest_step() == 12
  assert sorted(int(path.name) for path in checkpoints.directory.iterdir()) == [10, 12]


def test_meta_is_read_without_touching_the_state(opened, small):
  writing = opened()
  writing.save(5, small, DATA, META)
  writing.wait()
  shutil.rmtree(writing.directory / '5' / 'state')
  assert opened().restore_meta(5) == META


def test_a_checkpoint_is_readable_without_this_project(opened, trained):
  state, expected = trained(EIGHT)
  writing = opened()
  writing.save(2, state, DATA, META)
  writing.wait()
  with ocp.StandardCheckpointer() as reader:
    tree = reader.restore(writing.directory / '2' / 'state')
  assert tree.keys() == {'step', 'params', 'opt_state'}
  assert tree['step'] == 2
  jax.tree.map(np.testing.assert_array_equal, tree['params'], expected.params)
  assert json.loads((writing.directory / '2' / 'data' / 'metadata').read_text()) == DATA


def test_a_relative_folder_will_do(tmp_path, monkeypatch, small):
  monkeypatch.chdir(tmp_path)
  checkpoints = Checkpoints('here')
  checkpoints.save(1, small, DATA, META)
  checkpoints.close()
  assert (tmp_path / 'here' / '1').is_dir()


# --- interrupted and failing ----------------------------------------------------------------------


def test_a_save_that_fails_is_a_run_error_and_leaves_the_one_before_as_the_latest(opened, trained, target, monkeypatch):
  state, expected = trained(ONE)
  checkpoints = opened()
  checkpoints.save(1, state, DATA, META)
  checkpoints.wait()

  async def full_disk(self):
    raise OSError('No space left on device')

  with monkeypatch.context() as patch:
    patch.setattr(AtomicRenameTemporaryPath, 'finalize', full_disk)
    checkpoints.save(2, state, {}, {})
    with pytest.raises(RunError, match='could not be written: No space left on device') as error:
      checkpoints.wait()
  assert error.value.exit_code == 1
  assert error.value.where == str(checkpoints.directory)
  assert 'repeat the command' in error.value.fix[0]
  left = checkpoints.directory / f'2{TMP_DIR_SUFFIX}'
  assert left.is_dir()

  again = opened()
  assert again.latest_step() == 1
  restored = again.restore(1, target(ONE))
  jax.tree.map(np.testing.assert_array_equal, restored.state, expected)
  assert (restored.data, restored.meta) == (DATA, META)
  again.save(2, restored.state, DATA, META)
  again.wait()
  assert opened().latest_step() == 2
  assert not left.exists()


def test_a_failure_in_the_background_is_told_by_the_next_save(opened, trained, monkeypatch):
  state, _ = trained(ONE)
  checkpoints = opened()

  async def full_disk(self):
    raise OSError('No space left on device')

  with monkeypatch.context() as patch:
    patch.setattr(AtomicRenameTemporaryPath, 'finalize', full_disk)
    checkpoints.save(1, state, DATA, META)
    with pytest.raises(RunError, match='No space left on device'):
      checkpoints.save(2, state, DATA, META)


def test_what_a_killed_process_leaves_half_written_is_not_the_latest_and_is_cleared_away(opened, small):
  writing = opened()
  writing.save(1, small, DATA, META)
  writing.wait()
  half = pathlib.Path(writing.directory) / f'2{TMP_DIR_SUFFIX}'
  shutil.copytree(writing.directory / '1', half)
  shutil.rmtree(half / 'meta')
  again = opened()
  assert again.latest_step() == 1
  assert again.restore_meta(1) == META
  again.save(3, small, DATA, META)
  again.wait()
  assert again.latest_step() == 3
  assert not half.exists()
