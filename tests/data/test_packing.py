"""Packing loses nothing, keeps the order, and can be taken up at any place it has passed."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.data.masking import SpecialIds
from rembert.data.packing import Place, pack

SPECIAL = SpecialIds()


@st.composite
def corpora(draw):
  """Documents whose tokens are all different, so that order and loss can be seen; some documents are empty."""
  lengths = draw(st.lists(st.integers(0, 90), max_size=12))
  bounds = np.cumsum([0, *lengths]) + SPECIAL.first_piece
  return [np.arange(begin, end, dtype=np.int32) for begin, end in itertools.pairwise(bounds)]


sequence_lengths = st.integers(10, 70)


def segments_of(row):
  """The row's segments, [CLS] and [SEP] included."""
  return [row.ids[row.segments == number] for number in range(1, row.segments.max() + 1)]


@given(documents=corpora(), sequence_length=sequence_lengths)
@settings(deadline=None)
def test_every_token_of_every_document_appears_once_and_in_order(documents, sequence_length):
  packed = [
    token
    for row, _ in pack(documents, sequence_length, SPECIAL)
    for segment in segments_of(row)
    for token in segment[1:-1]
  ]
  np.testing.assert_array_equal(packed, np.concatenate([[], *documents]))


@given(documents=corpora(), sequence_length=sequence_lengths)
@settings(deadline=None)
def test_each_segment_is_a_piece_of_one_document_between_cls_and_sep(documents, sequence_length):
  owner = {token: number for number, document in enumerate(documents) for token in document.tolist()}
  for row, _ in pack(documents, sequence_length, SPECIAL):
    for segment in segments_of(row):
      assert segment[0] == SPECIAL.cls
      assert segment[-1] == SPECIAL.sep
      assert len(segment) > 2
      assert len({owner[token] for token in segment[1:-1].tolist()}) == 1


@given(documents=corpora(), sequence_length=sequence_lengths)
@settings(deadline=None)
def test_segments_are_numbered_and_positions_restart_with_each(documents, sequence_length):
  for row, _ in pack(documents, sequence_length, SPECIAL):
    assert all(x.shape == (sequence_length,) and x.dtype == np.int32 for x in row)
    used = np.count_nonzero(row.segments)
    # Numbers rise by one where a new document begins; all that follows is padding.
    assert row.segments[0] == 1
    assert set(np.diff(row.segments[:used])) <= {0, 1}
    assert not np.any(row.segments[used:])
    assert np.all(row.ids[used:] == SPECIAL.pad)
    assert not np.any(row.positions[used:])
    for number in range(1, row.segments.max() + 1):
      positions = row.positions[row.segments == number]
      np.testing.assert_array_equal(positions, np.arange(len(positions)))


@given(documents=corpora(), sequence_length=sequence_lengths)
@settings(deadline=None)
def test_all_rows_but_the_last_are_full_up_to_a_scrap(documents, sequence_length):
  rows = [row for row, _ in pack(documents, sequence_length, SPECIAL)]
  for row in rows[:-1]:
    # A gap is left only where fewer than 8 tokens would fit beside [CLS] and [SEP].
    assert np.count_nonzero(row.segments == 0) < 8 + 2


@given(documents=corpora(), sequence_length=sequence_lengths)
@settings(deadline=None)
def test_packing_from_any_place_that_was_yielded_gives_the_very_rows_that_followed(documents, sequence_length):
  whole = list(pack(documents, sequence_length, SPECIAL))
  for index, (_, place) in enumerate(whole):
    again = list(pack(documents[place.document :], sequence_length, SPECIAL, start=place))
    assert [next_place for _, next_place in again] == [next_place for _, next_place in whole[index + 1 :]]
    for (row, _), (expected, _) in zip(again, whole[index + 1 :], strict=True):
      for ours, theirs in zip(row, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@given(documents=corpora(), sequence_length=sequence_lengths)
@settings(deadline=None)
def test_places_only_move_forward_and_end_behind_the_last_document_with_text(documents, sequence_length):
  places = [(place.document, place.offset) for _, place in pack(documents, sequence_length, SPECIAL)]
  assert places == sorted(set(places))
  if places:
    rest = documents[places[-1][0] :]
    assert places[-1][1] == 0
    assert not any(len(document) for document in rest)


def test_a_long_document_goes_on_in_the_next_row():
  document = np.arange(1000, 1025, dtype=np.int32)
  (first, place), (second, end) = pack([document], 20, SPECIAL)
  assert first.ids.tolist() == [SPECIAL.cls, *range(1000, 1018), SPECIAL.sep]
  assert place == Place(0, 18)
  assert second.ids.tolist() == [SPECIAL.cls, *range(1018, 1025), SPECIAL.sep] + [SPECIAL.pad] * 11
  assert end == Place(1, 0)


def test_documents_are_read_no_further_than_the_rows_that_are_taken():
  taken = []

  def documents():
    for number in range(100):
      taken.append(number)
      yield np.arange(315, 333, dtype=np.int32)

  rows = pack(documents(), 20, SPECIAL)
  next(rows)
  next(rows)
  assert taken == [0, 1]


def test_no_documents_no_rows():
  assert list(pack([], 20, SPECIAL)) == []
  assert list(pack([np.zeros(0, np.int32)] * 3, 20, SPECIAL)) == []
