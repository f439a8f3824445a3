"""Whole runs: from the sample dumps to a picture; interrupted at any moment, repeated, and misused."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
from etils import epath
from final_states import assert_bitwise_equal, assert_same_run, final_state
from gin_files import head_commands

import rembert
from rembert.checkpoint.load import open_source
from rembert.convert.__main__ import main as convert
from rembert.jobs import pretrain
from rembert.jobs.workdir import locked

STEPS = 60


def test_a_run_learns_and_leaves_what_the_documentation_says(streamed):
  evaluations = [row for row in streamed.metrics() if 'eval/loss' in row]
  assert [row['step'] for row in evaluations] == [20, 40, 60]
  assert evaluations[-1]['eval/loss'] < evaluations[0]['eval/loss'] < np.log(1500) + 0.1
  assert {f'eval/loss/{language}' for language in ('en', 'sw')} <= evaluations[-1].keys()
  assert [row['step'] for row in streamed.metrics() if 'loss' in row] == list(range(7, STEPS, 7))
  for name in ('config.gin', 'operative_config.gin', 'loss.png', 'checkpoints/60', 'vocabulary/sentencepiece.model'):
    assert (streamed.workdir / name).exists(), name
  assert list((streamed.workdir / 'tensorboard').iterdir())
  assert 'train.batch_size = 8' in (streamed.workdir / 'operative_config.gin').read_text()
  assert 'Evaluation after 60 steps' in streamed.output
  assert not list(streamed.workdir.rglob('*.partial'))
  assert 'Goodput: ' in streamed.output
  [session] = json.loads((streamed.workdir / 'goodput.json').read_text())
  assert (session['first_step'], session['last_step']) == (0, STEPS)
  assert all(session['seconds'][name] > 0 for name in ('start', 'compile', 'step', 'evaluation', 'checkpoint'))


# --- interrupted ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  'moment',
  [
    'in a save',
    'before the last save',
    pytest.param('at step 7', marks=pytest.mark.slow),
    pytest.param('after an evaluation', marks=pytest.mark.slow),
  ],
)
def test_a_killed_run_resumes_bitwise(moment, stored, from_store, succeed, tmp_path):
  shutil.copytree(stored.copies[moment], tmp_path / 'run')
  resumed = from_store(tmp_path / 'run')
  succeed(resumed)
  assert_same_run(resumed, stored, STEPS)


def test_a_killed_run_on_streamed_text_resumes_bitwise(streamed, program, succeed, tmp_path):
  shutil.copytree(streamed.copy, tmp_path / 'run')
  resumed = program(tmp_path / 'run')
  assert 'resuming from step 30' in succeed(resumed).stdout
  assert_same_run(resumed, streamed, STEPS)


def terminate(*_) -> None:
  os.kill(os.getpid(), signal.SIGTERM)


def test_a_run_that_is_terminated_in_a_step_and_in_its_last_evaluation_resumes_bitwise(
  stored, from_store, succeed, tmp_path, monkeypatch
):
  stopped = from_store(tmp_path / 'run')
  result = stopped.run(on_log=lambda step, _: step == 35 and terminate())
  assert result.returncode == 75
  assert 'stopped by SIGTERM at step 36, checkpoint saved. Run the same command again to resume.' in result.stdout
  evaluate, calls = pretrain.evaluate, []

  def terminate_the_last(*args, **options):
    calls.append(args)
    if len(calls) == 2:
      terminate()
    return evaluate(*args, **options)

  monkeypatch.setattr(pretrain, 'evaluate', terminate_the_last)
  result = stopped.run()
  assert result.returncode == 75
  assert 'resuming from step 36' in result.stdout
  assert [row['step'] for row in stopped.metrics() if 'eval/loss' in row] == [20, 40]
  succeed(stopped)
  assert len(calls) == 3
  assert_same_run(stopped, stored, STEPS)


def test_a_run_with_a_moving_average_resumes_bitwise_and_evaluates_saves_and_exports_it(
  stored, from_store, succeed, tmp_path
):
  whole, cut = (from_store(tmp_path / name, train__ema_decay=0.9) for name in ('whole', 'cut'))
  result = succeed(whole, on_log=lambda step, _: step == 49 and whole.copy_workdir(cut.workdir, 45))
  assert 'moving average' in result.stdout  # with its bytes per device
  assert 'resuming from step 45' in succeed(cut).stdout
  assert_same_run(cut, whole, STEPS)
  # Training is the same; what is evaluated, loaded and exported is not.
  state, plain = final_state(whole.workdir, STEPS), final_state(stored.workdir, STEPS)
  assert_bitwise_equal(state['params'], plain['params'])
  losses = lambda run: [row['eval/loss'] for row in run.metrics() if 'eval/loss' in row]
  assert len(losses(whole)) == len(losses(stored)) == 3
  assert not set(losses(whole)) & set(losses(stored))
  for ema, tree in (True, 'ema'), (False, 'params'):
    bias = state[tree]['mlm']['norm']['bias']
    np.testing.assert_array_equal(rembert.load(whole.workdir, 'mlm', ema=ema).module.mlm.norm.bias[...], bias)
    folder = tmp_path / f'exported {tree}'
    assert convert(['to_hf', str(whole.workdir), str(folder), *(() if ema else ('--no_ema',))]) == 0
    np.testing.assert_array_equal(open_source(folder).tensors['cls.predictions.LayerNorm.bias'].read(), bias)
  refused = from_store(whole.workdir).run()
  assert refused.returncode == 2
  assert 'train.ema_decay: 0.9 → 0.0' in refused.stderr


@pytest.mark.slow
def test_the_command_in_the_head_of_the_large_run_trains_a_small_model_on_local_dumps(program, root, tmp_path):
  [command] = [words for words in head_commands('gin/pretrain_large.gin') if '--gin.data.source=dumps' in words]
  run = program(tmp_path / 'run', 'gin/pretrain_large.gin', {})
  run.arguments += [word for word in command if word.startswith('--gin.')]
  run.arguments += [f'--gin.data.dumps={root}/tasks/wikipedia/sample', '--gin.train.steps=3', '--gin.train.log_every=1']
  result = run.run_process()
  assert result.returncode == 0, result.stderr
  assert (run.workdir / 'checkpoints' / '3').is_dir()
  assert [row['step'] for row in run.metrics() if 'loss' in row] == [1, 2, 3]
  effective = (run.workdir / 'operative_config.gin').read_text()
  assert "execution.remat = 'full'" in effective
  assert 'mesh.fsdp = -1' in effective


def without_network() -> list[str]:
  """What to put before a command so that it finds no network; the test is skipped where that takes rights."""
  with contextlib.suppress(OSError):
    socket.getaddrinfo('storage.googleapis.com', 443)
    prefix = ['unshare', '--map-root-user', '--net']
    if shutil.which('unshare') and subprocess.run([*prefix, 'true'], capture_output=True, check=False).returncode == 0:
      return prefix
    pytest.skip('there is a network, and it cannot be taken away here')
  return []


@pytest.mark.slow
def test_without_a_network_the_large_run_says_what_is_missing_and_what_to_use_instead(program, tmp_path):
  run = program(tmp_path / 'run', 'gin/pretrain_large.gin', {})
  command = [*without_network(), *run.command]
  result = subprocess.run(command, cwd=run.directory, env=run.environment, capture_output=True, text=True, check=False)
  assert result.returncode == 2, result.stdout
  assert re.search(r'TensorFlow Datasets cannot read wikipedia/20230601\.af and \d+ more', result.stderr)
  for words in (
    'the vocabulary cannot be read',
    'gs://gresearch/rembert/sentencepiece.model',
    '--gin.vocabulary.path=None',
    '--gin.data.source=dumps --gin.data.dumps=FOLDER',
  ):
    assert words in result.stderr
  assert 'Traceback' not in result.stderr


@pytest.mark.slow
def test_a_signal_while_xla_compiles_does_not_wait_for_it(from_store, tmp_path):
  # Forty-eight layers, each compiled by itself: minutes.
  slow = from_store(tmp_path / 'run', RemBertConfig__num_hidden_layers=48, execution__unroll=48)
  slow.environment |= {'JAX_DISABLE_MOST_OPTIMIZATIONS': 'false', 'XLA_FLAGS': ''}
  process = slow.start()
  while 'building the eval set: done' not in slow.log():
    assert process.poll() is None, slow.log()
    time.sleep(0.05)
  time.sleep(2)
  process.send_signal(signal.SIGTERM)
  assert process.wait(timeout=120) == 75
  # It would be "at step 1" if the signal had waited for the first step.
  assert 'stopped by SIGTERM between steps; nothing is lost' in slow.log()


@pytest.mark.slow
def test_programs_that_were_compiled_before_give_the_same_numbers(from_store, tmp_path):
  def run(name):
    program = from_store(tmp_path / name, train__steps=14)
    program.environment |= {
      'JAX_ENABLE_COMPILATION_CACHE': 'true',
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',  # all programs, however fast the machine
      'XDG_CACHE_HOME': str(tmp_path / 'cache'),
    }
    result = program.run_process()
    assert result.returncode == 0, result.stderr
    return program, {file.name: file.stat().st_mtime_ns for file in (tmp_path / 'cache').rglob('*-cache')}

  (first, kept), (second, kept_after) = run('first'), run('second')
  assert any(name.startswith('jit_train_step-') for name in kept)
  assert kept == kept_after
  assert first.metrics() == second.metrics()
  assert_bitwise_equal(final_state(first.workdir, 14), final_state(second.workdir, 14))


# --- repeated, and misused --------------------------------------------------------------------------------------------


def test_a_complete_run_is_not_run_again(stored):
  before = (stored.workdir / 'metrics.jsonl').read_bytes()
  result = stored.run()
  assert result.returncode == 0
  assert 'is complete: 60 steps' in result.stdout
  assert (stored.workdir / 'metrics.jsonl').read_bytes() == before


def test_the_workdir_of_another_model_is_refused(from_store, stored):
  result = from_store(stored.workdir, RemBertConfig__num_hidden_layers=3, train__seed=1).run()
  assert result.returncode == 2
  assert 'RemBertConfig.num_hidden_layers: 2 → 3' in result.stderr
  assert 'train.seed: 0 → 1' in result.stderr


def test_a_locked_workdir_is_refused(from_store, tmp_path):
  with locked(epath.Path(tmp_path), print):
    result = from_store(tmp_path).run()
  assert result.returncode == 2
  assert f'the workdir is locked by process {os.getpid()}' in result.stderr


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(from_store, tmp_path):
  optimizer = {'optimizer__learning_rate': 1e30, 'optimizer__warmup_steps': 20, 'optimizer__clip_norm': 0}
  exploding = from_store(tmp_path / 'run', **optimizer, guards__max_skipped_updates=3)
  result = exploding.run()
  assert result.returncode == 1
  assert 'is not finite, after 3 consecutive skipped updates' in result.stderr
  assert 'update skipped (3 of at most 3 consecutive)' in result.stdout
  assert not list((exploding.workdir / 'checkpoints').glob('[0-9]*'))


# One for the devices, one for the data, one for the vocabulary; test_compile and test_pretrain_data have the others.
@pytest.mark.parametrize(
  ('bindings', 'message'),
  [
    ({'mesh__data': 3}, 'does not cover'),
    ({'data__languages': "('el', 'xx')"}, 'xx'),
    ({'train__sequence_length': 256}, 'max_position_embeddings'),
  ],
)
def test_a_configuration_that_does_not_fit_is_one_message(bindings, message, from_store, tmp_path):
  result = from_store(tmp_path / 'run', **bindings).run()
  assert result.returncode == 2, result.stdout
  assert message in result.stderr
  assert 'fix' in result.stderr


def test_a_vocabulary_too_large_for_the_corpus_is_one_message(program, streamed, tmp_path):
  corpus = {'data__languages': None, 'data__corpus': streamed.workdir / 'corpus'}
  result = program(tmp_path / 'run', **corpus, RemBertConfig__vocab_size=60_000).run()
  assert result.returncode == 2, result.stdout
  assert 'supports a vocabulary of' in result.stderr
