"""Flags reach the compiler by the right variable, and never push aside what the user has set."""

import pytest

from rembert.errors import UsageError
from rembert.runtime.xla import HardwareConfig, apply

FLAGS = HardwareConfig(xla_flags=('--xla_a=true', '--xla_b=2'))


@pytest.mark.parametrize(
  ('platform', 'variable'),
  [('tpu', 'LIBTPU_INIT_ARGS'), ('gpu', 'XLA_FLAGS'), ('cpu', 'XLA_FLAGS'), (None, 'XLA_FLAGS')],
)
def test_the_platform_decides_on_the_variable(platform, variable):
  environment = {}
  assert apply(FLAGS, platform, environment) == f'{variable}: --xla_a=true --xla_b=2'
  assert environment == {variable: '--xla_a=true --xla_b=2'}


def test_what_the_user_has_set_stays_and_wins():
  environment = {'LIBTPU_INIT_ARGS': '--xla_b=3 --other=1'}
  assert apply(FLAGS, 'tpu', environment) == 'LIBTPU_INIT_ARGS: --xla_a=true'
  assert environment == {'LIBTPU_INIT_ARGS': '--xla_b=3 --other=1 --xla_a=true'}


def test_repeating_it_changes_nothing():
  environment = {}
  apply(FLAGS, 'tpu', environment)
  assert apply(FLAGS, 'tpu', environment) == ''


def test_no_flags_leave_the_environment_alone():
  environment = {}
  assert apply(HardwareConfig(), 'tpu', environment) == ''
  assert environment == {}


@pytest.mark.parametrize('flags', ['--xla_a=true', ('xla_a=true',), (1,)])
def test_anything_but_a_tuple_of_flags_is_refused(flags):
  with pytest.raises(UsageError, match='tuple'):
    HardwareConfig(xla_flags=flags)
