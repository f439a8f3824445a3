"""Shared by launchers on Google Cloud: names, labels and locations of resources, and types of TPUs."""

import abc
import argparse
import dataclasses
import getpass
import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import rembert
from launch import command_line
from launch.command_line import matching
from launch.processes import CommandFailed, Commands
from rembert.errors import UsageError

LABEL, OWNER_LABEL = 'rembert-launch', 'rembert-owner'
_BUCKET_PATH = re.compile(r'gs://[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9](?:/.*)?')

# --- values of flags --------------------------------------------------------------------------------------------------


_extra_flag = matching(
  r'--(?!labels).*',
  'invalid flag {}',
  where='--gcloud_flag',
  fix='--gcloud_flag=--network=NAME; labels are set here',
)


def owner(name: str) -> str:
  """The owner of machines as a label value; the user's login if the name is empty."""
  label = re.sub(r'[^a-z0-9_-]+', '-', (name or getpass.getuser()).lower()).strip('-')[:63]
  if not label:
    raise UsageError(f'{name!r} is not a valid label', where='--owner', fix='letters and digits: --owner=anna')
  return label


def check_workdir(command: Sequence[str]) -> None:
  """UsageError for a workdir on a local disk, which other machines cannot read and which may be deleted."""
  for argument in command:
    key, _, value = argument.partition('=')
    if key == '--workdir' and not _BUCKET_PATH.fullmatch(value):
      raise UsageError(
        f'the workdir {value!r} is on the local disk of a temporary machine',
        where='--workdir',
        fix='use a directory in a bucket of the same region: --workdir=gs://BUCKET/large',
      )


# --- location and owner -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Place:
  """Zone, project and owner of machines; None for gcloud's own setting."""

  zone: str | None
  project: str | None
  owner: str

  @property
  def flags(self) -> list[str]:
    """Flags for every gcloud command."""
    return [f'--{key}={value}' for key, value in (('zone', self.zone), ('project', self.project)) if value]

  @property
  def labels(self) -> dict[str, str]:
    """Labels of everything that these launchers create, checked before they delete anything."""
    return {LABEL: '1', OWNER_LABEL: self.owner}

  @property
  def labels_text(self) -> str:
    """The labels in gcloud's format."""
    return ','.join(f'{key}={value}' for key, value in self.labels.items())

  def check_labels(self, labels: dict[str, str], resource: str) -> None:
    """UsageError unless this owner created the resource with these launchers."""
    if labels.get(LABEL) != '1':
      raise UsageError(
        f'{resource} was not created by these launchers, so it is not deleted',
        where=f'the label {LABEL}=1 is missing',
        fix='its owner can delete it with gcloud',
      )
    if labels.get(OWNER_LABEL) != self.owner:
      raise UsageError(
        f'{resource} belongs to {labels.get(OWNER_LABEL)!r}, not to you ({self.owner!r})',
        where=f'label {OWNER_LABEL}',
        fix=f'to delete it anyway: --owner={labels.get(OWNER_LABEL)}',
      )


def add_verb(*arguments: Any, **options: Any) -> argparse.ArgumentParser:
  """As `command_line.add_verb`, with the options of `place`: zone, project and owner."""
  parser = command_line.add_verb(*arguments, **options)
  parser.add_argument('--zone', help="zone, for example us-west4-a (default: gcloud's own setting)")
  parser.add_argument('--project', help="project id (default: gcloud's own setting)")
  help_text = 'owner label of created resources, checked before deletion (default: your login)'
  parser.add_argument('--owner', type=owner, default='', help=help_text)
  return parser


def place(options: argparse.Namespace) -> Place:
  """The place given by the options of `add_verb`."""
  return Place(options.zone, options.project, options.owner)


