"""Shared style of all plots: Matplotlib's settings, colours and markers, labels and axes; PNG and SVG as bytes."""

import contextlib
import io
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
  from matplotlib.figure import Figure  # drawing imports Matplotlib, reading this file does not
  from matplotlib.typing import RcKeyType

INK, FAINT, GRID = '#1f2329', '#9aa5b1', '#d8dee5'
BLUE, RED, GREEN, OCHRE, PURPLE = '#1f6feb', '#d1242f', '#1a7f37', '#9a6700', '#8250df'
SERIES = (BLUE, RED, GREEN, OCHRE, PURPLE, '#bf3989', '#1b7c83', '#953800')
MARKERS = ('o', 's', '^', 'D', 'v', 'P', 'X', '*')
DASHES = ('-', '--', '-.', ':')

# In inches of 72 points: half as wide as a page, so that it stays legible on a phone.
WIDTH, HEIGHT = 5.2, 3.5
_LEGEND_SIZE = 9.5
_STYLE: 'dict[RcKeyType, Any]' = {
  'font.size': 10.5,
  'axes.titlesize': 11,
  'legend.fontsize': _LEGEND_SIZE,
  'svg.fonttype': 'none',  # text stays text: small, searchable, and in the reader's own fonts
  'text.parse_math': False,  # names of runs may contain $\alpha
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
# Characters that neither XML nor UTF-8 can represent.
_CONTROL = re.compile('[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]')


class Canvas:
  """A figure to draw on; `axes` is one, or an array of them. PNG and SVG are available after `canvas` has closed."""

  def __init__(self, figure: 'Figure', axes: Any, dpi: int):
    self.figure, self.axes, self._dpi = figure, axes, dpi

  def legend(self, columns: int | None = None, order: Sequence[str] | None = None) -> None:
    """Puts the legend below the plot, in as many columns as fit, with labels in `order` or as drawn."""
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
      # The figure has room for one line; further lines make it higher, not the axes smaller.
      self.figure.set_figheight(self.figure.get_figheight() + (rows - 1) * 1.3 * _LEGEND_SIZE / 72)
      self.figure.legend(handles, labels, loc='outside lower center', ncols=columns, handlelength=2.4)

  def png(self) -> bytes:
    """The plot as PNG, on white."""
    return self._written('png', dpi=self._dpi, facecolor='white', metadata={'Software': None})

  def svg(self, name: str) -> bytes:
    """The plot as SVG, without a background; equal names give equal files."""
    return self._written('svg', name, metadata=dict.fromkeys(('Date', 'Creator', 'Format', 'Type')))

  def _written(self, file_format: str, name: str = '', **options) -> bytes:
    content = io.BytesIO()
    with _style(name):
      self.figure.savefig(content, format=file_format, **options)
    return content.getvalue()


@contextlib.contextmanager
def _style(name: str = '') -> Iterator[None]:
  import matplotlib

  with matplotlib.rc_context({**_STYLE, 'svg.hashsalt': name}), warnings.catch_warnings():
    # A character that the PNG's font lacks becomes a box; the SVG uses the reader's fonts.
    warnings.filterwarnings('ignore', message='Glyph .* missing from')
    yield


@contextlib.contextmanager
def canvas(
  rows: int = 1, columns: int = 1, *, width: float = WIDTH, height: float = HEIGHT, dpi: int = 150, **options: Any
) -> Iterator[Canvas]:
  """Yields a figure in this style, `width` × `height` inches, without a window and without global state.

  `dpi` is that of the PNG, `options` are those of `matplotlib.figure.Figure.subplots`.
  """
  from matplotlib.figure import Figure

  with _style():
    figure = Figure(figsize=(width, height), layout='constrained')
    yield Canvas(figure, figure.subplots(rows, columns, **options), dpi)
    # Laid out once for PNG and SVG: that is a third of the work of drawing.
    figure.draw_without_rendering()
    figure.set_layout_engine(None)


def line_style(index: int) -> dict[str, Any]:
  """Colour, marker and dashes of a series, which differ without colours, too."""
  return {
    'color': SERIES[index % len(SERIES)],
    'marker': MARKERS[index % len(MARKERS)],
    'linestyle': DASHES[index // len(SERIES) % len(DASHES)],
    'markersize': 5,
    'linewidth': 1.8,
  }


def clean(text: object) -> str:
  """Replaces characters that neither XML nor UTF-8 can represent by �."""
  return _CONTROL.sub('�', str(text))


def label(text: object, most: int = 34) -> str:
  """A name in one line, truncated to `most` characters. A leading _ is escaped: Matplotlib would hide the label."""
  text = ' '.join(clean(text).split())
  text = text if len(text) <= most else f'{text[: most - 1]}…'
  return f'\u200a{text}' if text.startswith('_') else text


def name_point(axes: Any, text: str, point: tuple[float, float], **options) -> None:
  """Writes a name to the right of a point."""
  options = {'xytext': (5, 0), 'va': 'center', 'fontsize': 8} | options
  axes.annotate(text, point, textcoords='offset points', **options)


def thinned(x: Sequence[float], y: Sequence[float], most: int = _MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
  """Averages neighbouring points, so that at most `most` are left; fewer points are unchanged."""
  x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
  if len(x) <= most:
    return x, y
  starts = np.arange(0, len(x), math.ceil(len(x) / most))
  sizes = np.diff(np.append(starts, len(x)))
  return np.add.reduceat(x, starts) / sizes, np.add.reduceat(y, starts) / sizes


def step_axis(axes: Any) -> None:
  """Formats the x axis as steps: 20k rather than 20000."""
  axes.set_xlabel('step')
  axes.xaxis.set_major_formatter(lambda value, _: f'{value / 1000:g}k' if abs(value) >= 1000 else f'{value:g}')
  axes.locator_params(axis='x', nbins=6)


def plot_lines(
  lines: Iterable[tuple[Sequence[float], Sequence[float], Mapping[str, Any]]],
  ylabel: str,
  xlabel: str = 'step',
  *,
  title: str = '',
  ticks: Sequence[float] = (),
  starts_at_zero: bool = False,
  baseline: tuple[str, float | None] = ('', None),
  names: Iterable[tuple[str, tuple[float, float]]] = (),
) -> Canvas:
  """Draws lines in one plot, with the legend below; without `ticks`, x are training steps.

  Args:
    lines: x, y, and options of Matplotlib's `plot`, or, with deviations as `yerr`, of `errorbar`.
    ylabel: label of y.
    xlabel: label of x.
    title: title of the plot.
    ticks: ticks of x.
    starts_at_zero: whether y does.
    baseline: name and height of a horizontal line; None for no line.
    names: labels of points.
  """
  with canvas() as picture:
    axes = picture.axes
    for x, y, look in lines:
      if 'yerr' in look:
        axes.errorbar(x, y, **look)
      elif len(y):
        axes.plot(*thinned(x, y), **look)
    for text, point in names:
      name_point(axes, text, point, xytext=(4, 0), fontsize=9.5)
    name, height = baseline
    if height is not None:
      axes.axhline(height, color=RED, linestyle='--', linewidth=1.4, label=name)
    if ticks:
      axes.set_xticks(ticks)
      axes.set_xlabel(xlabel)
    else:
      step_axis(axes)
    axes.set_ylabel(ylabel)
    if starts_at_zero:
      axes.set_ylim(bottom=0)
    axes.set_title(title, loc='left')
    picture.legend()
  return picture
