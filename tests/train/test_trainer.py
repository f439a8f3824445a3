"""The loop: what it does after which step, what it carries on, how it stops; the configuration and its hints."""

import dataclasses
import math
import re

import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from hypothesis import given
from hypothesis import strategies as st
from memory_tracker import MemoryTracker

from rembert.errors import RunError, UsageError
from rembert.tracking.console import Console
from rembert.tracking.goodput import Goodput
from rembert.tracking.profiler import ProfileConfig, Profiler
from rembert.train.anomaly_detection import GuardsConfig, LossGuard, Watchdog
from rembert.train.losses import LossSums
from rembert.train.metrics import Meter
from rembert.train.state import TrainState
from rembert.train.step import StepMetrics
from rembert.train.trainer import Position, TrainConfig, Trainer

# --- the loop -------------------------------------------------------------------------------------


class Stop:
  """A `StopSignal` without signals."""

  requested = None


class Run:
  """A loop around a step that adds its batch to a counter; everything that happens is written down in order."""

  def __init__(self, folder, *, position=None, losses=None, guards=None, wanted_saves=(), **config):
    self.events, self.saved, self.losses = [], {}, losses or {}
    self.config = TrainConfig(**{'steps': 10, 'log_every': 3, 'eval_every': 4, 'checkpoint_every': 5} | config)
    self.stop, self.tracker = Stop(), MemoryTracker()
    position = position or Position(
      step=0,
      state=TrainState(step=0, params={'sum': 0}, opt_state=()),
      data={'at': 0},
      meter=Meter(),
      guard=LossGuard(guards or GuardsConfig()),
    )
    self.loop = Trainer(
      self.config,
      guards or GuardsConfig(),
      position,
      train_step=self._train_step,
      evaluate=self._evaluate if self.config.eval_every else None,
      save=self._save,
      is_save_permanent=lambda step: step % self.config.checkpoint_every == 0 or step == self.config.steps,
      wants_to_save=lambda step: step in wanted_saves,
      learning_rate=lambda updates: jnp.float32(updates),
      throughput=lambda step: {'positions_per_step': 8, 'flops_per_step': 1, 'peak_flops': None},
      stop=self.stop,
      console=Console(is_quiet=True),
      progress=self,
      trackers=self.tracker,
      goodput=Goodput(epath.Path(folder) / 'goodput.json'),
      watchdog=Watchdog(0, folder),
      profiler=Profiler(ProfileConfig(), epath.Path(folder)),
    )

  # Calls of the console's progress.
  def step(self, step):
    pass

  def metrics(self, step, row):
    self.events.append(f'log {step}')

  def evaluation(self, step, metrics):
    self.events.append(f'evaluation {step}')

  def _train_step(self, state, batch):
    step = state.step + 1
    loss = self.losses.get(step, 2.0 * step)
    is_finite = math.isfinite(loss)
    numbers = LossSums(*(np.float32(x) for x in (loss, 1, 2)))
    metrics = StepMetrics(sums=numbers, tokens=np.float32(8), grad_norm=np.float32(1), is_finite=np.bool_(is_finite))
    return TrainState(step, {'sum': state.params['sum'] + batch['add']}, (), state.ema), metrics

  def _evaluate(self, params, is_stopped):
    for _ in range(3):
      if is_stopped():
        return None
    return {'eval/sum': params['sum']}

  def _save(self, position):
    self.events.append(f'save {position.step}')
    self.saved[position.step] = dataclasses.replace(
      position, meter=Meter(position.meter.saved()), guard=LossGuard(GuardsConfig(), **position.guard.saved())
    )

  def batches(self, start=0):
    return (({'add': number}, {'at': number}) for number in range(start + 1, 1000))

  def run(self):
    self.loop.run(self.batches(self.loop.position.step))
    return self


CLOCKED = ('step_seconds', 'tokens_per_second', 'data_wait_share')


def without_clock(rows):
  return [{name: value for name, value in row.items() if name not in CLOCKED} for row in rows]


def test_everything_happens_after_its_step_and_in_order(tmp_path):
  run = Run(tmp_path)
  run.loop.position.state = dataclasses.replace(run.loop.position.state, ema={'sum': -1})
  run.run()
  events = 'log 3, evaluation 4, save 5, log 6, evaluation 8, log 9, evaluation 10, save 10'
  assert ', '.join(run.events) == events
  assert run.loop.position.state.params['sum'] == sum(range(1, 11))
  assert run.loop.position.data == {'at': 10}
  assert not run.loop.is_stopping
  evaluations, rows = ([row for row in run.tracker.rows if key in row] for key in ('eval/sum', 'loss'))
  assert [row['eval/sum'] for row in evaluations] == [-1, -1, -1]  # of the moving average, since there is one
  assert [row['loss'] for row in rows] == [(2 + 4 + 6) / 6, (8 + 10 + 12) / 6, (14 + 16 + 18) / 6]
  assert [row['learning_rate'] for row in rows] == [2, 5, 8]


