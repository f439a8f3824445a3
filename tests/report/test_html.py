"""The page: what a parser, a screen reader and a spreadsheet find in it."""

import csv
import io
import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from parsed_pages import HOSTILE, Reader

from rembert.plotting import style
from rembert.report.html import Page, Picture, Section, Table, inline_svg, table_frame


@pytest.fixture(scope='module')
def picture():
  with style.canvas() as canvas:
    canvas.axes.plot([0, 1], [0, 1], label='a', **style.line_style(0))
    canvas.axes.fill_between([0, 1], [0, 0], [1, 1], color=style.FAINT, hatch='/')
    canvas.legend()
  return Picture('A line', 'It goes up.', 'a line', canvas)


def table(caption, columns, *rows, **options):
  """A table whose first column has the names of the rows."""
  cells = [(name, dict(zip(columns[1:], texts, strict=True))) for name, *texts in rows]
  return Table(caption, table_frame(cells, columns[0]), **options)


def made(*blocks, title='Title'):
  """A page with one section, and an empty one: its HTML and its files."""
  page = Page()
  page.add(Section('First', list(blocks)))
  page.add(Section('Empty', []))
  return page.html(title, ['Words.'], [('name', 'value')]), page.files


def rows_of(content):
  return list(csv.reader(io.StringIO(content.decode('utf-8-sig'))))


# --- the page ---------------------------------------------------------------------------------------------------------


def test_there_is_one_heading_and_links_to_every_section(picture):
  read = Reader(made(picture)[0])
  assert read.tags.count('h1') == 1
  assert {'html', 'main', 'nav', 'header', 'section', 'figure', 'figcaption', 'svg'} <= set(read.tags)
  ids = [value for name, value in read.attributes if name == 'id']
  links = [value for name, value in read.attributes if name == 'href' and value.startswith('#')]
  assert len(ids) == len(set(ids))
  assert {link[1:] for link in links} <= set(ids)
  assert '#first' in links
  assert '#empty' not in links  # a section without blocks is left out
  assert ('lang', 'en') in read.attributes


def test_tables_have_captions_scopes_and_a_frame_for_the_keyboard():
  frame = table_frame([(('a', 'ours'), {'x': '1'}), (('a', 'paper'), {'x': '2'})], 'model', 'from')
  html, _ = made(Table('Scores', frame, ['A note.'], lambda row, column: 'paper' if row[1] == 'paper' else ''))
  assert re.search(r'<div class="frame[^"]*" role="region" tabindex="0" aria-labelledby="([^"]+)">', html)
  assert re.search(r'<caption><span id="[^"]+">Scores</span>', html)
  assert html.count('scope="col"') == 3
  assert '<th scope="rowgroup" rowspan="2" class="group">a</th>' in html
  assert html.count('<th scope="row">') == 2
  assert '<tr class="paper">' in html
  assert '<li>A note.</li>' in html


def test_rows_that_sum_up_stand_apart_and_a_row_with_a_number_of_ours_is_ours():
  rows = [['en', '1', '2'], ['mean', '1', '2']]
  look = lambda row, column: 'paper' if column == 'b' else ''
  html, _ = made(table('t', ['language', 'a', 'b'], *rows, look=look, footer=1))
  assert html.count('<tbody>') == 2
  assert '<tr class="paper">' not in html


def test_nothing_is_fetched_and_nothing_runs(picture):
  html, _ = made(picture, table('t', ['a'], ['b']))
  assert 'script' not in html
  assert not re.search(r'(?:src|href)="(?!#|data:|[\w-]+\.(?:png|csv)")', html)
  assert '@import' not in html
  assert "default-src 'none'" in html
  assert not re.search(r'url\((?!#)', html)


@pytest.mark.parametrize('text', HOSTILE)
def test_hostile_text_is_text_wherever_it_stands(text, picture):
  plain = Reader(made(picture, 'x', table('t', ['a', 'b'], ['c', 'd']), title='t')[0])
  frame = table_frame([((text, text), {text: text})], text, text)
  page = Page()
  blocks = [Picture(text, text, text, picture.drawing), text, Table(text, frame, [text])]
  blocks += [Table(text, frame), Table(text, frame)]
  page.add(Section(text, [*blocks, Picture(text, text, text, b'\x89PNG')]))
  read = Reader(page.html(text, [text], [(text, text)]))
  assert set(read.tags) <= {*plain.tags, 'ul', 'li', 'img'}
  assert not [name for name, _ in read.attributes if name.startswith('on')]
  assert read.text.count(text) >= 18
  assert all(re.fullmatch(r'[a-z0-9-]+\.(png|csv)', name) for name in page.files)


@settings(max_examples=25, deadline=None)
@example('\ud800')  # as in names of files that are not UTF-8
@given(st.text(st.characters(exclude_characters='\r\n', exclude_categories=())))
def test_any_text_comes_back_as_it_went_in(text):
  html, files = made(text, table('t', ['a'], [text]))
  html.encode()
  read = Reader(html)
  assert style.clean(text) in read.text
  assert ('class', text) not in read.attributes
  assert rows_of(files['t.csv'])[1][0].removeprefix("'") in (style.clean(text), style.clean(text).removeprefix("'"))


def test_consecutive_plots_share_a_row_and_files_are_unique(picture):
  html, files = made(picture, picture, 'between', picture)
  assert html.count('class="pictures"') == 2
  assert sorted(files) == ['a-line-2.png', 'a-line-3.png', 'a-line.png']


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_spreadsheet_computes_no_name_and_numbers_keep_their_sign():
  written = lambda text: rows_of(table('t', ['a'], [text]).csv())[1][0]
  for text in ('=1+1', '@SUM(A1)', '+cmd', '-cmd', '\tx', "=HYPERLINK('x')"):
    assert written(text).startswith("'")
  for text in ('-3.76', '+0.2', '-1.0 ± 0.1', '-1.0/2.0', '—', 'a=b'):
    assert written(text) == text


def test_data_is_a_file_that_is_linked_and_not_shown():
  rows = [['a', '1.62534'], ['=b', '2']]
  html, files = made(table('Raw numbers', ['name', 'value'], *rows, notes=['All of them.'], is_shown=False))
  assert files == {'raw-numbers.csv': "\ufeffname,value\na,1.62534\n'=b,2\n".encode()}
  assert 'All of them.' in html
  assert 'href="raw-numbers.csv"' in html
  assert '1.62534' not in html


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_the_picture_follows_the_page(picture):
  text = inline_svg(picture.drawing.svg('one'), 'one', 'what it shows')
  for part in ('currentColor', 'var(--series-1)', 'var(--faint)'):
    assert part in text
  for colour in (style.INK, style.FAINT, style.GRID, *style.SERIES):
    assert colour not in text
  assert not re.search(r'https?://|<style|<metadata|<script|@import', text)
  svg = ElementTree.fromstring(text)
  assert (svg.tag, svg.get('role'), svg.get('aria-label')) == ('svg', 'img', 'what it shows')
  assert svg.get('width') is None
  assert len(svg.get('viewBox').split()) == 4


def test_pictures_of_one_page_share_no_id_and_refer_to_their_own(picture):
  texts = [inline_svg(picture.drawing.svg(name), name, '') for name in ('one', 'two')]
  ids = [re.findall(r'\bid="([^"]*)"', text) for text in texts]
  assert ids[0]
  assert not set(ids[0]) & set(ids[1])
  for text, own in zip(texts, ids, strict=True):
    assert len(own) == len(set(own))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', text)) <= set(own)
