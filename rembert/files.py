"""Local files and files in buckets: access checks, reading, and atomic writing."""

import bz2
import contextlib
import errno
import functools
import gzip
import hashlib
import importlib.util
import io
import json
import lzma
import os
import pathlib
import re
import socket
import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from etils import epath

from rembert.errors import RunError, UsageError, first_line, storage_fix

_GOOGLE_STORAGE = ('storage.googleapis.com', 443)
_SECONDS = 10
# First bytes of files that are often given instead of text: the format, and a command that converts it.
_NOT_UTF8 = {
  b'\xff\xfe': ('UTF-16', 'iconv -f UTF-16 -t UTF-8 {0} > {0}.utf8'),
  b'\xfe\xff': ('UTF-16', 'iconv -f UTF-16 -t UTF-8 {0} > {0}.utf8'),
  b'\x1f\x8b': ('gzip', 'gunzip --keep {0}'),
  b'BZh': ('bzip2', 'bunzip2 --keep {0}'),
  b'\xfd7zXZ': ('xz', 'unxz --keep {0}'),
}
_BYTE_ORDER_MARK = b'\xef\xbb\xbf'


def _open_zstd(file: Any) -> io.BufferedReader:
  import pyarrow

  return io.BufferedReader(pyarrow.CompressedInputStream(file, 'zstd'))


_ARCHIVES: dict[bytes, Callable] = {
  b'BZh': bz2.open,
  b'\xfd7zXZ\x00': lzma.open,
  b'\x1f\x8b': gzip.open,
  b'\x28\xb5\x2f\xfd': _open_zstd,
}


def is_remote(path: epath.PathLike) -> bool:
  """Whether a path is in a bucket, in which files can be written but not appended to."""
  return '://' in os.fspath(path)


def absolute(path: epath.PathLike) -> epath.Path:
  """The absolute path, which Orbax requires; paths in a bucket always are."""
  return epath.Path(path) if is_remote(path) else epath.Path(path).resolve()


@functools.cache
def why_unreachable(path: str) -> str:
  """Why a `gs://` path cannot be reached, or '' if its host answers, for local paths, and behind a proxy.

  TensorFlow's own client repeats a refused connection for minutes before it raises an error.
  """
  if not path.startswith('gs://') or os.environ.get('https_proxy') or os.environ.get('HTTPS_PROXY'):
    return ''
  try:
    socket.create_connection(_GOOGLE_STORAGE, _SECONDS).close()
  except OSError as error:
    return f'{_GOOGLE_STORAGE[0]} cannot be reached ({error})'
  return ''


def inside(folder: epath.PathLike, name: str, *, where: epath.PathLike) -> epath.Path:
  """Path of the file `name` in `folder`; UsageError for a name that leads out of it.

  Lists of files come with data and models from outside; `where` is the list, for the message.
  """
  parts = name.replace('\\', '/').split('/') if isinstance(name, str) else ['..']
  if '..' in parts or '' in parts or '\0' in name or is_remote(name) or re.match(r'[A-Za-z]:', name):
    raise UsageError(
      f'a file name leads out of its directory: {str(name)[:80]!r}',
      where=os.fspath(where),
      fix='do not use it: it is corrupt, or made to read other files',
    )
  return epath.Path(folder) / name


def check_bucket_client(path: epath.PathLike) -> None:
  """Raises UsageError if Orbax could write checkpoints to `path`, but would fail at the first one to be deleted."""
  if not os.fspath(path).startswith('gs://'):
    return
  with contextlib.suppress(ModuleNotFoundError):  # not even the package `google` is installed
    if importlib.util.find_spec('google.cloud.storage') is not None:
      return
  raise UsageError(
    'checkpoints in a bucket need google-cloud-storage', where=os.fspath(path), fix='pip install google-cloud-storage'
  )


@contextlib.contextmanager
def _renamed_at_the_end(path: epath.Path) -> Iterator[epath.Path]:
  """Yields a temporary name for a file, which is renamed to `path` if the block succeeds, and deleted otherwise."""
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.parent / f'{path.name}.partial'
  try:
    yield partial
    partial.replace(path)
  except BaseException:  # a full disk, or a signal
    with contextlib.suppress(Exception):
      partial.unlink(missing_ok=True)
    raise


def write_whole(path: epath.PathLike, content: str | bytes) -> None:
  """Writes a file atomically, by renaming a temporary file, and creates its directory.

  An existing file with the same content is not rewritten, so that several hosts may write it in turn.
  """
  path = epath.Path(path)
  content = content if isinstance(content, bytes) else content.encode()
  if path.exists() and path.read_bytes() == content:
    return
  with _renamed_at_the_end(path) as partial:
    partial.write_bytes(content)


@contextlib.contextmanager
def whole_file(path: epath.PathLike) -> Iterator[IO[str]]:
  """Opens a UTF-8 file for writing, which appears under its name only if the block ends without an error."""
  with (
    _renamed_at_the_end(epath.Path(path)) as partial,
    partial.open('wb') as stream,
    io.TextIOWrapper(stream, encoding='utf-8', newline='') as file,
  ):
    yield file


@contextlib.contextmanager
def write_errors(what: str, where: epath.PathLike, *, fix: str = '') -> Iterator[None]:
  """Converts any storage exception while `what` is written to a RunError; exception types differ by storage."""
  try:
    yield
  except (UsageError, ArithmeticError, AttributeError, LookupError, NameError, TypeError):  # no storage raises these
    raise
  except Exception as error:
    raise RunError(
      f'{what} could not be written: {first_line(error)}', where=os.fspath(where), fix=fix or storage_fix(error, where)
    ) from error