def test_a_save_that_the_clock_wants_is_made_at_once_and_only_once(tmp_path):
  events = Run(tmp_path, wanted_saves=(2, 7)).run().events
  assert [event for event in events if event.startswith('save')] == ['save 2', 'save 5', 'save 7', 'save 10']


@pytest.mark.parametrize('at', [1, 3, 4, 5, 9])
def test_a_run_stopped_at_any_step_resumes_like_an_uninterrupted_one(tmp_path, at):
  whole, cut = Run(tmp_path / 'whole').run(), Run(tmp_path / 'cut')

  def batches():
    for number, batch in enumerate(cut.batches(), start=1):
      if number == at:
        cut.stop.requested = 'SIGTERM'
      yield batch

  cut.loop.run(batches())
  assert cut.loop.is_stopping
  assert max(cut.saved) == at
  resumed = Run(tmp_path / 'cut', position=cut.saved[at]).run()
  assert without_clock(cut.tracker.rows + resumed.tracker.rows) == without_clock(whole.tracker.rows)
  assert resumed.loop.position.state.params == whole.loop.position.state.params


@pytest.mark.parametrize('step', [2, 5, 7])
def test_a_run_that_ends_without_notice_logs_the_same_after_its_checkpoint(tmp_path, step):
  whole = Run(tmp_path / 'whole', wanted_saves=(2, 7)).run()
  resumed = Run(tmp_path / 'resumed', position=whole.saved[step]).run()
  rows = without_clock(whole.tracker.rows)
  assert without_clock(resumed.tracker.rows) == [row for row in rows if row['step'] > step]


def test_an_evaluation_that_is_cut_short_is_made_first_thing_on_resuming(tmp_path):
  cut = Run(tmp_path)
  evaluate = cut.loop.evaluate

  def stopped_in_the_middle(params, is_stopped):
    cut.stop.requested = 'SIGTERM'
    return evaluate(params, is_stopped)

  cut.loop.evaluate = stopped_in_the_middle
  cut.run()
  assert cut.events == ['log 3', 'save 4']
  assert cut.saved[4].is_evaluation_due
  assert Run(tmp_path, position=cut.saved[4]).run().events[:2] == ['evaluation 4', 'save 5']


def test_updates_that_are_skipped_count_as_steps_and_not_in_the_metrics(tmp_path):
  run = Run(tmp_path, losses={2: math.nan, 3: math.inf}).run()
  row = next(row for row in run.tracker.rows if 'loss' in row)
  assert (row['loss'], row['skipped_updates'], row['learning_rate']) == (2 / 2, 2, 0)


def test_too_many_in_a_row_end_the_run_before_anything_of_it_is_saved(tmp_path):
  run = Run(tmp_path, losses=dict.fromkeys(range(4, 9), math.nan), guards=GuardsConfig(max_skipped_updates=2))
  with pytest.raises(RunError, match='the loss of step 6 is not finite, after 2 consecutive skipped updates'):
    run.run()
  assert 'save 6' not in run.events
  assert run.loop.position.step <= 7


# --- configuration --------------------------------------------------------------------------------


def test_checkpoints_to_keep_are_made():
  with pytest.raises(UsageError, match=r'must be a multiple of train\.checkpoint_every'):
    TrainConfig(keep_every=7_500)
  TrainConfig(temporary_checkpoint_minutes=0.5, keep_every=10_000)


def test_a_batch_that_does_not_divide_is_a_usage_error():
  with pytest.raises(UsageError) as error:
    TrainConfig(batch_size=9, accumulation_steps=3).check_divides(2)
  assert str(error.value) == (
    'a batch of 9 sequences cannot be divided over 2 device group(s) × 3 accumulation steps\n'
    '  where  train.batch_size, mesh.data × mesh.fsdp, train.accumulation_steps\n'
    '  fix    --gin.train.batch_size=12'
  )
  with pytest.raises(UsageError, match='a batch of 30 sequences cannot be divided over 4 accumulation steps'):
    TrainConfig(batch_size=30, accumulation_steps=4)  # by no number of devices


@given(rows=st.integers(1, 500), accumulation_steps=st.integers(1, 12), shards=st.integers(1, 64))
def test_the_batch_size_that_is_suggested_is_the_next_that_works(rows, accumulation_steps, shards):
  batch_size, parts = rows * accumulation_steps, shards * accumulation_steps
  check = lambda size: TrainConfig(batch_size=size, accumulation_steps=accumulation_steps).check_divides(shards)
  if batch_size % parts == 0:
    check(batch_size)
    return
  with pytest.raises(UsageError) as error:
    check(batch_size)
  suggested = int(re.fullmatch(r'--gin\.train\.batch_size=(\d+)', error.value.fix[0])[1])
  check(suggested)
  assert batch_size < suggested < batch_size + parts
