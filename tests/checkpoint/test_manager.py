"""Checkpoints give back the very bits, onto any mesh; what was not written whole was never there."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint._src.path.atomicity import TMP_DIR_SUFFIX, AtomicRenameTemporaryPath

from rembert.checkpoint.manager import Checkpoints, SaveSchedule
from rembert.errors import RunError, UsageError
from rembert.train.optimizer import OptimizerConfig, make_optimizer

ONE, EIGHT, FLAT = (1, 1, 1), (2, 2, 2), (4, 2, 1)
DATA = {'de': {'epoch': 0, 'document': 17}, 'sw': {'epoch': 2, 'document': 0}}
META = {'RemBertConfig.hidden_size': 16, 'interval': {'loss': 1 / 3, 'steps': 2.0}, 'is_evaluation_due': True}


@pytest.fixture(scope='module')
def small(random_state):
  """A state on one device."""
  return random_state(ONE)[0]


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


def save(checkpoints, number, state, **options):
  """Saves and waits."""
  checkpoints.save(number, state, DATA, META, **options)
  checkpoints.wait()
  return checkpoints


@contextlib.contextmanager
def full_disk(monkeypatch):
  """Saves fail when all is written."""

  async def fail(self):
    raise OSError('No space left on device')

  with monkeypatch.context() as patch:
    patch.setattr(AtomicRenameTemporaryPath, 'finalize', fail)
    yield


@pytest.mark.parametrize(('saved_on', 'restored_on'), [(ONE, FLAT), (EIGHT, ONE)])
def test_a_state_comes_back_bit_exactly_and_to_its_place(opened, random_state, trainable, saved_on, restored_on):
  state, expected = random_state(saved_on)
  writing, target = save(opened(), 2, state), trainable(restored_on).restore_target()
  restored = opened().restore_newest(target)
  assert (restored.step, restored.data, restored.meta) == (2, DATA, META)
  jax.tree.map(np.testing.assert_array_equal, jax.device_get(restored.state), expected)
  for array, place in zip(jax.tree.leaves(restored.state), jax.tree.leaves(target), strict=True):
    assert array.dtype == place.dtype
    assert array.sharding.is_equivalent_to(place.sharding, array.ndim)
    assert array.sharding.device_set == place.sharding.device_set
  # And without this project.
  with ocp.StandardCheckpointer() as reader:
    tree = reader.restore(writing.directory / '2' / 'state')
  assert tree.keys() == {'step', 'params', 'opt_state'}
  jax.tree.map(np.testing.assert_array_equal, tree['params'], expected.params)
  assert json.loads((writing.directory / '2' / 'data' / 'metadata').read_text()) == DATA


def test_a_moving_average_comes_back_too_and_a_run_without_one_cannot_take_it(opened, random_state, trainable):
  with_average = lambda state, other: dataclasses.replace(state, ema=other.params)
  state, expected = map(with_average, random_state(EIGHT), random_state(EIGHT, 1))
  checkpoints = save(opened(), 2, state)
  restored = checkpoints.restore_newest(trainable(ONE, ema_decay=0.9).restore_target())
  jax.tree.map(np.testing.assert_array_equal, restored.state, expected)
  with pytest.raises(UsageError, match='another model or optimizer'):
    checkpoints.restore_newest(trainable(ONE).restore_target())


def test_the_state_of_that_moment_is_saved_although_its_buffers_are_donated(opened, random_state, trainable):
  state, expected = random_state(EIGHT)
  state = jax.tree.map(jnp.copy, state)
  step = jax.jit(lambda state: jax.tree.map(lambda leaf: leaf + 1, state), donate_argnums=0)
  checkpoints = opened()
  checkpoints.save(2, state, DATA, META)
  for _ in range(3):  # writes into the buffers of the state before it
    state = step(state)
  checkpoints.wait()
  assert np.any(np.asarray(state.params['mlm']['bias']) != expected.params['mlm']['bias'])
  restored = checkpoints.restore_newest(trainable(EIGHT).restore_target())
  jax.tree.map(np.testing.assert_array_equal, jax.device_get(restored.state), expected)


def test_moments_are_converted_to_the_dtype_of_the_run_that_resumes(opened, random_state, trainable):
  state, expected = random_state(EIGHT)
  half = trainable(ONE, optimizer=make_optimizer(OptimizerConfig(mu_dtype='bfloat16'), total_steps=8))
  rounded = save(opened(), 2, state).restore_newest(half.restore_target()).state
  for array, original in zip(jax.tree.leaves(rounded), jax.tree.leaves(expected), strict=True):
    np.testing.assert_array_equal(array, original.astype(array.dtype))
  dtypes = lambda state, moment: {str(x.dtype) for x in jax.tree.leaves(optax.tree.get(state.opt_state, moment))}
  assert (dtypes(rounded, 'mu'), dtypes(rounded, 'nu')) == ({'bfloat16'}, {'float32'})
  # And back: nothing is lost that was not lost before.
  again = save(opened(), 3, rounded).restore_newest(trainable(EIGHT).restore_target()).state
  assert dtypes(again, 'mu') == {'float32'}
  jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, np.asarray(b).astype(a.dtype)), again, rounded)


def save_all(checkpoints, state, steps, temporary=()):
  for number in steps:
    checkpoints.save(number, state, DATA, META, is_temporary=number in temporary)
  checkpoints.wait()
  return sorted(int(path.name) for path in checkpoints.directory.iterdir())


def test_a_temporary_one_goes_when_there_is_a_newer_one_of_either_kind(opened, small):
  checkpoints = opened(keep=2)
  assert save_all(checkpoints, small, [10, 13], temporary=[13]) == [10, 13]
  assert save_all(checkpoints, small, [16], temporary=[16]) == [10, 16]
  assert save_all(checkpoints, small, [20]) == [10, 20]
  assert save_all(checkpoints, small, [25], temporary=[25]) == [10, 20, 25]
  # What is temporary is known to the next process too.
  assert save_all(opened(keep=2), small, [27], temporary=[27]) == [10, 20, 27]
  assert save_all(opened(keep=2), small, [30]) == [20, 30]


def test_a_temporary_one_stays_until_the_newer_one_is_whole(opened, small, monkeypatch):
  checkpoints = opened()
  save_all(checkpoints, small, [10, 13], temporary=[13])
  with full_disk(monkeypatch), pytest.raises(RunError, match='No space left'):
    save_all(checkpoints, small, [20])
  assert opened().newest().step == 13


def test_multiples_are_never_deleted(opened, small):
  assert save_all(opened(keep=1, keep_every=20), small, [10, 20, 23, 30, 40, 50], temporary=[23]) == [20, 40, 50]


def test_master_weights_in_half_precision_are_refused(opened, small):
  half = dataclasses.replace(small, params=jax.tree.map(lambda leaf: leaf.astype('bfloat16'), small.params))
  with pytest.raises(TypeError, match='master weights must be float32'):
    opened().save(1, half, DATA, META)


# --- interrupted and failing ----------------------------------------------------------------------


def test_a_save_that_fails_is_a_run_error_and_leaves_the_one_before_as_the_latest(
  opened, random_state, trainable, monkeypatch
):
  state, expected = random_state(ONE)
  checkpoints = save(opened(), 1, state)
  with full_disk(monkeypatch):
    checkpoints.save(2, state, {}, {})
    with pytest.raises(RunError, match='could not be written: No space left on device') as error:
      checkpoints.wait()
    checkpoints.save(3, state, {}, {})
    with pytest.raises(RunError, match='No space left on device'):  # also by the next save
      checkpoints.save(4, state, {}, {})
  assert error.value.exit_code == 1
  assert error.value.where == str(checkpoints.directory)
  assert 'run the command again' in error.value.fix[0]
  left = checkpoints.directory / f'2{TMP_DIR_SUFFIX}'
  assert left.is_dir()

  again = opened()
  assert again.latest_step() == 1
  restored = again.restore_newest(trainable(ONE).restore_target())
  jax.tree.map(np.testing.assert_array_equal, restored.state, expected)
  assert (restored.data, restored.meta) == (DATA, META)
  save(again, 2, restored.state)
  assert opened().latest_step() == 2
  assert not left.exists()


def test_a_save_that_was_killed_half_way_is_not_the_latest_and_is_removed(opened, small, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert Checkpoints('checkpoints').latest_step() is None  # a relative folder will do
  writing = save(opened(), 1, small)
  half = pathlib.Path(writing.directory) / f'2{TMP_DIR_SUFFIX}'
  shutil.copytree(writing.directory / '1', half)
  shutil.rmtree(half / 'meta')
  again = opened()
  assert again.latest_step() == 1
  assert again.newest().meta == META
  assert save(again, 3, small).latest_step() == 3
  assert not half.exists()


VANISHING = """
import shutil, sys
import jax.numpy as jnp
from rembert.errors import RunError
from rembert.checkpoint.manager import Checkpoints
from rembert.train.state import TrainState
checkpoints = Checkpoints(sys.argv[1])
state = TrainState(step=jnp.int32(1), params={'x': jnp.ones(1000)}, opt_state=())
checkpoints.save(1, state, {}, {})
checkpoints.wait()
shutil.rmtree(sys.argv[1])
open(sys.argv[1], 'w').close()  # another thing has taken its place
try:
  checkpoints.save(2, state, {}, {})
  checkpoints.close()
