"""The page of a report: text, tables and plots as one self-contained HTML file without scripts."""

import base64
import csv
import dataclasses
import io
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import jinja2
import numpy as np
import pandas as pd
from markupsafe import Markup

from rembert.plotting.style import FAINT, GRID, INK, SERIES, Canvas, clean

MISSING = '—'
_FORMULA = re.compile(r'[=@\t\r]|[+-](?!\d[\d.e-]*%? ?(?:[±/]|$))')


def table_frame(rows: Iterable[tuple[Any, Mapping[str, Any]]], *names: str) -> pd.DataFrame:
  """A data frame of rows (cells by column), indexed by name or, for two `names`, by group and name."""
  keys, cells = map(list, zip(*rows, strict=True))
  index = pd.MultiIndex.from_tuples(keys, names=names) if len(names) > 1 else pd.Index(keys, object, name=names[0])
  return pd.DataFrame(cells, index, dtype=object)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
  """A table on the page, and in a CSV file."""

  caption: str  # the part before a colon is the name of the file
  frame: pd.DataFrame  # cells as text; the index has the names of the rows; of two levels the first groups them
  notes: Sequence[str] = ()  # lines below the table
  look: Callable[[Any, str], str] = lambda row, column: (
    ''
  )  # class of style.css: `paper` for its numbers, `best`, `text`
  footer: int = 0  # number of rows at the end that summarise the others
  is_shown: bool = True  # if not, the page has its notes and a link to the file

  def _rows(self) -> list[tuple[tuple[str, ...], np.ndarray]]:
    """Names (a group and a name, or only a name) and cells of each row."""
    names = self.frame.index if self.frame.index.nlevels > 1 else [(name,) for name in self.frame.index]
    return list(zip(names, self.frame.to_numpy(), strict=True))

  def bodies(self) -> list[list[dict[str, Any]]]:
    """The rows by group: `group`, `name`, and `cells`, each with its CSS class."""
    rows = []
    for number, ((*group, name), texts) in enumerate(self._rows()):
      looks = [self.look((*group, name) if group else name, column) for column in self.frame]
      row = {'group': ''.join(group), 'name': name, 'cells': list(zip(texts, looks, strict=True))}
      rows.append(row | {'is_footer': number >= len(self.frame) - self.footer})
    return [list(of_group) for _, of_group in itertools.groupby(rows, lambda row: (row['group'], row['is_footer']))]

  def csv(self) -> bytes:
    """CSV in UTF-8 with a byte order mark, without which spreadsheets assume another encoding."""
    # Not with pandas, whose index cannot hold lone surrogates, which file names may contain.
    head = [*(name or '' for name in self.frame.index.names), *self.frame.columns]
    rows = [head, *([*names, *cells] for names, cells in self._rows())]
    text = io.StringIO()
    csv.writer(text, lineterminator='\n').writerows(map(_plain, row) for row in rows)
    return b'\xef\xbb\xbf' + text.getvalue().encode()


@dataclasses.dataclass(frozen=True, eq=False)
class Picture:
  """A plot on the page, and in a PNG file."""

  name: str  # of the file
  caption: str
  alt: str  # for readers who do not see it
  drawing: Canvas | bytes  # a figure that follows the page's colours, or the content of a PNG file, which does not


Block = str | Table | Picture


@dataclasses.dataclass(frozen=True)
class Section:
  """A section of the page; text is a paragraph, consecutive plots are next to each other if they fit."""

  title: str
  blocks: Sequence[Block]


