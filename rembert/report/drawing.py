"""One look for all pictures of a report: drawn once, written as SVG that follows the page's colours, and as PNG."""

import contextlib
import dataclasses
import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from rembert.report.markup import Element, clean

if TYPE_CHECKING:
  from matplotlib.typing import RcKeyType  # drawing imports Matplotlib, reading this file does not

# Drawn in these, and replaced in the SVG by what the page's style says: text and axes by the colour of the text, series
# by --series-N, of which the page has a set for light and one for dark. The PNG keeps them.
INK = '#1f2329'
FAINT = '#9aa5b1'
GRID = '#d8dee5'
SERIES = ('#1f6feb', '#d1242f', '#1a7f37', '#9a6700', '#8250df', '#bf3989', '#1b7c83', '#953800')
MARKERS = ('o', 's', '^', 'D', 'v', 'P', 'X', '*')
DASHES = ('-', '--', '-.', ':')

# In inches of 72 points: as wide as half of a page is, so that a telephone shrinks it little.
WIDTH, HEIGHT = 5.2, 3.5
_LEGEND_SIZE = 9.5
_STYLE: 'dict[RcKeyType, Any]' = {
  'font.size': 10.5,
  'axes.titlesize': 11,
  'legend.fontsize': _LEGEND_SIZE,
  'svg.fonttype': 'none',  # text stays text: small, to be searched, and in the reader's own fonts
  'text.parse_math': False,  # a run may be called $\alpha
  'text.color': INK,
  'axes.labelcolor': INK,
  'axes.edgecolor': INK,
  'xtick.color': INK,
  'ytick.color': INK,
  'axes.spines.top': False,
  'axes.spines.right': False,
  'axes.grid': True,
  'axes.axisbelow': True,
  'grid.color': GRID,
  'grid.linewidth': 0.8,
  'legend.frameon': False,
  'figure.facecolor': 'none',
  'axes.facecolor': 'none',
}
_MOST_POINTS = 300
_NAMESPACE = re.compile(r'\{[^}]*\}')
_REFERENCE = re.compile(r'url\(#([^)]+)\)')


@dataclasses.dataclass(frozen=True)
class Drawing:
  """A picture twice: `svg` to be put into a page, `png` as a file."""

  svg: Element
  png: bytes


class Canvas:
  """A figure while it is drawn on; `drawing` has it afterwards, and is not there before."""

  drawing: Drawing

  def __init__(self, figure):
    self.figure = figure
    self.axes = figure.add_subplot()

  def legend(self, columns: int | None = None, order: Sequence[str] | None = None) -> None:
    """What is what, below the picture: nothing drawn is ever covered.

    Args:
      columns: as many as there is room for, if not given.
      order: of the labels; that in which they were drawn, if not given.
    """
    handles, labels = self.axes.get_legend_handles_labels()
    if order is not None:
      by_label = dict(zip(labels, handles, strict=True))
      labels = [label for label in order if label in by_label]
      handles = [by_label[label] for label in labels]
    if handles:
      longest = max(map(len, labels))
      # In points: letters, the line before them, and the space between columns.
      width = _LEGEND_SIZE * (0.6 * longest + 5.5)
      columns = columns or min(len(labels), max(1, int(72 * self.figure.get_figwidth() / width)))
      rows = math.ceil(len(labels) / columns)
      # A line is there already; further ones must not be taken from the axes.
      self.figure.set_figheight(self.figure.get_figheight() + (rows - 1) * 1.3 * _LEGEND_SIZE / 72)
      self.figure.legend(handles, labels, loc='outside lower center', ncols=columns, handlelength=2.4)


@contextlib.contextmanager
def canvas(name: str, *, alt: str, width: float = WIDTH, height: float = HEIGHT) -> Iterator[Canvas]:
  """A canvas to draw on.

  Args:
    name: unique on a page; goes before the ids in the SVG.
    alt: what the picture shows, for those who do not see it.
    width: inches.
    height: inches.
  """
  import matplotlib
  from matplotlib.figure import Figure

  with matplotlib.rc_context({**_STYLE, 'svg.hashsalt': name}), warnings.catch_warnings():
    # A name in letters that the font of the PNG lacks is a box there; in the page it is the reader's font.
    warnings.filterwarnings('ignore', message='Glyph .* missing from')
    made = Canvas(Figure(figsize=(width, height), layout='constrained'))
    yield made
    # Laid out once for both: that is a third of the work of drawing.
    made.figure.draw_without_rendering()
    made.figure.set_layout_engine(None)
    made.drawing = Drawing(_svg(made.figure, name, alt), _png(made.figure))


