"""Real processes: what they agree on, what they add up, and what they say when one is gone. A gloo sum in each test."""

import signal
import time

import pytest

PREAMBLE = """
import os, sys, time
import numpy as np
from rembert.errors import UsageError
from rembert.runtime.consensus import HostConsensus, HostRequest
from rembert.runtime.distributed import HostsConfig, leave
from rembert.runtime.consensus import joined
import jax
say = lambda *text: print(*text, flush=True)
"""

AGREE = (
  PREAMBLE
  + """
with joined(HostsConfig()) as hosts:
  own = jax.process_index()
  agreement = HostConsensus()
  # Turn by turn: nobody; host 1 alone; nobody; host 0 and host 2 different things.
  turns = [(), (1,), (), (0, 2)]
  for turn in turns:
    wanted = HostRequest.NOTHING
    if own in turn:
      wanted = {0: HostRequest.SAVE, 1: HostRequest.STOP, 2: HostRequest.PROFILE}[own]
    say('turn', int(agreement.exchange(wanted)))
  late = agreement.exchange(HostRequest.STOP if own == 2 else HostRequest.NOTHING)
  say('settled', int(late | agreement.exchange(HostRequest.NOTHING)))
  say('total', hosts.total(np.arange(3) + own).tolist())
  with hosts.first_goes_first('work'):
    say('works at', time.time())
    if hosts.is_first:
      time.sleep(1.5)
      say('ready at', time.time())
  say('name', hosts.name)
leave(0)
"""
)


def times(text, word):
  return [float(line.rsplit(' ', 1)[1]) for line in text.splitlines() if line.startswith(word)]


def test_what_one_host_wants_reaches_all_of_them_in_the_same_turn(cluster):
  hosts = cluster(AGREE, processes=3)
  assert hosts.wait() == [0, 0, 0], hosts.said(0)
  for index in range(3):
    lines = hosts.said(index).splitlines()
    assert [line for line in lines if line.startswith('turn')] == ['turn 0', 'turn 0', 'turn 1', 'turn 0']
    assert f'settled {1 | 2 | 4}' in lines
    assert 'total [3, 6, 9]' in lines
    assert any(line.startswith('name ') and line.endswith(f'(process {index})') for line in lines)
  ready = times(hosts.said(0), 'ready')[0]
  assert all(times(hosts.said(index), 'works')[0] >= ready for index in (1, 2))


TRAIN = (
  PREAMBLE
  + """
from jax.sharding import AxisType, NamedSharding, PartitionSpec
with joined(HostsConfig()) as hosts:
  own = jax.process_index()
  mesh = jax.make_mesh((jax.device_count(),), ('rows',), axis_types=(AxisType.Auto,))
  rows = NamedSharding(mesh, PartitionSpec('rows'))
  total = jax.jit(lambda x: x.sum())
  for step in range(10_000):
    total(jax.make_array_from_process_local_data(rows, np.ones(1, np.float32))).block_until_ready()
    if step == 5:
      say('training')
    FAILURE
    time.sleep(0.01)
leave(0)
"""
)


def wait_until_all_train(hosts, processes):
  end = time.monotonic() + 120
  while not all('training' in hosts.said(index) for index in range(processes)):
    assert time.monotonic() < end, [hosts.said(index) for index in range(processes)]
    time.sleep(0.05)


@pytest.mark.parametrize('lost', [0, 1])
def test_when_a_host_is_killed_the_others_end_at_once_and_say_its_name(lost, cluster):
  hosts = cluster(TRAIN.replace('FAILURE', 'pass'), processes=3)
  wait_until_all_train(hosts, 3)
  start = time.monotonic()
  hosts.processes[lost].kill()
  codes = hosts.wait(seconds=30)
  assert time.monotonic() - start < 15
  for index in {0, 1, 2} - {lost}:
    assert codes[index] == 75, hosts.said(index)
    assert f'(process {lost}) is gone' in hosts.said(index)
    assert 'repeat the command on all hosts' in hosts.said(index)
  assert codes[lost] == -signal.SIGKILL


def test_an_operation_that_fails_before_the_loss_is_noticed_is_not_taken_for_the_cause(cluster):
  failing = "if step == 20 and own == 2: raise ValueError('Gloo all-reduce failed: Connection reset by peer')"
  dying = 'if step == 20 and own == 1: time.sleep(1); os.kill(os.getpid(), 9)'
  hosts = cluster(TRAIN.replace('FAILURE', f'{failing}\n    {dying}'), processes=3)
  codes = hosts.wait(seconds=60)
  assert codes == [75, -signal.SIGKILL, 75], [hosts.said(index) for index in range(3)]
  for index in (0, 2):
    assert '(process 1) is gone' in hosts.said(index)
    assert 'Traceback' not in hosts.said(index)


def test_an_operation_that_fails_though_nobody_is_gone_ends_all(cluster):
  failing = "if step == 20 and own == 2: raise ValueError('Gloo all-reduce failed')"
  hosts = cluster(TRAIN.replace('FAILURE', failing), processes=3)
  assert hosts.wait(seconds=60) == [1] * 3
  assert '(process 2) ended: ValueError: Gloo all-reduce failed' in hosts.said(0)


FAILURES = {
  "raise UsageError('this host lacks a file')": (2, 'ended: this host lacks a file'),
  "raise RuntimeError('a bug')": (1, 'ended: RuntimeError: a bug'),
}


@pytest.mark.parametrize('failure', FAILURES)
def test_when_a_host_fails_the_others_end_with_its_message_and_its_exit_code(failure, cluster):
  code, message = FAILURES[failure]
  text = TRAIN.replace('FAILURE', f'if step == 20 and own == 1: {failure}')
  text = text.replace('leave(0)', '').replace('with joined', 'try:\n with joined').replace('\n  ', '\n    ')
  text += '\nexcept UsageError as error:\n  say(error)\n  leave(error.exit_code)\n'
  hosts = cluster(text, processes=3)
  assert hosts.wait(seconds=60) == [code] * 3, [hosts.said(index) for index in range(3)]
  for index in (0, 2):
    assert f'(process 1) {message}' in hosts.said(index)
    assert 'Traceback' not in hosts.said(index)


def test_a_host_that_was_stopped_before_it_trained_takes_the_others_with_it(cluster):
  text = TRAIN.replace('FAILURE', 'if step == 20 and own == 1: raise Stopped("SIGTERM")').replace(
    'import jax\n', 'import jax\nfrom rembert.runtime.signals import Stopped\n', 1
  )
  hosts = cluster(text, processes=2)
  codes = hosts.wait(seconds=60)
  assert codes[0] == 75
  assert '(process 1) ended: stopped by SIGTERM' in hosts.said(0)


FOREIGN = (
  PREAMBLE
  + """
import socket, threading
import rembert.runtime.peers as peers
created = socket.create_server
def remembered(*arguments, **options):
  server = created(*arguments, **options)
  stranger = socket.create_connection(('127.0.0.1', server.getsockname()[1]))
  stranger.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n')
  return server
socket.create_server = remembered
with joined(HostsConfig()) as hosts:
  hosts.wait_for_all('end')
  say('fine')
leave(0)
"""
)


def test_a_stranger_at_the_door_is_ignored(cluster):
  hosts = cluster(FOREIGN, processes=2)
  assert hosts.wait() == [0, 0], hosts.said(0)
  assert 'fine' in hosts.said(0)
