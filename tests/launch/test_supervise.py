"""What is run again, how often, how soon, and what is not."""

import signal
import subprocess
import sys

import pytest

from launch.processes import RetryCounter, RetryPolicy, is_retryable
from launch.supervise import main, supervise

QUICK = RetryPolicy(short_seconds=0.0, max_wait=0.0)


def counting(folder, *codes):
  """A command that ends with one code after the other; a negative one is a signal that it kills itself with."""
  runs = folder / 'runs'
  text = f'set -- {" ".join(map(str, codes))}; echo x >> {runs}; shift $(($(wc -l < {runs}) - 1)); '
  return ['sh', '-c', text + 'if [ $1 -lt 0 ]; then kill $1 $$; fi; exit $1']


def runs(folder):
  return len((folder / 'runs').read_text().splitlines())


def started(*command):
  """`launch.supervise` in a process of its own."""
  arguments = [sys.executable, '-m', 'launch.supervise', '--', *command]
  return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def test_a_command_that_was_stopped_or_killed_is_repeated_until_it_is_done(tmp_path):
  logged = []
  assert supervise(counting(tmp_path, 75, -9, -6, 75, 0), QUICK, logged.append) == 0
  assert runs(tmp_path) == 5
  assert [line.split(' after')[0] for line in logged] == [
    'supervise: stopped early, can be resumed',
    'supervise: killed by SIGKILL',
    'supervise: killed by SIGABRT',
    'supervise: stopped early, can be resumed',
  ]


@pytest.mark.parametrize(
  ('code', 'expected'),
  [
    (75, True),  # stopped early, all saved
    (-9, True),  # the machine, or its memory
    (-6, True),  # JAX, when another host has failed
    (137, True),  # the same two, as a shell around the program reports them
    (134, True),
    (0, False),
    (2, False),  # a wrong configuration
    (1, False),
    (143, False),  # SIGTERM that a program let through
  ],
)
def test_only_a_stop_or_a_kill_is_worth_a_restart(code, expected):
  assert is_retryable(code) == expected


def test_restarts_have_a_limit(tmp_path):
  logged = []
  policy = RetryPolicy(max_restarts=2, short_seconds=0, max_wait=0)
  assert supervise(counting(tmp_path, *[75] * 9), policy, logged.append) == 75
  assert runs(tmp_path) == 3
  assert '--max_restarts' in logged[-1]


def test_short_runs_wait_longer_each_time_and_have_a_limit_of_their_own():
  logged = []
  counter = RetryCounter(RetryPolicy(max_short_runs=6, short_seconds=1000, max_wait=5), logged.append)
  assert [counter.wait_after(-9, 1.0) for _ in range(6)] == [1, 2, 4, 5, 5, None]
  assert 'find the cause first' in logged[-1]


def test_a_long_run_is_restarted_soon_and_ends_a_row_of_short_ones():
  counter = RetryCounter(RetryPolicy(max_short_runs=3, short_seconds=10.0), print)
  assert [counter.wait_after(75, lived) for lived in (1, 1, 20, 20, 1, 1)] == [1, 2, 1, 1, 1, 2]


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command_and_ends_the_supervision(number):
  process = started('sh', '-c', 'trap "echo received; exit 75" TERM INT; echo ready; while true; do sleep 0.1; done')
  assert process.stdout.readline() == 'ready\n'
  process.send_signal(number)
  output, _ = process.communicate(timeout=60)
  assert output == 'received\n'
  assert process.returncode == 75


def test_a_signal_between_two_runs_ends_it_too():
  process = started('sh', '-c', 'kill -9 $$')
  for _ in range(2):  # the next restart is two seconds away
    assert 'restart' in process.stdout.readline()
  process.terminate()
  output, _ = process.communicate(timeout=60)
  assert process.returncode == 137
  assert 'restart' not in output


def test_the_command_is_never_waited_for_in_a_call_that_a_signal_just_before_it_would_not_end(monkeypatch):
  asked, poll = [], subprocess.Popen.poll

  def counted(self):
    asked.append(self.pid)
    return poll(self)

  monkeypatch.setattr(subprocess.Popen, 'poll', counted)
  for blocking in ('wait', 'communicate'):
    monkeypatch.delattr(subprocess.Popen, blocking)
  assert supervise(['sh', '-c', 'sleep 0.5; exit 2'], QUICK, print) == 2
  assert len(asked) > 1


@pytest.mark.parametrize('arguments', [[], ['--'], ['--max_restarts=-1', '--', 'true']])
def test_wrong_usage(arguments):
  with pytest.raises(SystemExit) as error:
    main(arguments)
  assert error.value.code == 2
