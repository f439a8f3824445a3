"""What is repeated beside the program begins, repeats and ends."""

import threading
import time

import pytest

from rembert.runtime.background import repeating


def wait_for(is_so):
  end = time.monotonic() + 10
  while not is_so():
    assert time.monotonic() < end
    time.sleep(0.005)


def test_it_is_done_again_and_again_until_the_end():
  calls = []
  with repeating(lambda: calls.append(threading.current_thread().name), every_seconds=0.01, name='beside'):
    wait_for(lambda: len(calls) >= 3)
  count = len(calls)
  time.sleep(0.05)
  assert len(calls) == count
  assert set(calls) == {'beside'}


def test_it_ends_by_itself_when_it_says_so():
  calls = []
  with repeating(lambda: calls.append(1) or len(calls) == 2, every_seconds=0.01, name='beside'):
    wait_for(lambda: 'beside' not in [thread.name for thread in threading.enumerate()])
  assert len(calls) == 2


def test_an_error_inside_ends_it_too():
  with pytest.raises(KeyError), repeating(lambda: None, every_seconds=0.01, name='beside'):
    raise KeyError
  wait_for(lambda: 'beside' not in [thread.name for thread in threading.enumerate()])
