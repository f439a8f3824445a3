"""Packing loses nothing, keeps the order, and can be taken up at any place; sentences leave little padding."""

import itertools
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.data.packing import (
  PackingConfig,
  Place,
  most_sentences,
  pack,
  packed_sentences,
  segments_and_positions,
)
from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds

SPECIAL = SpecialIds()


@st.composite
def corpora(draw):
  """Documents whose tokens are all different, so that order and loss can be seen; some documents are empty."""
  lengths = draw(st.lists(st.integers(0, 90), max_size=12))
  bounds = np.cumsum([0, *lengths]) + SPECIAL.first_piece
  return [np.arange(begin, end, dtype=np.int32) for begin, end in itertools.pairwise(bounds)]


sequence_lengths = st.integers(10, 70)
manners = st.sampled_from(
  [PackingConfig(), PackingConfig(one_document_a_row=True), PackingConfig(short_rows=0.5), PackingConfig(True, 1.0)]
)


def packed(documents, sequence_length, config=PackingConfig()):
  """Rows with their segments and positions."""
  rows = [ids for ids, _ in pack(documents, sequence_length, SPECIAL, config=config)]
  described = ((ids, *(values[0] for values in segments_and_positions(ids[None], SPECIAL))) for ids in rows)
  return [types.SimpleNamespace(ids=ids, segments=segments, positions=at) for ids, segments, at in described]


def segments_of(row):
  """The row's segments, [CLS] and [SEP] included."""
  return [row.ids[row.segments == number] for number in range(1, row.segments.max() + 1)]


@given(documents=corpora(), sequence_length=sequence_lengths, config=manners)
@settings(deadline=None)
def test_every_token_appears_once_and_in_order_in_segments_of_one_document_between_cls_and_sep(
  documents, sequence_length, config
):
  owner = {token: number for number, document in enumerate(documents) for token in document.tolist()}
  tokens = []
  rows = packed(documents, sequence_length, config)
  for row in rows[:-1] if config == PackingConfig() else ():
    # A gap is left only where fewer than 8 tokens would fit next to [CLS] and [SEP].
    assert np.count_nonzero(row.segments == 0) < 8 + 2
  for segment in itertools.chain.from_iterable(map(segments_of, rows)):
    assert (segment[0], segment[-1]) == (SPECIAL.cls, SPECIAL.sep)
    text = segment[1:-1].tolist()
    assert len({owner[token] for token in text}) == 1
    tokens += text
  np.testing.assert_array_equal(tokens, np.concatenate([[], *documents]))


@given(documents=corpora(), sequence_length=sequence_lengths, config=manners)
@settings(deadline=None, max_examples=40)
def test_packing_from_any_place_that_was_yielded_gives_the_very_rows_that_followed(documents, sequence_length, config):
  whole = list(pack(documents, sequence_length, SPECIAL, config=config))
  for index, (_, place) in enumerate(whole):
    again = list(pack(documents[place.document :], sequence_length, SPECIAL, start=place, config=config))
    assert [next_place for _, next_place in again] == [next_place for _, next_place in whole[index + 1 :]]
    for (row, _), (expected, _) in zip(again, whole[index + 1 :], strict=True):
      np.testing.assert_array_equal(row, expected)
  places = [(place.document, place.offset) for _, place in whole]
  assert places == sorted(set(places))
  if places:
    assert places[-1][1] == 0
    assert not any(len(document) for document in documents[places[-1][0] :])


def test_a_long_document_continues_in_the_next_sequence_before_another_is_read():
  documents = iter([np.arange(1000, 1025, dtype=np.int32), np.arange(400, 500, dtype=np.int32)])
  (first, place), (second, end) = itertools.islice(pack(documents, 20, SPECIAL, config=PackingConfig(True)), 2)
  assert first.tolist() == [SPECIAL.cls, *range(1000, 1018), SPECIAL.sep]
  assert place == Place(0, 18)
  assert second.tolist() == [SPECIAL.cls, *range(1018, 1025), SPECIAL.sep] + [SPECIAL.pad] * 11
  assert end == Place(1, 0)
  assert len(next(documents)) == 100


# --- other manners ----------------------------------------------------------------------------------------------------


