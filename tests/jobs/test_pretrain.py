"""Whole runs: from the sample dumps to a picture; killed, stopped, repeated, and misused."""

import json
import signal
import subprocess
import time

import numpy as np
import pytest
from final_states import assert_bitwise_equal, final_state

from rembert.main import main


def test_a_run_learns_and_leaves_what_the_documentation_says(uninterrupted):
  evaluations = [row for row in uninterrupted.metrics() if 'eval/loss' in row]
  assert [row['step'] for row in evaluations] == [80, 160, 240]
  assert evaluations[-1]['eval/loss'] < evaluations[0]['eval/loss'] < np.log(1500)
  assert {f'eval/loss/{language}' for language in ('en', 'sw')} <= evaluations[-1].keys()
  training = [row['step'] for row in uninterrupted.metrics() if 'loss' in row]
  assert training == list(range(7, 240, 7))
  for name in ('config.gin', 'operative_config.gin', 'loss.png', 'checkpoints/240', 'vocabulary/sentencepiece.model'):
    assert (uninterrupted.workdir / name).exists(), name
  assert list((uninterrupted.workdir / 'tensorboard').iterdir())
  assert 'train.batch_size = 8' in (uninterrupted.workdir / 'operative_config.gin').read_text()
  assert 'Held-out text after 240 steps' in uninterrupted.output
  assert not list(uninterrupted.workdir.rglob('*.partial'))


@pytest.mark.parametrize('step', [40, pytest.param(130, marks=pytest.mark.slow)])
def test_a_killed_run_goes_on_bitwise(step, program, uninterrupted, tmp_path):
  killed = program(tmp_path / 'run')
  assert killed.stop_when(lambda: killed.steps_logged() >= step, signal.SIGKILL) == -signal.SIGKILL
  assert killed.run().returncode == 0
  assert killed.metrics() == uninterrupted.metrics()
  assert_bitwise_equal(final_state(killed.workdir, 240), final_state(uninterrupted.workdir, 240))


def test_a_terminated_run_saves_says_so_and_goes_on_bitwise(program, uninterrupted, tmp_path):
  stopped = program(tmp_path / 'run')
  assert stopped.stop_when(lambda: stopped.steps_logged() >= 90, signal.SIGTERM) == 75
  assert 'Repeat the command to go on' in stopped.log()
  result = stopped.run()
  assert result.returncode == 0, result.stderr
  assert 'resuming from step' in result.stdout
  assert stopped.metrics() == uninterrupted.metrics()
  assert_bitwise_equal(final_state(stopped.workdir, 240), final_state(uninterrupted.workdir, 240))


MOMENTS = {
  'making the corpus': lambda run: run.workdir.exists(),
  'training the vocabulary': lambda run: (run.workdir / 'corpus' / 'corpus.json').exists(),
  'compiling': lambda run: 'held-out rows: done' in run.log(),
  'about to evaluate': lambda run: run.steps_logged() >= 77,
  'in the middle of a save': lambda run: any((run.workdir / 'checkpoints').glob('*tmp*')),
}


@pytest.mark.slow
@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize('moment', MOMENTS)
def test_a_run_cut_off_at_its_weak_moments_goes_on_bitwise(moment, number, program, uninterrupted, tmp_path):
  cut = program(tmp_path / 'run')
  assert cut.stop_when(lambda: MOMENTS[moment](cut), number) == (75 if number == signal.SIGTERM else -number)
  result = cut.run()
  assert result.returncode == 0, result.stderr
  assert cut.metrics() == uninterrupted.metrics()
  assert_bitwise_equal(final_state(cut.workdir, 240), final_state(uninterrupted.workdir, 240))


@pytest.mark.slow
def test_a_run_cut_off_again_and_again_at_any_time_ends_as_if_nothing_had_happened(program, uninterrupted, tmp_path):
  random = np.random.default_rng()
  cut, cuts = program(tmp_path / 'run'), []
  for _ in range(8):
    process = cut.start()
    after = random.uniform(1, uninterrupted.seconds)
    number = signal.SIGKILL if random.random() < 0.5 else signal.SIGTERM
    try:
      assert process.wait(timeout=after) == 0, cut.log()
    except subprocess.TimeoutExpired:
      cuts.append((round(after, 3), number.name))
      process.send_signal(number)
      assert process.wait(timeout=120) in (0, 75, -signal.SIGKILL), (cuts, cut.log())
  result = cut.run()
  assert result.returncode == 0, (cuts, result.stderr)
  assert cut.metrics() == uninterrupted.metrics(), cuts
  assert_bitwise_equal(final_state(cut.workdir, 240), final_state(uninterrupted.workdir, 240))


