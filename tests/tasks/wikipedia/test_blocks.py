import pytest

from tasks.wikipedia.cleaning import (
  boilerplate_headings,
  prose_lines,
  with_one_variant,
  without_elements,
  without_nesting,
  without_unclosed,
)
from tasks.wikipedia.text import link_namespaces

# --- elements ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('wikitext', 'text'),
  [
    ('A river<ref>Source, {{cite book|title=X}}</ref> flows<ref name="a" /> on<ref name=b/>.', 'A river flows on.'),
    ('A river<ref name="x">[[File:X.jpg]] a\n\nb</ref> flows on.', 'A river flows on.'),
    ('A river<!-- not\nshown --> flows on.', 'A river flows on.'),
    ('A river <!-- never closed flows on.', 'A river '),
    ('A river <ref>never closed\nflows on and on.', 'A river \nflows on and on.'),
    ('A river <ref>forgotten end\nflows on.<ref>closed</ref> It ends.', 'A river \nflows on. It ends.'),
    ('A </ref>river <gallery>flows on.', 'A river flows on.'),
    ('A <span style="display:none">0012</span>river flows on.', 'A river flows on.'),
    ('The <ruby>川<rp>(</rp><rt>かわ</rt><rp>)</rp></ruby> is a river.', 'The <ruby>川</ruby> is a river.'),
    ('Let <math>x</math> be <math>n + 1</math>, not <math>\\frac{a}{b}</math>.', 'Let x be n + 1, not .'),
    ('a<table><tr><td>b<table><tr><td>c</td></tr></table></td></tr></table>d', 'ad'),
    ('A <b>river</b> < 3 km.', 'A <b>river</b> < 3 km.'),
    ('A river\n<!-- x -->\nflows on.', 'A river\nflows on.'),  # a comment alone on its line separates nothing
    ('A river <!-- x -->\nflows on.', 'A river \nflows on.'),
    # Elements that are paragraphs become blank lines.
    ('<p>One.</p><div>Two.</div>Three.<br><br/>Four.<br>Five.', '\n\nOne.\n\n\n\nTwo.\n\nThree.\n\nFour.<br>Five.'),
  ],
)
def test_elements_without_prose_go_with_what_they_hold(wikitext, text):
  assert without_elements(wikitext) == text


# --- what nests -------------------------------------------------------------------------------------------------------


def scanned(text):
  """The text without what nests, and without the marks of templates that were never closed."""
  lines = without_nesting(text, link_namespaces()).split('\n')
  return '\n'.join(without_unclosed(line) for line in lines).strip()


@pytest.mark.parametrize(
  ('wikitext', 'text'),
  [
    ('A [[river|{{nowrap|broad}} one]] flows on.', 'A {{nowrap|broad}} one flows on.'),
    ('A {{nowrap|{{lang|la|flumen}} [[river|broad]]}} flows on.', 'A {{nowrap|{{lang|la|flumen}} broad}} flows on.'),
    ('A {{IPA|[[x|{{nowrap|y}}]]}} river.', 'A  river.'),
    ("A [[File:X.jpg|thumb|A [[bank]] and ''mud''. [[File:Y.png|x]]]]river flows on.", 'A river flows on.'),
    ('{{Navbox\n|a=1\n|}}\nA river.', 'A river.'),
  ],
)
def test_tables_boxes_and_pictures_go_and_what_is_read_in_a_sentence_stays(wikitext, text):
  assert scanned(wikitext) == text


@pytest.mark.parametrize(
  ('wikitext', 'text'),
  [
    ('{{Infobox river\n| name = X\n\nA river flows on.', '| name = X\n\nA river flows on.'),
    ('{| class="x"\n| a cell here\n\nA river flows on.', 'class="x"\n| a cell here\n\nA river flows on.'),
    ('[[File:X.jpg|thumb|A caption without end\nA river flows on.', 'A river flows on.'),
    ('A [[river flows {{on and ]] on }} and on.', 'A [[river flows  and on.'),
    ('A river }} flows ]] on |} and on.', 'A river  flows ]] on |} and on.'),
    ('A river {{flows on.', 'A river flows on.'),
  ],
)
def test_a_bracket_without_its_other_half_costs_its_line_and_not_the_article(wikitext, text):
  assert scanned(wikitext) == text


