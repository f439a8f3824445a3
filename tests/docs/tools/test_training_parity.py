import math

from docs.tools import training_parity
from docs.tools.training_pairs import Step

FIGURES = {
  ('pairs', 'float32'): [Step(1.5, 0.0, math.nan), Step(1.25, -3e-6, 2e-7), Step(1.0, 1e-6, 4e-7)],
  ('pairs', 'float64'): [Step(1.5, 0.0, math.nan), Step(1.25, 2e-12, 2e-13), Step(1.0, 1e-12, 3e-13)],
}


def test_figures_come_back_from_the_csv():
  text = training_parity.as_csv(FIGURES)
  assert text.splitlines()[2] == 'pairs,float32,2,1.25,-3.00e-06,2.00e-07'
  assert training_parity.as_csv(training_parity.read_csv(text)) == text


def test_the_table_has_the_largest_difference_and_the_last_distance():
  assert training_parity.parity_table(FIGURES).splitlines()[2:] == [
    '| pairs | 3 | 1.50 → 1.00 | 3e-06 · 2e-12 | 4e-07 · 3e-13 |'
  ]


def test_the_picture_is_drawn():
  assert training_parity.picture(FIGURES).startswith(b'\x89PNG')