def test_a_finished_run_is_not_run_again(program, uninterrupted):
  before = (uninterrupted.workdir / 'metrics.jsonl').read_bytes()
  result = uninterrupted.run()
  assert result.returncode == 0
  assert 'is complete: 240 steps' in result.stdout
  assert (uninterrupted.workdir / 'metrics.jsonl').read_bytes() == before


def test_the_workdir_of_another_model_is_refused(program, uninterrupted):
  result = program(uninterrupted.workdir, RemBertConfig__num_hidden_layers=3, train__seed=1).run()
  assert result.returncode == 2
  assert 'RemBertConfig.num_hidden_layers: 2 → 3' in result.stderr
  assert 'train.seed: 0 → 1' in result.stderr
  assert 'Traceback' not in result.stderr


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(program, tmp_path):
  exploding = program(
    tmp_path / 'run',
    optimizer__learning_rate=1e30,
    optimizer__warmup_steps=20,
    optimizer__clip_norm=0,
    guards__max_skipped_updates=3,
  )
  result = exploding.run()
  assert result.returncode == 1
  assert 'is not finite, after 3 skipped updates in a row' in result.stderr
  assert 'the update is skipped, 3 of at most 3' in result.stdout
  assert 'Traceback' not in result.stderr
  assert not list((exploding.workdir / 'checkpoints').glob('[0-9]*'))


# One for the devices, one for the data, one for the vocabulary; test_compile and test_pretrain_data have the others.
@pytest.mark.parametrize(
  ('bindings', 'message'),
  [
    ({'mesh__data': 3}, 'does not cover'),
    ({'data__languages': "('en', 'xx')"}, 'xx'),
    ({'RemBertConfig__vocab_size': 60_000}, 'supports a vocabulary of'),
  ],
)
def test_what_does_not_fit_is_told_in_one_message(bindings, message, program, tmp_path):
  result = program(tmp_path / 'run', **bindings).run()
  assert result.returncode == 2, result.stdout
  assert message in result.stderr
  assert 'fix' in result.stderr
  assert 'Traceback' not in result.stderr


def test_more_tokens_than_positions_are_told_before_anything_is_done(program, tmp_path, capsys):
  assert main(program(tmp_path / 'run', train__sequence_length=256).command[3:]) == 2
  assert 'max_position_embeddings' in capsys.readouterr().err
  assert not (tmp_path / 'run').exists()


def test_a_second_process_on_a_workdir_is_refused(from_store, tmp_path):
  first = from_store(tmp_path / 'run', train__steps=100_000)
  process = first.start()
  try:
    while first.steps_logged() < 7:
      assert process.poll() is None, first.log()
      time.sleep(0.05)
    second = from_store(tmp_path / 'run', train__steps=100_000).run()
    assert second.returncode == 2
    assert f'another process is at work here: number {process.pid}' in second.stderr
  finally:
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 75


def test_a_signal_while_xla_compiles_does_not_wait_for_it(from_store, tmp_path):
  # Forty-eight layers, each compiled by itself: minutes.
  slow = from_store(tmp_path / 'run', RemBertConfig__num_hidden_layers=48, execution__unroll=48)
  process = slow.start()
  while 'held-out rows: done' not in slow.log():
    assert process.poll() is None, slow.log()
    time.sleep(0.05)
  time.sleep(2)
  start = time.monotonic()
  process.send_signal(signal.SIGTERM)
  assert process.wait(timeout=120) == 75
  assert time.monotonic() - start < 10
  assert 'stopped by SIGTERM between steps; nothing is lost' in slow.log()


def test_where_the_time_went_is_told_at_the_end(uninterrupted):
  assert 'of the time went into steps that count' in uninterrupted.output
  session = json.loads((uninterrupted.workdir / 'goodput.json').read_text())[0]
  assert (session['first_step'], session['last_step']) == (0, 240)
  assert all(session['seconds'][name] > 0 for name in ('start', 'compile', 'step', 'evaluation', 'checkpoint'))


def test_programs_that_were_compiled_before_give_the_same_numbers(from_store, tmp_path):
  def run(name):
    program = from_store(tmp_path / name, train__steps=14)
    program.environment |= {'JAX_ENABLE_COMPILATION_CACHE': 'true', 'XDG_CACHE_HOME': str(tmp_path / 'cache')}
    result = program.run()
    assert result.returncode == 0, result.stderr
    return program, {file: file.stat().st_mtime_ns for file in (tmp_path / 'cache').rglob('*') if file.is_file()}

  (first, kept), (second, kept_after) = run('first'), run('second')
  assert kept
  assert kept == kept_after
  assert first.metrics() == second.metrics()
  assert_bitwise_equal(final_state(first.workdir, 14), final_state(second.workdir, 14))
