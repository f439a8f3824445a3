"""Runs of an experiment: their commands and records, and what is shown of many."""

import io
import json
import subprocess
import sys

import pytest
import rich.console
from etils import epath

from launch import experiment
from launch.experiment import (
  ProgressView,
  Run,
  RunProgress,
  RunState,
  code_version,
  last_metrics,
  seconds_left,
  summary,
)
from rembert.errors import UsageError
from rembert.tracking.console import Console


def test_a_run_is_done_when_its_last_start_ended_well(tmp_path):
  run = Run('xnli', epath.Path(tmp_path), ('--gin.train.seed=0',))
  assert run.record() is None
  assert not run.is_done()
  run.record_start({'version': '1'})
  assert not run.is_done()
  run.record_end(143, 'killed')
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
  with pytest.raises(UsageError, match='in another order'):  # of gin files the later one wins
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


def test_the_command_is_of_this_python(tmp_path):
  assert Run('a', epath.Path(tmp_path), ('--x',)).command == [sys.executable, '-m', 'rembert.main', '--x']


# --- progress ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def progress(tmp_path):
  """A run in a state; done ones took so many seconds."""

  def make(name, state, took=None, **options):
    run = Run(name, epath.Path(tmp_path / name), ())
    if took is not None:
      run.workdir.mkdir(parents=True)
      end = f'2030-01-01T00:{took // 60:02d}:{took % 60:02d}.000+00:00'
      starts = [{'began': '2030-01-01T00:00:00.000+00:00', 'ended': end, 'exit_code': 0}]
      (run.workdir / 'run.json').write_text(json.dumps({'starts': starts}))
    return RunProgress(run, state, **options)

  return make


def test_time_left_is_what_runs_of_the_same_kind_took(progress, monkeypatch):
  monkeypatch.setattr(experiment.time, 'monotonic', lambda: 1000.0)
  runs = [
    progress('pretrain a', RunState.DONE, took=100),
    progress('pretrain b', RunState.DONE, took=200),
    progress('xnli a', RunState.DONE, took=30),
    progress('pretrain c', RunState.RUNNING, began=960.0),
    progress('xnli b', RunState.WAITING),
    progress('udpos b', RunState.WAITING),
    progress('xnli c', RunState.LEFT_OUT),
  ]
  assert seconds_left(runs) == pytest.approx((150 - 40) + 30 + 110)
  assert summary(runs, 2, 65.0) == ('3 of 7 done · 2 waiting · 1 running · 1 left out · 1:05 so far · about 2:05 left')
  assert seconds_left(runs[3:]) is None


def test_the_last_whole_line_of_the_metrics_counts(tmp_path):
  folder = epath.Path(tmp_path)
  assert last_metrics(folder) == ''
  rows = [{'step': step, 'loss': 9 - step / 1000, 'tokens_per_second': 12345.6} for step in range(0, 1001, 50)]
  text = '\n'.join(map(json.dumps, rows)) + '\n' + '{"step": 1001, "eval/loss": 1}\n' + '{"step": 1050, "lo'
  (tmp_path / 'metrics.jsonl').write_text(text)
  assert last_metrics(folder) == 'step 1,000 · loss 8.000 · 12,346 tokens/s'


def test_a_log_has_a_line_for_every_change_and_now_and_then_what_runs(progress, monkeypatch):
  clock = iter(float(second) for second in range(0, 1000, 40))
  monkeypatch.setattr(experiment.time, 'monotonic', lambda: next(clock))
  output = io.StringIO()
  console = Console(console=rich.console.Console(file=output, width=100))
  running = progress('pretrain a', RunState.RUNNING)
  with ProgressView(console, 1) as view:
    view.changed(running)
    view.update([running])
    view.update([running])
    view.changed(progress('xnli a', RunState.DONE, took=61))
    view.changed(progress('xnli b', RunState.FAILED, note='ended with 1: no space left'))
  lines = output.getvalue().splitlines()
  assert lines[0] == 'running · pretrain a'
  assert lines[1].startswith('  pretrain a · ')
  assert lines[2].startswith('  0 of 1 done · 1 running · ')
  assert lines[3:] == ['done · xnli a · 1:01', 'failed · xnli b · ended with 1: no space left']


def test_a_terminal_shows_what_runs_and_what_went_wrong_first(progress):
  output = io.StringIO()
  console = Console(console=rich.console.Console(file=output, width=120, height=16, force_terminal=True))
  waiting = [progress(f'xnli {number}', RunState.WAITING) for number in range(40)]
  runs = [*waiting, progress('pretrain a', RunState.RUNNING), progress('panx b', RunState.FAILED, note='full disk')]
  with ProgressView(console, 1) as view:
    table = view.table(runs)
  assert table.row_count == 8
  names = list(table.columns[0].cells)
  assert names[:3] == ['pretrain a', 'panx b', 'xnli 0']
  assert list(table.columns[3].cells)[1] == 'full disk'
  assert '0 of 42 done · 40 waiting · 1 running · 1 failed' in table.caption
