"""Signals: at once before there is anything to save, at the next safe point afterwards, and never lost."""

import contextlib
import signal

import pytest

from rembert.training.preemption import EXIT_STOPPED, Stopped, StopSignal

BOTH = (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize('number', BOTH)
def test_before_there_is_anything_to_save_a_signal_stops_at_once(number):
  with StopSignal() as stop, pytest.raises(Stopped, match=number.name):
    signal.raise_signal(number)
  assert stop.requested == number.name


@pytest.mark.parametrize('number', BOTH)
def test_once_deferred_a_signal_waits_for_the_loop(number):
  with StopSignal() as stop:
    assert stop.requested is None
    stop.defer()
    assert stop.requested is None
    signal.raise_signal(number)
    assert stop.requested == number.name


def test_nothing_that_catches_exceptions_swallows_a_stop():
  with StopSignal(), pytest.raises(Stopped), contextlib.suppress(Exception):
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize('first', BOTH)
def test_ctrl_c_after_a_request_is_not_caught(first):
  with StopSignal() as stop:
    stop.defer()
    signal.raise_signal(first)
    with pytest.raises(KeyboardInterrupt):
      signal.raise_signal(signal.SIGINT)


def test_sigterm_may_be_repeated():
  with StopSignal() as stop:
    stop.defer()
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGTERM:
      signal.raise_signal(number)
    assert stop.requested == 'SIGTERM'


@pytest.mark.parametrize('error', [None, ValueError, Stopped])
def test_the_handlers_of_before_are_back_afterwards(error):
  received = []
  handlers = {number: lambda number, _: received.append(number) for number in BOTH}
  originals = {number: signal.signal(number, handler) for number, handler in handlers.items()}
  try:
    try:
      with StopSignal() as stop:
        stop.defer()
        signal.raise_signal(signal.SIGTERM)
        if error:
          raise error
    except (ValueError, Stopped):
      pass
    assert received == []
    assert {number: signal.getsignal(number) for number in BOTH} == handlers
    signal.raise_signal(signal.SIGINT)
    assert received == [signal.SIGINT]
  finally:
    for number, handler in originals.items():
      signal.signal(number, handler)


def test_the_exit_code_says_try_again():
  assert EXIT_STOPPED == 75