# --- language converters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('wikitext', 'text', 'language'),
  [
    ('一条-{zh-hans:软件; zh-hant:軟體}-河流在这里流动。', '一条软件河流在这里流动。', 'zh'),
    ('一条-{zh-tw:計程車;zh-hk:的士}-河流在这里流动。', '一条計程車河流在这里流动。', 'zh'),
    ('一条-{河}-流在-{H|zh-cn:甲;zh-tw:乙}-这里不停流动。', '一条河流在这里不停流动。', 'zh'),
    ('一条-{R|zh:河}-流。', '一条zh:河流。', 'zh'),
    ('-{-{zh-hans:甲;zh-hant:乙}-河}-', '甲河', 'zh'),
    ('Широка -{sr-ec:река;sr-el:reka}- тече на север.', 'Широка река тече на север.', 'sr'),
    ('-{кан=>kk-latn:qan}-', 'qan', 'kk'),
    ('-{zh-hans:甲;zh-hant:乙}-', '-{zh-hans:甲;zh-hant:乙}-', 'en'),
  ],
)
def test_of_several_variants_one_is_read(wikitext, text, language):
  assert with_one_variant(wikitext, language) == text


# --- lines and sections -----------------------------------------------------------------------------------------------


def paragraphs(text, language='en'):
  return list(prose_lines(text, language, str.strip))


def test_lines_join_into_paragraphs_and_items_stand_alone():
  text = 'A river\nflows on.\nIt is wide.\n\nA new paragraph.\n* an item\n** [[too]] short\n# a numbered item\n'
  text += "; term : with a definition\n: an indented line of text\n A river flows on.\n! Stop there\n:''It flows on.''"
  assert paragraphs(text) == [
    'A river flows on. It is wide.',
    'A new paragraph.',
    'an item',
    '[[too]] short',
    'a numbered item',
    'term : with a definition',
    'an indented line of text',
    'A river flows on.',  # an indented line that ends as a sentence is one
    '! Stop there',
    "''It flows on.''",  # below the top of a section an italic line is prose
  ]


@pytest.mark.parametrize(
  'line',
  [
    *('----', '| cell || cell', '! head !! head', 'January | February | March'),
    *(":''For other rivers, see there.''", ' code = indented;'),
  ],
)
def test_lines_without_prose_are_left_out_and_part_paragraphs(line):
  assert paragraphs(f'{line}\nA river\n\n== A ==\n{line}\nflows on.') == ['A river', 'flows on.']


def test_sections_without_prose_are_left_out_with_their_subsections():
  text = 'One.\n== See also ==\n* a\n=== Books ===\n* b\n== Course ==\nTwo.\n==References==\nc\n= Top =\nThree.'
  assert paragraphs(text) == ['One.', 'Two.', 'Three.']
  assert paragraphs('Eins.\n== Einzelnachweise ==\nx', 'de') == ['Eins.']
  assert paragraphs('Ένα.\n== Παραπομπές ==\nx', 'el') == ['Ένα.']
  # The title that decides is the one that a reader sees.
  shown = prose_lines('One.\n== <b>See also:</b> ==\nx', 'en', lambda title: title.strip('<b>/ '))
  assert list(shown) == ['One.']


def test_closing_sections_are_known_in_their_own_language_and_english_ones_everywhere():
  for language, heading in {'en': 'see also', 'de': 'einzelnachweise', 'ar': 'مراجع', 'zh': '參考文獻'}.items():
    assert {heading, 'references'} <= boilerplate_headings(language)
  assert 'note' in boilerplate_headings('it')  # which in English may head prose
  assert 'note' not in boilerplate_headings('en')
  assert {'einzelnachweise', 'примечания', 'references'} <= boilerplate_headings('lb')  # it has no table: those of all
