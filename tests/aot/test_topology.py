"""Names of slices, and the error where one is not available."""

import sys

import pytest

from rembert.aot.topology import Topology, devices, parse
from rembert.errors import UsageError


def test_a_name_says_family_shape_and_slices():
  for name, expected in {
    'v4:4x4x4': ('v4', (4, 4, 4), 1),
    'v5e:8x8': ('v5e', (8, 8), 1),
    '2*v5e:16x16': ('v5e', (16, 16), 2),
    'tpu7x:4x4x4': ('tpu7x', (4, 4, 4), 1),
    'cpu:8': ('cpu', (8,), 1),
  }.items():
    assert parse(name) == Topology(name, *expected)


@pytest.mark.parametrize('name', ['', 'v4', 'v4-64', 'v5e:8×8', '0*v5e:8x8', 'v5e:0x8', 'gpu:8', '2*cpu:4', 'cpu:2x4'])
def test_another_name_is_answered_with_examples(name):
  with pytest.raises(UsageError) as error:
    parse(name)
  assert 'cpu:8' in error.value.fix[0]


def test_cpu_devices_are_as_many_as_asked_for_if_a_running_jax_has_them():
  assert len(devices(parse('cpu:4'))) == 4
  with pytest.raises(UsageError, match='JAX has already started, with 8 devices'):
    devices(parse('cpu:9'))


def test_without_libtpu_the_command_that_installs_it_is_shown(monkeypatch):
  monkeypatch.setitem(sys.modules, 'libtpu', None)
  with pytest.raises(UsageError, match='libtpu') as error:
    devices(parse('v5e:8x8'))
  assert error.value.fix[0].startswith('pip install "jax[tpu]==')
