import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.wikipedia.wikitext.elements import without_elements
from tasks.wikipedia.wikitext.placeholders import unhide


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
  ],
)
def test_elements_without_prose_go_with_what_they_hold(wikitext, text):
  assert without_elements(wikitext) == text


def test_what_nowiki_holds_is_text_and_is_not_read_as_markup():
  hidden = without_elements("A <nowiki>'''[[x]]'''</nowiki> river.")
  assert not set("'[]") & set(hidden)
  assert unhide(hidden) == "A '''[[x]]''' river."


def test_a_comment_on_a_line_of_its_own_does_not_part_paragraphs():
  assert without_elements('A river\n<!-- x -->\nflows on.') == 'A river\nflows on.'
  assert without_elements('A river <!-- x -->\nflows on.') == 'A river \nflows on.'


def test_elements_that_are_paragraphs_become_blank_lines():
  assert without_elements('<p>One.</p><div>Two.</div>Three.<br><br/>Four.<br>Five.').split('\n\n') == [
    *('', 'One.', '', 'Two.', 'Three.', 'Four.<br>Five.')
  ]


@given(
  st.lists(st.sampled_from(['<ref>', '</ref>', '<ref/>', '<!--', '-->', '<pre>', '</pre>', 'a', '\n'])).map(''.join)
)
def test_no_tag_of_an_element_without_prose_is_left(text):
  left = without_elements(text)
  assert not {'<ref>', '</ref>', '<ref/>', '<pre>', '</pre>', '<!--'} & {
    left[i:j] for i in range(len(left)) for j in range(i, i + 7)
  }
