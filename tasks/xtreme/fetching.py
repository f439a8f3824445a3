"""Files fetched from the web: resumed where they broke off, put in place whole, and known to be the right ones.

`sources.json` says where the data of each task has a public home, with the sizes and SHA-256 that TensorFlow Datasets
and Hugging Face's `xtreme` and `xnli` have recorded for the same files. A file that nobody had recorded would be taken
as it comes, and remembered. (PAN-X is at another address than XTREME's own, a shared folder of Amazon Drive, which went
with Amazon Drive; its splits are the same.)

What is fetched goes to `NAME.partial` first, with what the server calls this version of it in `NAME.partial.version`.
"""

import dataclasses
import hashlib
import http.client
import itertools
import json
import pathlib
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from rembert.errors import RunError, UsageError, first_line
from rembert.files import write_errors, write_whole

_CHUNK = 1 << 20
_GONE = (401, 403, 404, 410)


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


def _read_sources() -> dict[str, tuple[Source, ...]]:
  tasks = json.loads((pathlib.Path(__file__).parent / 'sources.json').read_text('utf-8'))
  return {
    task: tuple(
      Source(
        name,
        urls=tuple(f'{address}/{name}' for address in home['addresses']),
        size=file['bytes'],
        sha256=file['sha256'],
        by_hand=home.get('by_hand', ''),
      )
      for name, file in home['files'].items()
    )
    for task, home in tasks.items()
  }


SOURCES = _read_sources()  # by task


@dataclasses.dataclass(frozen=True)
class Fetched:
  """A file that is there.

  Attributes:
    path: where it is.
    size: in bytes.
    sha256: of its content.
    is_verified: whether that is known to be right; otherwise it is what came the first time.
  """

  path: pathlib.Path
  size: int
  sha256: str
  is_verified: bool


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

  def fetch(self, source: Source, on_progress: Callable[[float, str], None] = lambda fraction, note: None) -> Fetched:
    """The file, fetched if it is not there.

    Raises:
      UsageError: no address has it, or it is not the file that it should be.
      RunError: the connection breaks again and again, or the disk is full.
    """
    path = self.folder / source.name
    if not path.is_file():
      with write_errors('the folder of downloads', self.folder):
        self.folder.mkdir(parents=True, exist_ok=True)
      self._fetch(source, path, on_progress)
    fetched = self._checked(source, path)
    self._remember(source, fetched)
    return fetched

  def _fetch(self, source: Source, path: pathlib.Path, on_progress) -> None:
    partial = path.with_name(f'{path.name}.partial')
    reasons, has_broken_off = [], False
    for url in source.urls:
      try:
        self._from_address(url, source, partial, on_progress)
      except (_NotThere, _BrokenOff) as error:
        has_broken_off = has_broken_off or isinstance(error, _BrokenOff)
        reasons.append(f'{url}: {error}')
        continue
      if source.sha256 and _sha256(partial) != source.sha256:
        _discard(partial)
        reasons.append(f'{url}: another file than the one expected')
        continue
      partial.replace(path)
      _discard(partial)
      return
    by_hand = source.by_hand.format(path=path) if source.by_hand else f'save it by hand as {path}, and run this again'
    if has_broken_off:
      again = 'run the same command again: it goes on from there'
      raise RunError(f'{source.name} breaks off', where='; '.join(reasons), fix=[again, by_hand])
    raise UsageError(f'{source.name} cannot be fetched', where='; '.join(reasons), fix=by_hand)

  def _from_address(self, url: str, source: Source, partial: pathlib.Path, on_progress) -> None:
    for attempt in itertools.count(1):
      try:
        return self._read(url, source, partial, on_progress)
      except _BrokenOff:
        if attempt >= self._attempts:
          raise
        time.sleep(self._pause * 2 ** (attempt - 1))

  def _read(self, url: str, source: Source, partial: pathlib.Path, on_progress) -> None:
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

  def _append(
    self, response, partial: pathlib.Path, source: Source, start: int, total: int | None, on_progress
  ) -> None:
    most = source.size
    with write_errors(source.name, partial):
      partial.touch()
    with open(partial, 'ab' if start else 'wb') as file:
      done = start
      while chunk := response.read(_CHUNK):
        with write_errors(source.name, partial):
          file.write(chunk)
          file.flush()
        done += len(chunk)
        if most is not None and done > most:  # a server that does not say how much it sends could fill the disk
          break
        on_progress(done / (total or done or 1), source.name)
    if most is not None and done > most:
      _discard(partial)
      raise _NotThere(f'more than the {most:,} bytes that are expected')
    if total is not None and done != total:
      raise _BrokenOff(f'{done:,} of {total:,} bytes came')

  # --- what is right ----------------------------------------------------------

  def _checked(self, source: Source, path: pathlib.Path) -> Fetched:
    size, sha256 = path.stat().st_size, _sha256(path)
    expected = source.sha256 or self._records().get(source.name, {}).get('sha256', sha256)
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
    return Fetched(path, size, sha256, source.sha256 is not None)

  def _records(self) -> dict[str, dict]:
    try:
      return json.loads(self._record.read_text()) if self._record.is_file() else {}
    except ValueError as error:
      raise UsageError(
        f'checksums.json is damaged: {first_line(error)}', where=str(self._record), fix='delete it'
      ) from error

  def _remember(self, source: Source, fetched: Fetched) -> None:
    entry = {
      'bytes': fetched.size,
      'sha256': fetched.sha256,
      'state': 'verified' if fetched.is_verified else 'unverified: as it came the first time',
    }
    with write_errors('checksums.json', self._record):
      write_whole(self._record, json.dumps(self._records() | {source.name: entry}, indent=2, sort_keys=True) + '\n')


def _sha256(path: pathlib.Path) -> str:
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def _discard(partial: pathlib.Path) -> None:
  partial.unlink(missing_ok=True)
  partial.with_name(f'{partial.name}.version').unlink(missing_ok=True)
