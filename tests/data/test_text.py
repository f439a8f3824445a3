"""Text for trained models: masks, cutting."""

import pytest

from rembert.data.text import TextEncoder, cut


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
