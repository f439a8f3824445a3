"""What is run again, how often, how soon, and what is not."""

import signal
import subprocess
import sys
import time

import pytest

from launch.processes import RetryCounter, RetryPolicy
from launch.supervise import main, supervise

QUICK = RetryPolicy(short_seconds=0.0)


def counting(folder, *codes):
  """A command that ends with one code after the other; a negative one is a signal that it kills itself with."""
  text = f"""
import os, pathlib
runs = pathlib.Path({str(folder / 'runs')!r})
number = len(runs.read_text()) if runs.exists() else 0
runs.write_text('x' * (number + 1))
code = {list(codes)!r}[number]
os.kill(os.getpid(), -code) if code < 0 else os._exit(code)
"""
  return [sys.executable, '-c', text]


@pytest.fixture
def waits(monkeypatch):
  """Seconds before each restart; here nothing is waited for."""
  found, wait_after = [], RetryCounter.wait_after

  def noted(self, code, lived):
    wait = wait_after(self, code, lived)
    found.extend([] if wait is None else [wait])
    return wait and 0.0

  monkeypatch.setattr(RetryCounter, 'wait_after', noted)
  return found


def runs(folder):
  return len((folder / 'runs').read_text())


def test_what_was_stopped_or_killed_is_repeated_until_it_is_done(tmp_path):
  said = []
  assert supervise(counting(tmp_path, 75, -9, -6, 75, 0), QUICK, said.append) == 0
  assert runs(tmp_path) == 5
  assert [line.split(';')[0].split(' after')[0] for line in said] == [
    'supervise: stopped early, to be resumed',
    'supervise: killed by SIGKILL',
    'supervise: killed by SIGABRT',
    'supervise: stopped early, to be resumed',
  ]


# How a program can die, as a shell does it; and what becomes of it when the second start ends well.
KINDS_OF_DEATH = {
  'stopped early, all saved': ('exit 75', 'repeated'),
  'SIGKILL: the machine, or its memory': ('kill -KILL $$', 'repeated'),
  'SIGABRT: JAX, when another host is gone': ('kill -ABRT $$', 'repeated'),
  'out of memory, as a shell around it reports it': ('sh -c "kill -KILL \\$\\$"; exit $?', 'repeated'),
  'SIGABRT, as a shell around it reports it': ('exit 134', 'repeated'),
  'a wrong configuration': ('exit 2', 2),
  'any other error': ('exit 1', 1),
}


@pytest.mark.parametrize('kind', KINDS_OF_DEATH)
def test_a_program_that_dies_in_seven_ways(kind, tmp_path):
  death, expected = KINDS_OF_DEATH[kind]
  starts = tmp_path / 'starts'
  program = f'echo x >> {starts}; test $(wc -l < {starts}) = 2 && exit 0; {death}'
  said = []
  code = supervise(['sh', '-c', program], QUICK, said.append)
  if expected == 'repeated':
    assert (code, starts.read_text()) == (0, 'x\nx\n')
    assert 'restart 1 in 1 s' in said[0]
  else:
    assert (code, starts.read_text()) == (expected, 'x\n')
    assert said == []


def test_a_program_that_hangs_is_left_to_itself_and_can_be_told_to_stop():
  # Whether a step hangs or is long the run itself knows: guards.stuck_after_seconds. Here nothing is guessed.
  process = subprocess.Popen(
    [sys.executable, '-m', 'launch.supervise', '--', 'sh', '-c', 'echo hangs; exec sleep 60'],
    stdout=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == 'hangs\n'
  time.sleep(1)
  assert process.poll() is None
  process.send_signal(signal.SIGTERM)
  process.communicate(timeout=60)
  assert process.returncode == 128 + signal.SIGTERM


def test_an_error_after_restarts_ends_it(tmp_path):
  assert supervise(counting(tmp_path, 75, 2, 0), QUICK, print) == 2
  assert runs(tmp_path) == 2


def test_restarts_have_a_limit_and_wait_a_second(tmp_path):
  said, start = [], time.monotonic()
  assert supervise(counting(tmp_path, *[75] * 9), RetryPolicy(max_restarts=2, short_seconds=0), said.append) == 75
  assert runs(tmp_path) == 3
  assert time.monotonic() - start > 2
  assert '--max_restarts' in said[-1]


def test_short_runs_wait_longer_each_time_and_have_a_limit_of_their_own(tmp_path, waits):
  said = []
  patience = RetryPolicy(max_short_runs=6, short_seconds=1000, max_wait=5)
  assert supervise(counting(tmp_path, *[-9] * 9), patience, said.append) == 137
  assert waits == [1, 2, 4, 5, 5]
  assert 'needs somebody to look at it' in said[-1]


def test_a_run_that_lived_is_restarted_soon_and_ends_a_row_of_short_ones():
  counter = RetryCounter(RetryPolicy(max_short_runs=3, short_seconds=10.0), print)
  assert [counter.wait_after(75, lived) for lived in (1, 1, 20, 20, 1, 1)] == [1, 2, 1, 1, 1, 2]


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command_and_ends_the_supervision(number):
  command = 'trap "echo told; exit 75" TERM INT; echo ready; while true; do sleep 0.1; done'
  process = subprocess.Popen(
    [sys.executable, '-m', 'launch.supervise', '--', 'sh', '-c', command], stdout=subprocess.PIPE, text=True
  )
  assert process.stdout.readline() == 'ready\n'
  process.send_signal(number)
  output, _ = process.communicate(timeout=60)
  assert output == 'told\n'
  assert process.returncode == 75


def test_the_command_is_never_waited_for_in_a_call_that_a_signal_just_before_it_would_not_end(monkeypatch):
  asked, poll = [], subprocess.Popen.poll

  def counted(self):
    asked.append(self.pid)
    return poll(self)

  monkeypatch.setattr(subprocess.Popen, 'poll', counted)
  for blocking in ('wait', 'communicate'):
    monkeypatch.delattr(subprocess.Popen, blocking)
  assert supervise(['sh', '-c', 'sleep 1.2; exit 2'], QUICK, print) == 2
  assert len(asked) > 1


def test_a_signal_between_two_runs_ends_it_too():
  process = subprocess.Popen(
    [sys.executable, '-m', 'launch.supervise', '--', 'sh', '-c', 'kill -9 $$'], stdout=subprocess.PIPE, text=True
  )
  for _ in range(4):
    assert 'restart' in process.stdout.readline()
  start = time.monotonic()
  process.send_signal(signal.SIGTERM)
  process.communicate(timeout=60)
  assert process.returncode == 137
  assert time.monotonic() - start < 6


@pytest.mark.parametrize(
  'arguments', [[], ['--'], ['--max_restarts=-1', '--', 'true'], ['--max_wait=nan', '--', 'true']]
)
def test_wrong_usage(arguments, capsys):
  with pytest.raises(SystemExit) as error:
    main(arguments)
  assert error.value.code == 2
