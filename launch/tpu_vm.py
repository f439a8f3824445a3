"""Creates a Cloud TPU slice with gcloud, sets it up, runs a command on it, shows status and logs, and deletes it."""

import argparse
import dataclasses
import getpass
import json
import os
import pathlib
import re
import shlex
import sys
import tarfile
from collections.abc import Sequence
from typing import Any, Self

import rembert
from launch import command_line
from launch.command_line import launcher_parser, matching, run_launcher
from launch.processes import CommandFailed, Commands, git_output
from rembert.errors import UsageError
from rembert.validation import Count, CountOrZero, number

PROGRAM = 'launch.tpu_vm'
EXAMPLES = """
examples
  create 64 chips, run on them, and delete them:
    python -m launch.tpu_vm create large --type=v5litepod-64 --zone=us-west4-a --project=my-project
    python -m launch.tpu_vm setup large --zone=us-west4-a --project=my-project
    python -m launch.tpu_vm run large --zone=us-west4-a --project=my-project -- \\
        python -m rembert.main --gin_file=gin/pretrain_large.gin --gin_file=gin/hardware/v5e_64.gin --workdir=gs://BUCKET/large
    python -m launch.tpu_vm logs large --follow --zone=us-west4-a --project=my-project
    python -m launch.tpu_vm stop large --zone=us-west4-a --project=my-project
    python -m launch.tpu_vm delete large --zone=us-west4-a --project=my-project

--dry_run prints the commands of any of these. Without --zone and --project, gcloud's own settings apply (gcloud config
set compute/zone us-west4-a). A slice costs money from `create` to `delete`, whether or not anything runs on it. Without
capacity `create` fails; launch.queued_resource waits for capacity, and replaces spot slices that are preempted.
"""

# The script that runs on the machines.
SCRIPT = pathlib.Path(__file__).with_name('rembert_worker.sh')
ARCHIVE = pathlib.Path('runs/launch/rembert_code.tar.gz')
ROOT = pathlib.Path(rembert.__file__).parent.parent
PYTHON = '3.12'
# Labels of everything that these launchers create, checked before they delete anything.
LABEL, OWNER_LABEL = 'rembert-launch', 'rembert-owner'
# States of nodes that will not return (API, v2): a spot node is never restarted, only created again.
LOST_STATES = ('PREEMPTED', 'TERMINATED')
_STATUS = re.compile(r'^rembert-launch (\S+) (idle|running|ended|lost) (\d+|-) (\S+)$', re.MULTILINE)
_BUCKET_PATH = re.compile(r'gs://[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9](?:/.*)?')

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
class TpuRequest:
  """A slice to request: gcloud's name of its type, the runtime of its machines, and gcloud's flags to create it."""

  type: str
  generation: str  # as in gin/hardware: v5e
  chips: int
  runtime: str
  flags: tuple[str, ...] = ()

  def __str__(self) -> str:
    """The meaning of the number, which differs by generation, and the gin file for this slice, if there is one."""
    text = f'{self.type}: {self.chips} chips of {self.generation}'
    if not self.type.endswith(f'-{self.chips}'):
      text += ' (the number in the type counts TensorCores, two per chip)'
    gin_file = f'gin/hardware/{self.generation}_{self.chips}.gin'
    return text + (f'; use --gin_file={gin_file}' if (ROOT / gin_file).exists() else '')


