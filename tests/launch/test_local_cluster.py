"""Several processes as one command: environment, output, signals, exit codes."""

import signal
import subprocess
import sys

import pytest

from launch.local_cluster import environments, main
from launch.processes import joint_exit_code


def cluster(*command, processes=2, **options):
  return subprocess.Popen(
    [sys.executable, '-m', 'launch.local_cluster', f'--processes={processes}', '--', *command],
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    **options,
  )


def test_each_process_knows_the_cluster_and_its_place_in_it():
  first, second = environments(2, 3, 4567, base={'HOME': '/home'})
  assert first == {
    'HOME': '/home',
    'JAX_COORDINATOR_ADDRESS': '127.0.0.1:4567',
    'JAX_NUM_PROCESSES': '2',
    'JAX_PROCESS_ID': '0',
    'JAX_PLATFORMS': 'cpu',
    'JAX_NUM_CPU_DEVICES': '3',
  }
  assert second == first | {'JAX_PROCESS_ID': '1'}


def test_lines_begin_with_the_number_of_their_process():
  process = cluster('python', '-c', 'import os; print("I am", os.environ["JAX_PROCESS_ID"])')
  output, _ = process.communicate(timeout=60)
  assert sorted(output.splitlines()[:2]) == ['[0] I am 0', '[1] I am 1']
  assert 'exit codes 0, 0' in output
  assert process.returncode == 0


def test_signals_are_passed_on_to_all():
  process = cluster('sh', '-c', 'trap "echo told; exit 75" TERM; echo ready; while true; do sleep 0.1; done')
  for _ in range(2):
    assert 'ready' in process.stdout.readline()
  process.send_signal(signal.SIGTERM)
  output, _ = process.communicate(timeout=60)
  assert output.count('told') == 2
  assert process.returncode == 75


def test_those_who_outlive_a_lost_one_are_killed_in_the_end(monkeypatch, capfd):
  monkeypatch.setattr('launch.local_cluster._SECONDS_TO_FOLLOW', 0.5)
  assert main(['--', 'sh', '-c', 'test $JAX_PROCESS_ID = 0 && exec sleep 600; exit 1']) == 1
  output = capfd.readouterr()
  assert 'a process was lost' in output.err
  assert 'exit codes -9, 1' in output.out


@pytest.mark.parametrize(
  ('codes', 'joint'),
  [([0, 0], 0), ([1, 75, 2], 2), ([0, 75, 1], 1), ([75, -9, 0], 75), ([0, -9], 1), ([-6], 1), ([-9, 1], 1)],
)
def test_the_worst_code_that_a_user_can_correct_is_that_of_the_cluster(codes, joint):
  assert joint_exit_code(codes) == joint
