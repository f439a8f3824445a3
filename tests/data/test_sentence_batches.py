"""Every sentence is in one sequence, complete; sequences are well filled, and have few shapes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembert.data.sentence_batches import most_sentences, packed_sentences
from rembert.errors import UsageError

PAD = 0


def batches(sentences, *, batch_size=4, longest=512):
  return list(packed_sentences(sentences, pad=PAD, batch_size=batch_size, longest=longest))


@given(
  st.lists(st.integers(0, 40), max_size=80).map(lambda lengths: [[*range(1, n + 1)] for n in lengths]),
  st.integers(1, 7),
  st.sampled_from([40, 63, 64, 65, 100, 512]),
)
def test_every_sentence_is_in_one_place_as_it_was(sentences, batch_size, longest):
  seen = {}
  for batch in batches(sentences, batch_size=batch_size, longest=longest):
    shape = batch.input_ids.shape
    assert shape == batch.segment_ids.shape == batch.position_ids.shape == (len(batch.sentences), shape[1])
    for place, row in enumerate(batch.sentences):
      assert len(row) <= most_sentences(shape[1])
      for number, sentence in enumerate(row, start=1):
        here = np.flatnonzero(batch.segment_ids[place] == number)
        assert sentence not in seen
        seen[sentence] = batch.input_ids[place, here].tolist()
        assert np.array_equal(batch.position_ids[place, here], np.arange(len(here)))
        assert not here.size or here[-1] - here[0] == len(here) - 1
      assert batch.segment_ids[place].max() <= len(row)
      assert not np.any(batch.input_ids[place, batch.segment_ids[place] == 0] != PAD)
  assert [seen[index] for index in range(len(sentences))] == sentences


@given(st.lists(st.integers(1, 512), min_size=1, max_size=60), st.integers(1, 32))
def test_long_rows_come_first_and_batches_have_no_more_positions_than_asked_for(lengths, batch_size):
  found = batches([[1] * length for length in lengths], batch_size=batch_size)
  row_lengths = [batch.input_ids.shape[1] for batch in found]
  assert row_lengths == sorted(row_lengths, reverse=True)
  assert {*row_lengths} <= {64, 128, 256, 512}
  assert row_lengths[0] < 2 * max(64, *lengths)
  assert len({batch.input_ids.shape for batch in found}) == len({*row_lengths})
  assert all(batch.input_ids.size <= max(64 * batch_size, batch.input_ids.shape[1]) for batch in found)


def test_sentences_of_usual_lengths_leave_little_padding():
  random = np.random.default_rng(0)
  lengths = np.clip(np.rint(random.lognormal(np.log(22), 0.6, 2000)), 1, 512).astype(int)
  rows = [batch.segment_ids[place] for batch in batches([[1] * n for n in lengths]) for place in range(len(batch[0]))]
  filled = [row for row in rows if row.any()]
  assert sum(map(len, filled)) < 1.02 * lengths.sum()


def test_short_sentences_fill_what_long_ones_leave():
  found = batches([[1] * 10, [1] * 100, [1] * 64, [1] * 18], batch_size=2)
  assert [batch.sentences for batch in found] == [[[1, 3, 0]], [[2], []]]
  found = batches([[1] * 60, [1] * 200, [1] * 90], batch_size=8)
  assert [batch.sentences for batch in found] == [[[1], [2, 0]]]


def test_a_model_of_few_positions_has_sequences_of_that_length():
  assert [batch.input_ids.shape for batch in batches([[1] * 5] * 20, batch_size=2, longest=40)] == [(2, 40), (2, 40)]
  assert [batch.input_ids.shape for batch in batches([[1] * 90], batch_size=4, longest=100)] == [(2, 100)]


def test_a_row_of_the_shortest_sentences_holds_as_many_as_the_model_makes_means_for():
  most = most_sentences(64)
  sentences = [[1]] * (2 * most)
  assert [len(row) for batch in batches(sentences, batch_size=2) for row in batch.sentences] == [most, most]


def test_a_sentence_longer_than_the_model_is_refused():
  with pytest.raises(UsageError, match="exceeds the model's positions"):
    batches([[1] * 5], longest=4)
