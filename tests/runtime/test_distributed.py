"""From the environment to joined processes, or to a message."""

import jax
import pytest

from rembert.errors import RunError, UsageError
from rembert.runtime import distributed
from rembert.runtime.distributed import ADDRESS, COUNT, INDEX, HostsConfig, join


@pytest.fixture
def initialized(monkeypatch):
  """Arguments of `jax.distributed.initialize`, which is not called; an environment without any cluster."""
  calls = []
  monkeypatch.setattr(jax.distributed, 'initialize', lambda **arguments: calls.append(arguments))
  for name in (ADDRESS, COUNT, INDEX, 'SLURM_NTASKS', 'OMPI_COMM_WORLD_SIZE', 'TPU_WORKER_HOSTNAMES'):
    monkeypatch.delenv(name, raising=False)
  return calls


@pytest.fixture
def set_cluster(monkeypatch):
  """Sets ADDRESS, COUNT and INDEX, as far as they are given."""

  def set_cluster(*values):
    for name, value in zip((ADDRESS, COUNT, INDEX), values, strict=True):
      if value:
        monkeypatch.setenv(name, value)

  return set_cluster


def test_three_variables_define_a_cluster_and_a_single_process_does_not_join(initialized, set_cluster):
  join(HostsConfig())
  assert initialized == []
  set_cluster('alpha:1234', '4', '3')
  join(HostsConfig(join_seconds=7, lost_after_seconds=9))
  process = {'coordinator_address': 'alpha:1234', 'num_processes': 4, 'process_id': 3}
  seconds = {'initialization_timeout': 7, 'heartbeat_timeout_seconds': 9, 'shutdown_timeout_seconds': 18}
  assert initialized == [process | seconds]


INCOMPLETE, IMPOSSIBLE = 'incomplete cluster configuration', 'is out of range'


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    *(((*given,), INCOMPLETE) for given in (('alpha:1', '', ''), ('', '2', '0'), ('alpha:1', '', '0'))),
    *((('alpha:1', *given), IMPOSSIBLE) for given in (('2', '2'), ('2', '-1'), ('0', '0'), ('two', '0'))),
  ],
)
def test_a_part_of_them_and_numbers_that_cannot_be_are_usage_errors(given, message, initialized, set_cluster):
  set_cluster(*given)
  with pytest.raises(UsageError, match=message) as error:
    join(HostsConfig())
  assert message == IMPOSSIBLE or ADDRESS in error.value.fix[0]


@pytest.mark.parametrize('variable', ['SLURM_NTASKS', 'OMPI_COMM_WORLD_SIZE'])
def test_a_job_of_several_tasks_is_left_to_jax_to_make_out(variable, initialized, monkeypatch):
  monkeypatch.setenv(variable, '2')
  join(HostsConfig())
  assert 'coordinator_address' not in initialized[0]
  monkeypatch.setenv(variable, '1')
  join(HostsConfig())
  assert len(initialized) == 1


@pytest.mark.parametrize('sign', ['environment', 'chips'])
def test_a_tpu_pod_is_one_unless_the_cpu_is_asked_for(sign, initialized, monkeypatch):
  hosts = lambda names: monkeypatch.setenv('TPU_WORKER_HOSTNAMES', names)
  if sign == 'chips':  # their metadata say of which slice they are
    monkeypatch.setattr(distributed, 'has_tpu', lambda: True)
  else:
    hosts('alpha,beta')
  join(HostsConfig())
  assert initialized == []
  jax.config.update('jax_platforms', None)
  try:
    join(HostsConfig())
    assert len(initialized) == 1
    hosts('localhost')
    join(HostsConfig())
    assert len(initialized) == (2 if sign == 'chips' else 1)
  finally:
    jax.config.update('jax_platforms', 'cpu')


@pytest.mark.parametrize(
  ('raised', 'expected', 'message'),
  [
    (ValueError('no address'), UsageError, 'cannot be detected from the environment: no address'),
    (
      RuntimeError('DEADLINE_EXCEEDED: late\nmore'),
      RunError,
      'not all hosts joined within 300 s: DEADLINE_EXCEEDED: late',
    ),
  ],
  ids=['not detected', 'too late'],
)
def test_a_cluster_that_cannot_be_joined_is_one_error(raised, expected, message, initialized, set_cluster, monkeypatch):
  def fail(**_):
    raise raised

  monkeypatch.setattr(jax.distributed, 'initialize', fail)
  set_cluster('alpha:1234', '4', '3')
  with pytest.raises(expected, match=message) as error:
    join(HostsConfig())
  assert error.value.exit_code == (2 if expected is UsageError else 1)
  assert expected is UsageError or 'alpha:1234' in error.value.where


def test_a_process_alone_leaves_as_any_program_does():
  with pytest.raises(SystemExit) as leaving:
    distributed.leave(2)
  assert leaving.value.code == 2
