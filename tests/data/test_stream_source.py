"""Batches continue from any step as if nothing had been, on any host; evaluation batches never change."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from batch_checks import assert_same, unmasked
from hypothesis import given, settings
from hypothesis import strategies as st
from text_streams import CORPUS, RATES, SOURCE, SPECIAL, B, S, open_documents

from rembert.data.batches import batch_shapes
from rembert.data.packing import pack
from rembert.data.stream_source import START, SourcePlace, language_rows
from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds

STEPS = 60


@pytest.fixture(scope='module')
def uninterrupted():
  return list(itertools.islice(SOURCE.batches(), STEPS))


@given(step=st.integers(1, STEPS - 8))
@settings(deadline=None)
def test_resuming_after_any_step_is_bitwise_the_uninterrupted_run(uninterrupted, step):
  # The state travels through a checkpoint, which is JSON.
  state = json.loads(json.dumps(uninterrupted[step - 1][1]))
  resumed = itertools.islice(SOURCE.batches(step, state), 8)
  for (batch, next_state), (expected, expected_state) in zip(resumed, uninterrupted[step : step + 8], strict=True):
    assert_same(batch, expected)
    assert next_state == expected_state


def stream(language, documents=open_documents, *, window=4, state=START):
  return language_rows(language, documents, sequence_length=S, special=SPECIAL, seed=1, window=window, state=state)


@pytest.mark.parametrize('language', RATES)
@pytest.mark.parametrize('window', [1, 3, 64])
def test_a_language_resumes_at_window_edges_and_epoch_wraps(language, window):
  rows, states = zip(*itertools.islice(stream(language, window=window), 3 * 64 + 5), strict=True)
  assert states[-1]['epoch'] >= 1
  starts = [n for n, state in enumerate(states[:-5]) if state['row'] in (1, window - 1, window)]
  for start in starts[:: max(1, len(starts) // 12)] + starts[-2:]:
    again = itertools.islice(stream(language, window=window, state=states[start]), 5)
    for (row, state), *expected in zip(again, rows[start + 1 : start + 6], states[start + 1 : start + 6], strict=True):
      np.testing.assert_array_equal(row, expected[0])
      assert state == expected[1]


def test_resuming_opens_the_source_where_the_window_began():
  opened_at = []

  def reading(language, split, source):
    opened_at.append(source)
    return open_documents(language, split, source)

  *_, (_, state) = itertools.islice(stream('en', reading), 14)
  next(stream('en', reading, state=state))
  assert opened_at[0] == SourcePlace()
  assert opened_at[-1] == (state['source_example'], state['source_document'])
  assert 0 < state['source_document'] <= state['document'] < state['source_document'] + 4


def test_windows_are_shuffles_of_the_documents_in_order_epoch_after_epoch():
  rows = (row.tobytes() for row, _ in stream('de'))
  epoch = [row.tobytes() for row, _ in pack(CORPUS['de', 'train'], S, SPECIAL)]
  in_order = itertools.cycle(epoch)
  moved = 0
  for _ in range(10):
    window = list(itertools.islice(in_order, 4))
    drawn = list(itertools.islice(rows, 4))
    assert sorted(drawn) == sorted(window)
    moved += drawn != window
  # A window stays as it is once in 24 times.
  assert moved >= 6


def test_processes_read_disjoint_rows_and_another_number_of_them_may_resume(uninterrupted):
  def check(count, first, last, state=None):
    readers = [dataclasses.replace(SOURCE, process=(index, count)).batches(first, state) for index in range(count)]
    for expected, expected_state in uninterrupted[first:last]:
      parts = [next(reader) for reader in readers]
      assert_same({name: np.concatenate([batch[name] for batch, _ in parts]) for name in expected}, expected)
      assert all(state == expected_state for _, state in parts)
    return expected_state

  check(4, 9, 15, check(2, 0, 9))


def test_a_batch_has_the_names_shapes_and_types_that_the_step_takes_and_other_seeds_give_others(uninterrupted):
  batch, other = uninterrupted[0][0], next(dataclasses.replace(SOURCE, seed=8).batches())[0]
  assert {name: (x.shape, x.dtype) for name, x in batch.items()} == batch_shapes(B, S, 3)
  assert np.any(other['input_ids'] != batch['input_ids'])


def test_rows_come_from_the_language_they_are_labelled_with(uninterrupted):
  owner = {}
  for (language, split), documents in CORPUS.items():
    if split == 'train':
      for row, _ in pack(documents, S, SPECIAL):
        owner[row.tobytes()] = language
  seen = set()
  for batch, _ in uninterrupted:
    for ids, language in zip(unmasked(batch), batch['language'], strict=True):
      assert owner[ids.tobytes()] == SOURCE.languages[language]
      seen.add(SOURCE.languages[language])
  assert seen == set(RATES)


# --- evaluation -----------------------------------------------------------------------------------


@pytest.mark.parametrize(('pad', 'count'), [(0, 1), (1, 2)])
def test_evaluation_takes_the_first_held_out_rows_of_each_language_and_pads_with_rows_of_weight_zero(pad, count):
  special = SpecialIds(pad=pad)
  source = dataclasses.replace(SOURCE, special=special)
  expected = []
  for index, language in enumerate(RATES):
    held_out = [row for row, _ in pack(CORPUS[language, 'validation'], S, special)][:5]
    expected += [(index, ids.tobytes()) for ids in held_out]
  batches = list(source.evaluation_batches())
  assert len(batches) == -(-len(expected) // B) > 1
  assert all(batch['input_ids'].shape == (B, S) for batch in batches)
  rows = [
    (int(language), ids.tobytes())
    for batch in batches
    for language, ids in zip(batch['language'], unmasked(batch), strict=True)
  ]
  assert rows[: len(expected)] == expected
  padding = {name: x[len(expected) % B :] for name, x in batches[-1].items()}
  assert len(padding['language']) > 0, 'the corpus of this test should leave a batch to pad'
  assert not any(np.any(padding[name]) for name in padding.keys() - {'input_ids', 'position_ids'})
  assert np.all(padding['input_ids'] == pad)
  assert sum(np.any(batch['weights'], axis=1).sum() for batch in batches) == len(expected)
  parts = [dataclasses.replace(source, process=(index, count)).evaluation_batches() for index in range(count)]
  for whole, *some in zip(batches, *parts, strict=True):
    assert_same({name: np.concatenate([part[name] for part in some]) for name in whole}, whole)
  assert list(dataclasses.replace(SOURCE, rates={'sw': 1.0}).evaluation_batches()) == []  # it has none


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize('documents', [[], [np.zeros(0, np.int32)] * 3], ids=['no documents', 'empty documents'])
def test_a_language_without_text_is_a_usage_error(documents):
  source = dataclasses.replace(
    SOURCE, rates={'xx': 1.0}, open_documents=lambda *_: ((ids, SourcePlace()) for ids in documents)
  )
  with pytest.raises(UsageError, match='xx') as error:
    next(source.batches())
  assert 'data.languages' in error.value.where
