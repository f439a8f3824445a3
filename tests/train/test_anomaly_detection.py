"""What the guards notice, count, say and stop for, the same after a restart; the stacks of a step that hangs."""

import json
import math
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembert.errors import RunError
from rembert.train import anomaly_detection
from rembert.train.anomaly_detection import GuardsConfig, LossGuard, StepTimes, Watchdog
from rembert.train.losses import LossSums
from rembert.train.step import StepMetrics


def metrics(loss, grad_norm=1.0):
  """Of a step with ten predictions and this mean loss."""
  return StepMetrics(
    sums=LossSums(np.float32(10 * loss), np.float32(1), np.float32(10)),
    tokens=np.float32(64),
    grad_norm=np.float32(grad_norm),
    is_finite=np.bool_(math.isfinite(loss) and math.isfinite(grad_norm)),
  )


@pytest.mark.parametrize('value', [math.nan, -math.inf])
@pytest.mark.parametrize(('name', 'said'), [('loss', 'loss'), ('grad_norm', 'gradient')])
def test_a_number_that_is_not_finite_is_named_with_its_step_and_skipped(name, said, value):
  guard, broken = LossGuard(GuardsConfig(max_skipped_updates=2)), metrics(**{'loss': 1.0} | {name: value})
  for step, reading in enumerate([broken, broken, metrics(1.0), broken, broken]):  # the finite one resets the count
    warning = guard.check(step, reading)
    assert warning is None if reading is not broken else f'the {said} of step {step} is not finite' in warning
  assert guard.skipped == 4
  with pytest.raises(RunError, match=f'the {said} of step 18 is not finite, after 2 consecutive skipped') as error:
    guard.check(18, broken)
  assert error.value.exit_code == 1
  assert 'optimizer.learning_rate' in error.value.fix[0]
  with pytest.raises(RunError, match=rf'the {said} of step 3 is not finite\n'):
    LossGuard(GuardsConfig(max_skipped_updates=0)).check(3, broken)


def test_a_spike_is_logged_and_counted_once_and_neither_noise_nor_a_steep_fall_is_one():
  guard, random = LossGuard(GuardsConfig()), np.random.default_rng(0)
  falling, noisy = 10 - np.arange(60) / 10, 4 + 0.1 * random.standard_normal(200)
  assert not any(guard.check(step, metrics(loss)) for step, loss in enumerate([*falling, *noisy]))
  assert 'loss spike at step 260: 9.000 (mean 3.995 ±' in guard.check(260, metrics(9.0))
  assert guard.check(261, metrics(4.0)) is None
  assert guard.spikes == 1
  careless = LossGuard(GuardsConfig(spike_deviations=0))
  assert not any(careless.check(step, metrics(1.0 if step < 50 else 100.0)) for step in range(60))


losses = st.lists(st.one_of(st.floats(0, 20, width=32), st.just(math.nan)), min_size=1, max_size=60)


@given(losses=losses, stop=st.integers(0, 59))
def test_a_guard_saved_and_made_again_says_what_it_would_have_said(losses, stop):
  config = GuardsConfig(max_skipped_updates=100, spike_deviations=1.0)
  whole, before = LossGuard(config), LossGuard(config)
  expected = [whole.check(step, metrics(loss)) for step, loss in enumerate(losses)]
  said = [before.check(step, metrics(loss)) for step, loss in enumerate(losses[:stop])]
  after = LossGuard(config, **json.loads(json.dumps(before.saved())))
  said += [after.check(step, metrics(loss)) for step, loss in enumerate(losses[stop:], start=min(stop, len(losses)))]
  assert said == expected
  assert (after.skipped, after.spikes) == (whole.skipped, whole.spikes)


def test_a_slow_step_is_logged_with_its_wait_for_data_at_most_once_a_minute_and_never_at_first(monkeypatch):
  now = [1000.0]
  monkeypatch.setattr(anomaly_detection.time, 'monotonic', lambda: now[0])
  times = StepTimes(GuardsConfig(slow_step_factor=3))
  assert [times.check(step, 1.0 if step else 100.0, 0.0) for step in range(30)] == [None] * 30
  assert times.check(30, 2.9, 0.0) is None
  assert times.check(31, 8.0, 7.0) == 'warning: step 31 took 8.00 s (7.00 s waiting for data), median 1.00 s'
  assert times.check(32, 8.0, 0.0) is None
  now[0] += 61
  assert 'step 33' in times.check(33, 8.0, 0.0)


def test_a_permanently_higher_loss_ends_the_run_and_a_spike_does_not():
  config = GuardsConfig(diverged_nats=1.0)
  guard = LossGuard(config)
  losses = [*np.linspace(8, 4, 300), *[9.0] * 15, *[4.0] * 200]
  for step, loss in enumerate(losses):
    guard.check(step, metrics(loss))
  resumed = LossGuard(config, **json.loads(json.dumps(guard.saved())))
  with pytest.raises(RunError, match=r'has diverged: the mean loss of 100 steps is 5\.0\d+ at step \d+') as error:
    list(map(resumed.check, range(1000, 1100), [metrics(6.0)] * 100))
  assert 'its minimum was 4.000' in str(error.value)
  unguarded = LossGuard(GuardsConfig())
  for step, loss in enumerate([*losses, *[20.0] * 200]):
    unguarded.check(step, metrics(loss))


# --- steps that hang --------------------------------------------------------------------------------------------------


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
