"""Whole runs in phases: killed at a border they end as if they had not been; what is ahead may change."""

import json
import os
import re
import shutil
import signal

import numpy as np
import pytest
from final_states import assert_same_run

STEPS = 60
PHASES = {
  'phases__begins': '(0, 20, 40)',
  'phases__alpha': '(0.7, 0.5, 0.3)',
  'phases__languages': "('el,sw', 'el,sw', None)",
  'phases__masking_rate': '(0.3, 0.3, 0.15)',
  'phases__linear': "('alpha',)",
  'train__checkpoint_every': 10,
}


@pytest.fixture(scope='module')
def phased(from_store, succeed, tmp_path_factory):
  """A run on a store through three phases, complete; `copies` are its workdirs as SIGKILL would have left them."""
  folder = tmp_path_factory.mktemp('phased')
  run = from_store(folder / 'run', **PHASES)
  run.copies = {}

  def copy(step, _):
    if step in (20, 21, 40, 42) and step not in run.copies:
      run.copies[step] = folder / f'at {step}'
      run.copy_workdir(run.copies[step])

  run.output = succeed(run, on_log=copy).stdout
  return run


def test_a_run_shows_and_draws_its_phases_and_logs_at_every_border(phased):
  assert 'Phases' in phased.output
  assert '20 to 40' in phased.output
  assert 'Tokens by language' in phased.output
  assert 'most repeated: ' in phased.output
  assert (phased.workdir / 'schedule.png').read_bytes().startswith(b'\x89PNG')
  assert {20, 40} <= {row['step'] for row in phased.metrics() if 'loss' in row}


@pytest.mark.parametrize('step', [40, *(pytest.param(step, marks=pytest.mark.slow) for step in (20, 21, 42))])
def test_a_run_killed_at_a_border_ends_as_if_it_had_not_been(step, phased, from_store, succeed, tmp_path):
  shutil.copytree(phased.copies[step], tmp_path / 'run')
  resumed = from_store(tmp_path / 'run', **PHASES)
  succeed(resumed)
  assert_same_run(resumed, phased, STEPS)


@pytest.mark.slow
def test_streams_of_other_lengths_resume_at_the_border(program, succeed, tmp_path):
  values = {
    'phases__begins': '(0, 0.5)',
    'phases__sequence_length': '(32, 64)',
    'phases__masking_rate': '(0.3, 0.15)',
    'train__steps': 24,
    'train__eval_every': 12,
  }
  whole = program(tmp_path / 'whole', **values)
  succeed(whole)
  stopped = program(tmp_path / 'stopped', **values)
  assert stopped.run(on_log=lambda step, _: step == 12 and os.kill(os.getpid(), signal.SIGTERM)).returncode == 75
  succeed(stopped)
  assert_same_run(stopped, whole, 24)


def test_a_constant_run_may_get_phases_that_lie_ahead_and_is_recorded(from_store, stored, succeed, tmp_path):
  shutil.copytree(stored.copies['before the last save'], tmp_path / 'run')
  late = {'phases__begins': '(0, 50)', 'phases__masking_rate': '(0.15, 0.3)'}
  early = from_store(tmp_path / 'run', **late | {'phases__begins': '(0, 10)'}).run()
  assert early.returncode == 2
  [step] = re.findall(r'the phases differ from those that the run has trained (\d+) steps with', early.stderr)
  assert f'or change only what begins at step {step} or later' in early.stderr
  run = from_store(tmp_path / 'run', **late)
  assert f'the phases change after step {step}' in succeed(run).stdout
  assert final_meta(run)['phase_changes'] == [{'step': int(step), 'before': None}]
  assert final_meta(run)['phases']['masking_rate'] == [0.15, 0.3]
  unchanged = [row for row in stored.metrics() if row['step'] < 50]
  assert [row for row in run.metrics() if row['step'] < 50] == unchanged


def final_meta(run):
  return json.loads((run.workdir / 'checkpoints' / str(STEPS) / 'meta' / 'metadata').read_text())


@pytest.mark.slow
def test_phases_of_equal_settings_change_nothing_of_a_stream(program, streamed, succeed, tmp_path):
  same = program(tmp_path / 'run', phases__begins='(0, 30)', phases__masking_rate='(0.15, 0.15)')
  succeed(same)
  [*_, ours], [*_, theirs] = same.metrics(), streamed.metrics()
  assert ours == theirs


def test_the_dry_run_draws_the_schedule_and_counts_tokens(from_store, tmp_path):
  run = from_store(tmp_path / 'run', **PHASES)
  run.arguments.append('--dry_run')
  result = run.run()
  assert result.returncode == 0, result.stderr
  assert 'epochs' in result.stdout
  assert 'plot of the schedule: ' in result.stdout
  assert (tmp_path / 'run' / 'schedule.png').exists()


@pytest.mark.slow
def test_two_hosts_train_through_phases_as_one_does(phased, from_store, tmp_path):
  run = from_store(tmp_path / 'run', **PHASES)
  run.run_hosts(2)
  losses = lambda one: [(row['step'], row['loss']) for row in one.metrics() if 'loss' in row]
  counted = lambda one: [row['padding'] for row in one.metrics() if 'padding' in row]
  assert counted(run) == counted(phased)  # whole numbers of tokens: the same batches
  np.testing.assert_allclose(losses(run), losses(phased), rtol=1e-5)
