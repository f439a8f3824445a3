"""The page: what a parser, a screen reader and a spreadsheet find in it."""

import csv
import io
import re

import pytest
from parsed_pages import HOSTILE, Reader
from rembert.report.page import Cell, Data, Details, Group, Picture, Section, Table, as_csv, rows_table

from rembert.report import drawing, page


@pytest.fixture(scope='module')
def picture():
  with drawing.canvas('p', alt='a line') as canvas:
    canvas.axes.plot([0, 1], [0, 1], **drawing.style(0))
  return Picture('A line', 'It goes up.', canvas.drawing)


def made(*blocks, title='Title'):
  return page.make(title, ['Words.'], [('name', 'value')], [Section('First', list(blocks)), Section('Empty', [])])


def test_there_is_one_heading_and_links_to_every_section(picture):
  read = Reader(made(picture).html)
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
  table = Table('Scores', ['', '', 'x'], [Group('a', [['ours', '1'], ['paper', Cell('2', kind='paper')]])], ['A note.'])
  html = made(table).html
  assert re.search(r'<div class="frame[^"]*" role="region" tabindex="0" aria-labelledby="([^"]+)">', html)
  assert re.search(r'<caption><span id="[^"]+">Scores</span>', html)
  assert html.count('scope="col"') == 3
  assert '<th scope="rowgroup" rowspan="2" class="group">a</th>' in html
  assert html.count('<th scope="row">') == 2
  assert '<tr class="paper">' in html
  assert '<li>A note.</li>' in html


def test_nothing_is_fetched_and_nothing_runs(picture):
  html = made(picture, rows_table('t', ['a'], [['b']])).html
  assert 'script' not in html
  assert not re.search(r'(?:src|href)="(?!#|data:|[\w-]+\.(?:png|csv)")', html)
  assert '@import' not in html
  assert "default-src 'none'" in html
  assert not re.search(r'url\((?!#)', html)


@pytest.mark.parametrize('text', HOSTILE)
def test_hostile_text_is_text_wherever_it_stands(text, picture):
  plain = Reader(made(picture, 'x', rows_table('t', ['a', 'b'], [['c', 'd']]), title='t').html)
  table = Table(text, [text, text, text], [Group(text, [[text, Cell(text, mark=text)]])], [text])
  hostile = page.make(
    text,
    [text],
    [(text, text)],
    [Section(text, [Picture(text, text, picture.drawing), text, table, Details(text, table)])],
  )
  read = Reader(hostile.html)
  assert set(read.tags) <= {*plain.tags, 'details', 'summary', 'sup', 'ul', 'li'}
  assert not [name for name, _ in read.attributes if name.startswith('on')]
  assert read.text.count(text) >= 18
  assert all(re.fullmatch(r'[a-z0-9-]+\.(png|csv)', name) for name in hostile.files)


def test_pictures_in_a_row_stand_beside_each_other_and_files_come_once(picture):
  whole = made(picture, picture, 'between', picture)
  assert whole.html.count('class="pictures"') == 2
  assert sorted(whole.files) == ['a-line-2.png', 'a-line-3.png', 'a-line.png']


def test_a_csv_has_the_cells_as_text():
  groups = [Group('Ä', [['ours', Cell('70.1 ± 0.2', mark='▲')], ['paper', Cell('70.4', kind='paper')]])]
  content = as_csv(Table('t', ['model', '', 'XNLI'], groups)).decode('utf-8-sig')
  rows = list(csv.reader(io.StringIO(content)))
  assert rows == [['model', '', 'XNLI'], ['Ä', 'ours', '70.1 ± 0.2▲'], ['Ä', 'paper', '70.4']]


@pytest.mark.parametrize('text', ['=1+1', '@SUM(A1)', '+cmd', '-cmd', '\tx', "=HYPERLINK('x')"])
def test_a_spreadsheet_computes_no_name(text):
  content = as_csv(rows_table('t', ['a'], [[text]])).decode('utf-8-sig')
  assert list(csv.reader(io.StringIO(content)))[1][0].startswith("'")


@pytest.mark.parametrize('text', ['-3.76', '+0.2', '-1.0 ± 0.1', '-1.0/2.0', '-4.34 to -3.54', '-', '—', 'a=b'])
def test_numbers_keep_their_sign(text):
  content = as_csv(rows_table('t', ['a'], [[text]])).decode('utf-8-sig')
  assert list(csv.reader(io.StringIO(content)))[1][0].lstrip("'") == text
  if text not in ('-', '-4.34 to -3.54'):
    assert not content.splitlines()[1].startswith("'")


def test_data_is_a_file_that_is_linked_and_not_shown():
  whole = made(Data('Raw numbers', 'All of them.', ['name', 'value'], [['a', '1.62534'], ['=b', '2']]))
  assert whole.files == {'raw-numbers.csv': "\ufeffname,value\na,1.62534\n'=b,2\n".encode()}
  assert 'All of them.' in whole.html
  assert 'href="raw-numbers.csv"' in whole.html
  assert '1.62534' not in whole.html
