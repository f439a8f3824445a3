import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.wikipedia.wikitext.brackets import without_nesting, without_unclosed
from tasks.wikipedia.wikitext.namespaces import link_namespaces
from tasks.wikipedia.wikitext.placeholders import unhide


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
    ('{{Infobox river\n| name = Fluss {{nowrap|x}}\n| map = [[File:X.png|thumb|a [[b]]]]\n}}\nA river.', 'A river.'),
    ('{| class="x"\n|-\n! head\n|-\n| cell {{x|y}} || cell\n{|\n| nested\n|}\n|}\nA river.', 'A river.'),
    ('{{Navbox|list=\n{| \n| a\n|}}}\nA river.', 'A river.'),
    ('{{Navbox\n|a=1\n|}}\nA river.', 'A river.'),
  ],
)
def test_tables_boxes_and_pictures_go_and_what_is_read_in_a_sentence_stays(wikitext, text):
  assert scanned(wikitext) == text


def test_a_bar_in_a_label_does_not_part_the_arguments_of_the_template_around_it():
  [line] = without_nesting('{{nowrap|[[A|E=mc]]}}', link_namespaces()).strip().split('\n')
  assert '=' not in line
  assert unhide(line) == '{{nowrap|E=mc}}'


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


@given(st.text(st.characters(exclude_characters='{}[]', exclude_categories=('Cs',))))
def test_text_without_brackets_is_left_alone(text):
  assert without_nesting(text, link_namespaces()) == text


_PIECES = st.sampled_from(
  ['{{lang|la|', '{{x|', '}}', '[[', '[[a|', '[[File:x|', ']]', '\n{|', '\n|}', 'word ', '\n', '|']
)


@given(st.lists(_PIECES, max_size=30).map(''.join))
def test_what_is_scanned_holds_no_table_and_no_closed_link(text):
  found = without_nesting(text, link_namespaces())
  assert '\n{|' not in found
  assert found.count('word') <= text.count('word')
  assert found.count('{{') == found.count('{{lang|la|')
