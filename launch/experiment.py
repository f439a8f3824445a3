"""One of the runs of an experiment: the command, what it needs, and the record in its workdir."""

import dataclasses
import datetime
import json
import pathlib
import platform
import subprocess
import sys
from typing import Any

from etils import epath

import rembert
from rembert.errors import UsageError
from rembert.files import write_whole

_RECORD = 'run.json'


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of `python -m rembert.main`.

  The record beside it is JSON: `name`, `arguments`, `code` and `host` of the last start; `starts`, each with `began`,
  `ended` (ISO 8601, UTC) and `exit_code`; `reason` is the error message of a run that failed.
  """

  name: str  # short and unique
  workdir: epath.Path  # of its own
  arguments: tuple[str, ...]
  needs: tuple[str, ...] = ()  # names of the runs that have to be done before

  @property
  def command(self) -> list[str]:
    """With this Python."""
    return [sys.executable, '-m', 'rembert.main', *self.arguments]

  def record(self) -> dict[str, Any] | None:
    """The record; None if the run was never started."""
    file = self.workdir / _RECORD
    return json.loads(file.read_text()) if file.exists() else None

  def is_done(self) -> bool:
    """Whether its last start ended without an error."""
    record = self.record()
    return bool(record and record['starts'] and record['starts'][-1]['exit_code'] == 0)

  def seconds(self) -> float:
    """How long those of its starts took that have ended."""
    moment = datetime.datetime.fromisoformat
    starts = (self.record() or {'starts': []})['starts']
    return sum((moment(start['ended']) - moment(start['began'])).total_seconds() for start in starts if start['ended'])

  def check(self) -> None:
    """UsageError if it was done with other arguments; a run that is not done checks its workdir itself."""
    record = self.record()
    if record is None or not self.is_done() or record['arguments'] == list(self.arguments):
      return
    before, now = record['arguments'], list(self.arguments)
    changed = [f'- {argument}' for argument in before if argument not in now]
    changed += [f'+ {argument}' for argument in now if argument not in before]
    raise UsageError(
      f'{self.name} was run with other arguments: ' + ', '.join(changed or ['in another order']),
      where=str(self.workdir),
      fix=['take another folder: --workdir=DIR', 'or delete this one, and what was made of it'],
    )

  def record_start(self, code: dict[str, Any]) -> None:
    """Adds a start of this code (`code_version`) to the record."""
    starts = (self.record() or {'starts': []})['starts']
    content = {'name': self.name, 'arguments': list(self.arguments), 'code': code, 'host': platform.node()}
    start = {'began': _now(), 'ended': None, 'exit_code': None}
    self._write(content | {'reason': '', 'starts': [*starts, start]})

  def record_end(self, exit_code: int, reason: str = '') -> None:
    """Completes the last start in the record."""
    if (record := self.record()) is not None:  # else the workdir was deleted meanwhile
      record['starts'][-1] |= {'ended': _now(), 'exit_code': exit_code}
      self._write(record | {'reason': reason})

  def _write(self, content: dict[str, Any]) -> None:
    write_whole(self.workdir / _RECORD, json.dumps(content, indent=1, ensure_ascii=False) + '\n')


def _now() -> str:
  return datetime.datetime.now(datetime.UTC).isoformat(timespec='milliseconds')


def code_version() -> dict[str, Any]:
  """Version, git commit, and whether files differ from it; the last two are None for an installed copy."""
  folder = pathlib.Path(rembert.__file__).parent.parent
  commit = _git(folder, 'rev-parse', 'HEAD')
  changes = _git(folder, 'status', '--porcelain', '--untracked-files=no')
  return {'version': rembert.__version__, 'commit': commit, 'dirty': None if changes is None else bool(changes)}


def _git(folder: pathlib.Path, *arguments: str) -> str | None:
  if not (folder / '.git').exists():
    return None
  try:
    result = subprocess.run(['git', *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=30)
  except (OSError, subprocess.SubprocessError):
    return None
  return result.stdout.strip()
