"""The whole benchmark from one command: what is planned, what is chosen, what is shown."""

import json
import shutil

import pytest
from etils import epath

from launch import xtreme
from launch.experiment import Run, TaskRun
from launch.scheduler import RunProgress, RunState
from launch.xtreme import collect_scores, main
from rembert.tracking.console import Console


@pytest.fixture
def planned_commands(xtreme_samples, tmp_path, capsys):
  """Arguments to the commands that would be run, and all that was printed."""

  def plan(*arguments):
    required = ['--init=MODEL', f'--data_dir={xtreme_samples.root}', f'--workdir={tmp_path}', '--dry_run']
    assert main([*required, *arguments]) == 0
    printed = capsys.readouterr().out
    return [line for line in printed.splitlines() if line.startswith('python -m rembert.main')], printed

  return plan


def test_every_task_with_data_is_run_for_every_seed(planned_commands):
  commands, printed = planned_commands()
  for task in ('xnli', 'pawsx', 'udpos', 'panx', 'squad', 'tydiqa'):
    assert sum(f'gin/finetune_{task}.gin' in command for command in commands) == 3
  assert sum('gin/evaluate_tatoeba.gin' in command for command in commands) == 1
  assert f'{len(commands)} run(s), 0 already done' in printed
  assert len({command.split('--workdir=')[1].split()[0] for command in commands}) == len(commands)


def test_learning_rates_are_those_of_table_10(planned_commands):
  commands, _ = planned_commands('--learning_rates=table10', '--seeds=7', '--tasks=xnli,panx,udpos')
  rates = lambda task: [
    command.split('learning_rate=')[1].split()[0]
    for command in commands
    if f'finetune_{task}' in command and 'learning_rate=' in command
  ]
  assert rates('xnli') == ['1e-05', '2e-05', '3e-05']
  assert rates('panx') == ['1e-05', '2e-05', '3e-05', '4e-05', '5e-05']
  assert rates('udpos') == []  # the paper has no sweep for it
  assert all('--gin.train.seed=7' in command for command in commands)


def test_bindings_and_files_reach_what_is_learned_and_not_retrieval(planned_commands, tmp_path):
  small = tmp_path / 'small.gin'
  small.write_text('train.log_every = 5\n')
  commands, _ = planned_commands('--tasks=xnli,tatoeba', '--seeds=0', f'--gin_file={small}', '--gin.train.batch_size=8')
  learned, retrieved = commands
  assert f'--gin_file={small}' in learned
  assert '--gin.train.batch_size=8' in learned
  assert 'small.gin' not in retrieved


def test_tasks_without_data_are_skipped_with_the_reason(tmp_path, xtreme_samples, capsys):
  data = tmp_path / 'data'
  shutil.copytree(xtreme_samples.root / 'udpos', data / 'udpos')
  (data / 'udpos' / 'train-en.tsv').unlink()
  shutil.copytree(xtreme_samples.root / 'tatoeba', data / 'tatoeba')
  assert main(['--init=MODEL', f'--data_dir={data}', f'--workdir={tmp_path}', '--dry_run']) == 0
  printed = capsys.readouterr().out
  assert 'skipped: udpos (no training data)' in printed
  assert 'skipped: bucc2018 (no data)' in printed
  assert 'gin/evaluate_tatoeba.gin' in printed
  shutil.rmtree(data / 'tatoeba')
  assert main(['--init=MODEL', f'--data_dir={data}', f'--workdir={tmp_path}', '--dry_run']) == 2
  assert 'no data found for any task' in capsys.readouterr().err


def results_of(folder, dev, accuracy):
  folder.mkdir(parents=True)
  by_language = {language: {'scores': {'accuracy': score}} for language, score in accuracy.items()}
  (folder / 'results.json').write_text(json.dumps({'dev': {'accuracy': dev}, 'tasks': {'xnli': by_language}}))
  return folder


def test_the_learning_rate_is_chosen_by_dev_over_all_seeds(tmp_path):
  made = [
    TaskRun(_run(f'{rate:g} · {seed}', tmp_path / f'{rate}-{seed}'), 'xnli', seed, rate)
    for rate in (1e-5, 2e-5, 3e-5)
    for seed in (0, 1)
  ]
  devs = (60.0, 70.0, 66.0, 66.0, 10.0, 100.0)
  for each, dev in zip(made, devs, strict=True):
    results_of(each.run.workdir, dev, {'en': 50.0 + each.seed, 'de': each.learning_rate * 1e6})
  done = {each.run.name for each in made[:5]}
  by_task, missing = collect_scores(made, done, {'panx': 'no data'}, Console(is_quiet=True))
  assert [run['de']['accuracy'] for run in by_task['xnli']] == [pytest.approx(20.0)] * 2
  assert missing == {'panx': 'no data'}
  assert collect_scores(made, set(), {}, Console(is_quiet=True)) == ({}, {'xnli': 'failed'})


def test_the_exit_code_is_1_if_a_run_has_failed(tmp_path, xtreme_samples, monkeypatch):
  def run_all(runs, slots, workdir, console):
    for run in runs:
      results_of(run.workdir, 50.0, {'en': 50.0, 'de': 40.0})
    ends = [RunState.DONE, RunState.FAILED, RunState.DONE]
    return [RunProgress(run, end) for run, end in zip(runs, ends, strict=True)], True

  monkeypatch.setattr(xtreme, 'run_all', run_all)
  arguments = ['--init=MODEL', f'--data_dir={xtreme_samples.root}', f'--workdir={tmp_path}', '--tasks=xnli']
  assert main(arguments) == 1
  assert json.loads((tmp_path / 'xtreme.json').read_text())['scores']['xnli']['score'] == 45.0


def _run(name, folder):
  return Run(name, epath.Path(folder), ())