def check_folder(folder: epath.PathLike, what: str, *, fix: str) -> None:
  """UsageError unless a directory can be created and written to. Locally this is tried, then undone."""
  why = why_unreachable if is_remote(folder) else _why_not_writable
  reason = why(os.fspath(folder))
  if reason:
    raise UsageError(f'{what} cannot be written to: {reason}', where=os.fspath(folder), fix=fix)


def check_output(path: epath.PathLike, flag: str, *, overwrite: bool | None = None) -> None:
  """UsageError, before any work is done, unless a flag's output file can be written; its directory need not exist.

  `overwrite` is whether `--overwrite` was given, without which an existing file is an error; None if there is no such
  flag.
  """
  path = epath.Path(path)
  if path.is_dir():
    raise UsageError('the output file is an existing directory', where=str(path), fix=f'{flag}={path}/NAME')
  check_folder(path.parent, 'the directory of the output file', fix=f'choose another: {flag}=FILE')
  if overwrite is False and path.exists():
    raise UsageError(
      'the file already exists',
      where=str(path),
      fix=['--overwrite replaces it', f'or choose another name: {flag}=FILE'],
    )


def _why_not_writable(folder: str) -> str:
  """Why no file can be created in a local directory, which need not exist; '' if one can."""
  existing = os.path.abspath(folder)
  while not os.path.lexists(existing):
    existing = os.path.dirname(existing)
  try:
    os.rmdir(tempfile.mkdtemp(prefix='.rembert-', dir=existing))
  except OSError as error:
    is_file = error.errno == errno.ENOTDIR
    return f'{existing} is a file' if is_file else f'{error.strerror} ({existing})'
  return ''


def read_text(path: epath.PathLike, *, what: str = 'the file', fix: str = '') -> str:
  """The text of a UTF-8 file, without a byte order mark.

  Raises:
    UsageError: it is missing, a directory, a circular link, unreadable, compressed, or not UTF-8 (names the line).
  """
  where = os.fspath(path)
  try:
    content = epath.Path(path).read_bytes()
  except Exception as error:  # local, gs:// and s3:// have no exception in common
    reason, advice = f'cannot be read: {getattr(error, "strerror", None) or first_line(error)}', 'check the path'
    match error:
      case IsADirectoryError():
        reason, advice = 'is a directory', 'name a file in it'
      case PermissionError():
        advice = f'chmod u+r {where}'
      case FileNotFoundError():
        is_link = os.path.islink(where)
        reason = f'links to {os.readlink(where)}, which does not exist' if is_link else 'does not exist'
    raise UsageError(f'{what} {reason}', where=where, fix=fix or advice) from error
  try:
    return content.removeprefix(_BYTE_ORDER_MARK).decode()
  except UnicodeDecodeError as error:
    for begin, (kind, command) in _NOT_UTF8.items():
      if content.startswith(begin):
        raise UsageError(f'{what} is {kind}, not UTF-8', where=where, fix=command.format(where)) from None
    line = content.count(b'\n', 0, error.start) + 1
    raise UsageError(
      f'{what} is not UTF-8: {error.reason}',
      where=f'{where}:{line}',
      fix=fix or f'if it is Latin-1: iconv -f LATIN1 -t UTF-8 {where} > {where}.utf8',
    ) from None


def sha256_of(file: Any) -> str:
  """SHA-256 (hex) of a file's content, read in chunks; `file` is a path or a context manager that opens it."""
  digest = hashlib.sha256()
  with file.open('rb') if isinstance(file, pathlib.Path | epath.Path) else file as stream:
    while piece := stream.read(1 << 22):
      digest.update(piece)
  return digest.hexdigest()


def decompressed(file: Any) -> Any:
  """Decompresses a binary file object if its first bytes are those of bzip2, xz, gzip or zstd; else returns it."""
  first = file.read(max(map(len, _ARCHIVES)))
  file.seek(0)
  return next((opener(file) for magic, opener in _ARCHIVES.items() if first.startswith(magic)), file)


def is_archive_damage(error: BaseException) -> bool:
  """Whether an exception means that an archive is truncated or corrupt, rather than that its storage failed.

  Storage errors are OSErrors with an errno or, from a network, of a derived type.
  """
  is_plain = type(error) in (OSError, gzip.BadGzipFile)
  return isinstance(error, EOFError | lzma.LZMAError | zlib.error) or (is_plain and not getattr(error, 'errno', None))


def parsed_json(text: str | bytes, path: os.PathLike | str, *, fix: str = 'fetch the file again') -> Any:
  """Parses a JSON file from outside the project; bytes are UTF-8. `path` and `fix` are for the error.

  Raises:
    UsageError: it is truncated, not JSON, not UTF-8, or nested too deeply for Python (about a thousand levels).
  """
  try:
    return json.loads(text)
  except json.JSONDecodeError as error:
    what, where = f'invalid JSON: {error.msg}', f'{os.fspath(path)}:{error.lineno}'
  except UnicodeDecodeError as error:
    what, where = f'invalid JSON: not UTF-8: {error.reason}', os.fspath(path)
  except RecursionError:
    what, where = 'invalid JSON: nested too deeply', os.fspath(path)
  raise UsageError(what, where=where, fix=fix)
