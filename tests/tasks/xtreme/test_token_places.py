"""Places of tokens: in characters of the text as it was, however the vocabulary normalises it."""

import bisect
import itertools
import re
import unicodedata

import numpy as np
import pytest
from computed_rows import any_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabularies import NORMALIZATIONS, small_vocabulary, vocabulary_file, written

from tasks.xtreme.preprocessors import context_tokens

every_normalization = pytest.mark.parametrize('normalization', NORMALIZATIONS)
TEXTS = st.text(st.characters(exclude_categories=['Cs']), max_size=40) | st.text(
  'aé ü½ﬁＡｶﾞﷺกำक़가北㎏🌊🇩🇪e\u0301\u200b\u00ad\u3000\n▁,.', max_size=40
)


class Places:
  """Ids of a text and where each begins and ends, in characters."""

  def __init__(self, normalization, text):
    tokens = context_tokens([text], any_vocabulary(vocabulary_file(normalization)))
    self.ids, (self.begin, self.end) = tokens.ids.numpy(), tokens.edges.numpy()


@every_normalization
@settings(deadline=None)
@given(text=TEXTS)
def test_tokens_follow_one_another_and_leave_out_only_what_has_no_pieces(normalization, text):
  pieces, found = small_vocabulary(normalization), Places(normalization, text)
  assert (found.begin <= found.end).all()
  assert (found.begin[1:] == found.end[:-1]).all()
  begin, end = (found.begin[0], found.end[-1]) if len(found.ids) else (len(text), len(text))
  assert 0 <= begin <= end <= len(text)
  assert pieces.ids(text[:begin]) == []
  assert pieces.ids(text[end:]) == []
  if normalization in ('identity', 'rembert'):
    assert text[:begin].strip(_SPACE_OF[normalization]) == text[end:].strip(_SPACE_OF[normalization]) == ''


# SentencePiece's own space is the one of ASCII, and the sign that it writes for it.
_SPACE_OF = {'identity': ' ▁', 'rembert': ' ▁\t\n\v\f\r\u0085\u00a0\u2028\u2029\u202f\u3000'}


# Characters whose normal form does not depend on their neighbours.
_ALONE = 'abcdefé½ﬁＡＢﷺกมำ\u0958가北京㎏🌊ﻼдж,.;'


def _places_by_bytes(pieces: list[str], text: str, normal) -> list[int]:
  """Where each piece begins: the character whose normal form holds the piece's first byte."""
  ends = list(itertools.accumulate(len(normal(character).replace(' ', '▁').encode()) for character in text))
  sizes = [1 if re.fullmatch('<0x[0-9A-F]{2}>', piece) else len(piece.encode()) for piece in pieces]
  begins = [begin - len('▁'.encode()) for begin in itertools.accumulate(sizes[:-1], initial=0)]
  return [bisect.bisect_right(ends, max(begin, 0)) for begin in begins]


@every_normalization
@settings(deadline=None)
@given(words=st.lists(st.text(_ALONE, min_size=1, max_size=6), min_size=1, max_size=6))
def test_a_token_begins_at_the_character_that_its_first_byte_was_made_of(normalization, words):
  text = ' '.join(words)
  normal = (
    str if normalization in ('identity', 'rembert') else lambda character: unicodedata.normalize('NFKC', character)
  )
  pieces, found = small_vocabulary(normalization), Places(normalization, text)
  assert found.begin.tolist() == _places_by_bytes(written(pieces, text), text, normal)
  assert found.end[-1] == len(text)


@every_normalization
def test_the_last_byte_of_a_character_bears_it(normalization):
  pieces = small_vocabulary(normalization)
  text = 'ab 🌊.'
  assert written(pieces, text)[-5:-1] == ['<0xF0>', '<0x9F>', '<0x8C>', '<0x8A>']
  found = Places(normalization, text)
  assert found.begin[-5:].tolist() == [3, 3, 3, 3, 4]
  assert found.end[-5:].tolist() == [3, 3, 3, 4, 5]


@pytest.mark.parametrize(
  ('text', 'part'),
  [
    ('so ﬁndet man', 'ﬁndet'),  # a ligature, two letters
    ('um 3½ Tonnen', '3½'),  # three characters
    ('約１９９０年 に', '約１９９０年'),  # full width
    ('في ﷺ مدينة', 'ﷺ'),  # four words in one sign
    ('มี น้ำ มาก', 'น้ำ'),  # sara am, two signs
    ('यह \u0958लम है', '\u0958लम'),  # a letter with nukta, two signs
    ('ein e\u0301te ist', 'e\u0301te'),  # two signs, one letter
    ('1 ㎏ Mehl', '㎏'),
  ],
)
@every_normalization
def test_a_word_is_found_again_though_normalisation_changed_its_length(normalization, text, part):
  found = Places(normalization, text)
  begin = text.index(part)
  inside = (found.end > begin) & (found.begin < begin + len(part))
  first, last = np.flatnonzero(inside)[[0, -1]]
  assert text[found.begin[first] : found.end[last]].strip() == part


@every_normalization
@pytest.mark.parametrize('text', ['', ' ', '   '])
def test_white_space_has_no_pieces(normalization, text):
  found = Places(normalization, text)
  assert found.ids.shape == found.begin.shape == found.end.shape == (0,)


@every_normalization
def test_a_space_belongs_to_the_word_behind_it(normalization):
  found = Places(normalization, '  a   b  ')
  assert (found.begin[0], found.end[-1]) == (2, 7)
  assert 3 in found.begin.tolist()
