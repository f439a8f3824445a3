"""A Cloud TPU slice: created, set up, told what to run, looked at, deleted; by commands of gcloud."""

import argparse
import dataclasses
import gzip
import os
import pathlib
import re
import shlex
import sys
import tarfile
from collections.abc import Sequence

import rembert
from launch import gcloud
from launch.command_line import add_verb, launcher_parser, matching, run_launcher
from launch.processes import CommandFailed, Commands, git_output
from rembert.errors import UsageError
from rembert.validation import Count, CountOrZero, number

PROGRAM = 'launch.tpu_vm'
EXAMPLES = """
examples
  from nothing to a run on 64 chips, and back to nothing:
    python -m launch.tpu_vm create large --type=v5litepod-64 --zone=us-west4-a --project=my-project
    python -m launch.tpu_vm setup large --zone=us-west4-a --project=my-project
    python -m launch.tpu_vm run large --zone=us-west4-a --project=my-project -- \\
        python -m rembert.main --gin_file=gin/pretrain_large.gin --gin_file=gin/hardware/v5e_64.gin --workdir=gs://BUCKET/large
    python -m launch.tpu_vm logs large --follow --zone=us-west4-a --project=my-project
    python -m launch.tpu_vm stop large --zone=us-west4-a --project=my-project
    python -m launch.tpu_vm delete large --zone=us-west4-a --project=my-project
  what any of these would do:
    python -m launch.tpu_vm delete large --dry_run

Without --zone and --project, gcloud's own settings count (gcloud config set compute/zone us-west4-a). A slice costs
money from `create` to `delete`, whether or not anything runs on it. Where there is no capacity `create` fails;
launch.queued_resource waits for it, and replaces spot slices that are taken away.
"""