def test_unpacked_rows_hold_one_document_each_or_a_part_of_it():
  documents = [np.arange(begin, begin + length) for begin, length in ((400, 5), (500, 70), (600, 14))]
  rows = packed(documents, 32, PackingConfig(one_document_a_row=True))
  assert [row.segments.max() for row in rows] == [1] * 5
  assert [np.count_nonzero(row.segments) - 2 for row in rows] == [5, 30, 30, 10, 14]


def test_the_share_of_short_rows_is_as_asked_and_their_lengths_are_spread():
  documents = [np.arange(1000, 1000 + 200_000)]
  lengths = np.array([np.count_nonzero(row.segments) for row in packed(documents, 64, PackingConfig(short_rows=0.25))])
  share = np.mean(lengths[:-1] < 64)
  assert abs(share - 0.25 * 54 / 55) < 5 * np.sqrt(0.25 * 0.75 / len(lengths))
  assert lengths[:-1].min() < 14
  short = lengths[:-1][lengths[:-1] < 64]
  assert abs(short.mean() - 36.5) < 5 * 16 / np.sqrt(len(short))


@given(documents=corpora(), sequence_length=sequence_lengths, config=manners)
@settings(deadline=None)
def test_segments_and_positions_count_documents_and_their_tokens(documents, sequence_length, config):
  for row in packed(documents, sequence_length, config):
    assert all(x.shape == (sequence_length,) and x.dtype == np.int32 for x in vars(row).values())
    segment, position = 0, 0
    for token, *found in zip(row.ids.tolist(), row.segments.tolist(), row.positions.tolist(), strict=True):
      segment, position = (segment + 1, 0) if token == SPECIAL.cls else (segment, position + 1)
      assert found == ([0, 0] if token == SPECIAL.pad else [segment, position])


# --- sentences --------------------------------------------------------------------------------------------------------

PAD = 0


def batches_of(sentences, *, batch_size=4, longest=512):
  return list(packed_sentences(sentences, pad=PAD, batch_size=batch_size, longest=longest))


@given(
  st.lists(st.integers(0, 40), max_size=80).map(lambda lengths: [[*range(1, n + 1)] for n in lengths]),
  st.integers(1, 7),
  st.sampled_from([40, 63, 64, 65, 100, 512]),
)
def test_every_sentence_is_in_one_place_as_it_was(sentences, batch_size, longest):
  seen = {}
  for batch in batches_of(sentences, batch_size=batch_size, longest=longest):
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
  found = batches_of([[1] * length for length in lengths], batch_size=batch_size)
  row_lengths = [batch.input_ids.shape[1] for batch in found]
  assert row_lengths == sorted(row_lengths, reverse=True)
  assert {*row_lengths} <= {64, 128, 256, 512}
  assert row_lengths[0] < 2 * max(64, *lengths)
  assert len({batch.input_ids.shape for batch in found}) == len({*row_lengths})
  assert all(batch.input_ids.size <= max(64 * batch_size, batch.input_ids.shape[1]) for batch in found)


def test_sentences_of_usual_lengths_leave_little_padding():
  random = np.random.default_rng(0)
  lengths = np.clip(np.rint(random.lognormal(np.log(22), 0.6, 2000)), 1, 512).astype(int)
  rows = [
    batch.segment_ids[place] for batch in batches_of([[1] * n for n in lengths]) for place in range(len(batch[0]))
  ]
  filled = [row for row in rows if row.any()]
  assert sum(map(len, filled)) < 1.02 * lengths.sum()


def test_short_sentences_fill_what_long_ones_leave():
  found = batches_of([[1] * 10, [1] * 100, [1] * 64, [1] * 18], batch_size=2)
  assert [batch.sentences for batch in found] == [[[1, 3, 0]], [[2], []]]
  assert [batch.input_ids.shape for batch in batches_of([[1] * 5] * 20, batch_size=2, longest=40)] == [(2, 40), (2, 40)]
  found = batches_of([[1] * 60, [1] * 200, [1] * 90], batch_size=8)
  assert [batch.sentences for batch in found] == [[[1], [2, 0]]]


def test_a_row_of_the_shortest_sentences_holds_as_many_as_the_model_makes_means_for():
  most = most_sentences(64)
  sentences = [[1]] * (2 * most)
  assert [len(row) for batch in batches_of(sentences, batch_size=2) for row in batch.sentences] == [most, most]


def test_a_sentence_longer_than_the_model_is_refused():
  with pytest.raises(UsageError, match="exceeds the model's positions"):
    batches_of([[1] * 5], longest=4)
