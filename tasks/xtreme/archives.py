"""Published archives: where they are, fetched from the web, known to be the right ones, and read.

`sources.json` says where the data of each task has a public home, with the sizes and SHA-256 that TensorFlow Datasets
and Hugging Face's `xtreme` and `xnli` have recorded for the same files. A file that nobody had recorded would be taken
as it comes, and remembered. (PAN-X is at another address than XTREME's own, a shared folder of Amazon Drive, which went
with Amazon Drive; its splits are the same.)

What is fetched goes to `NAME.partial` first, with what the server calls this version of it in `NAME.partial.version`:
a download is resumed where it broke off, and put in place whole.

Archives are read, never extracted: what a member is called decides nothing but whether it is wanted, and no file is
written under a name from an archive. What is larger than anything of XTREME's is not read at all.
"""

import contextlib
import dataclasses
import hashlib
import http.client
import io
import json
import lzma
import pathlib
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO

from rembert.errors import RunError, UsageError, first_line
from rembert.files import write_errors, write_whole
from tasks.xtreme.files import split_lines

_CHUNK = 1 << 20
_GONE = (401, 403, 404, 410)
# The largest file that is wanted of any archive has less than 200 MB, the largest archive some thousand files.
LARGEST_MEMBER = 1 << 30
LARGEST_TOTAL = 4 << 30
MOST_MEMBERS = 100_000
# An encrypted member of a zip is a RuntimeError, an unknown compression a NotImplementedError.
_DAMAGED = (
  *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
  *(EOFError, ValueError, OSError, RuntimeError, OverflowError),
)


@dataclasses.dataclass(frozen=True)
class Source:
  """A file to be fetched.

  Attributes:
    name: of the file, in the folder of downloads.
    urls: where it is; the second is asked when the first has not got it.
    size: in bytes; None where it is not known.
    sha256: of its content; None where it is not known.
    by_hand: what a person can do where all addresses fail.
  """

  name: str
  urls: tuple[str, ...]
  size: int | None = None
  sha256: str | None = None
  by_hand: str = ''


def _sources(home: dict) -> tuple[Source, ...]:
  urls = lambda name: tuple(f'{address}/{name}' for address in home['addresses'])
  return tuple(
    Source(name, urls(name), file['bytes'], file['sha256'], home.get('by_hand', ''))
    for name, file in home['files'].items()
  )


_TABLE = json.loads(pathlib.Path(__file__).with_name('sources.json').read_text('utf-8'))
SOURCES = {task: _sources(home) for task, home in _TABLE.items()}


# --- fetching ---------------------------------------------------------------------------------------------------------

Progress = Callable[[float, str], None]  # is told the fraction that is done, and of what


class _BrokenOff(Exception):
  """The connection ended before the file did; trying again may help."""


class _NotThere(Exception):
  """The address has not got it; another may."""


