"""What a watch does with what it sees: requests, nodes and workers here only say what a test has written down."""

import pytest

from launch.cloud.accelerators import accelerator_type
from launch.cloud.commands import Commands, Failed
from launch.cloud.queued import QueuedResource
from launch.cloud.tpu_nodes import TpuNode, Wish
from launch.cloud.watch import Plan, Watch
from launch.cloud.workers import Workers, WorkerStatus
from launch.restarts import Patience
from rembert.errors import RunError, UsageError

IDLE, RUNNING, LOST, DONE, STOPPED, KILLED, TOLD = 'idle', 'running', 'lost', 0, 75, 137, 143
NETWORK = Failed(['gcloud'], 1, ['ERROR: network is unreachable'])
NOT_SET_UP = UsageError('nothing is set up')


class World:
  """One after the other: what `describe` says of the request, and what the workers say; the last one stays."""

  def __init__(self, requests, workers=(), nodes=('READY',), failing=()):
    self.seen = {'requests': list(requests), 'workers': list(workers), 'nodes': list(nodes)}
    self.failing = dict(failing)
    self.done, self.said, self.slept = [], [], []
    kind = accelerator_type('v5litepod-8')
    self.wish = Wish(kind, kind.generation.runtime, spot=True)

  def next(self, kind):
    found = self.seen[kind].pop(0) if len(self.seen[kind]) > 1 else self.seen[kind][0]
    if isinstance(found, Exception):
      raise found
    return found

  def watch(self, patience=None, **plan):
    world = self
    patience = patience or Patience(max_restarts=9, max_short_runs=9, short_seconds=600.0, max_wait=1800.0)

    def act(name):
      def do(*arguments):
        world.done.append(name)
        if name in world.failing:
          raise world.failing[name]

      return do

    class Request(QueuedResource):
      create, delete = (staticmethod(act(name)) for name in ('create', 'delete'))

      def describe(self):
        state = world.next('requests')
        return None if state is None else {'state': {'state': state}}

    class Node(TpuNode):
      def describe(self):
        return {'state': world.next('nodes')}

    class Machines(Workers):
      setup, start, stop = (staticmethod(act(name)) for name in ('setup', 'start', 'stop'))

      def status(self):
        return [
          WorkerStatus(f'worker{index}', 'ended', state, '')
          if isinstance(state, int)
          else WorkerStatus(f'worker{index}', state, None, '')
          for index, state in enumerate(world.next('workers'))
        ]

    commands = Commands(say=world.said.append)
    request, node = Request('large', None, commands), Node('large', None, commands)
    plan = Plan(world.wish, ('true',), '3.12', 60.0, patience, **plan)
    clock = iter(range(0, 10**9, 1000)).__next__
    return Watch(request, node, Machines(node, 'launch.queued_resource'), plan, world.slept.append, clock)


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
  assert world.watch(is_deleted_when_done=True).run() == 0
  assert world.done == ['delete']
  world = World([A], [[1]])
  assert world.watch(is_deleted_when_done=True).run() == 1
  assert world.done == []


@pytest.mark.parametrize('lost', [['SUSPENDING', 'SUSPENDED', None], ['SUSPENDED', 'DELETING', None], ['FAILED', None]])
def test_what_was_taken_away_is_asked_for_again(lost):
  world = World([A, A, *lost, 'WAITING_FOR_RESOURCES', A], [[RUNNING], [RUNNING], [IDLE], [RUNNING], [DONE]])
  assert world.watch().run() == 0
  assert world.done == ['delete', 'create', 'setup', 'start']


@pytest.mark.parametrize('state', ['PREEMPTED', 'TERMINATED'])
def test_a_node_can_be_gone_before_its_request_says_so(state):
  world = World([A, A, None, A], [[RUNNING], [IDLE], [DONE]], nodes=['READY', state, 'READY'])
  assert world.watch().run() == 0
  assert world.done == ['delete', 'create', 'setup', 'start']


def test_a_node_under_repair_is_waited_for():
  world = World([A], [[RUNNING], [DONE]], nodes=['READY', 'REPAIRING', 'RESTARTING', 'READY'])
  assert world.watch().run() == 0
  assert world.done == []


@pytest.mark.parametrize(
  ('codes', 'joint'), [([2, 2], 2), ([1, STOPPED], 1), ([STOPPED, 2], 2), ([DONE, 3], 1), ([KILLED, 1], 1)]
)
def test_an_error_of_the_program_is_passed_on_and_never_repeated(codes, joint):
  world = World([A], [[RUNNING] * 2, codes])
  assert world.watch().run() == joint
  assert world.done == []


@pytest.mark.parametrize('codes', [[STOPPED] * 2, [STOPPED, TOLD], [KILLED, STOPPED]])
def test_what_somebody_stopped_is_left_alone_after_a_second_look(codes):
  world = World([A], [[RUNNING] * 2, codes])
  assert world.watch().run() == 75
  assert world.done == []
  assert len(world.slept) == 2


def test_what_a_vanishing_machine_stopped_goes_on_elsewhere():
  world = World([A, A, 'SUSPENDED', None, A], [[RUNNING], [STOPPED], [IDLE], [DONE]])
  assert world.watch().run() == 0
  assert world.done == ['delete', 'create', 'setup', 'start']


@pytest.mark.parametrize(
  'states', [[RUNNING, IDLE], [RUNNING, LOST], [LOST, LOST], [STOPPED, LOST], [RUNNING, STOPPED]]
)
def test_machines_that_came_back_without_their_run_get_it_again(states):
  world = World([A], [[RUNNING] * 2, states, states, [RUNNING] * 2, [DONE] * 2])
  assert world.watch().run() == 0
  assert world.done == ['stop', 'setup', 'start']


@pytest.mark.parametrize('states', [[RUNNING, DONE], [RUNNING, 1]])
def test_machines_that_follow_others_to_the_end_are_left_to_it(states):
  world = World([A], [[RUNNING] * 2, *[states] * 5, [states[1]] * 2])
  assert world.watch().run() == states[1]
  assert world.done == []


def test_a_slice_that_vanishes_too_often_is_given_up():
  world = World([A, 'SUSPENDED', None] * 9, [[RUNNING]])
  with pytest.raises(RunError, match='vanishes too often'):
    world.watch(Patience(9, 3, 10000.0, 60.0)).run()
  assert world.done.count('create') == 2


def test_the_wait_before_another_request_grows_while_slices_live_shortly():
  world = World([A, 'SUSPENDED', None] * 5 + [A], [*[[RUNNING]] * 5, [DONE]])
  assert world.watch(Patience(9, 9, 10000.0, 4.0)).run() == 0
  assert [seconds for seconds in world.slept if seconds != 60] == [1, 2, 4, 4, 4]


def test_a_request_that_fails_before_there_was_a_slice_is_an_error():
  world = World([None, 'WAITING_FOR_RESOURCES', 'FAILED'])
  with pytest.raises(RunError, match='the request failed'):
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
  with pytest.raises(RunError, match='network'):
    World([A, NETWORK], [[RUNNING]]).watch().run()


def test_a_set_up_that_fails_at_first_is_an_error_and_later_one_that_is_tried_again():
  world = World([A], [NOT_SET_UP], failing={'setup': NETWORK})
  with pytest.raises(RunError, match='network'):
    world.watch().run()
  assert world.done == ['setup']
  world = World([A, 'SUSPENDED', None, A], [NOT_SET_UP, NOT_SET_UP, NOT_SET_UP, [DONE]])
  assert world.watch().run() == 0
