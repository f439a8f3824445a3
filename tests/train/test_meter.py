"""The meter's intervals, over any steps and across any interruption."""

import json
import math
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembert.train import meter as meters
from rembert.train.losses import LossSums
from rembert.train.meter import Meter, Stopwatch
from rembert.train.step import StepMetrics

TOLERANCE = 1e-6  # metrics come as float32
NUMBERS = {'positions_per_step': 100, 'flops_per_step': 6e9, 'peak_flops': None}


def metrics(loss=10.0, correct=1.0, weight=4.0, tokens=80.0, grad_norm=0.5):
  return StepMetrics(
    sums=LossSums(*(np.float32(x) for x in (loss, correct, weight))),
    tokens=np.float32(tokens),
    grad_norm=np.float32(grad_norm),
    is_finite=np.bool_(math.isfinite(loss) and math.isfinite(grad_norm)),
  )


def test_an_interval_is_divided_once_by_all_of_its_weight():
  meter = Meter()
  meter.add(metrics(loss=30.0, correct=1, weight=10, tokens=100, grad_norm=3.0))
  meter.add(metrics(loss=2.0, correct=2, weight=2, tokens=50, grad_norm=0.25))
  meter.add(metrics(loss=8.0, correct=0, weight=4, tokens=90, grad_norm=0.5))
  assert meter.interval(**NUMBERS) == pytest.approx(
    {'loss': 40 / 16, 'accuracy': 3 / 16, 'padding': 1 - 240 / 300, 'grad_norm': 0.5}, rel=TOLERANCE
  )


def test_a_new_interval_begins_with_nothing():
  meter = Meter()
  meter.add(metrics(loss=1000.0, correct=4, weight=4, tokens=7))
  meter.add_time(9.0, 8.0)
  meter.interval(**NUMBERS)
  assert set(meter.saved().values()) == {0.0}
  meter.add(metrics(loss=6.0, correct=1, weight=3, tokens=60, grad_norm=2.0))
  meter.add_time(0.5, 0.1)
  assert meter.interval(**NUMBERS) == pytest.approx(
    {
      'loss': 2.0,
      'accuracy': 1 / 3,
      'grad_norm': 2.0,
      'padding': 0.4,
      'step_seconds': 0.5,
      'tokens_per_second': 200.0,
      'data_wait_share': 0.2,
    },
    rel=TOLERANCE,
  )


def test_speeds_are_means_over_the_steps_that_were_timed():
  meter = Meter()
  for seconds, waited in [(1.0, 0.5), (2.0, 0.0), (3.0, 1.0)]:
    meter.add(metrics())
    meter.add_time(seconds, waited)
  row = meter.interval(positions_per_step=100, flops_per_step=6e9, peak_flops=1e10)
  assert (row['step_seconds'], row['tokens_per_second'], row['data_wait_share']) == (2.0, 50.0, 0.25)
  assert row['mfu'] == pytest.approx(6e9 / 2.0 / 1e10)


def test_without_a_peak_there_is_no_mfu_and_without_times_no_speed():
  meter = Meter()
  meter.add(metrics())
  assert meter.interval(**NUMBERS).keys() == {'loss', 'accuracy', 'grad_norm', 'padding'}
  meter.add_time(1.0, 0.0)
  assert 'mfu' not in meter.interval(**NUMBERS)


def test_steps_without_predictions_do_not_divide_by_zero():
  meter = Meter()
  meter.add(metrics(loss=0.0, correct=0, weight=0, tokens=0))
  row = meter.interval(**NUMBERS)
  assert (row['loss'], row['accuracy'], row['padding']) == (0.0, 0.0, 1.0)


numbers = st.floats(0, 1e6, width=32)
some_steps = st.lists(st.tuples(numbers, numbers, numbers, numbers, numbers), min_size=1, max_size=12)


@given(steps=some_steps, stop=st.integers(0, 11))
def test_an_interval_resumed_from_a_checkpoint_is_that_of_the_uninterrupted_run(steps, stop):
  stop = min(stop, len(steps) - 1)
  whole, before = Meter(), Meter()
  for number, values in enumerate(steps):
    whole.add(metrics(*values))
    if number < stop:
      before.add(metrics(*values))
  resumed = Meter(json.loads(json.dumps(before.saved())))
  for values in steps[stop:]:
    resumed.add(metrics(*values))
  assert resumed.interval(**NUMBERS) == whole.interval(**NUMBERS)


def test_what_was_saved_does_not_change_afterwards():
  meter = Meter()
  meter.add(metrics())
  saved = meter.saved()
  copy = dict(saved)
  meter.add(metrics())
  assert saved == copy
  Meter(saved).add(metrics())
  assert saved == copy


def test_a_skipped_update_says_nothing():
  meter = Meter()
  meter.add(metrics())
  before = meter.saved()
  meter.add(metrics(loss=math.nan))
  assert meter.saved() == before
  assert meter.interval(**NUMBERS)['loss'] == 2.5


def test_a_stopwatch_reads_the_time_since_its_last_reading(monkeypatch):
  times = iter([10.0, 12.5, 13.0])
  monkeypatch.setattr(meters, 'time', types.SimpleNamespace(perf_counter=lambda: next(times)))
  watch = Stopwatch()
  assert (watch.read(), watch.read()) == (2.5, 0.5)
