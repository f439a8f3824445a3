"""Pictures of training, through the figure that they were drawn from and the file that comes out."""

import io
import math

import matplotlib.figure
import numpy as np
import PIL.Image
import pytest

from rembert.plotting.training import bar_parts, millions, plot_languages, plot_loss, plot_parameters

RED, BLUE, GREY = '#d1242f', '#1f6feb', '#9aa5b1'
TRAINING = [{'step': 10 * n, 'loss': 7.0 - 0.2 * n, 'accuracy': 0.1} for n in range(1, 11)]


def evaluation(step, losses, entropy=6.0):
  mean = sum(losses.values()) / len(losses)
  return {'step': step, 'eval/loss': mean, 'eval/unigram_entropy': entropy} | {
    f'eval/loss/{language}': loss for language, loss in losses.items()
  }


EVALUATIONS = [evaluation(50, {'de': 6.5, 'en': 6.1, 'sw': 6.9}), evaluation(100, {'de': 5.5, 'en': 5.1, 'sw': 5.9})]


@pytest.fixture
def figures(monkeypatch):
  """Figures that have been saved."""
  found, savefig = [], matplotlib.figure.Figure.savefig

  def record(figure, *arguments, **options):
    found.append(figure)
    return savefig(figure, *arguments, **options)

  monkeypatch.setattr(matplotlib.figure.Figure, 'savefig', record)
  return found


@pytest.fixture
def draw(figures):
  """Function (rows of metrics) → the axes that were drawn, and the picture as an array [height, width, 3]."""

  def draw(rows):
    with PIL.Image.open(io.BytesIO(plot_loss(rows))) as picture:
      assert picture.format == 'PNG'
      pixels = np.asarray(picture.convert('RGB'))
    return figures.pop().axes[0], pixels

  return draw


def lines_of(axes, color):
  return [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines if line.get_color() == color]


def has_pixels(pixels, color):
  rgb = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
  return np.any(np.abs(pixels.astype(int) - rgb).max(-1) < 8)


def test_training_and_held_out_losses_are_drawn_at_their_steps(draw):
  axes, pixels = draw([*TRAINING[:5], EVALUATIONS[0], *TRAINING[5:], EVALUATIONS[1]])
  assert lines_of(axes, GREY) == [([row['step'] for row in TRAINING], [row['loss'] for row in TRAINING])]
  *languages, mean = lines_of(axes, BLUE)
  assert mean == ([50, 100], [row['eval/loss'] for row in EVALUATIONS])
  assert languages == [([50, 100], [6.5, 5.5]), ([50, 100], [6.1, 5.1]), ([50, 100], [6.9, 5.9])]
  assert all(has_pixels(pixels, color) for color in (RED, BLUE, GREY))


def test_the_loss_of_frequency_alone_is_a_line_across(draw):
  axes, pixels = draw([*TRAINING, EVALUATIONS[0], EVALUATIONS[1] | {'eval/unigram_entropy': 5.75}])
  assert lines_of(axes, RED) == [([0, 1], [5.75, 5.75])]  # x in widths of the axes
  rows = np.nonzero((np.abs(pixels.astype(int) - [0xD1, 0x24, 0x2F]).max(-1) < 8).sum(axis=1) > 100)[0]
  expected = pixels.shape[0] * (1 - axes.transData.transform((0, 5.75))[1] / axes.figure.bbox.height)
  assert rows.size
  assert np.abs(rows - expected).max() <= 2


def test_the_line_across_is_seen_even_where_every_loss_lies_below(draw):
  axes, pixels = draw([evaluation(10, {'de': 2.0, 'en': 3.0}, entropy=6.0)])
  assert axes.get_ylim()[1] > 6.0
  assert has_pixels(pixels, RED)


def test_the_last_value_the_best_and_the_worst_language_are_named(draw):
  axes, _ = draw(EVALUATIONS)
  assert {text.get_text(): text.xy for text in axes.texts} == {
    'en': (100, 5.1),
    'sw': (100, 5.9),
    '5.50': (100, EVALUATIONS[1]['eval/loss']),
  }


def test_the_legend_says_what_is_what(draw):
  axes, _ = draw([*TRAINING, *EVALUATIONS])
  assert [text.get_text() for text in axes.get_legend().get_texts()] == [
    'training',
    'held out, 3 languages',
    'frequency alone',
  ]


