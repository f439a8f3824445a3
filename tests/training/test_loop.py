"""The meter's intervals, over any steps and across any interruption; the configuration and its hints."""

import json
import math
import re
import types

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembert.errors import RunError, UsageError
from rembert.training import loop
from rembert.training.loop import Meter, Stopwatch, TrainConfig
from rembert.training.losses import MlmSums
from rembert.training.step import StepMetrics

TOLERANCE = 1e-6  # metrics come as float32
NUMBERS = {'positions_per_step': 100, 'flops_per_step': 6e9, 'peak_flops': None}


def metrics(loss=10.0, correct=1.0, weight=4.0, tokens=80.0, grad_norm=0.5):
  return StepMetrics(
    sums=MlmSums(*(jnp.float32(x) for x in (loss, correct, weight))),
    tokens=jnp.float32(tokens),
    grad_norm=jnp.float32(grad_norm),
  )


# --- meter ----------------------------------------------------------------------------------------


def test_an_interval_is_divided_once_by_all_of_its_weight():
  meter = Meter()
  meter.add(1, metrics(loss=30.0, correct=1, weight=10, tokens=100, grad_norm=3.0))
  meter.add(2, metrics(loss=2.0, correct=2, weight=2, tokens=50, grad_norm=0.25))
  meter.add(3, metrics(loss=8.0, correct=0, weight=4, tokens=90, grad_norm=0.5))
  assert meter.interval(**NUMBERS) == pytest.approx(
    {'loss': 40 / 16, 'accuracy': 3 / 16, 'padding': 1 - 240 / 300, 'grad_norm': 0.5}, rel=TOLERANCE
  )


def test_a_new_interval_begins_with_nothing():
  meter = Meter()
  meter.add(1, metrics(loss=1000.0, correct=4, weight=4, tokens=7))
  meter.add_time(9.0, 8.0)
  meter.interval(**NUMBERS)
  assert set(meter.saved().values()) == {0.0}
  meter.add(2, metrics(loss=6.0, correct=1, weight=3, tokens=60, grad_norm=2.0))
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
  for step, (seconds, waited) in enumerate([(1.0, 0.5), (2.0, 0.0), (3.0, 1.0)], start=1):
    meter.add(step, metrics())
    meter.add_time(seconds, waited)
  row = meter.interval(positions_per_step=100, flops_per_step=6e9, peak_flops=1e10)
  assert (row['step_seconds'], row['tokens_per_second'], row['data_wait_share']) == (2.0, 50.0, 0.25)
  assert row['mfu'] == pytest.approx(6e9 / 2.0 / 1e10)


def test_without_a_peak_there_is_no_mfu_and_without_times_no_speed():
  meter = Meter()
  meter.add(1, metrics())
  assert meter.interval(**NUMBERS).keys() == {'loss', 'accuracy', 'grad_norm', 'padding'}
  meter.add_time(1.0, 0.0)
  assert 'mfu' not in meter.interval(**NUMBERS)


def test_steps_without_predictions_do_not_divide_by_zero():
  meter = Meter()
  meter.add(1, metrics(loss=0.0, correct=0, weight=0, tokens=0))
  row = meter.interval(**NUMBERS)
  assert (row['loss'], row['accuracy'], row['padding']) == (0.0, 0.0, 1.0)


numbers = st.floats(0, 1e6, width=32)
some_steps = st.lists(st.tuples(numbers, numbers, numbers, numbers, numbers), min_size=1, max_size=12)


@given(steps=some_steps, stop=st.integers(0, 11))
def test_an_interval_resumed_from_a_checkpoint_is_that_of_the_uninterrupted_run(steps, stop):
  stop = min(stop, len(steps) - 1)
  whole, before = Meter(), Meter()
  for number, values in enumerate(steps):
    whole.add(number, metrics(*values))
    if number < stop:
      before.add(number, metrics(*values))
  resumed = Meter(json.loads(json.dumps(before.saved())))
  for number, values in enumerate(steps[stop:], start=stop):
    resumed.add(number, metrics(*values))
  assert resumed.interval(**NUMBERS) == whole.interval(**NUMBERS)


def test_what_was_saved_does_not_change_afterwards():
  meter = Meter()
  meter.add(1, metrics())
  saved = meter.saved()
  copy = dict(saved)
  meter.add(2, metrics())
  assert saved == copy
  Meter(saved).add(2, metrics())
  assert saved == copy


