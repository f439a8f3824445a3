"""The one table of data sheets."""

import pytest

from rembert.runtime.chips import CHIPS, chip_of


@pytest.mark.parametrize(
  ('kind', 'name'),
  [
    ('TPU v5 lite', 'TPU v5 lite'),
    ('TPU v5', 'TPU v5'),
    ('TPU v5p', 'TPU v5p'),
    ('TPU v6 lite', 'TPU v6 lite'),
    ('NVIDIA H100 80GB HBM3', 'NVIDIA H100'),
  ],
)
def test_a_device_is_found_by_the_longest_name_that_fits(kind, name):
  assert chip_of(kind) == (name, CHIPS[name])


@pytest.mark.parametrize('kind', ['cpu', 'TPU v9', 'NVIDIA L40S'])
def test_a_device_without_a_data_sheet_is_not_guessed(kind):
  assert chip_of(kind) is None


# Bidirectional inter-chip interconnect bandwidth per chip, GB/s, and ports, as Google's pages have them.
@pytest.mark.parametrize(
  ('name', 'both_ways', 'ports'), [('TPU v5e', 400, 4), ('TPU v5p', 1200, 6), ('TPU v6e', 800, 4), ('TPU v4', 600, 6)]
)
def test_links_add_up_to_what_the_page_states(name, both_ways, ports):
  assert 2 * ports * CHIPS[name].link_bandwidth == both_ways * 1e9


def test_devices_that_are_the_same_chip_have_the_same_figures():
  assert CHIPS['TPU v5 lite'] is CHIPS['TPU v5e']
  assert CHIPS['TPU v5'] is CHIPS['TPU v5p']
  assert CHIPS['TPU v6 lite'] is CHIPS['TPU v6e']
