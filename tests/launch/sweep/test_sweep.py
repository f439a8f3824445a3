"""The command as a whole: what it refuses, and a sweep that is killed, repeated, and told in a report."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from launch.sweep.__main__ import main

ROOT = pathlib.Path(__file__).parents[3]
MODEL = """
include 'gin/pretrain_smoke.gin'
RemBertConfig.vocab_size = 1500
RemBertConfig.num_hidden_layers = 2
RemBertConfig.hidden_size = 32
RemBertConfig.num_attention_heads = 4
RemBertConfig.intermediate_size = 64
RemBertConfig.input_embedding_size = 16
RemBertConfig.output_embedding_size = 48
RemBertConfig.max_position_embeddings = 64
data.source = 'store'
data.languages = None
train.steps = 600
train.batch_size = 4
train.sequence_length = 64
train.eval_every = 300
train.eval_rows = 4
train.checkpoint_every = 100
train.log_every = 50
optimizer.warmup_steps = 4
"""
LEARNING = """
train.batch_size = 4
train.sequence_length = 64
finetune.epochs = 1
finetune.judge_batch_size = 4
"""


@pytest.fixture
def arguments(tmp_path, small_store, xtreme_samples):
  """A sweep of two models, one task, one seed."""
  (tmp_path / 'model.gin').write_text(MODEL)
  (tmp_path / 'learning.gin').write_text(LEARNING)
  return [
    str(tmp_path / 'model.gin'),
    '--grid=RemBertConfig.output_embedding_size=48,96',
    f'--gin.data.store={small_store.folder}',
    f'--data_dir={xtreme_samples.root}',
    '--tasks=panx',
    '--seeds=0',
    f'--finetune_gin_file={tmp_path / "learning.gin"}',
    f'--workdir={tmp_path / "sweep"}',
  ]


def test_a_dry_run_prints_the_commands_in_stages_and_writes_nothing(arguments, tmp_path, capsys):
  assert main([*arguments, '--dry_run', '--finetune_gin.train.log_every=5', '--gin.train.log_every=7']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert [line for line in lines if line.startswith('#')] == [
    '# 4 run(s), 0 of them done',
    '# stage 1 of 2',
    '# stage 2 of 2',
  ]
  commands = [line for line in lines if line.startswith('python -m rembert.main ')]
  assert [command.count('train.log_every=7') for command in commands] == [1, 1, 0, 0]
  assert [command.count('train.log_every=5') for command in commands] == [0, 0, 1, 1]
  assert all('--gin.guards.diverged_nats=1.0' in command for command in commands[:2])
  assert not (tmp_path / 'sweep').exists()


def test_a_scale_is_a_file_for_each_kind_of_run(arguments, capsys):
  experiment = ['gin/experiments/table4/in128_out128.gin', *arguments[2:], '--scale=mini', '--dry_run']
  assert main(experiment) == 0
  pretraining, learned = [line for line in capsys.readouterr().out.splitlines() if line.startswith('python')]
  assert '--gin_file=gin/scales/mini.gin' in pretraining
  assert '--gin_file=gin/scales/finetuning/mini.gin' in learned


@pytest.mark.parametrize(
  ('change', 'code', 'said'),
  [
    (['--tasks=glue'], 2, 'unknown task glue'),
    (['--gin.train.nothing=1'], 2, 'unknown name'),
    (['--grid=x'], 2, 'no axis of a grid: x'),
    (['--learning_rates=fast'], 2, 'table10, or numbers'),
    (['--seed=0'], 2, 'unknown argument --seed=0'),
    (['--side_by_side=100000'], 2, 'runs side by side on'),
    (['gin/no_such.gin'], 2, 'no gin file gin/no_such.gin'),
  ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(arguments, tmp_path, change, code, said, capsys):
  try:
    # A file has to stand beside the other; of an option given twice the last one counts.
    ended_with = main([*change, *arguments] if change[0].endswith('.gin') else [*arguments, *change])
  except SystemExit as end:
    ended_with = end.code
  assert ended_with == code
  assert said in capsys.readouterr().err
  assert not (tmp_path / 'sweep').exists()


def test_data_is_asked_for_where_something_is_learned(arguments, capsys):
  without = [argument for argument in arguments if not argument.startswith('--data_dir')]
  with pytest.raises(SystemExit):
    main([*without, '--dry_run'])
  assert '--data_dir=DIR is missing' in capsys.readouterr().err
  assert main([*without, '--tasks=', '--dry_run']) == 0
  assert '# 2 run(s)' in capsys.readouterr().out


@pytest.mark.slow
def test_a_sweep_is_killed_repeated_and_told_in_a_report(arguments, tmp_path):
  sweep = tmp_path / 'sweep'
  command = [sys.executable, '-m', 'launch.sweep', *arguments]
  first = sweep / 'pretrained' / 'model-output_embedding_size=48' / 'seed_0'
  with open(tmp_path / 'output', 'wb') as output:
    process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
  deadline = time.monotonic() + 300
  while not (first / 'checkpoints' / '100').exists():  # in the middle of the first pre-training
    assert process.poll() is None, (tmp_path / 'output').read_text()
    assert time.monotonic() < deadline
    time.sleep(0.02)
  os.kill(process.pid, signal.SIGKILL)
  process.wait()

  result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
  assert result.returncode == 0, result.stdout + result.stderr
  assert '4 run(s), 0 of them done' in result.stdout
  assert 'resuming from step' in (first / 'log.txt').read_text()
  starts = json.loads((first / 'run.json').read_text())['starts']
  assert starts[-1]['exit_code'] == 0
  assert len(starts) == 2
  content = json.loads((sweep / 'sweep.json').read_text())
  for model in content['models']:
    [learned] = model['learned']
    results = json.loads((sweep / learned['workdir'] / 'results.json').read_text())
    assert set(results['tasks']['panx']) == {'de', 'en', 'zh'}
  page = (sweep / 'report' / 'index.html').read_text()
  assert 'model-output_embedding_size=96' in page

  again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
  assert again.returncode == 0, again.stdout + again.stderr
  assert '4 run(s), 4 of them done' in again.stdout
  assert len(json.loads((first / 'run.json').read_text())['starts']) == 2