class Page:
  """Collects sections. `files` are the PNG and CSV files next to the page, by name."""

  def __init__(self):
    self.files: dict[str, bytes] = {}
    self._sections: list[dict[str, Any]] = []

  def add(self, section: Section) -> None:
    """Adds a section with its files; skips one without blocks."""
    if section.blocks:
      parts = itertools.groupby(map(self._placed, section.blocks), key=lambda block: block['kind'])
      parts = [(kind, list(blocks)) for kind, blocks in parts]
      self._sections.append({'title': section.title, 'anchor': slug(section.title), 'parts': parts})

  def html(self, title: str, introduction: Sequence[str], facts: Sequence[tuple[str, str]]) -> str:
    """Renders the page: heading, introduction, `facts` (names and values), and the sections."""
    environment = jinja2.Environment(
      loader=jinja2.PackageLoader('rembert.report', '.'), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.get_template('page.html.j2')
    return clean(template.render(title=title, introduction=introduction, facts=facts, sections=self._sections))

  def _placed(self, block: Block) -> dict[str, Any]:
    """The template's arguments for a block; adds its file to `files`."""
    if isinstance(block, str):
      return {'kind': 'text', 'text': block}
    if isinstance(block, Table):
      kind = 'table' if block.is_shown else 'data'
      return {'kind': kind, 'table': block, 'file': self._file(block.caption.split(':')[0], 'csv', block.csv())}
    if isinstance(block.drawing, bytes):
      file = self._file(block.name, 'png', block.drawing)
      address = f'data:image/png;base64,{base64.b64encode(block.drawing).decode()}'
      image = Markup('<img src="{}" alt="{}">').format(address, block.alt)
    else:
      file = self._file(block.name, 'png', block.drawing.png())
      name = file.removesuffix('.png')
      image = inline_svg(block.drawing.svg(name), name, block.alt)
    return {'kind': 'pictures', 'picture': block, 'file': file, 'image': image}

  def _file(self, name: str, suffix: str, content: bytes) -> str:
    base = slug(name)
    taken = {'index', *(file.rpartition('.')[0] for file in self.files)}
    stems = itertools.chain([base], (f'{base}-{number}' for number in itertools.count(2)))
    stem = next(stem for stem in stems if stem not in taken)
    self.files[f'{stem}.{suffix}'] = content
    return f'{stem}.{suffix}'


def slug(text: str) -> str:
  """A text as part of a file name or an anchor: a-z, 0-9 and -."""
  return re.sub(r'[^a-z0-9]+', '-', text.lower()).strip('-')[:60] or 'x'


def _plain(text: str) -> str:
  """Escapes text that a spreadsheet would interpret as a formula; numbers keep their sign."""
  text = clean(text)
  return f"'{text}" if _FORMULA.match(text) else text


# --- plots ------------------------------------------------------------------------------------------------------------


def inline_svg(svg: bytes, name: str, alt: str) -> Markup:
  """Matplotlib's SVG for embedding in the page: in its colours and fonts, with ids that begin with `name`."""
  root = ElementTree.fromstring(svg)
  for parent in list(root.iter()):
    for child in list(parent):
      if child.tag.endswith(('}metadata', '}style')):  # a style element would apply to the whole page
        parent.remove(child)
  for each in root.iter():
    each.tag = each.tag.rpartition('}')[2]
    attributes = {key.rpartition('}')[2]: value for key, value in each.attrib.items()}
    each.attrib = {
      key: _page_attribute(key, value, name)
      for key, value in attributes.items()
      if (key, each.tag) != ('id', 'g')  # these are not referenced
    }
  _, _, width, _ = map(float, root.attrib['viewBox'].split())
  look = {'class': 'picture', 'role': 'img', 'aria-label': clean(alt), 'style': f'max-width: {4 / 3 * width:.0f}px'}
  root.attrib = {'viewBox': root.attrib['viewBox'], **look}
  return Markup(ElementTree.tostring(root, encoding='unicode', method='html'))


def _page_attribute(key: str, value: str, name: str) -> str:
  if key == 'id':
    return f'{name}-{value}'
  if key == 'href':
    return value.replace('#', f'#{name}-', 1)
  value = value.replace('url(#', f'url(#{name}-')
  if key in ('style', 'fill', 'stroke'):
    value = value.replace(INK, 'currentColor').replace(FAINT, 'var(--faint)').replace(GRID, 'var(--grid)')
    for number, colour in enumerate(SERIES, 1):
      value = value.replace(colour, f'var(--series-{number})')
    # Matplotlib's fonts are rarely installed; the page's always are.
    value = re.sub(r'font:\s*(\S+)\s+[^;]*', r'font-size: \1', value)
  return value
