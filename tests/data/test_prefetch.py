"""Prefetching changes when things happen, never what comes out."""

import itertools
import threading

import pytest

from rembert.data.prefetch import prefetch


@pytest.fixture(autouse=True)
def no_thread_is_left():
  before = set(threading.enumerate())
  yield
  assert [thread for thread in threading.enumerate() if thread not in before] == []


@pytest.mark.parametrize('ahead', [1, 2, 5])
def test_items_come_placed_and_in_order(ahead):
  assert list(prefetch(iter(range(50)), lambda n: 10 * n, ahead=ahead)) == [10 * n for n in range(50)]


def test_items_are_made_and_placed_by_another_thread():
  def names():
    for _ in range(3):
      yield threading.current_thread()

  threads = [thread for pair in prefetch(names(), lambda made: (made, threading.current_thread())) for thread in pair]
  assert len(set(threads)) == 1
  assert threads[0] is not threading.current_thread()


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


def test_it_never_runs_further_ahead_than_told():
  made = 0

  def count():
    nonlocal made
    while True:
      made += 1
      yield made

  batches = prefetch(count(), lambda n: n, ahead=2)
  for taken in range(1, 30):
    next(batches)
    # Two that are ready, and one in the thread's hand.
    assert made <= taken + 2 + 1
  batches.close()
