"""One look: pictures that are always the same, any text as a label, curves with few points."""

import numpy as np
import pytest

from rembert.plotting import style


def draw(labels=('a', 'b')):
  with style.canvas() as canvas:
    for index, label in enumerate(labels):
      canvas.axes.plot([0, 1], [0, index], label=style.label(label), **style.line_style(index))
    style.step_axis(canvas.axes)
    canvas.legend()
  return canvas


def test_the_same_picture_is_the_same_file():
  first, second = draw(), draw()
  assert first.png() == second.png()
  assert first.svg('name') == second.svg('name')
  assert first.png().startswith(b'\x89PNG')


@pytest.mark.parametrize('text', ['$\\frac', '_hidden', '語言', 'x' * 300, '\x00\ud800'])
def test_any_text_can_be_a_label(text, recwarn):
  drawn = draw([text, 'b'])
  drawn.png()
  assert style.label(text).strip() in drawn.svg('name').decode()
  assert not [warning for warning in recwarn if 'Glyph' in str(warning.message)]


@pytest.mark.parametrize(('count', 'most'), [(1, 1), (50, 50), (51, 50), (2000, 7)])
def test_thinned_points_are_few_and_keep_the_mean_of_whole_runs(count, most):
  values = np.random.default_rng(count).normal(size=count)
  x, y = style.thinned(range(count), values, most)
  assert len(x) == len(y) <= most
  assert np.all(np.diff(x) > 0)
  run = -(-count // most)
  assert y[0] == pytest.approx(values[:run].mean())
  assert y[-1] == pytest.approx(values[(len(y) - 1) * run :].mean())


def test_many_series_are_distinct_without_colour():
  looks = [style.line_style(index) for index in range(len(style.SERIES) * len(style.DASHES))]
  assert len({(look['color'], look['linestyle']) for look in looks}) == len(looks)
  assert len({(look['marker'], look['linestyle']) for look in looks}) == len(looks)
