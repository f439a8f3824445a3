"""Requests that wait in a queue, and runs that outlive their machines, with a mock gcloud."""

import sys
import time
import types

import pytest

from launch.processes import CommandFailed, Commands, RetryPolicy
from launch.queued_resource import QueuedResource, Watch, main
from launch.tpu_vm import TpuVm, WorkerStatus, tpu_request
from rembert.errors import RunError, UsageError

REQUEST = tpu_request('v5litepod-8')
PATIENT = RetryPolicy(max_restarts=9, max_short_runs=9, short_seconds=600.0, max_wait=1800.0)
POLICY = RetryPolicy(max_restarts=3, max_short_runs=10, short_seconds=0.0, max_wait=0.0)
# Continues from what the bucket holds, and is done with the second start.
RESUMES = """
import pathlib, sys, time
bucket = pathlib.Path(sys.argv[1])
bucket.write_text(bucket.read_text() + 'x' if bucket.exists() else 'x')
if bucket.read_text() == 'x':
  time.sleep(600)
"""


@pytest.fixture
def watch(gcloud):
  """Makes a watch that says what it sees to a list, on one worker."""
  gcloud.update(workers=1)

  def make(*command, said, deletes=False):
    sleep = lambda seconds: time.sleep(0.1)
    resource, vm = (of('large', Commands(log=said.append), owner='anna') for of in (QueuedResource, TpuVm))
    return Watch(resource, vm, REQUEST, command, '3.12', 0.1, POLICY, deletes, sleep)

  return make


def test_what_others_asked_for_is_not_deleted(gcloud, capsys):
  gcloud.update(queued={'large': {'labels': {}, 'plan': ['ACTIVE']}})
  assert main(['delete', 'large']) == 2
  assert 'was not created by these launchers' in capsys.readouterr().err
  assert gcloud.calls('delete') == []
  gcloud.update(queued={'large': {'labels': {'rembert-launch': '1', 'rembert-owner': 'anna'}, 'plan': ['ACTIVE']}})
  assert main(['delete', 'large', '--owner=anna']) == 0
  assert '--force' in gcloud.calls('delete')[0]
  assert main(['delete', 'large', '--owner=anna']) == 0
  assert 'nothing to delete' in capsys.readouterr().out


def test_a_preempted_slice_is_requested_again_and_the_run_resumes(gcloud, watch, tmp_path):
  said, bucket = [], tmp_path / 'bucket'
  gcloud.update(plans=[['WAITING_FOR_RESOURCES', f'ACTIVE until {bucket}', 'SUSPENDING', 'SUSPENDED'], ['ACTIVE']])
  assert watch('python', '-c', RESUMES, str(bucket), said=said, deletes=True).run() == 0
  assert bucket.read_text() == 'xx'
  assert [call[1] for call in gcloud.calls('create', 'delete')] == ['create', 'delete'] * 2
  assert gcloud.read()['queued'] == {}
  assert len([line for line in said if 'restart' in line]) == 1


def test_a_watched_run_needs_a_workdir_that_outlives_machines(gcloud, capsys):
  flags = ['--type=v5litepod-64', '--spot']
  command = ['python', '-m', 'rembert.main', '--gin_file=gin/pretrain_smoke.gin', '--workdir=runs/large']
  assert main(['watch', 'large', *flags, '--', *command]) == 2
  assert 'gs://BUCKET/large' in capsys.readouterr().err
  assert gcloud.calls() == []


@pytest.mark.parametrize(
  'arguments', [['watch', 'large', '--type=v4-8'], ['watch', 'large', '--type=v4-8', '--every=5', '--', 'true']]
)
def test_wrong_usage(arguments, capsys):
  with pytest.raises(SystemExit) as error:
    sys.exit(main(arguments))
  assert error.value.code == 2


# --- a watch of requests, nodes and workers that only say what a test has written down --------------------------------

IDLE, RUNNING, LOST, DONE, STOPPED, KILLED, TOLD = 'idle', 'running', 'lost', 0, 75, 137, 143
NETWORK = CommandFailed(['gcloud'], 1, 'ERROR: network is unreachable')
NOT_SET_UP = UsageError('is not set up')


