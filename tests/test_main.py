"""The command line: it teaches, it is light, and it ends with the right code."""

import os
import pathlib
import subprocess
import sys

import pytest

from rembert import main
from rembert.errors import RunError
from rembert.runtime.signals import Stopped

ROOT = pathlib.Path(__file__).parent.parent
GIN_FILES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob('gin/pretrain_*.gin'))


def run(*arguments, cwd=ROOT, **environment):
  return subprocess.run(
    [sys.executable, *arguments],
    cwd=cwd,
    env=os.environ | {'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT), **environment},
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )


def test_a_dry_run_needs_neither_data_nor_tensorflow_nor_arrays(tmp_path):
  """Every gin file of pre-training, one after the other in one process."""
  code = (
    'import sys, rembert.main\n'
    f'codes = [rembert.main.main(["--gin_file=" + name, "--dry_run"]) for name in {GIN_FILES!r}]\n'
    'assert not any(codes), codes\n'
    'import jax\n'
    'assert not jax.live_arrays()\n'
    'assert not {"tensorflow", "seqio", "t5"} & set(sys.modules)'
  )
  result = run('-c', code, cwd=tmp_path)
  assert result.returncode == 0, result.stderr
  assert result.stdout.count('pre-training') >= len(GIN_FILES)
  assert not list(tmp_path.iterdir())
  assert '994,591,804' in result.stdout  # pretrain_large is the released model
  assert '575,920,384' in result.stdout


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ([], '--gin_file=FILE is missing'),
    (['--gin_file=gin/pretrain_smoke.gin', '--steps=3'], 'unknown argument --steps=3'),
    (['--gin_file=gin/pretrain_smoke.gin', '--gin.train.steps'], '--gin.NAME.FIELD=VALUE'),
    (['--gin_fil=gin/pretrain_smoke.gin'], 'did you mean --gin_file?'),
    (['--gin_file=gin/pretrain_smoke.gin', '--mode=dance'], "invalid choice: 'dance'"),
  ],
)
def test_wrong_usage_exits_with_2(arguments, message, capsys):
  with pytest.raises(SystemExit) as end:
    main.main(arguments)
  assert end.value.code == 2
  assert message in capsys.readouterr().err


@pytest.mark.parametrize(
  ('gin_file', 'arguments', 'what', 'fix'),
  [
    ('pretrain_smoke', ['--gin.train.stepz=3'], 'rembert: unknown name train.stepz', 'did you mean train.steps?'),
    ('finetune_panx', ['--mode=pretrain'], 'the gin files are for --mode=finetune, not --mode=pretrain', 'omit --mode'),
    ('evaluate_tatoeba', ['--mode=compile', '--topology=cpu:8'], '--mode=evaluate, not', 'gin/pretrain_….gin'),
    (
      'pretrain_smoke',
      ['--gin.train.batch_size=30', '--gin.train.accumulation_steps=4'],
      'a batch of 30 sequences cannot be divided over 4 accumulation steps',
      '--gin.train.batch_size=32',
    ),
    ('pretrain_smoke', ['--gin.train.init_from=runs/absent'], 'no model found', 'name a workdir'),
    ('pretrain_smoke', ['--workdir=/proc/run'], 'the workdir cannot be written to', '--workdir=DIR'),
    ('finetune_panx', ['--mode=evaluate'], 'evaluate.model is not set', '--gin.evaluate.model=WORKDIR'),
    ('evaluate_tatoeba', ['--gin.evaluate.model=runs/absent'], 'no model found', 'name a workdir'),
    ('analyze_edge_probing', [], 'analyze.model is not set', '--gin.analyze.model=WORKDIR'),
  ],
)
def test_a_dry_run_refuses_what_the_run_would(gin_file, arguments, what, fix, capsys):
  assert main.main([f'--gin_file=gin/{gin_file}.gin', *arguments, '--dry_run']) == 2
  error = capsys.readouterr().err
  assert what in error
  assert fix in error


def test_a_dry_run_says_what_it_did_not_look_at_and_that_a_warm_up_is_too_long(capsys):
  assert main.main(['--gin_file=gin/pretrain_smoke.gin', '--gin.train.steps=50', '--dry_run']) == 0
  said = capsys.readouterr().out
  assert 'Not checked: data and devices' in said
  assert 'warmup 100 steps, ends at 0.00075' in said


def raise_error(error):
  raise error


def test_a_run_that_fails_exits_with_1(monkeypatch, capsys):
  monkeypatch.setattr(main, 'run', lambda *_: raise_error(RunError('the loss is not finite')))
  assert main.main(['--gin_file=gin/pretrain_smoke.gin']) == 1
  assert capsys.readouterr().err == 'rembert: the loss is not finite\n'


def test_a_run_that_is_stopped_while_there_is_nothing_to_save_exits_with_75(monkeypatch, capsys):
  monkeypatch.setattr(main, 'run', lambda *_: raise_error(Stopped('SIGTERM')))
  monkeypatch.setattr(os, '_exit', lambda code: raise_error(SystemExit(code)))
  with pytest.raises(SystemExit) as end:
    main.main(['--gin_file=gin/pretrain_smoke.gin'])
  assert end.value.code == 75
  assert 'stopped by SIGTERM' in capsys.readouterr().err
