"""A TPU slice that is waited for in a queue: `gcloud compute tpus queued-resources`. Request and node share a name."""

import enum
import time
from collections.abc import Callable

from launch.cloud import names
from launch.cloud.commands import Commands
from launch.cloud.tpu_nodes import Place, Wish, described
from rembert.errors import RunError

_FIRST_LOOK, _LONGEST_LOOK = 5.0, 60.0


class Stage(enum.Enum):
  """Where a request stands; several states of the API in one."""

  MISSING = 'missing'
  WAITING = 'waiting'
  ACTIVE = 'active'
  GOING = 'going'
  LOST = 'lost'
  FAILED = 'failed'


# All states of the API, v2. ACCEPTED is what WAITING_FOR_RESOURCES was called before.
_STAGES = {
  'CREATING': Stage.WAITING,
  'ACCEPTED': Stage.WAITING,
  'WAITING_FOR_RESOURCES': Stage.WAITING,
  'PROVISIONING': Stage.WAITING,
  'STATE_UNSPECIFIED': Stage.WAITING,
  'ACTIVE': Stage.ACTIVE,
  'SUSPENDING': Stage.GOING,
  'DELETING': Stage.GOING,
  'SUSPENDED': Stage.LOST,
  'FAILED': Stage.FAILED,
}


class QueuedResource:
  """A request by its name.

  Attributes:
    name: of the queued resource, and of the node that it becomes.
    commands: that reach it.
  """

  def __init__(self, name: str, place: Place, commands: Commands, sleep: Callable[[float], None] = time.sleep):
    self.name, self.commands, self._place, self._sleep = names.checked_name(name), commands, place, sleep

  def create(self, wish: Wish) -> None:
    """Puts the request into the queue, and does not wait."""
    flags = [f'--node-id={self.name}', f'--runtime-version={wish.runtime}', *wish.flags]
    self.commands.run([*_gcloud('create'), self.name, *flags, self._place.labels_flag, *self._place.flags, '--async'])

  def describe(self) -> dict | None:
    """What the API says of it; None if there is no such request."""
    node = {'nodeId': self.name, 'node': {'labels': names.own_labels(self._place.owner)}}
    assumed = {'state': {'state': 'ACTIVE'}, 'tpu': {'nodeSpec': [node]}}
    return described(self.commands, [*_gcloud('describe'), self.name, *self._place.flags], assumed)

  def wait_until_active(self) -> None:
    """Waits, saying each change of state; RunError if it fails or goes away."""
    self.commands.note('repeated until the state is ACTIVE')
    began, wait, before = time.monotonic(), _FIRST_LOOK, None
    while True:
      description = self.describe()
      stage, state = stage_of(description), state_of(description)
      if stage is Stage.ACTIVE:
        return
      if stage is not Stage.WAITING:
        raise RunError(
          f'the request ended as {state}{failure_of(description)}',
          where=f'queued resource {self.name}',
          fix=f'python -m launch.queued_resource delete {self.name}, then ask for another type or zone',
        )
      if state != before:
        self.commands.say(f'{self.name}: {state}, {time.monotonic() - began:.0f} s')
        wait = _FIRST_LOOK
      before = state
      self._sleep(wait)
      wait = min(2 * wait, _LONGEST_LOOK)

  def delete(self) -> bool:
    """Deletes the request and its machines, if these launchers created it for this owner.

    Returns:
      whether there was one.
    """
    self.commands.note(f'goes on only if the labels are {self._place.labels_flag.removeprefix("--labels=")}')
    description = self.describe()
    if description is None:
      self.commands.say(f'there is no queued resource {self.name}: nothing to delete')
      return False
    specs = description.get('tpu', {}).get('nodeSpec', [])
    for spec in specs or [{}]:
      names.check_own(spec.get('node', {}).get('labels', {}), self._place.owner, f'the queued resource {self.name}')
    # --force: the machines too; without it a request that is ACTIVE is not deleted.
    self.commands.run([*_gcloud('delete'), self.name, *self._place.flags, '--force', '--quiet'])
    return True


def state_of(description: dict | None) -> str:
  """The API's word for it."""
  return 'MISSING' if description is None else description.get('state', {}).get('state', 'STATE_UNSPECIFIED')


def stage_of(description: dict | None) -> Stage:
  """What that means here."""
  return Stage.MISSING if description is None else _STAGES.get(state_of(description), Stage.WAITING)


def failure_of(description: dict | None) -> str:
  """Why it failed, where the API says so."""
  message = ((description or {}).get('state', {}).get('failedData') or {}).get('error', {}).get('message', '')
  return f': {message}' if message else ''


def _gcloud(verb: str) -> list[str]:
  return ['gcloud', 'compute', 'tpus', 'queued-resources', verb]
