"""Real processes: their consensus and sums, and what they report when one is lost. A gloo sum in each test."""

import contextlib
import signal

import pytest
from waiting import wait_for

from rembert.errors import UsageError
from rembert.runtime import consensus
from rembert.runtime.distributed import HostsConfig
from rembert.runtime.signals import Stopped

PREAMBLE = """
import os, sys, time
import numpy as np
from rembert.errors import UsageError
from rembert.runtime.consensus import HostConsensus, HostRequest, joined
from rembert.runtime.distributed import HostsConfig, leave
import jax
say = lambda *text: print(*text, flush=True)
"""

TRAIN = (
  PREAMBLE
  + """
from jax.sharding import AxisType, NamedSharding, PartitionSpec
with joined(HostsConfig()) as hosts:
  own = jax.process_index()
  BEFORE
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


def train(*, before='pass', failure='pass'):
  """A program that sums over the hosts, step by step, after what is done `before`."""
  return TRAIN.replace('BEFORE', before.strip()).replace('FAILURE', failure)


AGREE = """
  agreement = HostConsensus()
  # Step by step: no host; host 1 alone; no host; host 0 and host 2 different things.
  steps = [(), (1,), (), (0, 2)]
  for step in steps:
    wanted = HostRequest.NOTHING
    if own in step:
      wanted = {0: HostRequest.SAVE, 1: HostRequest.STOP, 2: HostRequest.PROFILE}[own]
    say('turn', int(agreement.exchange(wanted)))
  late = agreement.exchange(HostRequest.STOP if own == 2 else HostRequest.NOTHING)
  say('settled', int(late | agreement.exchange(HostRequest.NOTHING)))
  say('total', hosts.total(np.arange(3) + own).tolist())
  with hosts.first_goes_first('work'):
    say('works at', time.time())
    if hosts.is_first:
      time.sleep(0.5)
      say('ready at', time.time())
  say('name', hosts.name)
"""


def times(text, word):
  return [float(line.rsplit(' ', 1)[1]) for line in text.splitlines() if line.startswith(word)]


def test_what_one_host_wants_reaches_all_in_the_same_turn_and_a_killed_one_ends_all_who_say_its_name(cluster):
  hosts = cluster(train(before=AGREE), processes=3)
  wait_for(lambda: all('training' in hosts.said(index) for index in range(3)), seconds=120)
  hosts.processes[1].kill()
  assert hosts.wait(seconds=30) == [75, -signal.SIGKILL, 75], [hosts.said(index) for index in range(3)]
  for index in range(3):
    lines = hosts.said(index).splitlines()
    assert [line for line in lines if line.startswith('turn')] == ['turn 0', 'turn 0', 'turn 1', 'turn 0']
    assert f'settled {1 | 2 | 4}' in lines
    assert 'total [3, 6, 9]' in lines
    assert any(line.startswith('name ') and line.endswith(f'(process {index})') for line in lines)
  ready = times(hosts.said(0), 'ready')[0]
  assert all(times(hosts.said(index), 'works')[0] >= ready for index in (1, 2))
  for index in (0, 2):
    assert '(process 1) has failed' in hosts.said(index)
    assert 'run the same command again on all hosts' in hosts.said(index)


def test_an_operation_that_fails_before_the_loss_is_noticed_is_not_taken_for_the_cause(cluster):
  failing = "if step == 20 and own == 1: raise ValueError('Gloo all-reduce failed: Connection reset by peer')"
  dying = 'if step == 20 and own == 0: time.sleep(0.5); os.kill(os.getpid(), 9)'
  hosts = cluster(train(failure=f'{failing}\n    {dying}'), processes=2)
  codes = hosts.wait(seconds=60)
  assert codes == [-signal.SIGKILL, 75], [hosts.said(index) for index in range(2)]
  assert '(process 0) has failed' in hosts.said(1)
  assert 'Traceback' not in hosts.said(1)


def test_when_a_host_fails_the_others_end_with_its_message_and_its_exit_code(cluster):
  text = train(failure="if step == 20 and own == 1: raise UsageError('this host lacks a file')")
  text = text.replace('leave(0)', '').replace('with joined', 'try:\n with joined').replace('\n  ', '\n    ')
  text += '\nexcept UsageError as error:\n  say(error)\n  leave(error.exit_code)\n'
  hosts = cluster(text, processes=2)
  assert hosts.wait(seconds=60) == [2, 2], [hosts.said(index) for index in range(2)]
  assert '(process 1) ended: this host lacks a file' in hosts.said(0)
  assert 'Traceback' not in hosts.said(0)


# --- what a host tells the others at its end, in one process ----------------------------------------------------------


class FakePeers:
  """`Peers` of two processes, which only records what is done."""

  def __init__(self, *, lost_after_seconds):
    self.names, self.calls = ['alpha (process 0)', 'beta (process 1)'], []
    FakePeers.last = self

  def __getattr__(self, name):
    return lambda *arguments: self.calls.append((name, *arguments))


ENDS = {
  'success': (None, [('depart',)]),
  'stopped': (Stopped('SIGTERM'), [('fail', 'stopped by SIGTERM', 75)]),
  'wrong usage': (UsageError('no file'), [('fail', 'no file', 2)]),
  'a bug': (RuntimeError('a bug'), [('fail', 'RuntimeError: a bug', 1)]),
  'a connection': (ValueError('Gloo failed'), [('await_loss',), ('fail', 'ValueError: Gloo failed', 1)]),
}


@pytest.mark.parametrize('end', ENDS)
def test_the_others_report_how_a_host_ended(end, monkeypatch, capsys):
  error, calls = ENDS[end]
  left = []
  for name, replacement in {'join': lambda config: None, 'Peers': FakePeers, 'leave': left.append}.items():
    monkeypatch.setattr(consensus, name, replacement)
  with contextlib.suppress(Stopped, UsageError, RuntimeError, ValueError), consensus.joined(HostsConfig()):
    if error:
      raise error
  assert FakePeers.last.calls == calls
  assert left == ([1] if end in ('a bug', 'a connection') else [])  # nothing waits for the other hosts
