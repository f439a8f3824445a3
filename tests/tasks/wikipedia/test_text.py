import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.wikipedia.text import (
  HIDE,
  HIDE_SEPARATORS,
  SHIELD,
  UNHIDE,
  UNSHIELD,
  count_sentences,
  link_namespaces,
  link_text,
  tidy,
  with_plain_links_read,
  without_inline_markup,
  without_placeholders,
)

# --- stand-ins --------------------------------------------------------------------------------------------------------


# Stand-ins that come with a text are dropped.
_TEXT = (st.text() | st.text(st.characters(min_codepoint=0xFDC0, max_codepoint=0xFDFF))).map(without_placeholders)
_MARKUP = set("[]{}<>|'=*#:;_!-")


@given(_TEXT)
def test_what_is_hidden_holds_no_markup_and_comes_back(text):
  hidden = text.translate(HIDE)
  assert not set(hidden) & _MARKUP
  assert len(hidden) == len(text)
  assert hidden.translate(UNHIDE) == text
  hidden = text.translate(HIDE_SEPARATORS)
  assert hidden.translate(UNHIDE) == text
  assert hidden.translate(SHIELD).translate(UNSHIELD) == hidden  # a shield within what is hidden is undone alone
  assert not set(text.translate(SHIELD)) & set("[]<>'&:/")


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
    # Apostrophes next to bold and italic marks are kept.
    ("L''''armonium''' suona bene.", "L'armonium suona bene."),
    ("L'''Unità'' è un giornale italiano.", "L'Unità è un giornale italiano."),
    ("Un '''''misto''' di'' segni diversi.", 'Un misto di segni diversi.'),
    ("L'acqua e l'''isola''.", "L'acqua e l'isola."),
  ],
)
def test_markup_within_a_line_leaves_the_words(wikitext, text):
  assert without_inline_markup(wikitext) == text


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
    # NFC, single spaces, no invisible characters; joiners that change how a word is written are kept.
    ('A river\u00ad bed\u200b of\u200e  white\u00a0\u3000stone.', 'A river bed of white stone.'),
    ('Cafe\u0301 by the river.', 'Café by the river.'),
    ('A\x00river\x85\x1fflows\ton.', 'A river flows on.'),
    *((text, text) for text in ('کتاب\u200cها روی میز هستند.', 'क्\u200dष एक अक्षर है।', '👩\u200d🚀 im All')),
    ("A [[river]] {{flows ''on --> &nbsp;</ref>.", 'A river flows on.'),
  ],
)
def test_what_is_left_around_a_gap_is_tidied(left, text):
  assert tidy(left) == text


@given(st.text(st.characters(exclude_categories=('Cs',)) | st.sampled_from(' ,;.()[]«»–-\u0301\u200b'), max_size=60))
@example('((),,)')
def test_tidied_text_is_nfc_with_single_blanks(text):
  tidied = tidy(text)
  assert tidied == ' '.join(tidied.split())
  assert unicodedata.is_normalized('NFC', tidied)


# --- namespaces -------------------------------------------------------------------------------------------------------

NAMESPACES = link_namespaces()


def test_namespace_names_are_case_folded_and_files_are_no_categories():
  files, categories = NAMESPACES.files, NAMESPACES.categories
  for names in (files, categories):
    assert all(name == name.casefold() == name.strip() and name for name in names)
  assert not files & categories
  assert {'file', 'image', 'datei', 'файл', 'ไฟล์', 'ملف', 'चित्र', 'ファイル', 'picha'} <= files
  assert {'category', 'kategorie', 'категория', 'หมวดหมู่', 'تصنيف', 'श्रेणी', 'jamii'} <= categories
  own = link_namespaces({-2: 'Ton', 6: 'Ablage', 14: 'Sachgruppe', 0: '', 10: 'Vorlage'})
  assert own.files == files | {'ton', 'ablage'}
  assert own.categories == categories | {'sachgruppe'}


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('content', 'shown'),
  [
    ('river', 'river'),
    ('sea|wide sea', 'wide sea'),
    ('Mouth (river)|', 'Mouth'),
    ('#Course|its course', 'its course'),
    (':de:Fluss|Fluss', 'Fluss'),
    (':fr:Fleuve', 'Fleuve'),
    (':Category:Rivers', 'Category:Rivers'),
    ('wikt:flow|flow', 'flow'),
    ('wikt:ebb', 'ebb'),
    ('Portal: Rivers|portal', 'portal'),
    ('the [[\n\nnext paragraph', 'the [[\n\nnext paragraph'),
  ],
)
def test_a_link_reads_as_its_label_or_else_as_its_target(content, shown):
  assert link_text(content, NAMESPACES) == shown


