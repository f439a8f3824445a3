import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.wikipedia.wikitext.tidying import tidy


@pytest.mark.parametrize(
  ('left', 'text'),
  [
    ('A river (; ) flows on.', 'A river flows on.'),
    ('A river (; born , in May) flows on.', 'A river (born, in May) flows on.'),
    ('A river (IPA: , German: ) flows on.', 'A river flows on.'),
    ('A river (German: , a stream) flows on.', 'A river (a stream) flows on.'),
    ('A river （） flows on.', 'A river flows on.'),
    ('A river (1900 – ) flows on.', 'A river (1900) flows on.'),
    ('A river ( broad ) flows , and ends  .', 'A river (broad) flows, and ends.'),
    ('A river, , , flows on.', 'A river, flows on.'),
    (', a river, flows on.', 'a river, flows on.'),
    ('– a river of X', 'a river of X'),
    ('Flows since 1900, . It ends.', 'Flows since 1900. It ends.'),
    ('A « » river “” flows on.', 'A river flows on.'),
    ('Un fleuve\u00a0; une rivière\u00a0: deux mots\u00a0!', 'Un fleuve ; une rivière : deux mots !'),
    ('-5 degrees, .NET and 3, 4', '-5 degrees, .NET and 3, 4'),
  ],
)
def test_what_is_left_around_a_gap_is_tidied(left, text):
  assert tidy(left) == text


@pytest.mark.parametrize(
  ('raw', 'text'),
  [
    ('A river\u00ad bed\u200b of\u200e  white\u00a0\u3000stone.', 'A river bed of white stone.'),
    ('Cafe\u0301 by the river.', 'Café by the river.'),
    ('A\x00river\x85\x1fflows\ton.', 'A river flows on.'),
  ],
)
def test_text_is_nfc_with_single_blanks_and_without_invisible_characters(raw, text):
  assert tidy(raw) == text


@pytest.mark.parametrize('text', ['کتاب‌ها روی میز هستند.', 'क्\u200dष एक अक्षर है।', '👩\u200d🚀 im All'])
def test_joiners_that_change_how_a_word_is_written_are_kept(text):
  assert tidy(text) == text


def test_residue_of_markup_is_dropped():
  assert tidy("A [[river]] {{flows ''on --> &nbsp;</ref>.") == 'A river flows on.'


@given(st.text(st.characters(exclude_categories=('Cs',)) | st.sampled_from(' ,;.()[]«»–-\u0301\u200b'), max_size=60))
@example('((),,)')
def test_tidied_text_is_nfc_with_single_blanks(text):
  tidied = tidy(text)
  assert tidied == ' '.join(tidied.split())
  assert unicodedata.is_normalized('NFC', tidied)
