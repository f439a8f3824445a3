"""Files wherever they are: local or in a bucket, reachable or not, and written so that no half of one is ever seen."""

import contextlib
import functools
import importlib.util
import json
import os
import re
import socket
from collections.abc import Iterator
from typing import Any

from etils import epath

from rembert.errors import RunError, UsageError, first_line

_GOOGLE_STORAGE = ('storage.googleapis.com', 443)
_SECONDS = 10


def is_remote(path: epath.PathLike) -> bool:
  """Whether a path is in a bucket, where files can be written but not appended to."""
  return '://' in os.fspath(path)


def absolute(path: epath.PathLike) -> epath.Path:
  """As Orbax wants folders, which takes no relative paths; a bucket has no others."""
  return epath.Path(path) if is_remote(path) else epath.Path(path).resolve()


@functools.cache
def why_unreachable(path: str) -> str:
  """Why a `gs://` path cannot be reached, or '' if its host answers (and for local paths).

  TensorFlow's own client repeats a refused connection for minutes before it says so. Behind a proxy nothing is asked.
  """
  if not path.startswith('gs://') or os.environ.get('https_proxy') or os.environ.get('HTTPS_PROXY'):
    return ''
  try:
    socket.create_connection(_GOOGLE_STORAGE, _SECONDS).close()
  except OSError as error:
    return f'{_GOOGLE_STORAGE[0]} cannot be reached ({error})'
  return ''


def inside(folder: epath.PathLike, name: str, *, where: epath.PathLike) -> epath.Path:
  """The file that `where` calls `name`, below `folder`; UsageError for a name that leads out of it.

  Lists of files come with data and models that somebody else has made.
  """
  parts = name.replace('\\', '/').split('/') if isinstance(name, str) else ['..']
  if '..' in parts or '' in parts or '\0' in name or is_remote(name) or re.match(r'[A-Za-z]:', name):
    raise UsageError(
      f'it names a file outside of its folder: {str(name)[:80]!r}',
      where=os.fspath(where),
      fix='do not use it: it was damaged, or made to read other files',
    )
  return epath.Path(folder) / name


def check_bucket_client(path: epath.PathLike) -> None:
  """Raises UsageError where Orbax could write checkpoints to `path` and would fail at the first one to be deleted."""
  if not os.fspath(path).startswith('gs://'):
    return
  with contextlib.suppress(ModuleNotFoundError):  # not even its parent is there
    if importlib.util.find_spec('google.cloud.storage') is not None:
      return
  raise UsageError(
    'checkpoints in a bucket need google-cloud-storage', where=os.fspath(path), fix='pip install google-cloud-storage'
  )


def write_whole(path: epath.PathLike, content: str | bytes) -> None:
  """Writes a file at once: beside it first, then in its place. Makes its folder where there is none.

  What is there already is left alone, so that several hosts may write the same, one after the other.
  """
  path = epath.Path(path)
  content = content if isinstance(content, bytes) else content.encode()
  if path.exists() and path.read_bytes() == content:
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.parent / f'{path.name}.partial'
  partial.write_bytes(content)
  partial.replace(path)


@contextlib.contextmanager
def write_errors(what: str, where: epath.PathLike, *, fix: str = 'make room or mend the storage') -> Iterator[None]:
  """Turns whatever goes wrong while `what` is written into one RunError: every storage has exceptions of its own."""
  try:
    yield
  except UsageError:
    raise
  except Exception as error:
    raise RunError(f'{what} could not be written: {first_line(error)}', where=os.fspath(where), fix=fix) from error


def parsed_json(text: str | bytes, path: os.PathLike | str, *, fix: str = 'fetch the file again') -> Any:
  """The content of a JSON file that others wrote; bytes are UTF-8. `path` and `fix` are for the error.

  Raises:
    UsageError: it is cut off, no JSON, no UTF-8, or nested more deeply than Python can follow (about a thousand).
  """
  try:
    return json.loads(text)
  except json.JSONDecodeError as error:
    what, where = f'not JSON: {error.msg}', f'{os.fspath(path)}:{error.lineno}'
  except UnicodeDecodeError as error:
    what, where = f'not JSON: not UTF-8: {error.reason}', os.fspath(path)
  except RecursionError:
    what, where = 'not JSON that can be read: nested too deeply', os.fspath(path)
  raise UsageError(what, where=where, fix=fix)