def tpu_request(accelerator_type: str) -> TpuRequest:
  """A request for an accelerator type; UsageError for an unknown one."""
  prefix, _, size = accelerator_type.partition('-')
  generation, counted_per_chip, runtime = _GENERATIONS.get(prefix, ('', 1, ''))
  if not generation or not re.fullmatch(r'[1-9]\d*', size) or int(size) % counted_per_chip:
    hint = ' (v5e is called v5litepod-64)' if prefix == 'v5e' else ''
    what = f'unknown accelerator type {accelerator_type!r}{hint}'
    raise UsageError(what, where='--type', fix=f'for example {TYPE_EXAMPLES}')
  flags = (f'--accelerator-type={accelerator_type}',)
  return TpuRequest(accelerator_type, generation, int(size) // counted_per_chip, runtime, flags)


# --- resources of gcloud ----------------------------------------------------------------------------------------------


class Resource:
  """A named resource of `gcloud compute tpus GROUP`, which can be described and deleted: a slice, or a request for one.

  `zone` and `project` are by default gcloud's own settings; `owner` is the value of a label.
  """

  KIND, GROUP = '', ''  # the former is for messages
  DELETE_FLAGS: tuple[str, ...] = ('--quiet',)

  def __init__(
    self, name: str, commands: Commands, *, zone: str | None = None, project: str | None = None, owner: str = ''
  ):
    self.name, self.commands, self.owner = name, commands, owner
    self._place = [f'--{key}={value}' for key, value in (('zone', zone), ('project', project)) if value]
    self._labels = f'{LABEL}=1,{OWNER_LABEL}={owner}'

  @classmethod
  def of(cls, options: argparse.Namespace) -> Self:
    """The resource that the options of `add_verb` name."""
    commands = Commands(options.dry_run)
    return cls(options.name, commands, zone=options.zone, project=options.project, owner=options.owner)

  def describe(self) -> dict | None:
    """The API's description; None if there is no such resource, {} in a dry run."""
    try:
      return json.loads(self.commands.read(self._gcloud('describe', self.name, *self._place, '--format=json')) or '{}')
    except CommandFailed as error:
      if 'NOT_FOUND' in error.stderr:
        return None
      raise

  def delete(self) -> None:
    """Deletes it; UsageError unless this owner created it with these launchers."""
    self.commands.note(f'continues only if the labels are {self._labels}')
    description = self.describe()
    if description is None:
      self.commands.log(f'no {self.KIND} {self.name}: nothing to delete')
      return
    if not self.commands.is_dry:
      self.check_before_delete(description)
    self.commands.run(self._gcloud('delete', self.name, *self._place, *self.DELETE_FLAGS))

  def check_before_delete(self, description: dict) -> None:
    """UsageError if it must not be deleted."""
    labels, resource = description.get('labels', {}), f'the {self.KIND} {self.name}'
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

  def _gcloud(self, verb: str, *arguments: str) -> list[str]:
    return ['gcloud', 'compute', 'tpus', self.GROUP, verb, *arguments]


@dataclasses.dataclass(frozen=True)
class WorkerStatus:
  """The run of one worker. `since` is the time of the last change, ISO 8601."""

  host: str
  state: str  # idle (nothing was started yet), running, ended, or lost (no exit code was written)
  exit_code: int | None  # of a run that has ended
  since: str = dataclasses.field(compare=False)

  def __str__(self) -> str:
    code = f' with {self.exit_code}' if self.state == 'ended' else ''
    return f'{self.host}: {self.state}{code}, {self.since}'


class TpuVm(Resource):
  """A slice: a node of the Cloud TPU API (`gcloud compute tpus tpu-vm`), and its machines, the workers."""

  KIND, GROUP = 'TPU VM', 'tpu-vm'

  def create(self, request: TpuRequest) -> None:
    """Requests the slice, and waits until it is ready; CommandFailed if there is no capacity."""
    flags = [f'--version={request.runtime}', *request.flags, f'--labels={self._labels}', *self._place]
    self.commands.run(self._gcloud('create', self.name, *flags))

  def check_before_delete(self, description: dict) -> None:
    """UsageError also if it belongs to a request."""
    super().check_before_delete(description)
    if queued := description.get('queuedResource'):
      raise UsageError(
        f'{self.name} belongs to a queued resource, which would remain',
        where=queued,
        fix=f'python -m launch.queued_resource delete {queued.rpartition("/")[2]}',
      )

  def setup(self, python: str) -> None:
    """Copies the project to all workers and creates its environment; later calls only update the code."""
    self.commands.note(f'{ARCHIVE} contains all files that git tracks, with local changes')
    if not self.commands.is_dry:
      write_archive(ARCHIVE)
    files = [str(ARCHIVE), os.path.relpath(SCRIPT), f'{self.name}:']
    self.commands.run(self._gcloud('scp', *files, '--worker=all', *self._place))
    self.commands.run(self._call('all', 'setup', python))

  def start(self, command: Sequence[str]) -> None:
    """Starts the command on all workers, under `launch.supervise`; UsageError if one has a run in progress."""
    self.commands.note('continues only if no worker reports a run')
    workers = self.status()
    if running := [each for each in workers if each.state == 'running']:
      raise UsageError(
        f'a run is in progress on {len(running)} of {len(workers)} workers of {self.name}',
        where=str(running[0]),
        fix=[f'python -m {PROGRAM} logs {self.name}', f'python -m {PROGRAM} stop {self.name}'],
      )
    if len(workers) > 1:
      check_workdir(command)
    self.commands.run(self._call('all', 'start', *command))

  def status(self) -> list[WorkerStatus]:
    """The run of each worker, sorted by host; empty in a dry run. UsageError if the slice is not set up."""
    try:
      text = self.commands.read(self._call('all', 'status'))
    except CommandFailed as error:
      if SCRIPT.name in error.stderr and 'No such file' in error.stderr:
        raise UsageError(f'{self.name} is not set up', fix=f'python -m {PROGRAM} setup {self.name}') from error
      raise
    found = sorted(_STATUS.findall(text))
    return [WorkerStatus(host, state, None if code == '-' else int(code), since) for host, state, code, since in found]

  def logs(self, worker: str, lines: int, is_followed: bool) -> None:
    """Shows the last lines of a worker's log; continues to show new lines if `is_followed`."""
    self.commands.run(self._call(worker, 'logs', str(lines), *(['follow'] if is_followed else [])))

  def stop(self, seconds: int) -> None:
    """Stops the run on all workers, with a timeout in seconds for saving."""
    self.commands.run(self._call('all', 'stop', str(seconds)))

  def _call(self, worker: str, *arguments: str) -> list[str]:
    # The only place that makes a shell command, so arguments are quoted once.
    line = shlex.join(['bash', SCRIPT.name, *arguments])
    return self._gcloud('ssh', self.name, f'--worker={worker}', f'--command={line}', *self._place)


def write_archive(target: pathlib.Path, root: pathlib.Path = ROOT) -> None:
  """Writes an archive of all files that git tracks, with uncommitted changes; UsageError if this is not a checkout."""
  if not (root / '.git').exists():
    raise UsageError('no code to copy: not a git checkout', where=str(root), fix='run this from a git checkout')
  target.parent.mkdir(parents=True, exist_ok=True)
  with tarfile.open(target, 'w:gz') as archive:
    for name in git_output(root, 'ls-files', '-z').split('\0'):
      if (root / name).is_file():
        archive.add(root / name, arcname=name)


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


# --- the command line, in part shared with launch.queued_resource -----------------------------------------------------


def owner(name: str) -> str:
  """The owner of machines as a label value; the user's login if the name is empty."""
  label = re.sub(r'[^a-z0-9_-]+', '-', (name or getpass.getuser()).lower()).strip('-')[:63]
  if not label:
    raise UsageError(f'{name!r} is not a valid label', where='--owner', fix='letters and digits: --owner=anna')
  return label


def add_verb(*arguments: Any, **options: Any) -> argparse.ArgumentParser:
  """As `command_line.add_verb`, with zone, project and owner."""
  parser = command_line.add_verb(*arguments, **options)
  parser.add_argument('--zone', help="zone, for example us-west4-a (default: gcloud's own setting)")
  parser.add_argument('--project', help="project id (default: gcloud's own setting)")
  help_text = 'owner label of created resources, checked before deletion (default: your login)'
  parser.add_argument('--owner', type=owner, default='', help=help_text)
  return parser


def add_request(parser: argparse.ArgumentParser) -> None:
  """Adds the options of `requested`."""
  extra_flag = matching(r'--(?!labels).*', '--network=NAME; labels are set here')
  parser.add_argument('--type', type=tpu_request, required=True, help=f'accelerator type: {TYPE_EXAMPLES}')
  parser.add_argument('--spot', action='store_true', help='request a spot slice: cheap, preemptible')
  help_text = "additional flag of gcloud's create command: --gcloud_flag=--network=NAME; repeatable"
  parser.add_argument('--gcloud_flag', action='append', type=extra_flag, default=[], metavar='FLAG', help=help_text)


def requested(options: argparse.Namespace) -> TpuRequest:
  """The slice that the options ask for."""
  flags = (*options.type.flags, *(['--spot'] if options.spot else []), *options.gcloud_flag)
  return dataclasses.replace(options.type, flags=flags)


def add_python(parser: argparse.ArgumentParser) -> None:
  """Adds the option for the Python version on workers."""
  version = matching(r'3\.1[1-9]', PYTHON)
  parser.add_argument('--python', type=version, default=PYTHON, help='3.11 or newer (default: %(default)s)')


def _create(options: argparse.Namespace) -> None:
  vm, request = TpuVm.of(options), requested(options)
  vm.commands.note(str(request))
  vm.create(request)
  if not options.dry_run:
    vm.commands.log(f'ready. {request}\nnext: python -m {PROGRAM} setup {options.name}')


def _status(options: argparse.Namespace) -> None:
  vm = TpuVm.of(options)
  node = vm.describe()
  if node is None:
    vm.commands.log(f'no TPU VM {vm.name}')
    return
  if not options.dry_run:
    state, kind, health = node.get('state'), node.get('acceleratorType'), node.get('health', 'unknown')
    vm.commands.log(f'{vm.name}: {state}, {kind}, health {health}')
  if options.dry_run or node.get('state') == 'READY':
    for worker in vm.status():
      vm.commands.log(str(worker))


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser, verbs = launcher_parser(PROGRAM, __doc__, EXAMPLES)
  add_request(add_verb(verbs, 'create', 'create a slice, and wait until it is ready', _create))
  help_text = 'copy the project to all workers and create its environment; later calls update the code'
  add_python(add_verb(verbs, 'setup', help_text, lambda options: TpuVm.of(options).setup(options.python)))
  help_text = 'start the command after -- on all workers, under launch.supervise; fails while a run is in progress'
  add_verb(verbs, 'run', help_text, lambda options: TpuVm.of(options).start(options.command), takes_command=True)
  show = lambda options: TpuVm.of(options).logs(options.worker, options.lines, options.follow)
  logs = add_verb(verbs, 'logs', "show a worker's log", show)
  logs.add_argument('--worker', default='0', help='worker index, or all (default: %(default)s)')
  logs.add_argument('--lines', type=number(Count), default=100, metavar='N', help='log lines (default: %(default)s)')
  logs.add_argument('--follow', action='store_true', help='follow the log until Ctrl-C, which does not stop the run')
  help_text = 'stop the run after saving (SIGTERM); `run` resumes it'
  stop = add_verb(verbs, 'stop', help_text, lambda options: TpuVm.of(options).stop(options.seconds))
  help_text = 'seconds to save (default: %(default)s)'
  stop.add_argument('--seconds', type=number(CountOrZero), default=600, metavar='N', help=help_text)
  add_verb(verbs, 'status', 'show the state of slice and workers', _status)
  help_text = 'delete a slice created by `create`, with everything on its disks'
  add_verb(verbs, 'delete', help_text, lambda options: TpuVm.of(options).delete())
  return run_launcher(parser, argv)


if __name__ == '__main__':
  sys.exit(main())
