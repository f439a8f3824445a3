import pytest

from benchmarks import growth
from benchmarks.interleaved import Measurement

MEASURED = {f'{size:,}': Measurement([3e-3 * size**1.5] * 5) for size in (10, 100, 1000)}


def test_the_exponent_is_that_of_the_power():
  broken = MEASURED | {'10,000': Measurement(failure='gone')}
  assert growth.exponent(growth.GROWTH.settings['layers'], broken) == 'time ∝ layers^1.50'
  assert growth.exponent(growth.GROWTH.settings['layers'], {'1': Measurement(failure='gone')}) == ''


@pytest.mark.parametrize(
  ('name', 'field'),
  [('layers', 'num_hidden_layers'), ('vocabulary', 'vocab_size'), ('length', 'max_position_embeddings')],
)
def test_only_the_size_grows(name, field, tmp_path):
  first, *others = growth.candidates(growth.GROWTH.settings[name], tmp_path)
  for candidate in (first, *others):
    [setting] = candidate.arguments
    assert getattr(setting.config, field) == int(candidate.name.replace(',', ''))
  assert len({(each.arguments[0].rows, each.arguments[0].config.hidden_size) for each in (first, *others)}) == 1
