import numpy as np
import pytest

from benchmarks import growth, reading
from benchmarks.turns import Measurement
from rembert.data.token_store import TokenStore, altered_shards


@pytest.mark.parametrize('power', [0, 0.5, 1, 2])
def test_the_slope_of_a_power_law_is_its_power(power):
  sizes = [2, 4, 8, 16]
  assert growth.slope(sizes, [3 * size**power for size in sizes]) == pytest.approx(power, abs=1e-9)


def test_the_conclusion_is_of_what_was_measured():
  measured = dict(zip(growth.names('layers'), (Measurement([each]) for each in (1.0, 2.0, 4.0)), strict=False))
  assert growth.conclusion('layers', measured) == 'seconds grow as layers to the power of 1.00'
  measured['layers 8'] = Measurement(failure='died')
  assert growth.conclusion('layers', measured) == 'seconds grow as layers to the power of 1.00'
  assert growth.conclusion('layers', {'layers 2': Measurement([1.0])}) == ''


@pytest.mark.parametrize('name', ['layers', 'vocabulary', 'output', 'length'])
def test_one_size_grows_and_the_tokens_and_the_masked_share_stay(name):
  settings = [growth.grown(name, size) for size in growth.SETTINGS[name].sizes]
  assert {setting.rows * setting.length for setting in settings} == {growth.TOKENS}
  assert {setting.rows * setting.slots for setting in settings} == {growth.BATCH.rows * growth.BATCH.slots}
  assert len({(setting.config, setting.length) for setting in settings}) == len(settings)


def test_a_store_is_multiplied_and_can_be_read(small_store, tmp_path):
  small = TokenStore(small_store.folder)
  rows = sum(small.rows(language, 'train') for language in small.languages)
  growth.multiply_store(small_store.folder, tmp_path / 'large', 3 * rows + 1)
  large = TokenStore(tmp_path / 'large')
  assert not altered_shards(large)
  for language in small.languages:
    count = small.rows(language, 'train')
    assert large.rows(language, 'train') == 3 * count
    wanted = small.read(language, 'train', range(count))
    np.testing.assert_array_equal(large.read(language, 'train', range(2 * count, 3 * count)), wanted)
    assert large.rows(language, 'validation') == small.rows(language, 'validation')
  setting = reading.Setting(rows=4, length=64, batches=3, pieces=1500)
  run = growth.prepare_store(tmp_path / 'large', setting)
  assert run() == run()
