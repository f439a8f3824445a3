"""Text for trained models: masks, cutting, rows of like length."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembert.data.text import TextEncoder, cut, padded_rows
from rembert.errors import UsageError


@pytest.fixture(scope='module')
def encoder(small_vocabulary):
  return TextEncoder(small_vocabulary)


def test_a_mask_stands_for_itself_and_takes_the_space_before_it(encoder):
  before, after = encoder.encode('der')[1:-1], encoder.encode('fließt')[1:-1]
  assert encoder.encode('der [MASK] fließt') == [312, *before, 314, *after, 313]
  assert encoder.encode('[MASK]') == [312, 314, 313]
  assert encoder.encode('') == [312, 313]
  assert encoder.piece(314) == '[MASK]'
  assert encoder.piece(589).isprintable()
  assert encoder.piece(590) == '[590]'
  assert len(encoder) == 590


def test_cutting_keeps_the_end_mark():
  assert cut([312, 1, 2, 3, 313], 4) == [312, 1, 2, 313]
  assert cut([312, 1, 313], 3) == [312, 1, 313]


@given(st.lists(st.lists(st.integers(1, 99), max_size=40), max_size=30), st.integers(1, 7))
def test_every_row_is_in_one_batch_as_it_was(rows, batch_size):
  seen = {}
  shapes = set()
  for chosen, ids, mask in padded_rows(rows, pad=0, batch_size=batch_size, longest=40):
    assert ids.shape == mask.shape
    assert len(ids) == batch_size
    shapes.add(ids.shape)
    for place, row in enumerate(chosen):
      assert row not in seen
      seen[row] = ids[place][mask[place] == 1].tolist()
      assert not np.any(ids[place][mask[place] == 0])
    assert not np.any(mask[len(chosen) :])
  assert [seen[row] for row in range(len(rows))] == rows
  assert len(shapes) <= 6  # 0, 8, 16, 24, 32, 40


def test_short_rows_get_little_padding_and_few_shapes_are_compiled():
  rows = [[1] * length for length in range(1, 513)]
  lengths = [ids.shape[1] for _, ids, _ in padded_rows(rows, pad=0, batch_size=1, longest=512)]
  assert all(length - len(row) < max(8, length / 5) for row, length in zip(rows[::-1], lengths, strict=True))
  assert sorted({*lengths}) == [*range(8, 64, 8), *range(64, 128, 16), *range(128, 256, 32), *range(256, 513, 64)]


def test_the_batch_that_is_filled_up_is_the_shortest():
  batches = list(padded_rows([[1] * length for length in (9, 30, 3, 17, 25)], pad=0, batch_size=2, longest=40))
  assert [(chosen, ids.shape) for chosen, ids, _ in batches] == [([1, 4], (2, 32)), ([3, 0], (2, 24)), ([2], (2, 8))]


def test_a_row_longer_than_the_model_is_refused():
  with pytest.raises(UsageError, match='longer'):
    list(padded_rows([[1] * 5], pad=0, batch_size=1, longest=4))
