"""Evaluation adds sums and divides once; the entropy of single pieces against a plain count."""

import collections
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembert.data.masking import MaskingConfig, SpecialIds, mask_rows
from rembert.train.evaluation import evaluate, piece_counts, unigram_entropy
from rembert.train.losses import LossSums

TOLERANCE = 1e-12
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
  assert metrics == pytest.approx(
    {
      'eval/loss': 83 / 33,
      'eval/accuracy': 11 / 33,
      'eval/loss/de': 31 / 12,
      'eval/accuracy/de': 3 / 12,
      'eval/loss/en': 52 / 21,
      'eval/accuracy/en': 8 / 21,
    },
    rel=TOLERANCE,
  )
  assert {type(value) for value in metrics.values()} == {float}  # JSON knows no NumPy


@pytest.mark.parametrize('seen', [0, 1, 2])
def test_when_asked_to_stop_it_stops_before_the_next_batch_and_says_nothing(seen):
  run = []
  step = lambda params, batch: run.append(batch) or eval_step(params, batch)
  assert evaluate(step, 'the parameters', BATCHES, LANGUAGES, is_stopped=lambda: len(run) >= seen) is None
  assert len(run) == seen


def test_a_request_after_the_last_batch_does_not_throw_the_result_away():
  asked = itertools.count(1)
  metrics = evaluate(eval_step, 'the parameters', BATCHES, LANGUAGES, is_stopped=lambda: next(asked) > len(BATCHES))
  assert metrics == evaluate(eval_step, 'the parameters', BATCHES, LANGUAGES)


# --- the loss that frequency alone would give -------------------------------------------------------

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
  assert entropy == pytest.approx(entropy_of_counts(counts), rel=TOLERANCE, abs=TOLERANCE)


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


def test_equally_frequent_pieces_have_the_entropy_of_their_number():
  batches = [plain([[5, 6, 7, 8]]), plain([[9, 10, 11, 12]])]
  assert unigram_entropy(piece_counts(batches, vocab_size=20), first_piece=5) == pytest.approx(
    math.log(8), rel=TOLERANCE
  )


def test_special_pieces_padding_and_empty_slots_are_not_counted():
  batch = plain([[2, 5, 5, 6, 3, 7, 7]], segments=[[1, 1, 1, 1, 1, 0, 0]])
  expected = entropy_of_counts({5: 2, 6: 1})
  assert unigram_entropy(piece_counts([batch], vocab_size=20), first_piece=5) == pytest.approx(expected, rel=TOLERANCE)


def test_counting_leaves_the_batch_as_it_was():
  batch = plain([[5, 4, 6]])
  batch['masked_positions'][0, 0], batch['targets'][0, 0], batch['weights'][0, 0] = 1, 9, 1
  assert unigram_entropy(piece_counts([batch], vocab_size=20), first_piece=5) == pytest.approx(
    math.log(3), rel=TOLERANCE
  )
  np.testing.assert_array_equal(batch['input_ids'], [[5, 4, 6]])


def test_no_text_has_no_entropy():
  assert unigram_entropy(piece_counts([], vocab_size=20), first_piece=5) == 0
