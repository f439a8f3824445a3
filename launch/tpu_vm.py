"""Creates a Cloud TPU slice with gcloud, sets it up, runs a command on it, shows status and logs, and deletes it."""

import argparse
import dataclasses
import os
import pathlib
import re
import shlex
import sys
import tarfile
from collections.abc import Sequence

import rembert
from launch import gcloud
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
# States of nodes that will not return (API, v2): a spot node is never restarted, only created again.
LOST_STATES = ('PREEMPTED', 'TERMINATED')
_STATUS = re.compile(r'^rembert-launch (\S+) (idle|running|ended|lost) (\d+|-) (\S+)$', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class WorkerStatus:
  """The run of one worker.

  Attributes:
    host: name of the machine.
    state: idle (nothing was started yet), running, ended, or lost (no exit code was written).
    exit_code: exit code of a run that has ended.
    since: time of the last change, ISO 8601.
  """

  host: str
  state: str
  exit_code: int | None
  since: str = dataclasses.field(compare=False)

  def __str__(self) -> str:
    code = f' with {self.exit_code}' if self.state == 'ended' else ''
    return f'{self.host}: {self.state}{code}, {self.since}'


class TpuVm(gcloud.Resource):
  """A slice: a node of the Cloud TPU API (`gcloud compute tpus tpu-vm`), and its machines, the workers."""

  KIND, GROUP = 'TPU VM', 'tpu-vm'

  # --- the node ---

  def create(self, request: gcloud.TpuRequest) -> None:
    """Requests the slice, and waits until it is ready; CommandFailed if there is no capacity."""
    flags = [f'--version={request.type.runtime}', *request.flags, f'--labels={self._place.labels_text}']
    self.commands.run(self._gcloud('create', self.name, *flags, *self._place.flags))

  def _assumed(self) -> dict:
    return {'state': 'READY', 'labels': self._place.labels}

  def _check_before_delete(self, description: dict) -> None:
    self._place.check_labels(description.get('labels', {}), f'the TPU VM {self.name}')
    if queued := description.get('queuedResource'):
      raise UsageError(
        f'{self.name} belongs to a queued resource, which would remain',
        where=queued,
        fix=f'python -m launch.queued_resource delete {queued.rpartition("/")[2]}',
      )

  # --- its workers ---

  def setup(self, python: str = PYTHON) -> None:
    """Copies the project to all workers and creates its environment; later calls only update the code."""
    self.commands.note(f'{ARCHIVE} contains all files that git tracks, with local changes')
    if not self.commands.is_dry:
      write_archive(ARCHIVE)
    files = [str(ARCHIVE), os.path.relpath(SCRIPT), f'{self.name}:']
    self.commands.run(self._gcloud('scp', *files, '--worker=all', *self._place.flags))
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
      gcloud.check_workdir(command)
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
    return self._gcloud('ssh', self.name, f'--worker={worker}', f'--command={line}', *self._place.flags)


# --- archive of the project -------------------------------------------------------------------------------------------


def write_archive(target: pathlib.Path, root: pathlib.Path = ROOT) -> None:
  """Writes an archive of all files that git tracks, with uncommitted changes; UsageError if this is not a checkout."""
  if not (root / '.git').exists():
    raise UsageError('no code to copy: not a git checkout', where=str(root), fix='run this from a git checkout')
  target.parent.mkdir(parents=True, exist_ok=True)
  with tarfile.open(target, 'w:gz') as archive:
    for name in git_output(root, 'ls-files', '-z').split('\0'):
      if (root / name).is_file():
        archive.add(root / name, arcname=name)


# --- the command line -------------------------------------------------------------------------------------------------


def tpu_vm(options: argparse.Namespace) -> TpuVm:
  """The slice of the options."""
  return TpuVm(options.name, gcloud.place(options), Commands(options.dry_run))


def add_python(parser: argparse.ArgumentParser) -> None:
  """Adds the option for the Python version on workers."""
  version = matching(r'3\.1[1-9]', 'Python 3.11 or newer is required, not {}', where='--python', fix='--python=3.12')
  parser.add_argument('--python', type=version, default=PYTHON, help='3.11 or newer (default: %(default)s)')


def show_status(vm: TpuVm) -> None:
  """Prints the state of a slice, and the run of each worker."""
  node = vm.describe()
  if node is None:
    vm.commands.log(f'no TPU VM {vm.name}')
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
  create = gcloud.add_verb(verbs, 'create', 'create a slice, and wait until it is ready', _create)
  gcloud.add_tpu_request(create)
  help_text = 'copy the project to all workers and create its environment; later calls update the code'
  setup = gcloud.add_verb(verbs, 'setup', help_text, lambda options: tpu_vm(options).setup(options.python))
  add_python(setup)
  help_text = 'start the command after -- on all workers, under launch.supervise; fails while a run is in progress'
  gcloud.add_verb(verbs, 'run', help_text, lambda options: tpu_vm(options).start(options.command), takes_command=True)
  show = lambda options: tpu_vm(options).logs(options.worker, options.lines, options.follow)
  logs = gcloud.add_verb(verbs, 'logs', "show a worker's log", show)
  logs.add_argument('--worker', default='0', help='worker index, or all (default: %(default)s)')
  logs.add_argument('--lines', type=number(Count), default=100, metavar='N', help='log lines (default: %(default)s)')
  logs.add_argument('--follow', action='store_true', help='follow the log until Ctrl-C, which does not stop the run')
  help_text = 'stop the run after saving (SIGTERM); `run` resumes it'
  stop = gcloud.add_verb(verbs, 'stop', help_text, lambda options: tpu_vm(options).stop(options.seconds))
  stop.add_argument(
    '--seconds',
    type=number(CountOrZero),
    default=600,
    metavar='N',
    help='seconds to save (default: %(default)s)',
  )
  gcloud.add_verb(verbs, 'status', 'show the state of slice and workers', lambda options: show_status(tpu_vm(options)))
  help_text = 'delete a slice created by `create`, with everything on its disks'
  gcloud.add_verb(verbs, 'delete', help_text, lambda options: tpu_vm(options).delete())
  return run_launcher(parser, argv)


if __name__ == '__main__':
  sys.exit(main())
