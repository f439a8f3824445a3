"""What all pictures of analyses have in common: size, colours, and how they are written."""

import io
from typing import TYPE_CHECKING

from etils import epath

from rembert.storage import write_whole

if TYPE_CHECKING:
  from matplotlib.axes import Axes
  from matplotlib.figure import Figure

BLUE, GREY, RED, OCHRE, GREEN, PURPLE = '#1f6feb', '#9aa5b1', '#d1242f', '#bf8700', '#1a7f37', '#8250df'
# Of several models in one picture, in their order.
COLOURS = (
  *(BLUE, OCHRE, GREEN, PURPLE, RED, '#0a7ea4'),
  *('#6e7781', '#bc4c00', '#0f5f57', '#e377c2', '#5c3d2e', '#8a9a2b'),
)


def colour(number: int) -> str:
  """Of the model or line of a number; after the last they begin again."""
  return COLOURS[number % len(COLOURS)]


def new_figure(rows: int = 1, columns: int = 1, *, width: float = 9, height: float = 5, **options) -> tuple:
  """A figure and its axes, as `matplotlib.figure.Figure.subplots` gives them; no window, no global state."""
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  figure = Figure(figsize=(width, height), dpi=100, layout='constrained')
  FigureCanvasAgg(figure)
  return figure, figure.subplots(rows, columns, **options)


def tidy(axes: 'Axes', **labels) -> None:
  """A faint grid, no frame at the top and right; `labels` go to `axes.set`."""
  axes.set(**labels)
  axes.grid(alpha=0.25)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)


def save(figure: 'Figure', picture: epath.PathLike) -> None:
  """Writes a PNG at once, without date and version, so that the same picture has the same bytes."""
  content = io.BytesIO()
  figure.savefig(content, format='png', metadata={'Software': None})
  write_whole(picture, content.getvalue())