@pytest.mark.parametrize('value', [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(('name', 'said'), [('loss', 'loss'), ('grad_norm', 'gradient')])
def test_a_number_that_is_not_finite_ends_the_run_and_names_the_step(name, said, value):
  meter = Meter()
  meter.add(16, metrics())
  before = meter.saved()
  with pytest.raises(RunError, match=f'the {said} of step 17 is not finite') as error:
    meter.add(17, metrics(**{name: value}))
  assert error.value.exit_code == 1
  assert str(value) in error.value.where
  assert 'optimizer.learning_rate' in error.value.fix[0]
  assert meter.saved() == before


def test_a_stopwatch_reads_the_time_since_its_last_reading(monkeypatch):
  times = iter([10.0, 12.5, 13.0])
  monkeypatch.setattr(loop, 'time', types.SimpleNamespace(perf_counter=lambda: next(times)))
  watch = Stopwatch()
  assert (watch.read(), watch.read()) == (2.5, 0.5)


# --- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
  'name',
  [
    name
    for name, field in TrainConfig.__dataclass_fields__.items()
    if field.type is int and name not in ('seed', 'eval_every', 'keep_every')
  ],
)
@pytest.mark.parametrize('value', [0, -1, 1.0, True, '8', None])
def test_counts_are_whole_numbers_from_one(name, value):
  with pytest.raises(UsageError, match=f'{name} must be a whole number ≥ 1') as error:
    TrainConfig(**{name: value})
  assert error.value.where == f'train.{name} = {value!r}'


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'temporary_checkpoint_minutes': -1}, 'temporary_checkpoint_minutes must be a number'),
    ({'temporary_checkpoint_minutes': math.inf}, 'temporary_checkpoint_minutes must be a number'),
    ({'temporary_checkpoint_minutes': True}, 'temporary_checkpoint_minutes must be a number'),
    ({'temporary_checkpoint_minutes': '10'}, 'temporary_checkpoint_minutes must be a number'),
    ({'init_from_parts': 'head'}, "'head' is no part of a model"),
    ({'keep_every': 7_500}, 'no checkpoints at every 7500 steps'),
  ],
)
def test_what_checkpoints_are_told_is_checked(fields, message):
  with pytest.raises(UsageError, match=message):
    TrainConfig(**fields)
  TrainConfig(temporary_checkpoint_minutes=0.5, keep_every=10_000)


@pytest.mark.parametrize('name', ['seed', 'eval_every', 'keep_every'])
def test_a_seed_may_be_zero_and_evaluation_may_be_off(name):
  assert getattr(TrainConfig(**{name: 0}), name) == 0
  with pytest.raises(UsageError, match=f'{name} must be a whole number ≥ 0'):
    TrainConfig(**{name: -1})


@pytest.mark.parametrize(
  ('config', 'shards', 'text'),
  [
    (
      TrainConfig(batch_size=10),
      8,
      'a batch of 10 rows does not divide over 8 device group(s)\n'
      '  where  train.batch_size, mesh.data × mesh.fsdp, train.accumulation_steps\n'
      '  fix    --gin.train.batch_size=16',
    ),
    (
      TrainConfig(batch_size=10, accumulation_steps=3),
      2,
      'a batch of 10 rows does not divide over 2 device group(s) × 3 accumulation steps\n'
      '  where  train.batch_size, mesh.data × mesh.fsdp, train.accumulation_steps\n'
      '  fix    --gin.train.batch_size=12',
    ),
  ],
)
def test_a_batch_that_does_not_divide_is_a_usage_error(config, shards, text):
  with pytest.raises(UsageError) as error:
    config.check_divides(shards)
  assert str(error.value) == text


@given(batch_size=st.integers(1, 5000), accumulation_steps=st.integers(1, 12), shards=st.integers(1, 64))
def test_the_batch_size_that_is_suggested_is_the_next_that_works(batch_size, accumulation_steps, shards):
  divides = lambda size: all(
    len(range(device, size, shards * accumulation_steps)) == size / (shards * accumulation_steps)
    for device in range(shards * accumulation_steps)
  )
  try:
    TrainConfig(batch_size=batch_size, accumulation_steps=accumulation_steps).check_divides(shards)
    assert divides(batch_size)
  except UsageError as error:
    assert not divides(batch_size)
    suggested = int(re.fullmatch(r'--gin\.train\.batch_size=(\d+)', error.fix[0])[1])
    TrainConfig(batch_size=suggested, accumulation_steps=accumulation_steps).check_divides(shards)
    assert batch_size < suggested < batch_size + shards * accumulation_steps
