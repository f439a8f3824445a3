"""One run of the program among several: where it lives, what it waits for, and what is kept of it."""

import dataclasses
import datetime
import json
import pathlib
import platform
import subprocess
import sys
from collections.abc import Sequence

from etils import epath

import rembert
from rembert.errors import UsageError
from rembert.storage import write_whole

_RECORD = 'run.json'


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of `python -m rembert.main`.

  Attributes:
    name: in few words; unlike all others'.
    workdir: of its own.
    arguments: the command line.
    needs: names of the runs that have to be done before.
  """

  name: str
  workdir: epath.Path
  arguments: tuple[str, ...]
  needs: tuple[str, ...] = ()

  @property
  def command(self) -> list[str]:
    """With this Python."""
    return [sys.executable, '-m', 'rembert.main', *self.arguments]

  def record(self) -> dict | None:
    """What is kept of it, as `Record.content`; None if it never ran."""
    file = self.workdir / _RECORD
    return json.loads(file.read_text()) if file.exists() else None

  def is_done(self) -> bool:
    """Whether it has run to its end."""
    record = self.record()
    return bool(record and record['starts'] and record['starts'][-1]['exit_code'] == 0)

  def check(self) -> None:
    """UsageError if what is done there was done with other arguments; one that is not done can say itself what fits."""
    record = self.record()
    if not self.is_done() or record['arguments'] == list(self.arguments):
      return
    before, now = record['arguments'], list(self.arguments)
    changed = [f'- {argument}' for argument in before if argument not in now]
    changed += [f'+ {argument}' for argument in now if argument not in before]
    raise UsageError(
      f'{self.name} was run with other arguments: ' + ', '.join(changed or ['in another order']),
      where=str(self.workdir),
      fix=['take another folder: --workdir=DIR', 'or delete this one, and what was made of it'],
    )


class Record:
  """The file beside a run that says what was run, with which code, when, and how it ended.

  Attributes:
    content: JSON: `name`, `arguments`, `code` and `host` of the last start, and `starts`, each with `began`, `ended`
      (ISO 8601, UTC) and `exit_code`; `reason` is what a failed run said.
  """

  def __init__(self, run: Run, code: dict):
    self._file = run.workdir / _RECORD
    starts = (run.record() or {}).get('starts', [])
    self.content = {'name': run.name, 'arguments': list(run.arguments), 'code': code, 'host': platform.node()}
    self.content |= {'reason': '', 'starts': starts}

  def began(self) -> None:
    """A start."""
    self.content['starts'].append({'began': _now(), 'ended': None, 'exit_code': None})
    self._write()

  def ended(self, exit_code: int, reason: str = '') -> None:
    """Its end."""
    self.content['starts'][-1] |= {'ended': _now(), 'exit_code': exit_code}
    self.content['reason'] = reason
    self._write()

  def _write(self) -> None:
    write_whole(self._file, json.dumps(self.content, indent=1, ensure_ascii=False) + '\n')


def seconds(record: dict) -> float:
  """How long the starts of a run took that came to an end."""
  moment = datetime.datetime.fromisoformat
  return sum(
    (moment(start['ended']) - moment(start['began'])).total_seconds() for start in record['starts'] if start['ended']
  )


def _now() -> str:
  return datetime.datetime.now(datetime.UTC).isoformat(timespec='milliseconds')


def code_version() -> dict:
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


def in_order(runs: Sequence[Run]) -> list[list[Run]]:
  """Stages: all that a run needs is in the stages before its own."""
  stages, placed, left = [], set(), list(runs)
  while left:
    stage = [run for run in left if placed.issuperset(run.needs)]
    if not stage:
      raise ValueError(f'needs that nobody meets: {[run.name for run in left]}')
    stages.append(stage)
    placed |= {run.name for run in stage}
    left = [run for run in left if run.name not in placed]
  return stages
