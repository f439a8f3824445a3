"""The workdir: made, and held by one process, or one set of hosts, at a time. Light to import: launchers lock too."""

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
# In a bucket nothing tells that an owner has died but that it no longer renews its claim.
_RENEW_SECONDS = 20.0
_EXPIRE_SECONDS = 90.0


def check(workdir: epath.Path) -> None:
  """Raises UsageError unless the workdir can be made and written to; nothing of it is left."""
  check_bucket_client(workdir)
  check_folder(workdir, 'the workdir', fix='choose another: --workdir=DIR')


def prepare(workdir: epath.Path) -> None:
  """Creates the workdir and makes sure that it can be written to."""
  check_bucket_client(workdir)
  probe = workdir / '.writable'
  try:
    workdir.mkdir(parents=True, exist_ok=True)
    probe.write_text('')
    probe.unlink()
  except Exception as error:  # local, gs:// and s3:// have no exception in common
    reason = first_line(error)
    raise UsageError(
      f'the workdir cannot be written to: {reason}', where=str(workdir), fix='choose another: --workdir=DIR'
    ) from error


# --- the lock ---------------------------------------------------------------------------------------------------------


def _owner() -> dict:
  return {'host': socket.gethostname(), 'process': os.getpid(), 'time': time.time()}


def _refusal(workdir: epath.Path, owner: dict) -> UsageError:
  return UsageError(
    f'another process is at work here: number {owner.get("process", "?")} on {owner.get("host", "?")}',
    where=str(workdir),
    fix=['wait for it, or stop it: kill -TERM lets it save first', 'or take another folder: --workdir=DIR'],
  )


@contextlib.contextmanager
def locked(workdir: epath.Path, say: Callable[[str], None]) -> Iterator[None]:
  """Holds the workdir while it is entered; UsageError if somebody else does.

  On a file system the kernel holds the lock, and lets go when the process ends, however it ends. In a bucket the lock
  is a file that is written again and again; what has not been renewed for 90 seconds belongs to nobody.
  """
  with _leased(workdir, say) if is_remote(workdir) else _file_locked(workdir):
    yield


def holder(workdir: epath.Path) -> dict | None:
  """Who holds the workdir (`host`, `process`, `time`, as far as known); None if nobody does.

  On a file system the kernel can only be asked by trying: for that moment a run that starts would be refused.
  """
  file = workdir / _NAME
  if not file.exists():
    return None
  if is_remote(workdir):
    owner = _parsed(file.read_text())
    return owner if time.time() - owner.get('time', 0) < _EXPIRE_SECONDS else None
  with open(os.fspath(file)) as opened:
    try:
      fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
      return _parsed(opened.read())
  return None


@contextlib.contextmanager
def _file_locked(workdir: epath.Path) -> Iterator[None]:
  with open(os.fspath(workdir / _NAME), 'a+') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      file.seek(0)
      raise _refusal(workdir, _parsed(file.read())) from None
    file.truncate(0)
    file.write(json.dumps(_owner()))
    file.flush()
    yield


def _parsed(text: str) -> dict:
  with contextlib.suppress(ValueError):
    return json.loads(text)
  return {}


@contextlib.contextmanager
def _leased(workdir: epath.Path, say: Callable[[str], None]) -> Iterator[None]:
  file = workdir / _NAME
  mine = _owner()
  is_mine = lambda owner: (owner.get('host'), owner.get('process')) == (mine['host'], mine['process'])

  def current() -> dict:
    with contextlib.suppress(OSError):
      return _parsed(file.read_text())
    return {}

  owner = current()
  begin = time.monotonic()
  if owner and not is_mine(owner) and time.time() - owner.get('time', 0) < _EXPIRE_SECONDS:
    say(f'{owner.get("host")} held {workdir} {time.time() - owner["time"]:.0f} s ago: waiting to see if it still does')
  while owner and not is_mine(owner) and time.time() - owner.get('time', 0) < _EXPIRE_SECONDS:
    time.sleep(_RENEW_SECONDS / 4)
    if current().get('time', 0) != owner['time'] and current():
      raise _refusal(workdir, owner)
    if not current() or time.monotonic() - begin > _EXPIRE_SECONDS:
      break
  file.write_text(json.dumps(_owner()))

  def renew() -> None:
    with contextlib.suppress(Exception):  # a storage that fails will be heard of when it matters
      file.write_text(json.dumps(_owner()))

  try:
    with repeating(renew, every_seconds=_RENEW_SECONDS, name='workdir-lock'):
      yield
  finally:
    with contextlib.suppress(Exception):
      file.unlink(missing_ok=True)
