"""Checkpoints as models: found, described, read parameter by parameter."""

import pathlib
import shutil

import numpy as np
import pytest
from random_checkpoints import TINY

from rembert.checkpoint.load import find_checkpoint, open_saved, read_newest, save_model
from rembert.errors import UsageError


def test_the_newest_checkpoint_is_taken_unless_another_is_named(saved):
  workdir = saved('mlm').workdir
  shutil.copytree(workdir / 'checkpoints' / '0', workdir / 'checkpoints' / '10')
  shutil.copytree(workdir / 'checkpoints' / '0', workdir / 'checkpoints' / '9')
  (workdir / 'checkpoints' / '11.orbax-checkpoint-tmp-1').mkdir()
  assert open_saved(workdir).step == 10
  assert open_saved(workdir, step=9).step == 9
  assert open_saved(workdir / 'checkpoints' / '0').step == 0
  with pytest.raises(UsageError, match='no checkpoint of step 7'):
    open_saved(workdir, step=7)


def test_parameters_are_read_as_they_were_written(saved):
  model = saved('tagging')
  again = open_saved(model.folder)
  assert (again.head, again.labels, again.config) == ('tagging', ('O', 'B-PER', 'I-PER'), model.config)
  for path, shape in again.shapes.items():
    leaf = again.read(path)
    assert leaf.shape == shape
    assert leaf.dtype == np.float32
    assert np.any(leaf)


def test_where_there_is_no_checkpoint_that_is_said(tmp_path):
  assert find_checkpoint(tmp_path) is None
  (tmp_path / 'checkpoints').mkdir()
  with pytest.raises(UsageError, match='no checkpoint'):
    open_saved(tmp_path)


def test_a_damaged_checkpoint_is_a_usage_error(saved):
  model = saved('mlm')
  for file in pathlib.Path(model.folder / 'state').rglob('*'):
    if file.is_file() and '/d/' in str(file):
      file.write_bytes(file.read_bytes()[:100])

  def read_all():
    again = open_saved(model.folder)
    return [again.read(path) for path in again.shapes]

  with pytest.raises(UsageError, match='a checkpoint cannot be read'):
    read_all()


def test_a_checkpoint_in_half_precision_is_read_as_float32(tmp_path):
  import ml_dtypes

  leaves = {'encoder/x/kernel': np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)}
  save_model(tmp_path, leaves, TINY, None)
  leaf = open_saved(tmp_path).read('encoder/x/kernel')
  assert leaf.dtype == np.float32
  assert np.array_equal(leaf, [[0, 1, 2], [3, 4, 5]])


def test_an_altered_parameter_is_not_passed_on(saved):
  model = saved('mlm')
  [largest] = sorted(pathlib.Path(model.folder / 'state').rglob('d/*'), key=lambda file: file.stat().st_size)[-1:]
  content = bytearray(largest.read_bytes())
  content[len(content) // 2] ^= 0x10
  largest.write_bytes(bytes(content))
  again = open_saved(model.folder)
  with pytest.raises(UsageError, match='a checkpoint cannot be read'):
    [again.read(path) for path in again.shapes]


def test_a_checkpoint_that_a_run_deletes_meanwhile_is_left_for_the_newer_one(saved):
  checkpoints = saved('mlm').workdir / 'checkpoints'
  seen = []

  def read(model):
    seen.append(model.step)
    leaves = {}
    for path in model.shapes:
      if len(leaves) == 3 and model.step < 2:  # the run saves another one and deletes this one
        shutil.copytree(model.folder, checkpoints / str(model.step + 1))
        shutil.rmtree(model.folder)
      leaves[path] = model.read(path)
    return leaves

  assert len(read_newest(checkpoints.parent, None, read)) > 3
  assert seen == [0, 1, 2]


def test_a_checkpoint_that_was_named_is_not_exchanged_for_another(saved):
  folder = saved('mlm').folder
  shutil.copytree(folder, folder.parent / '5')

  def read(model):
    shutil.rmtree(folder)
    return model.read('mlm/bias')

  with pytest.raises(UsageError, match='cannot be read'):
    read_newest(folder.parent.parent, 0, read)
