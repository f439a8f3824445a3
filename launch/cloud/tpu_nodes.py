"""One TPU slice as a node of the Cloud TPU API: `gcloud compute tpus tpu-vm`."""

import dataclasses
import json
from collections.abc import Sequence

from launch.cloud import names
from launch.cloud.accelerators import AcceleratorType
from launch.cloud.commands import Commands, Failed
from rembert.errors import UsageError

# Nodes that will not come back (states of the API, v2): a spot node is never restarted, only made anew.
LOST_STATES = ('PREEMPTED', 'TERMINATED')


@dataclasses.dataclass(frozen=True)
class Place:
  """Where machines are, and whose.

  Attributes:
    zone: None for gcloud's own setting.
    project: likewise.
    owner: value of the label.
    internal_ip: reach machines by their internal addresses, from a machine of the same network.
  """

  zone: str | None
  project: str | None
  owner: str
  internal_ip: bool = False

  @property
  def flags(self) -> list[str]:
    """For every command of gcloud."""
    return [f'--{key}={value}' for key, value in (('zone', self.zone), ('project', self.project)) if value]

  @property
  def labels_flag(self) -> str:
    """For the commands that create."""
    return '--labels=' + ','.join(f'{key}={value}' for key, value in names.own_labels(self.owner).items())


@dataclasses.dataclass(frozen=True)
class Wish:
  """What kind of slice.

  Attributes:
    type: its accelerator type.
    runtime: software of its machines.
    spot: cheap, and taken away at any time.
    extra: more flags for gcloud, as they are: `--network=…`, `--service-account=…`, `--reserved`.
  """

  type: AcceleratorType
  runtime: str
  spot: bool = False
  extra: tuple[str, ...] = ()

  @property
  def flags(self) -> list[str]:
    """Those that both ways of creating have in common."""
    return [f'--accelerator-type={self.type.name}', *(['--spot'] if self.spot else []), *self.extra]


def described(commands: Commands, command: Sequence[str], assumed: dict) -> dict | None:
  """What gcloud's `describe` says of a resource; None where there is none of that name."""
  try:
    return json.loads(commands.read([*command, '--format=json'], json.dumps(assumed)))
  except Failed as error:
    if 'NOT_FOUND' in error.said:
      return None
    raise


class TpuNode:
  """A slice by its name.

  Attributes:
    name: of the node.
    commands: that reach it.
  """

  def __init__(self, name: str, place: Place, commands: Commands):
    self.name, self.commands, self._place = names.checked_name(name), commands, place

  def create(self, wish: Wish) -> None:
    """Asks for the slice, and waits until it is ready; `Failed` where there is no capacity."""
    flags = [f'--version={wish.runtime}', *wish.flags, self._place.labels_flag, *self._place.flags]
    self.commands.run([*_gcloud('create'), self.name, *flags])

  def describe(self) -> dict | None:
    """What the API says of it (`state`, `labels`, …); None if there is no such node."""
    assumed = {'state': 'READY', 'labels': names.own_labels(self._place.owner)}
    return described(self.commands, [*_gcloud('describe'), self.name, *self._place.flags], assumed)

  def delete(self) -> None:
    """Deletes it, if these launchers created it for this owner, and not as part of a queued resource."""
    self.commands.note(f'goes on only if the labels are {self._place.labels_flag.removeprefix("--labels=")}')
    node = self.describe()
    if node is None:
      self.commands.say(f'there is no TPU VM {self.name}: nothing to delete')
      return
    names.check_own(node.get('labels', {}), self._place.owner, f'the TPU VM {self.name}')
    if queued := node.get('queuedResource'):
      raise UsageError(
        f'{self.name} is held by a queued resource, which would be left behind',
        where=queued,
        fix=f'python -m launch.queued_resource delete {queued.rpartition("/")[2]}',
      )
    self.commands.run([*_gcloud('delete'), self.name, *self._place.flags, '--quiet'])

  def ssh(self, remote: str, worker: str) -> list[str]:
    """The command that runs `remote`, one line of shell, on a worker or on `all` of them."""
    return [*_gcloud('ssh'), self.name, f'--worker={worker}', f'--command={remote}', *self._reach]

  def push(self, files: Sequence[str], worker: str = 'all') -> list[str]:
    """The command that copies files to the home folders of workers."""
    return [*_gcloud('scp'), *files, f'{self.name}:', f'--worker={worker}', *self._reach]

  def pull(self, remote: str, local: str, worker: str) -> list[str]:
    """The command that copies a file or a folder of a worker here."""
    return [*_gcloud('scp'), f'{self.name}:{remote}', local, '--recurse', f'--worker={worker}', *self._reach]

  @property
  def _reach(self) -> list[str]:
    return [*self._place.flags, *(['--internal-ip'] if self._place.internal_ip else [])]


def _gcloud(verb: str) -> list[str]:
  return ['gcloud', 'compute', 'tpus', 'tpu-vm', verb]
