"""What is shown of many runs."""

import io
import json

import pytest
import rich.console
from etils import epath

from launch import progress as progress_module
from launch.experiment import Run
from launch.progress import ProgressView, RunProgress, RunState, last_metrics, seconds_left, summary
from rembert.tracking.console import Console


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
  monkeypatch.setattr(progress_module.time, 'monotonic', lambda: 1000.0)
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
  monkeypatch.setattr(progress_module.time, 'monotonic', lambda: next(clock))
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
