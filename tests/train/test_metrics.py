"""The meter's intervals, over any steps and across any interruption; evaluation by language; unigram entropy."""

import collections
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembert.data.masking import MaskingConfig, mask_rows
from rembert.tokenizer import SpecialIds
from rembert.train.losses import LossSums
from rembert.train.metrics import Meter, evaluate, piece_counts, unigram_entropy
from rembert.train.step import StepMetrics

TOLERANCE = 1e-6  # metrics come as float32
EVAL_TOLERANCE = 1e-12
NUMBERS = {'positions_per_step': 100, 'flops_per_step': 6e9, 'peak_flops': None}


def metrics(loss=10.0, correct=1.0, weight=4.0, tokens=80.0, grad_norm=0.5):
  return StepMetrics(
    sums=LossSums(*(np.float32(x) for x in (loss, correct, weight))),
    tokens=np.float32(tokens),
    grad_norm=np.float32(grad_norm),
    is_finite=np.bool_(math.isfinite(loss) and math.isfinite(grad_norm)),
  )


def test_an_interval_is_divided_once_by_all_of_its_weight_and_by_the_steps_that_were_timed():
  meter = Meter()
  meter.add(metrics(loss=30.0, correct=1, weight=10, tokens=100, grad_norm=3.0))
  meter.add(metrics(loss=2.0, correct=2, weight=2, tokens=50, grad_norm=0.25))
  meter.add(metrics(loss=8.0, correct=0, weight=4, tokens=90, grad_norm=0.5))
  for seconds, waited in [(1.0, 0.5), (3.0, 0.5)]:
    meter.add_time(seconds, waited)
  row = {'loss': 40 / 16, 'accuracy': 3 / 16, 'padding': 1 - 240 / 300, 'grad_norm': 0.5}
  row |= {'step_seconds': 2.0, 'tokens_per_second': 50.0, 'data_wait_share': 0.25, 'mfu': 6e9 / 2.0 / 1e10}
  assert meter.interval(**NUMBERS | {'peak_flops': 1e10}) == pytest.approx(row, rel=TOLERANCE)
  # A new interval begins with nothing, and without predictions nothing is divided by zero.
  assert set(meter.saved().values()) == {0.0}
  meter.add(metrics(loss=0.0, correct=0, weight=0, tokens=60, grad_norm=2.0))
  meter.add_time(0.5, 0.1)
  row = {'loss': 0.0, 'accuracy': 0.0, 'grad_norm': 2.0, 'padding': 0.4}
  row |= {'step_seconds': 0.5, 'tokens_per_second': 200.0, 'data_wait_share': 0.2}
  assert meter.interval(**NUMBERS) == pytest.approx(row, rel=TOLERANCE)


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
  saved = meter.saved()
  meter.add(metrics())
  Meter(saved).add(metrics())
  assert saved == Meter().saved()


# --- evaluation -------------------------------------------------------------------------------------------------------

LANGUAGES = ('de', 'en', 'sw')

# (loss, correct, weight) of each language in three batches; 'sw' has no held-out text.
BATCHES = [
  [(30.0, 1, 10), (2.0, 1, 1), (0, 0, 0)],
  [(0.0, 0, 0), (50.0, 7, 20), (0, 0, 0)],
  [(1.0, 2, 2), (0.0, 0, 0), (0, 0, 0)],
]


def eval_step(params, batch):
  assert params == 'the parameters'
  return LossSums(*np.asarray(batch, np.float32).T)


def test_losses_are_divided_once_by_the_weight_of_all_batches():
  metrics = evaluate(eval_step, 'the parameters', BATCHES, LANGUAGES)
  expected = {'eval/loss': 83 / 33, 'eval/accuracy': 11 / 33, 'eval/loss/de': 31 / 12, 'eval/accuracy/de': 3 / 12}
  expected |= {'eval/loss/en': 52 / 21, 'eval/accuracy/en': 8 / 21}
  assert metrics == pytest.approx(expected, rel=EVAL_TOLERANCE)
  assert {type(value) for value in metrics.values()} == {float}  # JSON knows no NumPy


def test_when_asked_to_stop_it_stops_before_the_next_batch_and_after_the_last_the_result_stays():
  for seen in range(4):
    run = []
    step = lambda params, batch, run=run: run.append(batch) or eval_step(params, batch)
    is_stopped = lambda run=run, seen=seen: len(run) >= seen
    result = evaluate(step, 'the parameters', BATCHES, LANGUAGES, is_stopped=is_stopped)
    assert len(run) == seen
    assert (result is None) == (seen < len(BATCHES))


# --- the unigram baseline ---------------------------------------------------------------------------

SPECIAL = SpecialIds(pad=0, unknown=1, cls=2, sep=3, mask=4)


def entropy_of_counts(counts):
  total = sum(counts.values())
  return -sum(count / total * math.log(count / total) for count in counts.values())


@given(
  seed=st.integers(0, 2**32 - 1),
  lengths=st.lists(st.integers(3, 12), min_size=1, max_size=6),
  rate=st.floats(0.05, 0.9),
)
def test_entropy_is_that_of_a_plain_count_of_the_text_before_masking(seed, lengths, rate):
  random = np.random.default_rng(seed)
  text = np.zeros((len(lengths), 12), np.int32)
  for row, length in enumerate(lengths):
    text[row, :length] = [SPECIAL.cls, *random.integers(SPECIAL.first_piece, 20, length - 2), SPECIAL.sep]
  masks = MaskingConfig(rate=rate)
  batch = mask_rows(text, seed=seed, stream=0, step=0, first_row=0, special=SPECIAL, vocab_size=20, config=masks)
  batch['segment_ids'] = (text != SPECIAL.pad).astype(np.int32)
  counts = collections.Counter(int(piece) for row in text for piece in row if piece >= SPECIAL.first_piece)
  entropy = unigram_entropy(piece_counts([batch], vocab_size=20), first_piece=SPECIAL.first_piece)
  assert entropy == pytest.approx(entropy_of_counts(counts), rel=EVAL_TOLERANCE, abs=EVAL_TOLERANCE)


def plain(ids, segments=None):
  """A batch in which nothing is masked."""
  ids = np.asarray(ids, np.int32)
  nothing = np.zeros((len(ids), 2), np.int32)
  return {
    'input_ids': ids,
    'segment_ids': np.ones_like(ids) if segments is None else np.asarray(segments, np.int32),
    'masked_positions': nothing,
    'targets': nothing + 19,
    'weights': nothing.astype(np.float32),
  }


def test_special_pieces_padding_and_empty_slots_are_not_counted_and_the_batch_stays_as_it_was():
  batch = plain([[2, 5, 5, 6, 3, 7, 7]], segments=[[1, 1, 1, 1, 1, 0, 0]])
  entropy = lambda *batches: unigram_entropy(piece_counts(batches, vocab_size=20), first_piece=5)
  assert entropy(batch) == pytest.approx(entropy_of_counts({5: 2, 6: 1}), rel=EVAL_TOLERANCE)
  batch = plain([[5, 4, 6]])
  batch['masked_positions'][0, 0], batch['targets'][0, 0], batch['weights'][0, 0] = 1, 9, 1
  assert entropy(batch) == pytest.approx(math.log(3), rel=EVAL_TOLERANCE)
  np.testing.assert_array_equal(batch['input_ids'], [[5, 4, 6]])
  assert entropy() == 0
