import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.wikipedia.wikitext.lines import prose_lines


def paragraphs(text, language='en'):
  return [line for line, is_heading in prose_lines(text, language, str.strip) if not is_heading]


def test_lines_join_into_paragraphs_and_items_stand_alone():
  text = 'A river\nflows on.\nIt is wide.\n\nA new paragraph.\n* an item\n** [[too]] short\n# a numbered item\n'
  text += '; term : with a definition\n: an indented line of text'
  assert paragraphs(text) == [
    'A river flows on. It is wide.',
    'A new paragraph.',
    'an item',
    '[[too]] short',
    'a numbered item',
    'term : with a definition',
    'an indented line of text',
  ]


@pytest.mark.parametrize(
  'line',
  [
    '----',
    '| cell || cell',
    '! head !! head',
    'January | February | March',
    ":''For other rivers, see there.''",
    ' code = indented;',
  ],
)
def test_lines_without_prose_are_left_out_and_part_paragraphs(line):
  assert paragraphs(f'{line}\nA river\n\n== A ==\n{line}\nflows on.') == ['A river', 'flows on.']


def test_an_indented_line_that_ends_as_a_sentence_is_one():
  assert paragraphs(' A river flows on.\n! Stop there') == ['A river flows on.', '! Stop there']


def test_an_italic_line_below_the_top_of_a_section_is_prose():
  assert paragraphs("A river.\n:''It flows on.''") == ['A river.', "''It flows on.''"]


def test_sections_without_prose_are_left_out_with_their_subsections():
  text = 'One.\n== See also ==\n* a\n=== Books ===\n* b\n== Course ==\nTwo.\n==References==\nc\n= Top =\nThree.'
  assert paragraphs(text) == ['One.', 'Two.', 'Three.']
  assert paragraphs('Eins.\n== Einzelnachweise ==\nx', 'de') == ['Eins.']
  assert paragraphs('Ένα.\n== Παραπομπές ==\nx', 'el') == ['Ένα.']


def test_the_title_that_decides_is_the_one_that_a_reader_sees():
  text = 'One.\n== <b>See also:</b> ==\nx\n== Course ==\nTwo.'
  shown = prose_lines(text, 'en', lambda title: title.replace('<b>', '').replace('</b>', '').strip())
  assert list(shown) == [('One.', False), (' Course ', True), ('Two.', False)]


@given(st.lists(st.sampled_from(['word', '* item', '== A ==', '', ' code', 'a | b | c', '=', '| x']), max_size=20))
def test_paragraphs_are_single_lines_with_nothing_before_or_after(lines):
  assert all(p == p.strip() and '\n' not in p for p in paragraphs('\n'.join(lines)))
