"""The machines of a slice: their environment, and the one run that goes on all of them. What they do themselves is in
`rembert_worker.sh`."""

import dataclasses
import os
import pathlib
import re
import shlex
from collections.abc import Sequence

from launch.cloud.archive import write_archive
from launch.cloud.commands import Failed
from launch.cloud.names import checked_workdir
from launch.cloud.tpu_nodes import TpuNode
from rembert.errors import UsageError

SCRIPT = pathlib.Path(__file__).with_name('rembert_worker.sh')
ARCHIVE = pathlib.Path('runs/launch/rembert_code.tar.gz')
PYTHON = '3.12'
_STATUS = re.compile(r'^rembert-launch (\S+) (idle|running|ended|lost) (\d+|-) (\S+)$', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class WorkerStatus:
  """What a worker says of its run.

  Attributes:
    host: its name.
    state: `idle` (there was none yet), `running`, `ended`, or `lost`: nobody was left to note how it ended.
    exit_code: of one that has ended.
    since: ISO 8601.
  """

  host: str
  state: str
  exit_code: int | None
  since: str

  def __post_init__(self):
    if self.state == 'ended' and self.exit_code is None:
      raise ValueError(f'{self.host} has ended without an exit code')

  def __str__(self) -> str:
    code = f' with {self.exit_code}' if self.state == 'ended' else ''
    return f'{self.host}: {self.state}{code}, {self.since}'


class Workers:
  """All machines of a slice.

  Attributes:
    node: the slice.
  """

  def __init__(self, node: TpuNode, program: str):
    """
    Args:
      node: the slice.
      program: that a user would type next: `launch.tpu_vm` or `launch.queued_resource`.
    """
    self.node, self._commands, self._program = node, node.commands, program

  def setup(self, python: str = PYTHON) -> None:
    """Copies the project and makes its environment, everywhere; where that has been done, only the code is new."""
    if not re.fullmatch(r'3\.1[1-9]', python):
      raise UsageError(f'rembert needs Python 3.11 or newer, not {python!r}', where='--python', fix='--python=3.12')
    self._commands.note(f'{ARCHIVE} holds all files that git tracks, as they lie here')
    if not self._commands.is_dry:
      write_archive(ARCHIVE)
    self._commands.run(self.node.push([str(ARCHIVE), os.path.relpath(SCRIPT)]))
    self._commands.run(self._call('all', 'setup', python))

  def start(self, command: Sequence[str]) -> None:
    """Starts the command everywhere, under `launch.supervise`; UsageError while a run goes on anywhere."""
    self._commands.note('goes on only if no worker says that it is running')
    found = self.status()
    if running := [each for each in found if each.state == 'running']:
      raise UsageError(
        f'a run goes on already, on {len(running)} of {len(found)} workers of {self.node.name}',
        where=str(running[0]),
        fix=[f'python -m {self._program} logs {self.node.name}', f'python -m {self._program} stop {self.node.name}'],
      )
    checked_workdir(list(command), is_shared=len(found) > 1)
    self._commands.run(self._call('all', 'start', *command))

  def status(self) -> list[WorkerStatus]:
    """What each worker says; none of them in a dry run."""
    text = self._read(self._call('all', 'status'))
    return sorted(
      (
        WorkerStatus(host, state, int(code) if code != '-' else None, since)
        for host, state, code, since in _STATUS.findall(text)
      ),
      key=lambda each: each.host,
    )

  def logs(self, worker: str, lines: int, is_followed: bool) -> None:
    """Shows the end of a worker's log, and what is added, if it is followed."""
    self._commands.run(self._call(worker, 'logs', str(lines), *(['follow'] if is_followed else [])))

  def stop(self, seconds: int) -> None:
    """Tells the run to stop, and gives it so long to save."""
    self._commands.run(self._call('all', 'stop', str(seconds)))

  def fetch(self, remote: str, local: str, worker: str) -> None:
    """Copies a file or a folder from a worker."""
    self._commands.run(self.node.pull(remote, local, worker))

  def _call(self, worker: str, *arguments: str) -> list[str]:
    # The only place where a line for a shell is made, and so where quotes are put: once.
    return self.node.ssh(shlex.join(['bash', SCRIPT.name, *arguments]), worker)

  def _read(self, command: Sequence[str]) -> str:
    try:
      return self._commands.read(command)
    except Failed as error:
      if SCRIPT.name in error.said and 'No such file' in error.said:
        raise UsageError(
          f'nothing is set up on {self.node.name}', fix=f'python -m {self._program} setup {self.node.name}'
        ) from error
      raise