class Resource(abc.ABC):
  """A named resource of gcloud, which can be created, described and deleted: a slice, or a request for one.

  Attributes:
    name: name of the resource.
    commands: runs gcloud.
  """

  KIND = ''  # for messages
  GROUP = ''  # command group, `gcloud compute tpus GROUP`
  DELETE_FLAGS: tuple[str, ...] = ('--quiet',)

  def __init__(self, name: str, place: Place, commands: Commands):
    self.name, self.commands, self._place = name, commands, place

  def describe(self) -> dict | None:
    """The API's description; None if there is no such resource."""
    command = self._gcloud('describe', self.name, *self._place.flags, '--format=json')
    try:
      return json.loads(self.commands.read(command, json.dumps(self._assumed())))
    except CommandFailed as error:
      if 'NOT_FOUND' in error.stderr:
        return None
      raise

  def delete(self) -> None:
    """Deletes it, if these launchers created it for this owner."""
    self.commands.note(f'continues only if the labels are {self._place.labels_text}')
    description = self.describe()
    if description is None:
      self.commands.log(f'no {self.KIND} {self.name}: nothing to delete')
      return
    self._check_before_delete(description)
    self.commands.run(self._gcloud('delete', self.name, *self._place.flags, *self.DELETE_FLAGS))

  @abc.abstractmethod
  def _assumed(self) -> dict:
    """The description in a dry run."""

  @abc.abstractmethod
  def _check_before_delete(self, description: dict) -> None:
    """UsageError if it must not be deleted."""

  def _gcloud(self, verb: str, *arguments: str) -> list[str]:
    return ['gcloud', 'compute', 'tpus', self.GROUP, verb, *arguments]


# --- types of TPUs ----------------------------------------------------------------------------------------------------

# By the prefix of the accelerator type: the generation, the number of units per chip that the type counts (two
# TensorCores on v4 and v5p), and the runtime of its machines (docs.cloud.google.com/tpu/docs/runtimes, "PyTorch and
# JAX"). The Cloud TPU API (gcloud compute tpus) gets no new generations (2026); those after v6e are in GKE only.
_GENERATIONS = {
  'v4': ('v4', 2, 'tpu-ubuntu2204-base'),
  'v5litepod': ('v5e', 1, 'v2-alpha-tpuv5-lite'),
  'v5p': ('v5p', 2, 'v2-alpha-tpuv5'),
  'v6e': ('v6e', 1, 'v2-alpha-tpuv6e'),
}
TYPE_EXAMPLES = 'v4-128, v5litepod-64, v5p-128, v6e-64'


@dataclasses.dataclass(frozen=True)
class AcceleratorType:
  """Type and size of a slice.

  Attributes:
    name: gcloud's name, v5litepod-64.
    generation: generation of the chips, as in gin/hardware: v5e.
    chips: number of chips.
    runtime: software of its machines that JAX needs.
  """

  name: str
  generation: str
  chips: int
  runtime: str

  def __str__(self) -> str:
    """The meaning of the number, which differs by generation, and the gin file for this slice, if there is one."""
    text = f'{self.name}: {self.chips} chips of {self.generation}'
    if self.name != f'{self.name.partition("-")[0]}-{self.chips}':
      text += ' (the number in the type counts TensorCores, two per chip)'
    gin_file = f'gin/hardware/{self.generation}_{self.chips}.gin'
    has_file = (pathlib.Path(rembert.__file__).parent.parent / gin_file).exists()
    return text + (f'; use --gin_file={gin_file}' if has_file else '')


def accelerator_type(name: str) -> AcceleratorType:
  """An accelerator type by its name; UsageError for an unknown one."""
  prefix, _, number = name.partition('-')
  generation, counted_per_chip, runtime = _GENERATIONS.get(prefix, ('', 1, ''))
  if not generation or not re.fullmatch(r'[1-9]\d*', number) or int(number) % counted_per_chip:
    hint = ' (v5e is called v5litepod-64)' if name.startswith('v5e') else ''
    raise UsageError(f'unknown accelerator type {name!r}{hint}', where='--type', fix=f'for example {TYPE_EXAMPLES}')
  return AcceleratorType(name, generation, int(number) // counted_per_chip, runtime)


@dataclasses.dataclass(frozen=True)
class TpuRequest:
  """A slice to request: its type, and gcloud's flags for its creation."""

  type: AcceleratorType
  flags: tuple[str, ...] = ()


def add_tpu_request(parser: argparse.ArgumentParser) -> None:
  """Adds the options of a slice to request."""
  parser.add_argument('--type', type=accelerator_type, required=True, help=f'accelerator type: {TYPE_EXAMPLES}')
  parser.add_argument('--spot', action='store_true', help='request a spot slice: cheap, preemptible')
  help_text = "additional flag of gcloud's create command: --gcloud_flag=--network=NAME; repeatable"
  parser.add_argument('--gcloud_flag', action='append', type=_extra_flag, default=[], metavar='FLAG', help=help_text)


def tpu_request(options: argparse.Namespace) -> TpuRequest:
  """The request given by the options of `add_tpu_request`."""
  flags = [f'--accelerator-type={options.type.name}', *(['--spot'] if options.spot else []), *options.gcloud_flag]
  return TpuRequest(options.type, tuple(flags))
