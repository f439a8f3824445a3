"""Batches are prepared by a thread, a few ahead, and whatever goes wrong there reaches the step."""

import itertools
import threading

import pytest

from rembert.data.batches import prefetch


@pytest.fixture(autouse=True)
def no_thread_is_left():
  before = set(threading.enumerate())
  yield
  assert [thread for thread in threading.enumerate() if thread not in before] == []


def test_items_come_in_order_made_and_placed_by_another_thread_never_further_ahead_than_told():
  made = []

  def items():
    for number in range(50):
      made.append(number)
      yield number, threading.current_thread()

  batches = prefetch(items(), lambda item: (*item, threading.current_thread()), ahead=2)
  for number, (item, *threads) in enumerate(batches):
    assert item == number
    assert len({*threads}) == 1
    assert threads[0] is not threading.current_thread()
    # Two that are ready, and one in the thread's hand.
    assert len(made) <= number + 1 + 2 + 1
  assert number == 49


@pytest.mark.parametrize('error', [ValueError('broken'), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_an_exception_in_the_source_surfaces_where_its_item_would_have_come(error):
  def broken():
    yield from range(3)
    raise error

  batches = prefetch(broken(), lambda n: n)
  assert [next(batches) for _ in range(3)] == [0, 1, 2]
  with pytest.raises(type(error)) as raised:
    next(batches)
  assert raised.value is error


def test_an_exception_in_placing_surfaces_too():
  batches = prefetch(iter([2, 1, 0]), lambda n: 2 // n)
  assert [next(batches), next(batches)] == [1, 2]
  with pytest.raises(ZeroDivisionError):
    next(batches)


def test_closing_early_ends_the_thread_though_the_source_has_no_end():
  batches = prefetch(itertools.count(), lambda n: n)
  assert next(batches) == 0
  thread = next(thread for thread in threading.enumerate() if thread.name == 'prefetch')
  batches.close()
  assert not thread.is_alive()
  assert list(batches) == []
