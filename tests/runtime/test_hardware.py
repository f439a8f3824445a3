"""TPU chips get by the ids on the PCI bus, whatever the driver calls them; who names a platform is believed."""

import pytest
from jax._src import hardware_utils

from rembert.runtime import hardware
from rembert.runtime.hardware import CHIPS, chip_of, has_tpu, is_cpu_machine, multiplies_bfloat16


def plug_in(bus, slot, vendor, device):
  folder = bus / slot
  folder.mkdir(parents=True)
  (folder / 'vendor').write_text(f'{vendor}\n')
  (folder / 'device').write_text(f'{device}\n')


def test_tpus_have_the_ids_that_jax_looks_for(tmp_path):
  plug_in(tmp_path, '0000:00:04.0', '0x8086', '0x0063')
  plug_in(tmp_path, '0000:00:05.0', '0x1ae0', '0x0042')  # Google's network card
  (tmp_path / 'half' / 'device').mkdir(parents=True)
  for bus in tmp_path, tmp_path / 'no bus', tmp_path / 'half':
    assert not has_tpu(bus)
  since_jax_0_12 = {'0x007c', '0x0083'}
  assert set(hardware._TPUS) == set(hardware_utils._TPU_PCI_DEVICE_IDS) | since_jax_0_12
  plug_in(tmp_path, '0000:00:06.0', '0x1ae0', '0x0063')
  assert has_tpu(tmp_path)


@pytest.mark.parametrize(('platforms', 'is_cpu'), [('cpu', True), ('tpu', False), ('cuda,cpu', False)])
def test_who_names_a_platform_is_believed(monkeypatch, platforms, is_cpu):
  monkeypatch.setenv('JAX_PLATFORMS', platforms)
  assert is_cpu_machine() == is_cpu


@pytest.mark.parametrize(
  ('flags', 'multiplies'),
  [
    *[('fpu avx512_bf16 amx_bf16 avx512_fp16', True), ('fpu avx512f avx512_bf16', True)],
    *[('fpu avx512f', False), ('fpu amx_bf16x', False)],
  ],
)
def test_products_of_bfloat16_are_a_flag_of_the_processor(tmp_path, flags, multiplies):
  assert not multiplies_bfloat16(tmp_path / 'cpuinfo')
  (tmp_path / 'cpuinfo').write_text(f'processor\t: 0\nmodel name\t: amx_bf16\nflags\t\t: {flags}\nbugs\t: none\n')
  assert multiplies_bfloat16(tmp_path / 'cpuinfo') == multiplies


@pytest.mark.parametrize(
  ('kind', 'name'),
  [
    ('TPU v5 lite', 'TPU v5 lite'),
    ('TPU v5', 'TPU v5'),
    ('TPU v5p', 'TPU v5p'),
    ('TPU v6 lite', 'TPU v6 lite'),
    ('NVIDIA H100 80GB HBM3', 'NVIDIA H100'),
    *((kind, None) for kind in ('cpu', 'TPU v9', 'NVIDIA L40S')),
  ],
)
def test_a_device_is_found_by_the_longest_name_that_fits_and_one_without_a_data_sheet_is_not_guessed(kind, name):
  assert chip_of(kind) == (name and (name, CHIPS[name]))


# Bidirectional inter-chip interconnect bandwidth per chip, GB/s, and ports, as Google's pages have them.
@pytest.mark.parametrize(
  ('name', 'both_ways', 'ports'), [('TPU v5e', 400, 4), ('TPU v5p', 1200, 6), ('TPU v6e', 800, 4), ('TPU v4', 600, 6)]
)
def test_links_add_up_to_what_the_page_states(name, both_ways, ports):
  assert 2 * ports * CHIPS[name].link_bandwidth == both_ways * 1e9
  same_chip = {'TPU v5e': 'TPU v5 lite', 'TPU v5p': 'TPU v5', 'TPU v6e': 'TPU v6 lite'}
  assert CHIPS[same_chip.get(name, name)] is CHIPS[name]