@pytest.mark.parametrize(
  'content',
  [
    *('de:Fluss', 'fr:Fleuve', 'zh-min-nan:Hô', 'simple:River', 'Category:Rivers|*', 'Kategorie:Flüsse'),
    *("File:X.jpg|thumb|A [[bank]] and ''mud''.", 'Datei:X.jpg|mini|hoch=1', 'ไฟล์:X.jpg|thumb', 'media:X.ogg|listen'),
    *('Xyz:Unknown.svg|20px', 'Datei:Karte'),  # a picture by the ending of its name, or by its namespace
  ],
)
def test_links_to_pictures_categories_and_other_editions_show_nothing(content):
  assert link_text(content, NAMESPACES) == ''


_WORDS = st.text('abc dé川 (),.-', min_size=1, max_size=12).filter(str.strip)


@given(_WORDS, st.none() | _WORDS)
def test_plain_links_read_by_pattern_as_they_read_by_the_scanner(target, label):
  content = target if label is None else f'{target}|{label}'
  half = 'A [[Danube|blue river] flows [Rhine|Rhenish]] on.'  # links that lack a bracket are read all the same
  assert with_plain_links_read(half) == 'A blue river flows Rhenish on.'
  by_pattern = with_plain_links_read(f'x [[{content}]] y')
  assert by_pattern.split() == f'x {link_text(content, NAMESPACES)} y'.split()


# --- sentences --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('text', 'language', 'count'),
  [
    ('A river flows. It is wide! Is it deep? Yes…', 'en', 4),
    ('It is 3.5 km long, e.g. near J. S. Bach St. It ends.', 'en', 2),
    ('"It flows." He left. (It ended.)', 'en', 3),
    ('No terminator at all', 'en', 1),
    ('川は流れる。長い！深い？', 'ja', 3),
    ('河流很长。它流入大海。', 'zh', 2),
    ('नदी बहती है। वह चौड़ी है॥', 'hi', 2),
    ('يجري النهر. هل هو عميق؟ نعم!', 'ar', 3),
    ('دریا بہتا ہے۔ وہ چوڑا ہے۔', 'ur', 2),
    ('Գետը հոսում է։ Այն լայն է:', 'hy', 2),
    ('ወንዙ ይፈሳል። ሰፊ ነው፧', 'am', 2),
    ('မြစ်သည် စီးဆင်းသည်။ ကျယ်ဝန်းသည်။', 'my', 2),
    ('ទន្លេហូរ។ វាធំ។', 'km', 2),
    ('Ο ποταμός κυλά. Είναι βαθύς; Ναι.', 'el', 3),
    ('แม่น้ำไหลลงสู่ทะเลกว้าง น้ำในแม่น้ำลึกและเย็นมาก', 'th', 2),
    ('แม่น้ำ 3 กม.', 'th', 1),
    ('Река течёт. Она широка.', 'ru', 2),
  ],
)
def test_sentences_are_counted_in_every_script(text, language, count):
  assert count_sentences([text], language) == count
  # Every paragraph counts at least one.
  assert count_sentences(['a river', 'A river. A sea.', 'the end'], 'en') == 4
  assert count_sentences([], 'en') == 0