except RunError as error:
  sys.exit(str(error))
"""


def test_a_folder_that_vanishes_does_not_hang_the_process(tmp_path):
  command = [sys.executable, '-c', VANISHING, str(tmp_path / 'checkpoints')]
  result = subprocess.run(
    command, check=False, env=os.environ | {'JAX_PLATFORMS': 'cpu'}, timeout=100, capture_output=True, text=True
  )
  assert result.returncode == 1, result.stderr
  assert 'a checkpoint could not be written' in result.stderr


# --- permanent checkpoints by steps, temporary ones by time ------------------------------------------------------


def due(schedule, times):
  """Steps saved when step n ends at `times[n − 1]`, as the loop asks."""
  saved = []
  for step, now in enumerate(times, 1):
    if schedule.is_due(step, now):
      saved.append((step, schedule.is_permanent(step)))
      schedule.saved(now)
  return saved


@pytest.mark.parametrize(
  ('schedule', 'times', 'expected'),
  [
    ((10, 4, 0), [1e6 * step for step in range(1, 11)], [(4, True), (8, True), (10, True)]),  # without a time
    ((10, 4, 25), range(10, 110, 10), [(3, False), (4, True), (7, False), (8, True), (10, True)]),
    ((3, 2, 5), [10, 20, 30], [(1, False), (2, True), (3, True)]),  # steps so slow that each is saved, and none twice
  ],
  ids=['steps alone', 'when there has been none for long enough', 'slow steps'],
)
@pytest.mark.parametrize('now', [0.0, 1e9])
def test_a_temporary_checkpoint_is_due_by_time_and_a_permanent_one_by_steps(schedule, times, expected, now):
  steps, every, seconds = schedule
  schedule = SaveSchedule(steps=steps, every=every, temporary_seconds=seconds, now=now)
  assert due(schedule, [now + time for time in times]) == expected
