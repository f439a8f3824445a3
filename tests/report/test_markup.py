"""What is shown never becomes markup, and comes out of a parser as it went in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsed_pages import HOSTILE, Reader

from rembert.report.markup import Slugs, append, clean, document, element, slug


@pytest.mark.parametrize('text', HOSTILE)
def test_hostile_text_stays_text(text):
  read = Reader(document(element('p', text, title=text)))
  assert read.tags == ['p']
  assert read.attributes == [('title', text)]
  assert read.text.strip() == text


@given(st.text(st.characters(exclude_characters='\r\n')), st.text(st.characters(exclude_characters='\r\n')))
def test_any_text_comes_back_as_it_went_in(content, attribute):
  root = element('div', element('b', content), content, title=attribute)
  read = Reader(document(root).removeprefix('<!doctype html>\n').removesuffix('\n'))
  assert read.tags == ['div', 'b']
  assert read.attributes == [('title', clean(attribute))]
  assert read.text == 2 * clean(content)


def test_characters_that_no_document_can_hold_are_replaced():
  assert clean('a\x00b\ud800c\x1b[31m') == 'a�b�c�[31m'
  document(element('p', '\ud800')).encode()


def test_content_keeps_its_order():
  root = element('p', 'one ', element('b', 'two'), ' three', None, element('i', 'four'), ' five')
  append(root, ' six')
  assert document(root) == '<!doctype html>\n<p>one <b>two</b> three<i>four</i> five six</p>\n'


def test_attributes_are_named_as_in_html():
  root = element('th', class_='a', aria_label='b', rowspan=2, hidden=True, title=None)
  assert dict(root.attrib) == {'class': 'a', 'aria-label': 'b', 'rowspan': '2', 'hidden': ''}


def test_slugs_are_file_names_and_come_once():
  assert slug('Table 2: “one” table') == 'table-2-one-table'
  assert slug('../../etc/passwd') == 'etc-passwd'
  assert slug('表') == 'x'
  slugs = Slugs()
  assert [slugs.new('a b'), slugs.new('A-B'), slugs.new('a b 2'), slugs.new('a', 'b')] == [
    'a-b',
    'a-b-2',
    'a-b-2-2',
    'a-b-3',
  ]
