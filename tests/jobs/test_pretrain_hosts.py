"""Whole runs on several hosts, which are processes here: they agree with one, stop together, and survive losses."""

import json
import os
import signal
import time

import jax
import numpy as np
import pytest
from final_states import final_state

# Sums over hosts are taken in another order than sums on one device.
LOSS_TOLERANCE = 1e-5
PARAMETER_TOLERANCE = 1e-4

QUICK = {
  'train__steps': 20,
  'train__log_every': 1,
  'train__eval_every': 10,
  'train__checkpoint_every': 10,
  'optimizer__warmup_steps': 5,
}


def losses(run):
  return {row['step']: row['loss'] for row in run.metrics() if 'loss' in row}


def evaluations(run):
  return {row['step']: row['eval/loss'] for row in run.metrics() if 'eval/loss' in row}


def assert_same_training(run, reference, *, step):
  """Losses, evaluations, batches and final parameters of two runs, in another order of summation."""
  assert losses(run) == pytest.approx(losses(reference), rel=LOSS_TOLERANCE)
  assert evaluations(run) == pytest.approx(evaluations(reference), rel=LOSS_TOLERANCE)
  # Counts of tokens are whole numbers: the batches are the same ones.
  counted = lambda run: [row['padding'] for row in run.metrics() if 'padding' in row]
  assert counted(run) == counted(reference)
  own, other = (final_state(one.workdir, step)['params'] for one in (run, reference))
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=PARAMETER_TOLERANCE, rtol=0), own, other)


@pytest.fixture(scope='module')
def one_host(from_store, succeed, tmp_path_factory):
  """Twenty steps on one device of this process."""
  run = from_store(tmp_path_factory.mktemp('one_host') / 'run', **QUICK)
  succeed(run)
  return run


def wait_for_step(run, processes, step, seconds=200):
  end = time.monotonic() + seconds
  while run.steps_logged() < step:
    assert all(process.poll() is None for process in processes), run.host_log(0).read_text()[-2000:]
    assert time.monotonic() < end
    time.sleep(0.02)


@pytest.mark.slow
def test_a_run_resumes_with_another_number_of_hosts(from_store, tmp_path):
  long = QUICK | {'train__steps': 120, 'train__eval_every': 40, 'train__checkpoint_every': 1000}
  reference, run = (from_store(tmp_path / name, **long) for name in ('reference', 'run'))
  assert reference.run_process().returncode == 0
  for hosts, stop_at in ((2, 20), (1, 60), (4, None)):
    if stop_at is None:
      run.run_hosts(hosts)
      continue
    processes = run.start_hosts(hosts)
    wait_for_step(run, processes, stop_at)
    processes[-1].send_signal(signal.SIGTERM)
    assert [process.wait(timeout=120) for process in processes] == [75] * hosts, run.host_log(0).read_text()[-2000:]
    assert run.steps_logged() < 120
  assert_same_training(run, reference, step=120)


def test_two_hosts_train_as_one_does_and_stop_together_after_the_same_step(from_store, tmp_path):
  endless = QUICK | {'train__steps': 100_000, 'train__checkpoint_every': 1000, 'train__eval_every': 0}
  run, alone = (from_store(tmp_path / name, **endless) for name in ('run', 'alone'))
  processes = run.start_hosts(2)
  wait_for_step(run, processes, 12)
  processes[1].send_signal(signal.SIGTERM)
  assert [process.wait(timeout=60) for process in processes] == [75, 75]
  first, second = (run.host_log(index).read_text() for index in range(2))
  assert '2 hosts: ' in first
  stopped_at = int(first.split('stopped by another host at step ')[1].split(',')[0])
  assert 'at step' not in second  # one of them talks
  terminate = lambda step, _: step == stopped_at - 1 and os.kill(os.getpid(), signal.SIGTERM)
  assert alone.run(on_log=terminate).returncode == 75
  assert_same_training(run, alone, step=stopped_at)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('hosts', 'devices', 'mesh'),
  [(2, 2, {'mesh__data': 1, 'mesh__fsdp': 2, 'mesh__tensor': 2}), (4, 1, {'mesh__data': 2, 'mesh__fsdp': 2})],
)
def test_several_hosts_train_as_one_does(hosts, devices, mesh, from_store, one_host, tmp_path):
  run = from_store(tmp_path / 'run', **QUICK | mesh)
  run.run_hosts(hosts, devices)
  assert_same_training(run, one_host, step=20)
  assert f'{hosts} hosts: ' in run.host_log(0).read_text()
  assert 'step 20' not in run.host_log(1).read_text()  # one of them talks


@pytest.mark.slow
@pytest.mark.parametrize('lost', [0, 1])
def test_a_host_that_is_lost_ends_the_others_by_name_and_costs_only_what_was_not_saved(
  lost, from_store, one_host, tmp_path
):
  run = from_store(tmp_path / 'run', **QUICK)
  processes = run.start_hosts(2)
  wait_for_step(run, processes, 13)
  processes[lost].kill()
  assert processes[1 - lost].wait(timeout=60) == 75
  assert f'(process {lost}) has failed' in run.host_log(1 - lost).read_text()
  run.run_hosts(2)
  assert_same_training(run, one_host, step=20)
  last = json.loads((run.workdir / 'goodput.json').read_text())[-1]  # one session for all hosts
  assert (last['first_step'], last['last_step'], last['seconds']['compile'] > 0) == (10, 20, True)


@pytest.mark.slow
def test_a_host_that_cannot_begin_tells_the_others_why(from_store, tmp_path):
  run = from_store(tmp_path / 'run', **QUICK | {'data__languages': "('el', 'xx')"})
  codes = [process.wait(timeout=120) for process in run.start_hosts(2)]
  assert codes == [2, 2]
  assert 'no text in xx' in run.host_log(0).read_text()
  assert 'ended: no text in xx' in run.host_log(1).read_text()
  assert all('Traceback' not in run.host_log(index).read_text() for index in range(2))
