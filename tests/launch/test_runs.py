"""What is kept of a run, and in which order runs can be made."""

import subprocess
import sys

import pytest
from etils import epath

from launch import runs
from launch.runs import Record, Run, code_version, in_order, seconds
from rembert.errors import UsageError


def test_a_run_is_done_when_its_last_start_ended_well(tmp_path):
  run = Run('xnli', epath.Path(tmp_path), ('--gin.train.seed=0',))
  assert run.record() is None
  assert not run.is_done()
  record = Record(run, {'version': '1'})
  record.began()
  assert not run.is_done()
  record.ended(143, 'killed')
  assert run.record()['reason'] == 'killed'
  record = Record(run, {'version': '2'})
  record.began()
  record.ended(0)
  assert run.is_done()
  content = run.record()
  assert [start['exit_code'] for start in content['starts']] == [143, 0]
  assert content['code'] == {'version': '2'}
  assert content['arguments'] == ['--gin.train.seed=0']
  assert content['reason'] == ''
  assert 0 <= seconds(content) < 60


def test_a_workdir_of_other_arguments_is_refused_with_what_has_changed(tmp_path):
  run = Run('xnli', epath.Path(tmp_path), ('--gin_file=a.gin', '--gin.train.seed=0'))
  other = Run('xnli', epath.Path(tmp_path), ('--gin_file=a.gin', '--gin.train.seed=1'))
  record = Record(run, {})
  record.began()
  other.check()
  record.ended(0)
  run.check()
  with pytest.raises(UsageError, match=r'with other arguments: - --gin.train.seed=0, \+ --gin.train.seed=1'):
    other.check()


def test_stages_have_all_that_is_needed_before(tmp_path):
  of = lambda name, *needs: Run(name, epath.Path(tmp_path / name), (), needs)
  stages = in_order([of('d', 'b', 'c'), of('a'), of('b', 'a'), of('c', 'a'), of('e')])
  assert [[run.name for run in stage] for stage in stages] == [['a', 'e'], ['b', 'c'], ['d']]
  with pytest.raises(ValueError, match='nobody'):
    in_order([of('a', 'z')])


def test_the_code_is_known_by_its_commit_and_an_installed_copy_by_its_version(tmp_path, monkeypatch):
  package = tmp_path / 'rembert' / '__init__.py'
  package.parent.mkdir()
  package.write_text('')
  monkeypatch.setattr(runs.rembert, '__file__', str(package))
  assert code_version() == {'version': runs.rembert.__version__, 'commit': None, 'dirty': None}
  git = lambda *arguments: subprocess.run(['git', *arguments], cwd=tmp_path, check=True, capture_output=True)
  git('init', '-q')
  git('add', '.')
  git('-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '-qm', 'x')
  known = code_version()
  assert len(known['commit']) == 40
  assert known['dirty'] is False
  package.write_text('x = 1')
  assert code_version()['dirty'] is True


def test_the_command_is_of_this_python(tmp_path):
  assert Run('a', epath.Path(tmp_path), ('--x',)).command == [sys.executable, '-m', 'rembert.main', '--x']
