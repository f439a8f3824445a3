"""Signals: at once before there is anything to save, at the next safe point afterwards, and never lost."""

import contextlib
import signal
import subprocess
import sys
import threading
import time

import pytest
from local_server import Handler, serve
from waiting import wait_for

from rembert.runtime import signals
from rembert.runtime.signals import EXIT_STOPPED, Stopped, StopSignal, maintenance_notice, repeating, watch_maintenance

BOTH = (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize('number', BOTH)
def test_a_signal_stops_at_once_and_once_deferred_waits_for_the_loop_and_a_second_ctrl_c_is_not_caught(number):
  with StopSignal() as stop:
    with stop.deferred():
      pass
    with pytest.raises(Stopped, match=number.name), contextlib.suppress(Exception):  # which does not swallow it
      signal.raise_signal(number)
  assert stop.requested == number.name
  with StopSignal() as stop, stop.deferred():
    assert stop.requested is None
    signal.raise_signal(number)
    assert stop.requested == number.name
    signal.raise_signal(signal.SIGTERM)  # may be repeated
    with pytest.raises(KeyboardInterrupt):
      signal.raise_signal(signal.SIGINT)


def test_the_handlers_of_before_are_back_afterwards_also_after_an_error():
  received = []
  handlers = {number: lambda number, _: received.append(number) for number in BOTH}
  originals = {number: signal.signal(number, handler) for number, handler in handlers.items()}
  try:
    with contextlib.suppress(Stopped), StopSignal() as stop, stop.deferred():
      signal.raise_signal(signal.SIGTERM)
      raise Stopped
    assert received == []
    assert {number: signal.getsignal(number) for number in BOTH} == handlers
    signal.raise_signal(signal.SIGINT)
    assert received == [signal.SIGINT]
  finally:
    for number, handler in originals.items():
      signal.signal(number, handler)


def test_any_thread_may_ask_and_its_reason_is_kept():
  with StopSignal() as stop, stop.deferred():
    threading.Thread(target=stop.request, args=('maintenance notice',)).start()
    wait_for(lambda: stop.requested)
    assert stop.requested == 'maintenance notice'


@pytest.mark.parametrize('is_deferred', [False, True])
def test_a_main_thread_in_native_code_ends_the_program_unless_there_is_something_to_save(monkeypatch, is_deferred):
  monkeypatch.setattr(signals, '_GRACE_SECONDS', 0.05)
  ended = []
  monkeypatch.setattr(signals, 'exit_stopped', ended.append)
  with StopSignal() as stop, stop.deferred() if is_deferred else contextlib.nullcontext():
    stop._wakeup.send(bytes([signal.SIGTERM]))  # a signal of which Python's handler does not hear
    time.sleep(0.5)
    assert ended == ([] if is_deferred else ['SIGTERM'])


def test_a_main_thread_that_is_away_in_native_code_does_not_keep_the_program():
  # XLA compiles without the interpreter's lock, and restarts system calls: Python's handler waits until it returns.
  text = """
import ctypes
from rembert.runtime import signals
from rembert.runtime.signals import StopSignal
signals._GRACE_SECONDS = 0.3
libc = ctypes.CDLL(None)
with StopSignal():
  lock = (ctypes.c_char * 64)()
  libc.pthread_mutex_init(lock, None)
  libc.pthread_mutex_lock(lock)
  print('away', flush=True)
  libc.pthread_mutex_lock(lock)  # without end: it already holds it
"""
  process = subprocess.Popen([sys.executable, '-c', text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  assert process.stdout.readline() == 'away\n'
  time.sleep(0.3)
  process.send_signal(signal.SIGTERM)
  _, errors = process.communicate(timeout=30)
  assert process.returncode == EXIT_STOPPED
  assert 'stopped by SIGTERM' in errors
  assert 'Run the same command again' in errors


# --- maintenance notice ------------------------------------------------------------------------


class Metadata(Handler):
  """Answers as Google's server does, which wants its header."""

  def do_GET(self):
    assert self.headers['Metadata-Flavor'] == 'Google'
    event = self.server.content.get(self.path.removeprefix('/computeMetadata/v1/instance/'))
    self.send_response(200 if event else 404)
    self.end_headers()
    self.wfile.write((event or '').encode())


@pytest.fixture
def metadata(monkeypatch):
  """What a metadata server says about this machine; to be changed by the test."""

  def events(url):
    monkeypatch.setenv('GCE_METADATA_HOST', url.removeprefix('http://'))
    return {'maintenance-event': 'NONE', 'preempted': 'FALSE'}

  with serve(Metadata, events) as found:
    yield found


@pytest.mark.parametrize(
  ('events', 'notice'),
  [
    ({}, None),
    ({'maintenance-event': 'MIGRATE_ON_HOST_MAINTENANCE'}, None),
    ({'maintenance-event': 'TERMINATE_ON_HOST_MAINTENANCE'}, 'maintenance notice'),
    ({'preempted': 'TRUE'}, 'preemption notice'),
    ({'maintenance-event': ''}, None),
  ],
)
def test_maintenance_notices_of_the_metadata_server(events, notice, metadata, monkeypatch):
  metadata |= events
  assert maintenance_notice() == notice
  monkeypatch.setenv('GCE_METADATA_HOST', '127.0.0.1:9')  # no server answers
  assert maintenance_notice() is None


@pytest.mark.parametrize('has_chips', [True, False])
def test_a_notice_stops_a_run_on_a_machine_with_tpu_chips_as_a_signal_does(has_chips, metadata, monkeypatch):
  with StopSignal() as stop, watch_maintenance(stop, every_seconds=0.05), stop.deferred():
    time.sleep(0.2)
    assert stop.requested is None
    metadata['maintenance-event'] = 'TERMINATE_ON_HOST_MAINTENANCE'
    wait_for(lambda: stop.requested)
  assert stop.requested == 'maintenance notice'
  monkeypatch.delenv('GCE_METADATA_HOST')
  monkeypatch.setattr(signals, 'has_tpu', lambda: has_chips)
  asked = []
  monkeypatch.setattr(signals, 'maintenance_notice', lambda: asked.append(1))
  with StopSignal() as stop, watch_maintenance(stop, every_seconds=0.01):
    time.sleep(0.1)
  assert bool(asked) == has_chips


def test_it_is_done_again_and_again_until_it_says_that_it_is_over_or_the_context_ends():
  calls = []
  is_over = lambda: 'background' not in [thread.name for thread in threading.enumerate()]
  act = lambda: calls.append(threading.current_thread().name) or len(calls) == 3
  with repeating(act, every_seconds=0.01, name='background'):
    wait_for(is_over)
  assert calls == ['background'] * 3
  with pytest.raises(KeyError), repeating(lambda: None, every_seconds=0.01, name='background'):
    raise KeyError
  wait_for(is_over)
