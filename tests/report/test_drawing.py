"""Pictures that go into a page: its colours, ids of their own, nothing fetched, and any text."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembert.report import drawing

HOSTILE = ('<script>alert(1)</script>', '$\\frac', '_hidden', '"\'&', '語言', 'x' * 300, '\x00\ud800')


def draw(name, labels=('a', 'b')):
  with drawing.canvas(name, alt='what it shows') as canvas:
    for index, label in enumerate(labels):
      canvas.axes.plot([0, 1], [0, index], label=drawing.label(label), **drawing.style(index))
    canvas.axes.fill_between([0, 1], [0, 0], [1, 1], color=drawing.FAINT, hatch='/')
    drawing.step_axis(canvas.axes)
    canvas.legend()
  return canvas.drawing


def test_the_picture_follows_the_page_and_the_png_is_white():
  drawn = draw('one')
  text = ElementTree.tostring(drawn.svg, encoding='unicode')
  assert 'currentColor' in text
  assert 'var(--series-1)' in text
  assert 'var(--faint)' in text
  for colour in (drawing.INK, drawing.FAINT, drawing.GRID, *drawing.SERIES):
    assert colour not in text
  assert drawn.png.startswith(b'\x89PNG')


def test_the_picture_is_one_element_with_its_words_and_no_size():
  svg = draw('one').svg
  assert (svg.tag, svg.get('role'), svg.get('aria-label')) == ('svg', 'img', 'what it shows')
  assert svg.get('width') is None
  assert len(svg.get('viewBox').split()) == 4


def test_pictures_of_one_page_share_no_id_and_refer_to_their_own():
  texts = [ElementTree.tostring(draw(name).svg, encoding='unicode') for name in ('one', 'two')]
  ids = [re.findall(r'\bid="([^"]*)"', text) for text in texts]
  assert ids[0]
  assert not set(ids[0]) & set(ids[1])
  for text, own in zip(texts, ids, strict=True):
    assert len(own) == len(set(own))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', text)) <= set(own)


def test_a_picture_fetches_nothing_and_styles_nothing_else():
  text = ElementTree.tostring(draw('one').svg, encoding='unicode')
  assert not re.search(r'https?://|<style|<metadata|<script|@import', text)


def test_the_same_picture_is_the_same_file():
  first, second = draw('one'), draw('one')
  assert ElementTree.tostring(first.svg) == ElementTree.tostring(second.svg)
  assert first.png == second.png


@pytest.mark.parametrize('text', HOSTILE)
def test_any_text_can_be_a_label(text, recwarn):
  drawn = draw('one', [text, 'b'])
  assert {each.tag for each in drawn.svg.iter()} <= {
    'svg',
    'defs',
    'g',
    'path',
    'text',
    'use',
    'clipPath',
    'rect',
    'pattern',
    'tspan',
  }
  shown = ''.join(drawn.svg.itertext())
  assert drawing.label(text).strip() in shown
  assert not [warning for warning in recwarn if 'Glyph' in str(warning.message)]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=2000), st.integers(1, 50))
def test_thinned_points_are_few_and_keep_the_mean_of_whole_runs(values, most):
  x, y = drawing.thinned(range(len(values)), values, most)
  assert len(x) == len(y) <= most
  assert np.all(np.diff(x) > 0)
  assert min(values) - 1e-6 <= y.min()
  assert y.max() <= max(values) + 1e-6


def test_few_points_are_not_touched():
  x, y = drawing.thinned([1, 5], [2.0, 3.0])
  assert (list(x), list(y)) == ([1, 5], [2.0, 3.0])


@pytest.mark.parametrize('values', [[], [1.0], [2.0, 2.0], [3.0, 1.0, 2.0]])
def test_sparklines_stay_in_their_box(values):
  svg = drawing.sparkline(values, alt='<b>')
  points = [tuple(map(float, point.split(','))) for point in svg.find('polyline').get('points').split()]
  assert len(points) == len(values)
  assert all(0 <= x <= 96 and 0 <= y <= 22 for x, y in points)
  assert svg.get('aria-label') == '<b>'


def test_many_series_are_told_apart_without_colour():
  looks = [drawing.style(index) for index in range(len(drawing.SERIES) * len(drawing.DASHES))]
  assert len({(look['color'], look['linestyle']) for look in looks}) == len(looks)
  assert len({(look['marker'], look['linestyle']) for look in looks}) == len(looks)