class Downloads:
  """The folder of fetched files, and `checksums.json` beside it in the root of the data.

  Args:
    root: of the data.
    seconds: how long a server may be silent.
    attempts: how often a connection that breaks is made again.
    pause: seconds before the second attempt; twice as long before each further one.
  """

  def __init__(self, root: pathlib.Path, *, seconds: float = 60, attempts: int = 4, pause: float = 2):
    self.folder = root / 'downloads'
    self._record = root / 'checksums.json'
    self._seconds, self._attempts, self._pause = seconds, attempts, pause

  def fetch(self, source: Source, on_progress: Progress = lambda fraction, note: None) -> pathlib.Path:
    """The file, fetched if it is not there. It is known to be right, or what came the first time.

    Raises:
      UsageError: no address has it, or it is not the file that it should be.
      RunError: the connection breaks again and again, or the disk is full.
    """
    path = self.folder / source.name
    if not path.is_file():
      with write_errors('the folder of downloads', self.folder):
        self.folder.mkdir(parents=True, exist_ok=True)
      self._fetch(source, path, on_progress)
    self._check(source, path)
    return path

  def _fetch(self, source: Source, path: pathlib.Path, on_progress: Progress) -> None:
    partial = path.with_name(f'{path.name}.partial')
    reasons, has_broken_off = [], False
    for url in source.urls:
      try:
        self._from_address(url, source, partial, on_progress)
      except (_NotThere, _BrokenOff) as error:
        has_broken_off |= isinstance(error, _BrokenOff)
        reasons.append(f'{url}: {error}')
        continue
      partial.replace(path)
      _discard(partial)
      return
    by_hand = source.by_hand.format(path=path) if source.by_hand else f'save it by hand as {path}, and run this again'
    if has_broken_off:
      again = 'run the same command again: it goes on from there'
      raise RunError(f'{source.name} breaks off', where='; '.join(reasons), fix=[again, by_hand])
    raise UsageError(f'{source.name} cannot be fetched', where='; '.join(reasons), fix=by_hand)

  def _from_address(self, url: str, source: Source, partial: pathlib.Path, on_progress: Progress) -> None:
    for attempt in range(self._attempts):
      try:
        self._read(url, source, partial, on_progress)
        break
      except _BrokenOff:
        if attempt + 1 == self._attempts:
          raise
        time.sleep(self._pause * 2**attempt)
    if source.sha256 and _sha256(partial) != source.sha256:
      _discard(partial)
      raise _NotThere('another file than the one expected')

  def _read(self, url: str, source: Source, partial: pathlib.Path, on_progress: Progress) -> None:
    version = partial.with_name(f'{partial.name}.version')
    known = version.read_text() if version.is_file() else ''
    # Without a name for its version, half of an old file could be joined to half of a new one.
    start = partial.stat().st_size if partial.is_file() and known else 0
    headers = {'User-Agent': 'rembert'} | ({'Range': f'bytes={start}-', 'If-Range': known} if start else {})
    try:
      with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=self._seconds) as response:
        if response.status != 206:  # the whole file, and not the rest of it
          start = 0
        elif not response.headers.get('Content-Range', '').startswith(f'bytes {start}-'):
          _discard(partial)
          raise _BrokenOff('the server sent another part than the one asked for')
        length = response.headers.get('Content-Length')
        total = start + int(length) if length and length.isdigit() else None
        if source.size is not None and total not in (None, source.size):
          _discard(partial)
          raise _NotThere(f'{total:,} bytes, and {source.size:,} are expected')
        with write_errors(source.name, partial):
          version.write_text(response.headers.get('ETag') or response.headers.get('Last-Modified') or '')
          partial.touch()
        self._append(response, partial, source, start, total, on_progress)
    except urllib.error.HTTPError as error:
      if error.code == 416:  # there is no rest: what is there is not a part of this file
        _discard(partial)
        raise _BrokenOff('there is no such part') from error
      raise (_NotThere if error.code in _GONE else _BrokenOff)(f'HTTP {error.code} {error.reason}') from error
    except urllib.error.URLError as error:
      raise _NotThere(f'cannot be reached ({error.reason})') from error
    except (OSError, http.client.HTTPException) as error:
      raise _BrokenOff(first_line(error)) from error

  def _append(self, response, partial: pathlib.Path, source: Source, done: int, total: int | None, on_progress) -> None:
    with open(partial, 'ab' if done else 'wb') as file:
      while chunk := response.read(_CHUNK):
        with write_errors(source.name, partial):
          file.write(chunk)
          file.flush()
        done += len(chunk)
        if source.size is not None and done > source.size:  # without a stated length it could fill the disk
          _discard(partial)
          raise _NotThere(f'more than the {source.size:,} bytes that are expected')
        on_progress(done / (total or done), source.name)
    if total is not None and done != total:
      raise _BrokenOff(f'{done:,} of {total:,} bytes came')

  def _check(self, source: Source, path: pathlib.Path) -> None:
    """Compares a file with what is known of it, and remembers it; UsageError if it is another."""
    size, sha256, records = path.stat().st_size, _sha256(path), self._records()
    expected = source.sha256 or records.get(source.name, {}).get('sha256', sha256)
    if sha256 != expected:
      since, fix = 'expected', ['delete it, and run the command again']
      if not source.sha256:
        since = 'fetched the first time'
        fix.append('or, if it has changed for good, delete its entry in checksums.json')
      raise UsageError(
        f'{source.name} is not the file that was {since}: {size:,} bytes, SHA-256 {sha256[:12]}…',
        where=str(path),
        fix=fix,
      )
    state = 'verified' if source.sha256 else 'unverified: as it came the first time'
    records |= {source.name: {'bytes': size, 'sha256': sha256, 'state': state}}
    with write_errors('checksums.json', self._record):
      write_whole(self._record, json.dumps(records, indent=2, sort_keys=True) + '\n')

  def _records(self) -> dict[str, dict]:
    try:
      return json.loads(self._record.read_text()) if self._record.is_file() else {}
    except ValueError as error:
      raise UsageError(
        f'checksums.json is damaged: {first_line(error)}', where=str(self._record), fix='delete it'
      ) from error


