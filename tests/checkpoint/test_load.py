"""Checkpoints as models: found, described, read parameter by parameter."""

import pathlib
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict
from random_checkpoints import TINY, leaves_of, random_leaves

from rembert.checkpoint.load import config_meta, find_checkpoint, open_source, read_newest, save_model
from rembert.checkpoint.manager import Checkpoints
from rembert.errors import UsageError
from rembert.train.state import TrainState


def read_all(model):
  return {path: tensor.read() for path, tensor in model.tensors.items()}


def test_the_newest_checkpoint_is_opened_unless_another_is_named(saved):
  workdir = saved('mlm').workdir
  shutil.copytree(workdir / 'checkpoints' / '0', workdir / 'checkpoints' / '10')
  shutil.copytree(workdir / 'checkpoints' / '0', workdir / 'checkpoints' / '9')
  (workdir / 'checkpoints' / '11.orbax-checkpoint-tmp-1').mkdir()
  assert open_source(workdir).step == 10
  assert open_source(workdir, step=9).step == 9
  assert open_source(workdir / 'checkpoints' / '0').step == 0
  with pytest.raises(UsageError, match='no checkpoint of step 7'):
    open_source(workdir, step=7)


def test_parameters_are_read_as_they_were_written_without_padding_rows(written_run):
  workdir = written_run('tagging')
  model = open_source(workdir)
  assert (model.head, model.labels, model.config) == ('tagging', ('O', 'B-PER', 'I-PER'), TINY)
  expected = leaves_of(model)
  word = 'encoder/embeddings/word/embedding'
  assert len(expected[word]) > TINY.vocab_size
  expected[word] = expected[word][: TINY.vocab_size]
  found = read_all(model)
  assert found.keys() == expected.keys()
  for path, leaf in found.items():
    np.testing.assert_array_equal(leaf, expected[path])
    assert leaf.shape == model.tensors[path].shape


def test_a_workdir_without_a_checkpoint_is_refused(tmp_path):
  assert find_checkpoint(tmp_path) is None
  (tmp_path / 'checkpoints').mkdir()
  with pytest.raises(UsageError, match='no model found'):
    open_source(tmp_path)


def test_the_moving_average_is_read_unless_the_trained_parameters_are_requested(tmp_path):
  trained = random_leaves(TINY, 'mlm', has_pooler=False)
  average = {path: leaf + 1 for path, leaf in trained.items()}
  state = TrainState(jnp.int32(1), *(unflatten_dict(tree, sep='/') for tree in (trained, {}, average)))
  checkpoints = Checkpoints(tmp_path / 'checkpoints')
  checkpoints.save(1, jax.tree.map(jnp.asarray, state), {}, config_meta('RemBertConfig', TINY))
  checkpoints.close()
  for options, expected in ({}, average), ({'ema': True}, average), ({'ema': False}, trained):
    found = read_all(open_source(tmp_path, **options))
    assert found.keys() == expected.keys()
    for path, leaf in found.items():
      np.testing.assert_array_equal(leaf, expected[path][: len(leaf)], err_msg=path)


def test_a_checkpoint_in_half_precision_is_read_as_float32(tmp_path):
  leaves = {'encoder/x/kernel': np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)}
  save_model(tmp_path, leaves, TINY, None)
  leaf = open_source(tmp_path).tensors['encoder/x/kernel'].read()
  assert leaf.dtype == np.float32
  assert np.array_equal(leaf, [[0, 1, 2], [3, 4, 5]])


def alter(content):
  middle = len(content) // 2
  return content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :]


@pytest.mark.parametrize('damage', [alter, lambda content: content[:100]], ids=['altered', 'truncated'])
def test_a_damaged_parameter_is_a_usage_error(saved, damage):
  model = saved('mlm')
  files = pathlib.Path(model.path, 'state').rglob('d/*')
  largest = max(files, key=lambda file: file.stat().st_size)
  largest.write_bytes(damage(largest.read_bytes()))
  with pytest.raises(UsageError, match='the checkpoint cannot be read'):
    read_all(open_source(model.path))


def test_a_checkpoint_that_a_run_deletes_meanwhile_is_left_for_the_newer_one(saved):
  checkpoints = saved('mlm').workdir / 'checkpoints'
  seen = []

  def read(model):
    seen.append(model.step)
    model.tensors['mlm/bias'].read()
    if model.step < 2:  # the run saves another one and deletes this one
      shutil.copytree(model.path, checkpoints / str(model.step + 1))
      shutil.rmtree(model.path)
    return model.tensors['mlm/norm/bias'].read()

  assert read_newest(checkpoints.parent, None, read).shape == (43,)
  assert seen == [0, 1, 2]


def test_a_checkpoint_that_was_named_is_not_exchanged_for_another(saved):
  model = saved('mlm')
  folder = pathlib.Path(model.path)
  shutil.copytree(folder, folder.parent / '5')

  def read(model):
    shutil.rmtree(folder)
    return model.tensors['mlm/bias'].read()

  with pytest.raises(UsageError, match='cannot be read'):
    read_newest(model.workdir, 0, read)
