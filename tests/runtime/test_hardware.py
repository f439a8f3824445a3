"""TPU chips are told by the ids on the PCI bus, whatever the driver calls them; who names a platform is believed."""

import pytest

from rembert.runtime.hardware import has_tpu, is_cpu_machine, multiplies_bfloat16


def plug_in(bus, slot, vendor, device):
  folder = bus / slot
  folder.mkdir(parents=True)
  (folder / 'vendor').write_text(f'{vendor}\n')
  (folder / 'device').write_text(f'{device}\n')


@pytest.mark.parametrize('device', ['0x0027', '0x005e', '0x0062', '0x0063', '0x006f', '0x0076'])
def test_every_generation_is_a_tpu(device, tmp_path):
  plug_in(tmp_path, '0000:00:04.0', '0x8086', device)
  assert not has_tpu(tmp_path)
  plug_in(tmp_path, '0000:00:05.0', '0x1ae0', device)
  assert has_tpu(tmp_path)


def test_google_s_network_card_is_none(tmp_path):
  plug_in(tmp_path, '0000:00:05.0', '0x1ae0', '0x0042')
  assert not has_tpu(tmp_path)


def test_a_machine_without_a_bus_has_none(tmp_path):
  assert not has_tpu(tmp_path / 'devices')
  (tmp_path / 'half').mkdir()
  assert not has_tpu(tmp_path)


def test_the_ids_are_those_that_jax_looks_for():
  from jax._src import hardware_utils

  from rembert.runtime import hardware

  assert set(hardware._TPUS) == set(hardware_utils._TPU_PCI_DEVICE_IDS)


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