def _sha256(path: pathlib.Path) -> str:
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def _discard(partial: pathlib.Path) -> None:
  partial.unlink(missing_ok=True)
  partial.with_name(f'{partial.name}.version').unlink(missing_ok=True)


# --- reading ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _damage(archive: pathlib.Path) -> Iterator[None]:
  try:
    yield
  except _DAMAGED as error:
    raise UsageError(
      f'the archive is damaged: {first_line(error)}', where=str(archive), fix='delete it, and run the command again'
    ) from error


def members(archive: pathlib.Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
  """Path and content of those members of a zip or tar archive that are `wanted`, in the archive's order.

  What Macs add (`__MACOSX/`, `._name`) is never wanted. UsageError if the archive is damaged, has no such member, or is
  larger than anything of XTREME's.
  """
  read = _zip_members if zipfile.is_zipfile(archive) else _tar_members
  found = total = 0
  with _damage(archive):
    for name, content in read(archive, wanted):
      found, total = found + 1, total + len(content)
      if total > LARGEST_TOTAL:
        raise _too_large(archive, 'all that is wanted', LARGEST_TOTAL)
      yield name, content
  if not found:
    raise UsageError(
      'the archive has none of the files that it should have', where=str(archive), fix='is it the right one?'
    )


def _is_real(name: str) -> bool:
  parts = pathlib.PurePosixPath(name).parts
  return bool(parts) and '__MACOSX' not in parts and not parts[-1].startswith('._')


def _too_large(archive: pathlib.Path, name: str, most: int) -> UsageError:
  return UsageError(
    f'{name} is larger than anything that is expected: more than {most:,}',
    where=str(archive),
    fix='delete it: it is not what it is said to be',
  )


def _read(opened: IO[bytes], archive: pathlib.Path, name: str, declared: int) -> bytes:
  """A member, whatever size it declares: what comes is counted too."""
  content = b'' if declared > LARGEST_MEMBER else opened.read(LARGEST_MEMBER + 1)
  if max(declared, len(content)) > LARGEST_MEMBER:
    raise _too_large(archive, name, LARGEST_MEMBER)
  return content


def _zip_members(archive: pathlib.Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
  with zipfile.ZipFile(archive) as opened:
    for info in opened.infolist():
      if not info.is_dir() and _is_real(info.filename) and wanted(info.filename):
        with opened.open(info) as member:
          yield info.filename, _read(member, archive, info.filename, info.file_size)


def _tar_members(
  archive: pathlib.Path, wanted: Callable[[str], bool], content: IO[bytes] | None = None
) -> Iterator[tuple[str, bytes]]:
  with tarfile.open(archive if content is None else None, fileobj=content) as opened:
    for number, info in enumerate(opened):
      if number >= MOST_MEMBERS:
        raise _too_large(archive, 'the number of its files', MOST_MEMBERS)
      # Regular files alone: a link would name another file.
      if info.isreg() and _is_real(info.name) and wanted(info.name):
        member = opened.extractfile(info)
        yield info.name, _read(member, archive, info.name, info.size) if member else b''


def nested_tar(place: str, content: bytes) -> Iterator[tuple[str, bytes]]:
  """Members of a tar archive that is itself a member, `ARCHIVE:NAME`."""
  with _damage(pathlib.Path(place)):
    yield from _tar_members(pathlib.Path(place), lambda name: True, io.BytesIO(content))


def columns(content: bytes, where: str, needed: int) -> Iterator[tuple[list[str], str]]:
  """Rows of a TSV file without quotes or header, each with `FILE:NUMBER`; UsageError for fewer columns than needed."""
  rows = split_lines(content, where)
  next(rows, None)
  for line, place in rows:
    row = [column.strip() for column in line.strip().split('\t')]
    if len(row) < needed:
      raise UsageError(f'{len(row)} columns, and {needed} are needed', where=place, fix='fetch the file again')
    yield row, place
