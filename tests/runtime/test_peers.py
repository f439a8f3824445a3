"""The first process of a run, with its peers played by sockets: who may join, and what each of them hears."""

import json
import socket
import time

import jax
import pytest

from rembert.runtime import peers
from rembert.runtime.peers import Peers


@pytest.fixture
def ends(monkeypatch):
  """Messages and exit codes with which the process would have ended."""
  ends = []
  monkeypatch.setattr(peers, '_exit_at_once', lambda *end: ends.append(end))
  return ends


@pytest.fixture
def first(ends, monkeypatch):
  """The first of three processes, and a function that opens a connection to it with a greeting."""
  sent = []
  monkeypatch.setattr(jax, 'process_count', lambda: 3)
  monkeypatch.setattr(jax, 'process_index', lambda: 0)
  monkeypatch.setattr(peers, '_delay_aborts', lambda: None)
  monkeypatch.setattr(peers, '_all_gather_text', lambda text: sent.append(text) or ['alpha', 'beta', 'gamma'])
  monkeypatch.setenv(peers.ADDRESS, '127.0.0.1:1234')
  first = Peers(lost_after_seconds=60)
  server = json.loads(sent[1])

  def connect(**hello):
    connection = socket.create_connection((server['host'], server['port']), timeout=10)
    connection.sendall(json.dumps({'token': server['token']} | hello).encode() + b'\n')
    return connection

  yield first, connect
  for connection in first._connections.values():
    connection.close()


def wait_until(is_true):
  end = time.monotonic() + 10
  while not is_true():
    assert time.monotonic() < end
    time.sleep(0.01)


def test_a_stranger_is_not_taken_for_a_host(first, ends):
  peers, connect = first
  with connect(token='guessed', process=1) as stranger, connect(hello='world') as other:
    assert stranger.recv(1) == other.recv(1) == b''  # closed
  with connect(process=1), connect(process=2):
    wait_until(lambda: peers._connections.keys() == {1, 2})
    peers.depart()
  assert ends == []


def test_a_lost_host_is_named_to_the_others_and_a_departed_one_is_not(first, ends):
  peers, connect = first
  one, two = connect(process=1), connect(process=2)
  wait_until(lambda: len(peers._connections) == 2)
  one.sendall(b'{"departed": true}\n')
  one.close()
  wait_until(lambda: peers._departed == {1})
  two.close()
  wait_until(lambda: ends)
  assert [(message.splitlines()[0], code) for message, code in ends] == [('gamma (process 2) has failed', 75)]
  assert 'run the same command again on all hosts' in ends[0][0]


@pytest.mark.parametrize('code', [1, 2])
def test_an_error_of_one_host_reaches_the_others_with_its_exit_code(first, ends, code):
  peers, connect = first
  with connect(process=1) as one, connect(process=2) as two:
    wait_until(lambda: len(peers._connections) == 2)
    message = {'lost': 'beta (process 1) ended: no file', 'exit_code': code}
    one.sendall(json.dumps(message).encode() + b'\n')
    assert json.loads(two.makefile().readline()) == message
    wait_until(lambda: ends)
  assert ends == [('beta (process 1) ended: no file', code)]
