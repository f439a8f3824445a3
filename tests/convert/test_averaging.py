"""Averages of checkpoints against NumPy in float64, and what cannot be averaged."""

import dataclasses
import shutil

import numpy as np
import pytest
from etils import epath
from random_checkpoints import TINY, random_leaves

from rembert.checkpoint.load import import_model, open_source, save_model
from rembert.convert.__main__ import main

CONFIG = dataclasses.replace(TINY, vocab_size=700)


@pytest.fixture(scope='module')
def runs(random_run, tmp_path_factory):
  """Two runs with a vocabulary; what is random in the second is not what it is in the first."""
  folder = tmp_path_factory.mktemp('runs')
  for number, name in enumerate(('first', 'second')):
    leaves = {path: leaf + number for path, leaf in random_leaves(CONFIG, 'mlm', has_pooler=False).items()}
    save_model(folder / name, leaves, CONFIG, 'mlm', seed=number, kind='test', vocabulary='its SHA-256')
    shutil.copytree(random_run / 'vocabulary', folder / name / 'vocabulary')
  return epath.Path(folder)


def leaves_of(path):
  return import_model(open_source(path)).leaves


def test_every_parameter_is_the_weighted_mean(runs, tmp_path, capsys):
  sources, shares = [str(runs / name) for name in ('first', 'second')], [0.75, 0.25]
  assert main(['average', *sources, f'--output={tmp_path}/mean', '--weights=3,1']) == 0
  printed = capsys.readouterr().out
  for name, share in zip(('first', 'second'), shares, strict=True):
    assert f'{name}, step 0' in printed
    assert f'{share:.4g}' in printed
  found, parts = leaves_of(tmp_path / 'mean'), [leaves_of(source) for source in sources]
  assert found.keys() == parts[0].keys()
  for path, leaf in found.items():
    expected = sum(share * part[path].astype(np.float64) for share, part in zip(shares, parts, strict=True))
    np.testing.assert_array_equal(leaf, expected.astype(np.float32), err_msg=path)
  averaged = open_source(tmp_path / 'mean')
  assert averaged.config == CONFIG
  assert averaged.vocabulary.read_bytes() == (runs / 'first' / 'vocabulary' / 'sentencepiece.model').read_bytes()
  assert averaged.meta['kind'] == 'test'  # what all agree in
  assert 'seed' not in averaged.meta
  assert averaged.meta['averaged_weights'] == shares


def test_checkpoints_of_one_run_are_named_by_their_steps_and_count_equally(runs, tmp_path):
  run = tmp_path / 'run'
  shutil.copytree(runs / 'first', run)
  shutil.copytree(runs / 'second' / 'checkpoints' / '0', run / 'checkpoints' / '4')
  assert main(['average', str(run), '--steps=0,4', f'--output={tmp_path}/mean']) == 0
  first, second, mean = (leaves_of(path) for path in (runs / 'first', runs / 'second', tmp_path / 'mean'))
  name = 'encoder/embeddings/word/embedding'
  np.testing.assert_array_equal(mean[name], ((first[name].astype(np.float64) + second[name]) / 2).astype(np.float32))
  assert open_source(tmp_path / 'mean').meta['averaged_from'] == ['run, step 0', 'run, step 4']


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    (['first', 'smaller'], 'different architecture and tensors and vocabulary'),
    (['first', 'second', '--weights=1'], '1 weights for 2 checkpoints'),
    (['first', 'second', '--weights=0,0'], 'the weights are all 0'),
    (['first', 'second', '--steps=0'], 'steps of several runs'),
    (['first', '--steps=0,9'], 'no checkpoint of step 9'),
    (['first', 'nowhere'], 'no model found'),
    (['first', 'second', '--output=second'], 'the destination holds checkpoints'),
  ],
  ids=lambda part: ' '.join(part) if isinstance(part, list) else '',
)
def test_what_cannot_be_averaged_is_refused_and_nothing_is_written(
  runs, tmp_path, monkeypatch, capsys, arguments, words
):
  shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
  monkeypatch.chdir(tmp_path)
  smaller = dataclasses.replace(CONFIG, num_hidden_layers=2)
  save_model('smaller', random_leaves(smaller, 'mlm', has_pooler=False), smaller, 'mlm')
  before = sorted(tmp_path.rglob('*'))
  assert main(['average', '--output=new', *arguments]) == 2
  error = capsys.readouterr().err
  assert words in error
  assert '  fix ' in error
  assert sorted(tmp_path.rglob('*')) == before


@pytest.mark.parametrize('flag', ['--weights=1,-1', '--weights=1,nan', '--steps=1,x', '--steps='])
def test_numbers_out_of_range_are_refused(flag, capsys):
  with pytest.raises(SystemExit) as stopped:
    main(['average', 'first', 'second', '--output=new', flag])
  assert stopped.value.code == 2
  assert 'must be a' in capsys.readouterr().err
