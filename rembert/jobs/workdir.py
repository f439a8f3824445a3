"""Creates a workdir and locks it for one process, or the hosts of one run. Fast to import, for launchers."""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator

from etils import epath

from rembert.errors import UsageError, first_line
from rembert.files import check_bucket_client, check_folder, is_remote
from rembert.runtime.signals import repeating

_NAME = '.lock'
# In a bucket, an owner has ended if its claim is no longer renewed.
_RENEW_SECONDS = 20.0
_EXPIRE_SECONDS = 90.0
_FIX = 'choose another: --workdir=DIR'


def check(workdir: epath.Path) -> None:
  """Raises UsageError unless the workdir can be created and written to; leaves no trace."""
  check_bucket_client(workdir)
  check_folder(workdir, 'the workdir', fix=_FIX)


@contextlib.contextmanager
def locked(workdir: epath.Path, say: Callable[[str], None]) -> Iterator[None]:
  """Creates and locks the workdir; UsageError if it cannot be written to, or is locked by another process.

  On a file system the kernel releases the lock when the process ends, for any reason. In a bucket the lock is a file
  that is rewritten periodically; a claim that has not been renewed for 90 seconds is void.
  """
  check_bucket_client(workdir)
  try:
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / '.writable').write_text('')
    (workdir / '.writable').unlink()
  except Exception as error:  # local, gs:// and s3:// have no exception in common
    what = f'the workdir cannot be written to: {first_line(error)}'
    raise UsageError(what, where=str(workdir), fix=_FIX) from error
  with _leased(workdir, say) if is_remote(workdir) else _file_locked(workdir):
    yield


def holder(workdir: epath.Path) -> dict | None:
  """The owner of the lock (`host`, `process`, `time`, as far as known); None if the workdir is not locked.

  On a file system this takes the lock for a moment, in which a run could not start.
  """
  file = workdir / _NAME
  if not file.exists():
    return None
  if is_remote(workdir):
    owner = _parsed(file.read_text())
    return owner if _is_valid(owner) else None
  with open(os.fspath(file)) as opened:
    try:
      fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
      return _parsed(opened.read())
  return None


def _claim() -> str:
  return json.dumps({'host': socket.gethostname(), 'process': os.getpid(), 'time': time.time()})


def _parsed(text: str) -> dict:
  try:
    return json.loads(text)
  except ValueError:
    return {}


def _is_valid(owner: dict) -> bool:
  return time.time() - owner.get('time', 0) < _EXPIRE_SECONDS


def _refusal(workdir: epath.Path, owner: dict) -> UsageError:
  return UsageError(
    f'the workdir is locked by process {owner.get("process", "?")} on {owner.get("host", "?")}',
    where=str(workdir),
    fix=['wait for it, or stop it: kill -TERM lets it save first', 'or use another directory: --workdir=DIR'],
  )


@contextlib.contextmanager
def _file_locked(workdir: epath.Path) -> Iterator[None]:
  with open(os.fspath(workdir / _NAME), 'a+') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      file.seek(0)
      raise _refusal(workdir, _parsed(file.read())) from None
    file.truncate(0)
    file.write(_claim())
    file.flush()
    yield


@contextlib.contextmanager
def _leased(workdir: epath.Path, say: Callable[[str], None]) -> Iterator[None]:
  file = workdir / _NAME

  def other_owner() -> dict:
    """The claim of another process, if it is valid."""
    with contextlib.suppress(OSError):
      owner = _parsed(file.read_text())
      is_mine = (owner.get('host'), owner.get('process')) == (socket.gethostname(), os.getpid())
      return owner if _is_valid(owner) and not is_mine else {}
    return {}

  owner, end = other_owner(), time.monotonic() + _EXPIRE_SECONDS
  if owner:
    seconds = time.time() - owner['time']
    say(f'{owner.get("host")} held the lock of {workdir} {seconds:.0f} s ago; waiting to see if it renews it')
  while owner and time.monotonic() < end:  # by this host's clock, since the other's may be ahead
    time.sleep(_RENEW_SECONDS / 4)
    before, owner = owner, other_owner()
    if owner and owner['time'] != before['time']:
      raise _refusal(workdir, owner)
  file.write_text(_claim())

  def renew() -> None:
    with contextlib.suppress(Exception):  # if the storage fails, the next save ends the run
      file.write_text(_claim())

  try:
    with repeating(renew, every_seconds=_RENEW_SECONDS, name='workdir-lock'):
      yield
  finally:
    with contextlib.suppress(Exception):
      file.unlink(missing_ok=True)