# What the machines do themselves is in this script.
SCRIPT = pathlib.Path(__file__).with_name('rembert_worker.sh')
ARCHIVE = pathlib.Path('runs/launch/rembert_code.tar.gz')
ROOT = pathlib.Path(rembert.__file__).parent.parent
PYTHON = '3.12'
# Nodes that will not come back (states of the API, v2): a spot node is never restarted, only created again.
LOST_STATES = ('PREEMPTED', 'TERMINATED')
_STATUS = re.compile(r'^rembert-launch (\S+) (idle|running|ended|lost) (\d+|-) (\S+)$', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class WorkerStatus:
  """The run of one worker.

  Attributes:
    host: name of the machine.
    state: idle (nothing was started yet), running, ended, or lost: the exit code was never written.
    exit_code: of a run that has ended.
    since: ISO 8601.
  """

  host: str
  state: str
  exit_code: int | None
  since: str = dataclasses.field(compare=False)

  def __post_init__(self):
    if self.state == 'ended' and self.exit_code is None:
      raise ValueError(f'{self.host} has ended without an exit code')

  def __str__(self) -> str:
    code = f' with {self.exit_code}' if self.state == 'ended' else ''
    return f'{self.host}: {self.state}{code}, {self.since}'


class TpuVm(gcloud.Resource):
  """A slice: a node of the Cloud TPU API (`gcloud compute tpus tpu-vm`), and its machines, the workers."""

  KIND, GROUP = 'TPU VM', 'tpu-vm'

  def __init__(self, name: str, place: gcloud.Place, commands: Commands, program: str = PROGRAM):
    """`program` is what a user would type next: `launch.tpu_vm` or `launch.queued_resource`."""
    super().__init__(name, place, commands)
    self._program = program

  # --- the node ---

  def create(self, request: gcloud.TpuRequest) -> None:
    """Asks for the slice, and waits until it is ready; CommandFailed if there is no capacity."""
    flags = [f'--version={request.runtime}', *request.flags, f'--labels={self._place.labels_text}']
    self.commands.run(self._gcloud('create', self.name, *flags, *self._place.flags))

  def _assumed(self) -> dict:
    return {'state': 'READY', 'labels': self._place.labels}

  def _check_before_delete(self, description: dict) -> None:
    self._place.check_labels(description.get('labels', {}), f'the TPU VM {self.name}')
    if queued := description.get('queuedResource'):
      raise UsageError(
        f'{self.name} is held by a queued resource, which would be left behind',
        where=queued,
        fix=f'python -m launch.queued_resource delete {queued.rpartition("/")[2]}',
      )

  # --- its workers ---

  def setup(self, python: str = PYTHON) -> None:
    """Copies the project to all workers and creates its environment; where that has been done, only the code is new."""
    self.commands.note(f'{ARCHIVE} holds all files that git tracks, as they lie here')
    if not self.commands.is_dry:
      write_archive(ARCHIVE)
    files = [str(ARCHIVE), os.path.relpath(SCRIPT), f'{self.name}:']
    self.commands.run(self._gcloud('scp', *files, '--worker=all', *self._reach))
    self.commands.run(self._call('all', 'setup', python))

  def start(self, command: Sequence[str]) -> None:
    """Starts the command on all workers, under `launch.supervise`; UsageError while a run is going on any of them."""
    self.commands.note('goes on only if no worker says that it is running')
    workers = self.status()
    if running := [each for each in workers if each.state == 'running']:
      raise UsageError(
        f'a run goes on already, on {len(running)} of {len(workers)} workers of {self.name}',
        where=str(running[0]),
        fix=[f'python -m {self._program} logs {self.name}', f'python -m {self._program} stop {self.name}'],
      )
    if len(workers) > 1:
      gcloud.check_workdir(command)
    self.commands.run(self._call('all', 'start', *command))

  def status(self) -> list[WorkerStatus]:
    """The run of each worker, by host; empty in a dry run. UsageError if nothing is set up."""
    try:
      text = self.commands.read(self._call('all', 'status'))
    except CommandFailed as error:
      if SCRIPT.name in error.stderr and 'No such file' in error.stderr:
        raise UsageError(
          f'nothing is set up on {self.name}', fix=f'python -m {self._program} setup {self.name}'
        ) from error
      raise
    found = sorted(_STATUS.findall(text))
    return [WorkerStatus(host, state, None if code == '-' else int(code), since) for host, state, code, since in found]

  def logs(self, worker: str, lines: int, is_followed: bool) -> None:
    """Shows the end of a worker's log, and what is added, if it is followed."""
    self.commands.run(self._call(worker, 'logs', str(lines), *(['follow'] if is_followed else [])))

  def stop(self, seconds: int) -> None:
    """Stops the run on all workers, and gives it so many seconds to save."""
    self.commands.run(self._call('all', 'stop', str(seconds)))

  def fetch(self, remote: str, local: str, worker: str) -> None:
    """Copies a file or a folder from a worker."""
    self.commands.run(
      self._gcloud('scp', f'{self.name}:{remote}', local, '--recurse', f'--worker={worker}', *self._reach)
    )

  def _call(self, worker: str, *arguments: str) -> list[str]:
    # The only place where a line for a shell is made, and so where quotes are put: once.
    line = shlex.join(['bash', SCRIPT.name, *arguments])
    return self._gcloud('ssh', self.name, f'--worker={worker}', f'--command={line}', *self._reach)

  @property
  def _reach(self) -> list[str]:
    return [*self._place.flags, *(['--internal-ip'] if self._place.internal_ip else [])]


# --- the project as one file ------------------------------------------------------------------------------------------


def write_archive(target: pathlib.Path, root: pathlib.Path = ROOT) -> None:
  """Writes all files that git tracks, as they lie here, committed or not; the same files give the same bytes."""
  if not (root / 'requirements.txt').exists():
    raise UsageError(
      'there is no lock to make an environment from', where=str(root), fix='start from a checkout of the project'
    )
  target.parent.mkdir(parents=True, exist_ok=True)
  with (
    open(target, 'wb') as file,
    gzip.GzipFile('', 'wb', fileobj=file, mtime=0) as packed,
    tarfile.open(fileobj=packed, mode='w') as archive,
  ):
    for name in _project_files(root):
      archive.add(root / name, arcname=name, recursive=False, filter=_without_owner)


def _project_files(root: pathlib.Path) -> list[str]:
  if (root / '.git').exists():
    names = [name for name in git_output(root, 'ls-files', '-z').split('\0') if name]
  else:  # an installed copy: what runs need
    parts = ('gin', 'launch', 'rembert', 'tasks', 'requirements.txt', 'setup.py')
    paths = [path for part in parts for path in (root / part, *(root / part).rglob('*'))]
    names = [str(path.relative_to(root)) for path in paths if '__pycache__' not in path.parts]
  return sorted(name for name in names if (root / name).is_file())


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
  member.uid = member.gid = member.mtime = 0
  member.uname = member.gname = ''
  member.mode = 0o755 if member.mode & 0o100 else 0o644
  return member


# --- the command line -------------------------------------------------------------------------------------------------


def tpu_vm(options: argparse.Namespace, program: str = PROGRAM) -> TpuVm:
  """The slice that the options name."""
  return TpuVm(options.name, gcloud.place(options), Commands(options.dry_run), program)


def add_worker_verbs(verbs: argparse._SubParsersAction, program: str) -> None:
  """Adds `setup`, `run`, `logs`, `stop` and `fetch`, which do not depend on how the slice was created."""
  vm = lambda options: tpu_vm(options, program)
  help_text = 'copy the project to all workers and make its environment; again for newer code'
  setup = add_verb(verbs, 'setup', help_text, lambda options: vm(options).setup(options.python))
  add_python(setup)
  help_text = 'start what follows -- on all workers, under launch.supervise; refused while a run goes on'
  run = add_verb(verbs, 'run', help_text, lambda options: vm(options).start(options.command), takes_command=True)
  show = lambda options: vm(options).logs(options.worker, options.lines, options.follow)
  logs = add_verb(verbs, 'logs', 'show what a worker prints', show)
  logs.add_argument('--worker', default='0', help='its number, or all; default %(default)s')
  logs.add_argument('--lines', type=number(Count), default=100, metavar='N', help='the last; default %(default)s')
  logs.add_argument('--follow', action='store_true', help='and what is added, until Ctrl-C; the run goes on')
  help_text = 'tell the run to save and stop (SIGTERM); `run` goes on from there'
  stop = add_verb(verbs, 'stop', help_text, lambda options: vm(options).stop(options.seconds))
  stop.add_argument(
    '--seconds', type=number(CountOrZero), default=600, metavar='N', help='time for saving; default %(default)s'
  )
  copy = lambda options: vm(options).fetch(options.remote, options.local, options.worker)
  fetch = add_verb(verbs, 'fetch', 'copy a file or a folder from a worker', copy)
  fetch.add_argument('remote', metavar='REMOTE', help='from the home folder on: rembert-launch/code/runs/large')
  fetch.add_argument('local', metavar='LOCAL', help='here')
  fetch.add_argument('--worker', default='0', help='default %(default)s')
  for parser in (setup, run, logs, stop, fetch):
    gcloud.add_place(parser, is_reached=True)


def add_python(parser: argparse.ArgumentParser) -> None:
  """Adds which Python is installed on workers."""
  version = matching(r'3\.1[1-9]', 'rembert needs Python 3.11 or newer, not {}', where='--python', fix='--python=3.12')
  parser.add_argument('--python', type=version, default=PYTHON, help='3.11 or newer; default %(default)s')


def show_status(vm: TpuVm) -> None:
  """Prints the state of a slice, and the run of each worker."""
  node = vm.describe()
  if node is None:
    vm.commands.log(f'there is no TPU VM {vm.name}')
    return
  if not vm.commands.is_dry:
    state, kind, health = node.get('state'), node.get('acceleratorType'), node.get('health', 'unknown')
    vm.commands.log(f'{vm.name}: {state}, {kind}, health {health}')
  if node.get('state') == 'READY':
    for worker in vm.status():
      vm.commands.log(str(worker))


def _create(options: argparse.Namespace) -> None:
  vm, request = tpu_vm(options), gcloud.tpu_request(options)
  vm.commands.note(str(request.type))
  vm.create(request)
  if not options.dry_run:
    vm.commands.log(f'ready. {request.type}\nnext: python -m {PROGRAM} setup {options.name}')


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser, verbs = launcher_parser(PROGRAM, __doc__, EXAMPLES)
  create = add_verb(verbs, 'create', 'create a slice, and wait until it is ready', _create)
  gcloud.add_tpu_request(create)
  add_worker_verbs(verbs, PROGRAM)
  status = add_verb(verbs, 'status', 'what the slice and its workers do', lambda options: show_status(tpu_vm(options)))
  help_text = 'delete a slice that `create` has made, with everything on its disks'
  delete = add_verb(verbs, 'delete', help_text, lambda options: tpu_vm(options).delete())
  for each in (create, delete):
    gcloud.add_place(each)
  gcloud.add_place(status, is_reached=True)
  return run_launcher(parser, argv)


if __name__ == '__main__':
  sys.exit(main())
