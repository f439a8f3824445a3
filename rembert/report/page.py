"""The page: sections of text, tables and pictures as one HTML file that needs nothing beside it, and no script."""

import csv
import dataclasses
import io
import pathlib
from collections.abc import Iterator, Sequence

from rembert.report.drawing import Drawing
from rembert.report.markup import Element, Slugs, append, clean, document, element

MISSING = '—'
# Letters of a row's name that stay in one line.
_LONG = 26
# Rows of a table that is printed on one page.
_SHORT = 24
_STYLE = pathlib.Path(__file__).with_name('style.css')
# Whatever is shown: nothing is fetched and nothing runs.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclasses.dataclass(frozen=True)
class Cell:
  """A cell that is more than its text.

  Attributes:
    text: as it stands in the CSV.
    picture: shown instead of the text; has its own words for those who do not see it.
    kind: its look: `paper` for figures that are not ours, `best`, or ''.
    mark: behind the text, raised.
  """

  text: str
  picture: Element | None = None
  kind: str = ''
  mark: str = ''


@dataclasses.dataclass(frozen=True)
class Group:
  """Rows that belong together under a name of their own; '' is none. The first cell of a row is its name."""

  title: str
  rows: Sequence[Sequence[str | Cell]]


@dataclasses.dataclass(frozen=True)
class Table:
  """A table; also a CSV.

  Attributes:
    caption: what it shows.
    columns: names; the first is that of the rows' names, and before it, where groups have titles, that of the groups.
    groups: of rows.
    notes: below it.
  """

  caption: str
  columns: Sequence[str]
  groups: Sequence[Group]
  notes: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Picture:
  """A picture; also a PNG. `caption` says what it shows and how to read it."""

  name: str
  caption: str
  drawing: Drawing


@dataclasses.dataclass(frozen=True)
class Details:
  """What few want to see: a line that opens."""

  title: str
  table: Table


@dataclasses.dataclass(frozen=True)
class Data:
  """Rows for a program to read: a CSV that the page links to, and does not show. `caption` says what it holds."""

  name: str
  caption: str
  columns: Sequence[str]
  rows: Sequence[Sequence[str]]


Block = str | Table | Picture | Details | Data


@dataclasses.dataclass(frozen=True)
class Section:
  """A part of the page; text is a paragraph, pictures in a row stand beside each other where there is room."""

  title: str
  blocks: Sequence[Block]


@dataclasses.dataclass(frozen=True)
class Page:
  """All of it.

  Attributes:
    html: of the page.
    files: PNG and CSV by name, to lie beside it.
  """

  html: str
  files: dict[str, bytes]


def rows_table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str | Cell]], notes=()) -> Table:
  """A table without groups."""
  return Table(caption, columns, [Group('', rows)], notes)


def make(
  title: str, introduction: Sequence[str], facts: Sequence[tuple[str, str]], sections: Sequence[Section]
) -> Page:
  """The page and what lies beside it.

  Args:
    title: its heading.
    introduction: paragraphs below it.
    facts: names and values below these.
    sections: those without blocks are left out.
  """
  return _Maker().page(title, introduction, facts, [section for section in sections if section.blocks])