class World:
  """One after the other: what `describe` says of the request, and what the workers say; the last one stays."""

  def __init__(self, requests, workers=(), nodes=('READY',), failing=()):
    self.seen = {'requests': list(requests), 'workers': list(workers), 'nodes': list(nodes)}
    self.failing = dict(failing)
    self.done, self.said, self.slept = [], [], []

  def next(self, kind):
    found = self.seen[kind].pop(0) if len(self.seen[kind]) > 1 else self.seen[kind][0]
    if isinstance(found, Exception):
      raise found
    return found

  def request(self):
    state = self.next('requests')
    failed = {'failedData': {'error': {'message': 'no such type in this zone'}}} if state == 'FAILED' else {}
    return None if state is None else {'state': {'state': state, **failed}}

  def workers(self):
    ended = lambda state: ('ended', state) if isinstance(state, int) else (state, None)
    return [WorkerStatus(f'worker{index}', *ended(state), '') for index, state in enumerate(self.next('workers'))]

  def act(self, name):
    self.done.append(name)
    if name in self.failing:
      raise self.failing[name]

  def watch(self, policy=PATIENT, **options):
    fake = lambda describe, *acts: types.SimpleNamespace(
      name='large',
      commands=Commands(log=self.said.append),
      describe=describe,
      status=self.workers,
      **{name: lambda *_, name=name: self.act(name) for name in acts},
    )
    resource = fake(self.request, 'create', 'delete')
    vm = fake(lambda: {'state': self.next('nodes')}, 'setup', 'start', 'stop')
    clock = iter(range(0, 10**9, 1000)).__next__
    options = {'policy': policy, 'sleep': self.slept.append, 'clock': clock} | options
    return Watch(resource, vm, REQUEST, ('true',), '3.12', **options)


A = 'ACTIVE'


def test_from_nothing_to_the_end():
  world = World([None, 'CREATING', 'WAITING_FOR_RESOURCES', 'PROVISIONING', A], [NOT_SET_UP, [RUNNING] * 2, [DONE] * 2])
  assert world.watch().run() == 0
  assert world.done == ['create', 'setup', 'start']
  assert [line for line in world.said if line.startswith('large: ')][:5] == [
    *('large: MISSING', 'large: CREATING', 'large: WAITING_FOR_RESOURCES', 'large: PROVISIONING', 'large: ACTIVE')
  ]
  assert 'delete large' in world.said[-1]


def test_the_slice_is_deleted_when_the_run_is_done_and_only_then():
  world = World([A], [[DONE]])
  assert world.watch(delete_when_done=True).run() == 0
  assert world.done == ['delete']
  world = World([A], [[1]])
  assert world.watch(delete_when_done=True).run() == 1
  assert world.done == []


AGAIN = ['delete', 'create', 'setup', 'start']
BACK = ['stop', 'setup', 'start']
# What is seen one after the other, of the request (ACTIVE by default), of the workers, and of the node;
# the exit code, and what the watch did.
SEEN = {
  'a request that is suspended': ([A, A, 'SUSPENDING', 'SUSPENDED', None, A], [RUNNING, RUNNING, IDLE, DONE], 0, AGAIN),
  'a request that is deleted': ([A, A, 'SUSPENDED', 'DELETING', None, A], [RUNNING, RUNNING, IDLE, DONE], 0, AGAIN),
  'a request that fails': ([A, A, 'FAILED', None, 'PROVISIONING', A], [RUNNING, RUNNING, IDLE, DONE], 0, AGAIN),
  'a stop by a machine that vanishes': ([A, A, 'SUSPENDED', None, A], [RUNNING, STOPPED, IDLE, DONE], 0, AGAIN),
  'a node that is gone first': ([A, A, None, A], [RUNNING, IDLE, DONE], 0, AGAIN, ['READY', 'PREEMPTED', 'READY']),
  'a node that has ended first': ([A, A, None, A], [RUNNING, IDLE, DONE], 0, AGAIN, ['READY', 'TERMINATED', 'READY']),
  'a node under repair': ([A], [RUNNING, DONE], 0, [], ['READY', 'REPAIRING', 'RESTARTING', 'READY']),
  'an error': ([A], [RUNNING, [2, 2]], 2, []),
  'an error, and one that stopped': ([A], [RUNNING, [1, STOPPED]], 1, []),
  'one that stopped, and an error': ([A], [RUNNING, [STOPPED, 2]], 2, []),
  'an error of another code': ([A], [RUNNING, [DONE, 3]], 1, []),
  'one that was killed, and an error': ([A], [RUNNING, [KILLED, 1]], 1, []),
  'a stop by a user': ([A], [RUNNING, [STOPPED, STOPPED]], 75, []),
  'a stop by a signal': ([A], [RUNNING, [STOPPED, TOLD]], 75, []),
  'a stop by a signal that kills': ([A], [RUNNING, [KILLED, STOPPED]], 75, []),
  'one machine that came back idle': ([A], [RUNNING, *[[RUNNING, IDLE]] * 2, RUNNING, DONE], 0, BACK),
  'one machine that lost its run': ([A], [RUNNING, *[[RUNNING, LOST]] * 2, RUNNING, DONE], 0, BACK),
  'two machines that lost their run': ([A], [RUNNING, *[[LOST, LOST]] * 2, RUNNING, DONE], 0, BACK),
  'one that stopped, and one that lost its run': ([A], [RUNNING, *[[STOPPED, LOST]] * 2, RUNNING, DONE], 0, BACK),
  'one that stopped while the other runs': ([A], [RUNNING, *[[RUNNING, STOPPED]] * 2, RUNNING, DONE], 0, BACK),
  'one that is done before the other': ([A], [RUNNING, *[[RUNNING, DONE]] * 5, DONE], 0, []),
  'one that fails before the other': ([A], [RUNNING, *[[RUNNING, 1]] * 5, 1], 1, []),
}


