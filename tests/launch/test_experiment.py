"""Runs of an experiment: their commands and records."""

import subprocess

import pytest
from etils import epath

from launch import experiment
from launch.experiment import Run, code_version
from rembert.errors import UsageError


def test_a_run_is_done_when_its_last_start_ended_well(tmp_path):
  run = Run('xnli', epath.Path(tmp_path), ('--gin.train.seed=0',))
  assert run.record() == {'starts': []}
  assert not run.is_done()
  run.record_start({'version': '1'})
  assert not run.is_done()
  run.record_end(143, 'killed')
  assert not run.is_done()
  assert run.record()['reason'] == 'killed'
  run.record_start({'version': '2'})
  run.record_end(0)
  assert run.is_done()
  content = run.record()
  assert [start['exit_code'] for start in content['starts']] == [143, 0]
  assert content['code'] == {'version': '2'}
  assert content['arguments'] == ['--gin.train.seed=0']
  assert content['reason'] == ''
  assert 0 <= run.seconds() < 60


def test_a_workdir_of_other_arguments_is_refused_with_what_has_changed(tmp_path):
  run = Run('xnli', epath.Path(tmp_path), ('--gin_file=a.gin', '--gin.train.seed=0'))
  other = Run('xnli', epath.Path(tmp_path), ('--gin_file=a.gin', '--gin.train.seed=1'))
  run.record_start({})
  other.check()
  run.record_end(0)
  run.check()
  with pytest.raises(UsageError, match=r'with other arguments: - --gin.train.seed=0, \+ --gin.train.seed=1'):
    other.check()
  with pytest.raises(UsageError, match='another order of arguments'):  # of gin files the later one wins
    Run('xnli', epath.Path(tmp_path), run.arguments[::-1]).check()


def test_the_code_is_known_by_its_commit_and_an_installed_copy_by_its_version(tmp_path, monkeypatch):
  package = tmp_path / 'rembert' / '__init__.py'
  package.parent.mkdir()
  package.write_text('')
  monkeypatch.setattr(experiment.rembert, '__file__', str(package))
  assert code_version() == {'version': experiment.rembert.__version__, 'commit': None, 'dirty': None}
  git = lambda *arguments: subprocess.run(['git', *arguments], cwd=tmp_path, check=True, capture_output=True)
  git('init', '-q')
  git('add', '.')
  git('-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '-qm', 'x')
  known = code_version()
  assert len(known['commit']) == 40
  assert known['dirty'] is False
  package.write_text('x = 1')
  assert code_version()['dirty'] is True