class _Maker:
  """Turns blocks into elements and collects the files."""

  def __init__(self):
    self._anchors, self._names = Slugs(), Slugs()
    self._names.new('index')
    self._files: dict[str, bytes] = {}

  def page(self, title, introduction, facts, sections) -> Page:
    anchors = [self._anchors.new(section.title) for section in sections]
    head = element(
      'head',
      element('meta', charset='utf-8'),
      element('meta', name='viewport', content='width=device-width, initial-scale=1'),
      element('meta', name='color-scheme', content='light dark'),
      element('meta', http_equiv='Content-Security-Policy', content=_POLICY),
      element('title', title),
      element('link', rel='icon', href='data:,'),
      element('style', _STYLE.read_text(encoding='utf-8')),
    )
    header = element('header', element('h1', title), *(element('p', text) for text in introduction))
    if facts:
      pairs = [element('div', element('dt', name), element('dd', value)) for name, value in facts]
      append(header, element('dl', *pairs, class_='facts'))
    links = [
      element('li', element('a', section.title, href=f'#{anchor}'))
      for section, anchor in zip(sections, anchors, strict=True)
    ]
    nav = element('nav', element('ul', *links), aria_label='Contents') if links else None
    main = element('main', id='content', tabindex='-1')
    for section, anchor in zip(sections, anchors, strict=True):
      heading = element('h2', section.title, id=anchor)
      append(main, element('section', heading, *self._blocks(section.blocks), aria_labelledby=anchor))
    skip = element('a', 'Skip to the content', href='#content', class_='skip')
    root = element('html', head, element('body', skip, header, nav, main), lang='en')
    return Page(document(root), self._files)

  def _blocks(self, blocks: Sequence[Block]) -> Iterator[Element]:
    pictures: list[Element] = []
    for block in blocks:
      if isinstance(block, Picture):
        pictures.append(self._picture(block))
        continue
      if pictures:
        yield element('div', *pictures, class_='pictures')
        pictures = []
      if isinstance(block, Table):
        yield self._table(block)
      elif isinstance(block, Details):
        yield element('details', element('summary', block.title), self._table(block.table))
      elif isinstance(block, Data):
        yield self._data(block)
      else:
        yield element('p', block)
    if pictures:
      yield element('div', *pictures, class_='pictures')

  def _picture(self, picture: Picture) -> Element:
    name = f'{self._names.new(picture.name)}.png'
    self._files[name] = picture.drawing.png
    caption = element('figcaption', f'{picture.caption} ', _file_link(name, picture.name))
    return element('figure', picture.drawing.svg, caption)

  def _data(self, data: Data) -> Element:
    name = f'{self._names.new(data.name)}.csv'
    self._files[name] = as_csv(rows_table(data.caption, data.columns, data.rows))
    return element('p', f'{data.caption} ', _file_link(name, data.name))

  def _table(self, table: Table) -> Element:
    name = f'{self._names.new(table.caption.split(":")[0])}.csv'
    self._files[name] = as_csv(table)
    has_titles = any(group.title for group in table.groups)
    anchor = self._anchors.new('table', name.removesuffix('.csv'))
    head = element('thead', element('tr', *(_cell('th', column, scope='col') for column in table.columns)))
    bodies = [_body(group, has_titles) for group in table.groups]
    caption = element('caption', element('span', table.caption, id=anchor), ' ', _file_link(name, table.caption))
    whole = element('table', caption, head, *bodies)
    # Wide tables move in a frame of their own, which the keyboard can reach; the page stays as wide as the screen.
    look = 'frame short' if sum(len(group.rows) for group in table.groups) <= _SHORT else 'frame'
    frame = element('div', whole, class_=look, role='region', tabindex='0', aria_labelledby=anchor)
    notes = element('ul', *(element('li', note) for note in table.notes), class_='notes') if table.notes else None
    return element('div', frame, notes, class_='table')


def _body(group: Group, has_titles: bool) -> Element:
  body = element('tbody')
  for index, (name, *cells) in enumerate(group.rows):
    title = None
    if has_titles and index == 0:
      look = 'group long' if len(group.title) > _LONG else 'group'
      title = element('th', group.title or MISSING, scope='rowgroup', rowspan=len(group.rows), class_=look)
    kinds = {cell.kind for cell in cells if isinstance(cell, Cell)}
    row = element('tr', title, _cell('th', name, scope='row'), class_='paper' if kinds == {'paper'} else None)
    for cell in cells:
      append(row, _cell('td', cell))
    append(body, row)
  return body


def _cell(tag: str, cell: str | Cell, **attributes) -> Element:
  if not isinstance(cell, Cell):
    return element(tag, cell, class_='long' if tag == 'th' and len(cell) > _LONG else None, **attributes)
  mark = element('sup', cell.mark) if cell.mark else None
  return element(
    tag, cell.picture if cell.picture is not None else cell.text, mark, class_=cell.kind or None, **attributes
  )


def _file_link(name: str, what: str) -> Element:
  kind = name.rsplit('.', 1)[1].upper()
  return element('a', kind, href=name, class_='file', aria_label=f'{what} as {kind}')


def as_csv(table: Table) -> bytes:
  """The table as CSV, UTF-8 with a byte order mark: spreadsheets take it for something else without."""
  content = io.StringIO()
  writer = csv.writer(content, lineterminator='\n')
  has_titles = any(group.title for group in table.groups)
  writer.writerow(list(map(_plain, table.columns)))
  for group in table.groups:
    for row in group.rows:
      texts = [f'{cell.text}{cell.mark}' if isinstance(cell, Cell) else cell for cell in row]
      writer.writerow(list(map(_plain, [group.title, *texts] if has_titles else texts)))
  return b'\xef\xbb\xbf' + content.getvalue().encode()


def _plain(text: str) -> str:
  """A spreadsheet computes what begins with one of these: a name must not be able to, a number may have its sign."""
  text = clean(text)
  if text.startswith(('=', '@', '\t', '\r')) or (text.startswith(('+', '-')) and not _is_number(text)):
    return f"'{text}"
  return text


def _is_number(text: str) -> bool:
  try:
    float(text.rstrip('%†‡*').split('±')[0].split('/')[0])
  except ValueError:
    return False
  return True
