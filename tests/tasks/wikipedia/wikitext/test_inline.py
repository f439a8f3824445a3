import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.wikipedia.wikitext.inline import without_inline_markup


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