@pytest.mark.parametrize('seen', SEEN)
def test_what_was_lost_is_replaced_and_an_end_is_passed_on(seen):
  requests, workers, code, done, *nodes = SEEN[seen]
  world = World(requests, [each if isinstance(each, list) else [each] * 2 for each in workers], *nodes)
  assert world.watch().run() == code
  assert world.done == done
  if code == 75:
    assert len(world.slept) == 2  # it is looked at twice


def test_a_slice_that_is_lost_too_often_ends_the_watch():
  world = World([A, 'SUSPENDED', None] * 9, [[RUNNING]])
  with pytest.raises(RunError, match='was lost too often'):
    world.watch(RetryPolicy(9, 3, 10000.0, 60.0)).run()
  assert world.done.count('create') == 2


def test_the_wait_before_another_request_grows_while_slices_live_shortly():
  world = World([A, 'SUSPENDED', None] * 5 + [A], [*[[RUNNING]] * 5, [DONE]])
  assert world.watch(RetryPolicy(9, 9, 1500.0, 4.0)).run() == 0  # each slice lives for 1000 s
  assert [seconds for seconds in world.slept if seconds != 60] == [1, 2, 4, 4, 4]


def test_a_request_that_fails_before_there_was_a_slice_is_an_error():
  world = World([None, 'WAITING_FOR_RESOURCES', 'FAILED'])
  with pytest.raises(RunError, match='the request failed: no such type in this zone'):
    world.watch().run()
  assert world.done == ['create']


def test_a_first_command_that_fails_is_an_error():
  with pytest.raises(RunError, match='network'):
    World([NETWORK]).watch().run()
  with pytest.raises(RunError, match='network'):
    World([None], failing={'create': NETWORK}).watch().run()


def test_an_evening_without_network_ends_nothing_and_is_waited_out():
  world = World([A, *[NETWORK] * 4, A], [[RUNNING], NETWORK, [RUNNING], [DONE]])
  assert world.watch().run() == 0
  assert world.slept == [60, 120, 240, 480, 960, 1800, 60]
  evening = [*[NETWORK] * 6, A]
  assert World([A, *evening, *evening], [[RUNNING], [RUNNING], [RUNNING], [DONE]]).watch().run() == 0
  with pytest.raises(RunError, match='network'):
    World([A, NETWORK], [[RUNNING]]).watch().run()


def test_a_set_up_that_fails_at_first_is_an_error_and_later_one_that_is_tried_again():
  world = World([A], [NOT_SET_UP], failing={'setup': NETWORK})
  with pytest.raises(RunError, match='network'):
    world.watch().run()
  assert world.done == ['setup']
  world = World([A, 'SUSPENDED', None, A], [NOT_SET_UP, NOT_SET_UP, NOT_SET_UP, [DONE]])
  assert world.watch().run() == 0
