"""From the environment to joined processes, or to a message; then the first of them, its peers played by sockets."""

import json
import socket
import unittest.mock

import jax
import pytest
from waiting import wait_for

from rembert.errors import RunError, UsageError
from rembert.runtime import distributed
from rembert.runtime.distributed import ADDRESS, COUNT, INDEX, HostsConfig, Peers, join


@pytest.fixture
def initialized(monkeypatch):
  """Arguments of `jax.distributed.initialize`, which is not called; an environment without any cluster."""
  calls = []
  monkeypatch.setattr(jax.distributed, 'initialize', lambda **arguments: calls.append(arguments))
  for name in (ADDRESS, COUNT, INDEX, 'SLURM_NTASKS', 'OMPI_COMM_WORLD_SIZE', 'TPU_WORKER_HOSTNAMES'):
    monkeypatch.delenv(name, raising=False)
  return calls


@pytest.fixture
def set_cluster(monkeypatch):
  """Sets ADDRESS, COUNT and INDEX, as far as they are given."""

  def set_cluster(*values):
    for name, value in zip((ADDRESS, COUNT, INDEX), values, strict=True):
      if value:
        monkeypatch.setenv(name, value)

  return set_cluster


def test_three_variables_define_a_cluster_and_a_single_process_does_not_join(initialized, set_cluster):
  join(HostsConfig())
  assert initialized == []
  set_cluster('alpha:1234', '4', '3')
  join(HostsConfig(join_seconds=7, lost_after_seconds=9))
  process = {'coordinator_address': 'alpha:1234', 'num_processes': 4, 'process_id': 3}
  seconds = {'initialization_timeout': 7, 'heartbeat_timeout_seconds': 9, 'shutdown_timeout_seconds': 18}
  assert initialized == [process | seconds]


INCOMPLETE, IMPOSSIBLE = 'incomplete cluster configuration', 'is out of range'


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    *(((*given,), INCOMPLETE) for given in (('alpha:1', '', ''), ('', '2', '0'), ('alpha:1', '', '0'))),
    *((('alpha:1', *given), IMPOSSIBLE) for given in (('2', '2'), ('2', '-1'), ('0', '0'), ('two', '0'))),
  ],
)
def test_a_part_of_them_and_numbers_that_cannot_be_are_usage_errors(given, message, initialized, set_cluster):
  set_cluster(*given)
  with pytest.raises(UsageError, match=message) as error:
    join(HostsConfig())
  assert message == IMPOSSIBLE or ADDRESS in error.value.fix[0]


@pytest.mark.parametrize('variable', ['SLURM_NTASKS', 'OMPI_COMM_WORLD_SIZE'])
def test_a_job_of_several_tasks_is_left_to_jax_to_make_out(variable, initialized, monkeypatch):
  for tasks in '2', '1':
    monkeypatch.setenv(variable, tasks)
    join(HostsConfig())
    assert len(initialized) == 1
  assert 'coordinator_address' not in initialized[0]


@pytest.mark.parametrize('sign', ['environment', 'chips'])
def test_a_tpu_pod_is_one_unless_the_cpu_is_asked_for(sign, initialized, monkeypatch):
  hosts = lambda names: monkeypatch.setenv('TPU_WORKER_HOSTNAMES', names)
  if sign == 'chips':  # their metadata say of which slice they are
    monkeypatch.setattr(distributed, 'has_tpu', lambda: True)
  else:
    hosts('alpha,beta')
  join(HostsConfig())
  assert initialized == []
  jax.config.update('jax_platforms', None)
  try:
    join(HostsConfig())
    assert len(initialized) == 1
    hosts('localhost')
    join(HostsConfig())
    assert len(initialized) == (2 if sign == 'chips' else 1)
  finally:
    jax.config.update('jax_platforms', 'cpu')


def test_a_cluster_that_cannot_be_joined_is_one_error(initialized, set_cluster, monkeypatch):
  set_cluster('alpha:1234', '4', '3')
  late = 'not all hosts joined within 300 s: DEADLINE_EXCEEDED: late'
  for raised, expected, message in (
    (ValueError('no address'), UsageError, 'cannot be detected from the environment: no address'),
    (RuntimeError('DEADLINE_EXCEEDED: late\nmore'), RunError, late),
  ):
    monkeypatch.setattr(jax.distributed, 'initialize', unittest.mock.Mock(side_effect=raised))
    with pytest.raises(UsageError, match=message) as error:
      join(HostsConfig())
    assert type(error.value) is expected
    assert error.value.exit_code == (2 if expected is UsageError else 1)
  assert 'alpha:1234' in error.value.where


def test_a_process_alone_leaves_as_any_program_does():
  with pytest.raises(SystemExit) as leaving:
    distributed.leave(2)
  assert leaving.value.code == 2


# --- lost hosts -------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends(monkeypatch):
  """Messages and exit codes with which the process would have ended."""
  ends = []
  monkeypatch.setattr(distributed, '_exit_at_once', lambda *end: ends.append(end))
  return ends


@pytest.fixture
def first(ends, monkeypatch):
  """The first of three processes, and a function that opens a connection to it with a greeting."""
  sent = []
  monkeypatch.setattr(jax, 'process_count', lambda: 3)
  monkeypatch.setattr(jax, 'process_index', lambda: 0)
  monkeypatch.setattr(distributed, '_delay_aborts', lambda: None)
  monkeypatch.setattr(distributed, '_all_gather_text', lambda text: sent.append(text) or ['alpha', 'beta', 'gamma'])
  monkeypatch.setenv(ADDRESS, '127.0.0.1:1234')
  first = Peers(lost_after_seconds=60)
  server = json.loads(sent[1])

  def connect(**hello):
    connection = socket.create_connection((server['host'], server['port']), timeout=10)
    connection.sendall(json.dumps({'token': server['token']} | hello).encode() + b'\n')
    return connection

  yield first, connect
  for connection in first._connections.values():
    connection.close()


def test_a_stranger_is_not_taken_for_a_host(first, ends):
  peers, connect = first
  with connect(token='guessed', process=1) as stranger, connect(hello='world') as other:
    assert stranger.recv(1) == other.recv(1) == b''  # closed
  with connect(process=1), connect(process=2):
    wait_for(lambda: peers._connections.keys() == {1, 2})
    peers.depart()
  assert ends == []


def test_a_lost_host_is_named_to_the_others_and_a_departed_one_is_not(first, ends):
  peers, connect = first
  one, two = connect(process=1), connect(process=2)
  wait_for(lambda: len(peers._connections) == 2)
  one.sendall(b'{"departed": true}\n')
  one.close()
  wait_for(lambda: peers._departed == {1})
  two.close()
  wait_for(lambda: ends)
  assert [(message.splitlines()[0], code) for message, code in ends] == [('gamma (process 2) has failed', 75)]
  assert 'run the same command again on all hosts' in ends[0][0]


@pytest.mark.parametrize('code', [1, 2])
def test_an_error_of_one_host_reaches_the_others_with_its_exit_code(first, ends, code):
  peers, connect = first
  with connect(process=1) as one, connect(process=2) as two:
    wait_for(lambda: len(peers._connections) == 2)
    message = {'lost': 'beta (process 1) ended: no file', 'exit_code': code}
    one.sendall(json.dumps(message).encode() + b'\n')
    assert json.loads(two.makefile().readline()) == message
    wait_for(lambda: ends)
  assert ends == [('beta (process 1) ended: no file', code)]
