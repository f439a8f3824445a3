"""A step that does not end has its stacks written down, once in a while, and one that ends does not."""

import threading
import time

import pytest

from rembert.tracking.watchdog import Watchdog


@pytest.fixture
def watchdog(tmp_path):
  dog = Watchdog(0.3, tmp_path / 'stacks', name='alpha (process 3)')
  yield dog
  dog.close()


def reports(tmp_path):
  return sorted((tmp_path / 'stacks').glob('*.txt'))


def wait_until(is_true, seconds=10):
  end = time.monotonic() + seconds
  while not is_true():
    assert time.monotonic() < end
    time.sleep(0.02)


def test_a_step_that_hangs_is_reported_with_the_stacks_of_all_threads(watchdog, tmp_path, capfd):
  is_over = threading.Event()

  def a_function_that_hangs():
    is_over.wait(20)

  thread = threading.Thread(target=a_function_that_hangs)
  thread.start()
  watchdog.beat('step 7')
  wait_until(lambda: reports(tmp_path) and 'wait_until' in reports(tmp_path)[0].read_text())
  is_over.set()
  thread.join()
  text = reports(tmp_path)[0].read_text()
  assert text.startswith('step 7, for 0 s')
  assert 'a_function_that_hangs' in text
  assert 'alpha' in reports(tmp_path)[0].name
  said = capfd.readouterr().err
  assert 'alpha (process 3) step 7 has not finished after' in said
  assert 'a_function_that_hangs' in said


def test_beats_keep_it_quiet_and_so_does_rest(watchdog, tmp_path):
  for step in range(30):
    watchdog.beat(f'step {step}')
    time.sleep(0.02)
  watchdog.rest()
  time.sleep(0.6)
  assert reports(tmp_path) == []


def test_patience_doubles_with_every_report_and_is_as_before_after_progress(tmp_path, monkeypatch):
  reported = []
  monkeypatch.setattr(Watchdog, '_report', lambda self, doing, seconds: reported.append((doing, seconds)))
  dog = Watchdog(0.1, tmp_path / 'stacks')
  try:
    dog.beat('step 1')
    wait_until(lambda: len(reported) == 2)
    dog.beat('step 2')
    wait_until(lambda: len(reported) == 3)
  finally:
    dog.close()
  assert reported == [('step 1', 0.1), ('step 1', 0.2), ('step 2', 0.1)]


def test_zero_watches_nothing(tmp_path):
  dog = Watchdog(0, tmp_path / 'stacks')
  dog.beat('step 1')
  time.sleep(0.1)
  dog.close()
  assert 'watchdog' not in {thread.name for thread in threading.enumerate()}
  assert reports(tmp_path) == []