def test_without_rows_there_is_an_empty_picture(draw):
  axes, pixels = draw([])
  assert not axes.lines
  assert not has_pixels(pixels, BLUE)


def test_training_rows_alone_will_do(draw):
  axes, pixels = draw(TRAINING)
  assert len(axes.lines) == 1
  assert has_pixels(pixels, GREY)
  assert not has_pixels(pixels, RED)


def test_one_language_is_enough(draw):
  axes, _ = draw([evaluation(10, {'de': 5.0})])
  assert [text.get_text() for text in axes.texts] == ['5.00']


@pytest.mark.parametrize('value', [math.nan, math.inf])
def test_losses_that_are_not_finite_do_not_hide_the_others(draw, value):
  broken = evaluation(110, {'de': value, 'en': 5.0})
  axes, pixels = draw([*TRAINING, *EVALUATIONS, {'step': 110, 'loss': value}, broken])
  assert axes.get_ylim() == (0, pytest.approx(1.08 * 6.8))
  assert has_pixels(pixels, GREY)
  assert has_pixels(pixels, BLUE)


def test_nothing_but_losses_that_are_not_finite_is_still_a_picture(draw):
  draw([{'step': 10, 'loss': math.nan}, evaluation(10, {'de': math.nan, 'en': math.nan})])


def test_a_language_may_come_and_go(draw):
  axes, _ = draw([evaluation(10, {'de': 5.0, 'sw': 6.0}), evaluation(20, {'de': 4.0, 'en': 3.0})])
  assert lines_of(axes, BLUE)[:3] == [([10, 20], [5.0, 4.0]), ([20], [3.0]), ([10], [6.0])]
  assert {text.get_text() for text in axes.texts} == {'de', 'en', '3.50'}


def test_a_hundred_languages_are_thin_lines_of_which_two_are_named(draw):
  losses = {f'l{n:03d}': 4 + n / 100 for n in range(110)}
  axes, _ = draw([evaluation(10, losses), evaluation(20, losses)])
  assert len(lines_of(axes, BLUE)) == 111
  assert {text.get_text() for text in axes.texts} == {'l000', 'l109', f'{sum(losses.values()) / 110:.2f}'}


# --- languages --------------------------------------------------------------------------------------------------------


def test_languages_stand_by_size_with_the_share_that_each_alpha_gives_them(figures):
  rates = {1.0: {'sw': 0.01, 'de': 0.99}, 0.7: {'sw': 0.04, 'de': 0.96}, 0.5: {'sw': 0.1, 'de': 0.9}}
  assert plot_languages({'sw': 2000, 'de': 300_000, 'xx': 0}, rates).startswith(b'\x89PNG')
  size, share = figures[0].axes
  assert [bar.get_height() for bar in size.patches] == [300_000, 2000]
  assert [label.get_text() for label in share.get_xticklabels()] == ['de', 'sw']
  drawn = {line.get_label(): line.get_ydata() for line in share.get_lines()}
  np.testing.assert_allclose(drawn['α = 0.5'], [90, 10])
  np.testing.assert_allclose(drawn['α = 1, as they come'], [99, 1])


# --- parameters -------------------------------------------------------------------------------------------------------


def test_bars_of_parameters_stand_side_by_side_and_end_at_their_sum():
  before = {
    'word embedding': 3_000_000,
    'Transformer layers': 5_000_000,
    'output embedding': 2_000_000,
    'output bias': 9,
  }
  after = {name: before[name] for name in ('word embedding', 'Transformer layers')}
  assert sum(bar_parts(before).values()) == sum(before.values())
  canvas = plot_parameters([('one', before, after)])
  bars = sorted((bar.get_y(), bar.get_x(), bar.get_width()) for bar in canvas.axes.patches)
  expected = [(0, 3), (3, 5), (8, 2.000009), (0, 3), (3, 5)]
  assert [(left, width) for _, left, width in bars] == [pytest.approx(each) for each in expected]
  assert [text.get_text() for text in canvas.axes.texts] == ['10.0M', '8.00M']


@pytest.mark.parametrize(('count', 'words'), [(1_234_567, '1.23M'), (99_999_999, '100M'), (994_591_804, '995M')])
def test_millions_are_written_as_the_paper_does(count, words):
  assert millions(count) == words