def style(index: int) -> dict:
  """Colour, marker and dashes of a series: told apart without colours, too."""
  return {
    'color': SERIES[index % len(SERIES)],
    'marker': MARKERS[index % len(MARKERS)],
    'linestyle': DASHES[index // len(SERIES) % len(DASHES)],
    'markersize': 5,
    'linewidth': 1.8,
  }


def label(text: object, most: int = 34) -> str:
  """A name as a picture can take it: in one line, cut where it is long; Matplotlib hides what begins with _."""
  text = ' '.join(clean(text).split())
  text = text if len(text) <= most else f'{text[: most - 1]}…'
  return f'\u200a{text}' if text.startswith('_') else text


def thinned(x: Sequence[float], y: Sequence[float], most: int = _MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
  """Means of runs of neighbouring points, so that no more than `most` are left; as they come if they are few."""
  x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
  if len(x) <= most:
    return x, y
  starts = np.arange(0, len(x), math.ceil(len(x) / most))
  sizes = np.diff(np.append(starts, len(x)))
  return np.add.reduceat(x, starts) / sizes, np.add.reduceat(y, starts) / sizes


def step_axis(axes) -> None:
  """Steps along the bottom: 20k rather than 20000."""
  axes.set_xlabel('step')
  axes.xaxis.set_major_formatter(lambda value, _: f'{value / 1000:g}k' if abs(value) >= 1000 else f'{value:g}')
  axes.locator_params(axis='x', nbins=6)


def sparkline(values: Sequence[float], *, alt: str, width: int = 96, height: int = 22) -> Element:
  """A curve of the size of a word, with a dot at its end."""
  _, values = thinned(range(len(values)), values, 60)
  low, high = (float(min(values)), float(max(values))) if len(values) else (0.0, 0.0)
  x = lambda index: 3 + (width - 6) * index / max(1, len(values) - 1)
  y = lambda value: 3 + (height - 6) * ((high - value) / (high - low) if high > low else 0.5)
  points = ' '.join(f'{x(index):.1f},{y(value):.1f}' for index, value in enumerate(values))
  svg = ElementTree.Element('svg', {'viewBox': f'0 0 {width} {height}', 'class': 'spark', 'role': 'img'})
  svg.set('aria-label', clean(alt))
  svg.set('width', str(width))
  svg.set('height', str(height))
  ElementTree.SubElement(svg, 'polyline', {'points': points})
  if len(values):
    ElementTree.SubElement(svg, 'circle', {'cx': f'{x(len(values) - 1):.1f}', 'cy': f'{y(values[-1]):.1f}', 'r': '2.4'})
  return svg


# --- writing ----------------------------------------------------------------------------------------------------------


def _png(figure) -> bytes:
  content = io.BytesIO()
  figure.savefig(content, format='png', dpi=150, facecolor='white', metadata={'Software': None})
  return content.getvalue()


def _svg(figure, name: str, alt: str) -> Element:
  content = io.BytesIO()
  nothing = dict.fromkeys(('Date', 'Creator', 'Format', 'Type'))
  figure.savefig(content, format='svg', metadata=nothing)
  root = ElementTree.fromstring(content.getvalue())
  for each in root.iter():
    each.tag = _NAMESPACE.sub('', each.tag)
    for key in list(each.attrib):
      if '}' in key:
        each.set(_NAMESPACE.sub('', key), each.attrib.pop(key))
  _drop(root, 'metadata')
  _drop(root, 'style')  # *{…}: would be the whole page's; our own style says it of pictures alone
  _rename_ids(root, name)
  for each in root.iter():
    for key in ('style', 'fill', 'stroke'):
      if key in each.attrib:
        each.set(key, _with_page_colours(each.attrib[key]))
  for key in ('version', 'width', 'height'):
    root.attrib.pop(key, None)
  left, top, width, height = (float(number) for number in root.attrib['viewBox'].split())
  root.set('style', f'max-width: {4 / 3 * width:.0f}px')
  root.set('viewBox', f'{left:g} {top:g} {width:g} {height:g}')
  root.set('class', 'picture')
  root.set('role', 'img')
  root.set('aria-label', clean(alt))
  return root


def _drop(root: Element, tag: str) -> None:
  for parent in list(root.iter()):
    for child in [child for child in parent if child.tag == tag]:
      parent.remove(child)


def _rename_ids(root: Element, name: str) -> None:
  """Ids that something refers to get the picture's name before them; all others go: each may come once on a page."""
  referred = set()
  for each in root.iter():
    for key, value in each.attrib.items():
      referred.update(_REFERENCE.findall(value))
      if key == 'href' and value.startswith('#'):
        referred.add(value[1:])
  for each in root.iter():
    for key, value in list(each.attrib.items()):
      if key == 'id':
        if value in referred:
          each.set('id', f'{name}-{value}')
        else:
          del each.attrib['id']
      elif key == 'href' and value.startswith('#'):
        each.set('href', f'#{name}-{value[1:]}')
      else:
        each.set(key, _REFERENCE.sub(lambda match: f'url(#{name}-{match[1]})', value))


def _with_page_colours(text: str) -> str:
  text = text.replace(INK, 'currentColor').replace(FAINT, 'var(--faint)').replace(GRID, 'var(--grid)')
  for number, colour in enumerate(SERIES, 1):
    text = text.replace(colour, f'var(--series-{number})')
  # The fonts of Matplotlib are seldom there; the page's always is.
  return re.sub(r'font:\s*(\S+)\s+[^;]*', r'font-size: \1', text)
