import html
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.wikipedia.text import (
  NOTHING,
  UNCLOSED,
  hide,
  hide_separators,
  shield,
  tidy,
  unhide,
  unshield,
  without_inline_markup,
  without_placeholders,
)

# --- stand-ins --------------------------------------------------------------------------------------------------------


_TEXT = st.text().map(without_placeholders)
_MARKUP = set("[]{}<>|'=*#:;_!-")


@given(_TEXT)
def test_what_is_hidden_holds_no_markup_and_comes_back(text):
  hidden = hide(text)
  assert not set(hidden) & _MARKUP
  assert len(hidden) == len(text)
  assert unhide(hidden) == text
  assert unhide(hide_separators(text)) == text


@given(_TEXT)
def test_a_shield_within_what_is_hidden_is_undone_alone(text):
  hidden = hide_separators(text)
  assert unshield(shield(hidden)) == hidden
  assert not set(shield(text)) & set("[]<>'&:/")


@given(st.text(st.characters(min_codepoint=0xFDC0, max_codepoint=0xFDFF)))
def test_stand_ins_that_come_with_a_text_are_dropped(text):
  kept = without_placeholders(text)
  assert kept == unhide(unshield(kept))


def test_marks_leave_nothing():
  assert unhide(f'a{NOTHING}b{UNCLOSED}') == 'ab'


# --- markup within a line ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('wikitext', 'text'),
  [
    ("A '''bold''' and ''slanted'' and '''''loud''''' river.", 'A bold and slanted and loud river.'),
    ('A [https://example.org/x clear] river [https://example.org].', 'A clear river .'),
    ('A [//example.org/x clear] river, [mailto:a@b.org by mail].', 'A clear river, by mail.'),
    ('A river, see https://example.org/a?b=c for more.', 'A river, see  for more.'),
    ('A <small>small</small> river<br />flows<sup>2</sup> <span class="x">on</span>.', 'A small river flows2 on.'),
    ('Rivers &amp; lakes &ndash; 5&nbsp;km &#233; &#xE9;.', 'Rivers & lakes – 5\u00a0km é é.'),
    ('A river&amp;nbsp;flows&nbsp on.', 'A river\u00a0flows\u00a0 on.'),
    ('A river __NOTOC__flows __KEIN_INHALTSVERZEICHNIS__on.', 'A river flows on.'),
    ('النهر __لافهرس__مجرى مائي.', 'النهر مجرى مائي.'),
    ('Call __init__ to begin here.', 'Call __init__ to begin here.'),
    ('A [Danube|blue river] flows on.', 'A blue river flows on.'),
    ('links|120px|The old harbour at night', 'The old harbour at night'),
    ('Where a < b and c > d.', 'Where a < b and c > d.'),
    ('A [short] note.', 'A [short] note.'),
  ],
)
def test_markup_within_a_line_leaves_the_words(wikitext, text):
  assert without_inline_markup(wikitext) == text


@pytest.mark.parametrize(
  ('wikitext', 'text'),
  [
    ("L''''armonium''' suona bene.", "L'armonium suona bene."),
    ("L'''Unità'' è un giornale italiano.", "L'Unità è un giornale italiano."),
    ("Un '''''misto''' di'' segni diversi.", 'Un misto di segni diversi.'),
    ("L'acqua e l'''isola''.", "L'acqua e l'isola."),
  ],
)
def test_apostrophes_beside_marks_of_bold_and_italic_survive(wikitext, text):
  assert without_inline_markup(wikitext) == text


@given(st.text(st.characters(exclude_characters="&<[|_:'", exclude_categories=('Cs',))))
def test_text_without_markup_is_left_alone(text):
  assert without_inline_markup(text) == text


@given(st.text(st.characters(categories=('Lu', 'Ll', 'Lo')), min_size=1, max_size=20))
def test_entities_read_as_the_characters_that_they_name(text):
  escaped = ''.join(f'&#{ord(c)};' for c in text)
  assert without_inline_markup(escaped) == html.unescape(escaped) == text


# --- tidying ----------------------------------------------------------------------------------------------------------


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
