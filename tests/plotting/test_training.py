"""Pictures of training, through the figure that they were drawn from and the file that comes out."""

import math

import matplotlib.figure
import pytest

from rembert.plotting.style import BLUE, FAINT, RED
from rembert.plotting.training import millions, plot_loss

TRAINING = [{'step': 10 * n, 'loss': 7.0 - 0.2 * n, 'accuracy': 0.1} for n in range(1, 11)]


def evaluation(step, losses, entropy=6.0):
  mean = sum(losses.values()) / len(losses)
  return {'step': step, 'eval/loss': mean, 'eval/unigram_entropy': entropy} | {
    f'eval/loss/{language}': loss for language, loss in losses.items()
  }


EVALUATIONS = [evaluation(50, {'de': 6.5, 'en': 6.1, 'sw': 6.9}), evaluation(100, {'de': 5.5, 'en': 5.1, 'sw': 5.9})]


@pytest.fixture
def draw(monkeypatch):
  """Function (rows of metrics) → the axes that were drawn and saved."""
  saved, savefig = [], matplotlib.figure.Figure.savefig

  def record(figure, *arguments, **options):
    saved.append(figure)
    return savefig(figure, *arguments, **options)

  def draw(rows):
    assert plot_loss(rows).startswith(b'\x89PNG')
    return saved.pop().axes[0]

  monkeypatch.setattr(matplotlib.figure.Figure, 'savefig', record)
  return draw


def lines_of(axes, color):
  return [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines if line.get_color() == color]


def names_of(axes):
  return {text.get_text(): text.xy for text in axes.texts}


def test_training_and_held_out_losses_are_drawn_at_their_steps_and_named(draw):
  axes = draw([*TRAINING[:5], EVALUATIONS[0], *TRAINING[5:], EVALUATIONS[1] | {'eval/unigram_entropy': 5.75}])
  assert lines_of(axes, FAINT) == [([row['step'] for row in TRAINING], [row['loss'] for row in TRAINING])]
  assert lines_of(axes, RED) == [([0, 1], [5.75, 5.75])]  # x in widths of the axes
  *languages, mean = lines_of(axes, BLUE)
  assert mean == ([50, 100], [row['eval/loss'] for row in EVALUATIONS])
  assert languages == [([50, 100], [6.5, 5.5]), ([50, 100], [6.1, 5.1]), ([50, 100], [6.9, 5.9])]
  assert names_of(axes) == {'en': (100, 5.1), 'sw': (100, 5.9), '5.50': (100, EVALUATIONS[1]['eval/loss'])}
  legend = [text.get_text() for text in axes.figure.legends[0].get_texts()]
  assert legend == ['training', 'eval, 3 languages', 'unigram baseline']


def test_the_baseline_is_seen_even_if_every_loss_is_below(draw):
  assert draw([evaluation(10, {'de': 2.0, 'en': 3.0}, entropy=6.0)]).get_ylim()[1] > 6.0


def test_few_rows_will_do(draw):
  assert not draw([]).lines
  assert len(draw(TRAINING).lines) == 1
  assert list(names_of(draw([evaluation(10, {'de': 5.0})]))) == ['5.00']


@pytest.mark.parametrize('value', [math.nan, math.inf])
def test_losses_that_are_not_finite_do_not_hide_the_others(draw, value):
  broken = evaluation(110, {'de': value, 'en': 5.0})
  axes = draw([*TRAINING, *EVALUATIONS, {'step': 110, 'loss': value}, broken])
  assert axes.get_ylim()[0] == 0
  assert 6.8 < axes.get_ylim()[1] < 7.5
  draw([{'step': 10, 'loss': math.nan}, evaluation(10, {'de': math.nan, 'en': math.nan})])


def test_a_language_may_come_and_go(draw):
  axes = draw([evaluation(10, {'de': 5.0, 'sw': 6.0}), evaluation(20, {'de': 4.0, 'en': 3.0})])
  assert lines_of(axes, BLUE)[:3] == [([10, 20], [5.0, 4.0]), ([20], [3.0]), ([10], [6.0])]
  assert set(names_of(axes)) == {'de', 'en', '3.50'}


def test_millions_are_written_as_the_paper_does():
  assert [millions(count) for count in (1_234_567, 99_999_999, 994_591_804)] == ['1.23M', '100M', '995M']
