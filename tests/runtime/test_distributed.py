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


def test_a_process_on_its_own_joins_nobody(initialized):
  join(HostsConfig())
  assert initialized == []


def test_three_variables_name_a_cluster(initialized, monkeypatch):
  for name, value in ((ADDRESS, 'alpha:1234'), (COUNT, '4'), (INDEX, '3')):
    monkeypatch.setenv(name, value)
  join(HostsConfig(join_seconds=7, lost_after_seconds=9))
  assert initialized == [
    {
      'coordinator_address': 'alpha:1234',
      'num_processes': 4,
      'process_id': 3,
      'initialization_timeout': 7,
      'heartbeat_timeout_seconds': 9,
      'shutdown_timeout_seconds': 18,
    }
  ]


@pytest.mark.parametrize('given', [{ADDRESS: 'alpha:1'}, {COUNT: '2', INDEX: '0'}, {ADDRESS: 'alpha:1', INDEX: '0'}])
def test_a_part_of_them_is_a_usage_error(given, initialized, monkeypatch):
  for name, value in given.items():
    monkeypatch.setenv(name, value)
  with pytest.raises(UsageError, match='the description of the cluster is incomplete') as error:
    join(HostsConfig())
  assert ADDRESS in error.value.fix[0]


@pytest.mark.parametrize(('count', 'index'), [('2', '2'), ('2', '-1'), ('0', '0'), ('two', '0')])
def test_numbers_that_cannot_be_are_a_usage_error(count, index, initialized, monkeypatch):
  for name, value in ((ADDRESS, 'alpha:1234'), (COUNT, count), (INDEX, index)):
    monkeypatch.setenv(name, value)
  with pytest.raises(UsageError, match='cannot be'):
    join(HostsConfig())


@pytest.mark.parametrize('variable', ['SLURM_NTASKS', 'OMPI_COMM_WORLD_SIZE'])
def test_a_job_of_several_tasks_is_left_to_jax_to_make_out(variable, initialized, monkeypatch):
  monkeypatch.setenv(variable, '2')
  join(HostsConfig())
  assert 'coordinator_address' not in initialized[0]
  monkeypatch.setenv(variable, '1')
  join(HostsConfig())
  assert len(initialized) == 1


def test_a_tpu_pod_is_one_unless_the_cpu_is_asked_for(initialized, monkeypatch):
  monkeypatch.setenv('TPU_WORKER_HOSTNAMES', 'alpha,beta')
  join(HostsConfig())
  assert initialized == []
  jax.config.update('jax_platforms', None)
  try:
    join(HostsConfig())
    assert len(initialized) == 1
    monkeypatch.setenv('TPU_WORKER_HOSTNAMES', 'localhost')
    join(HostsConfig())
    assert len(initialized) == 1
  finally:
    jax.config.update('jax_platforms', 'cpu')


def test_a_machine_with_tpu_chips_asks_its_metadata_which_slice_it_is_of(initialized, monkeypatch):
  monkeypatch.setattr(distributed, 'has_tpu', lambda: True)
  join(HostsConfig())
  assert initialized == []  # the CPU was asked for
  jax.config.update('jax_platforms', None)
  try:
    join(HostsConfig())
  finally:
    jax.config.update('jax_platforms', 'cpu')
  assert len(initialized) == 1


def test_a_cluster_that_jax_cannot_make_out_is_a_usage_error(initialized, monkeypatch):
  def fail(**_):
    raise ValueError('coordinator_address should be defined.')

  monkeypatch.setattr(jax.distributed, 'initialize', fail)
  monkeypatch.setenv('SLURM_NTASKS', '2')
  with pytest.raises(UsageError, match='cannot be detected from the environment: coordinator_address'):
    join(HostsConfig())


def test_hosts_that_do_not_come_are_said_to_be_missing(initialized, monkeypatch):
  def fail(**_):
    raise RuntimeError('DEADLINE_EXCEEDED: Barrier timed out\nmore')

  monkeypatch.setattr(jax.distributed, 'initialize', fail)
  for name, value in ((ADDRESS, 'alpha:1234'), (COUNT, '4'), (INDEX, '3')):
    monkeypatch.setenv(name, value)
  with pytest.raises(
    RunError, match='not all hosts joined within 300 s: DEADLINE_EXCEEDED: Barrier timed out'
  ) as error:
    join(HostsConfig())
  assert 'alpha:1234' in error.value.where
  assert error.value.exit_code == 1


def test_a_process_alone_leaves_as_any_program_does():
  with pytest.raises(SystemExit) as leaving:
    distributed.leave(2)
  assert leaving.value.code == 2
