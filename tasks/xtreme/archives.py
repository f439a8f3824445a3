"""Files inside zip and tar archives, and what is said when an archive is not what it should be.

Archives are read, never extracted: what a member is called decides nothing but whether it is wanted, and no file is
written under a name from an archive. What is larger than anything of XTREME's is not read at all.
"""

import contextlib
import io
import lzma
import pathlib
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO

from rembert.errors import UsageError, first_line

# The largest file that is wanted of any archive has less than 200 MB, the largest archive some thousand files.
LARGEST_MEMBER = 1 << 30
LARGEST_TOTAL = 4 << 30
MOST_MEMBERS = 100_000
# An encrypted member of a zip is a RuntimeError, an unknown compression a NotImplementedError.
_DAMAGED = (
  *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
  *(EOFError, ValueError, OSError, RuntimeError, OverflowError),
)


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

  What Macs add (`__MACOSX/`, `._name`) is never wanted.

  Raises:
    UsageError: the archive is damaged, has no such member, or is larger than anything of XTREME's.
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


def nested_tar(name: str, content: bytes, archive: pathlib.Path) -> Iterator[tuple[str, bytes]]:
  """Members of a tar archive that is itself a member."""
  place = pathlib.Path(f'{archive}:{name}')
  with _damage(place):
    yield from _tar_members(place, lambda name: True, io.BytesIO(content))


def lines(content: bytes, where: str) -> Iterator[tuple[str, str]]:
  """Lines of a UTF-8 file, without their ends (`\\n`, `\\r\\n`), and `FILE:NUMBER`."""
  for number, line in enumerate(content.removesuffix(b'\n').split(b'\n') if content else (), 1):
    try:
      yield line.removesuffix(b'\r').decode(), f'{where}:{number}'
    except UnicodeDecodeError as error:
      raise UsageError(f'not UTF-8: {error.reason}', where=f'{where}:{number}', fix='fetch the file again') from None


def columns(content: bytes, where: str, needed: int) -> Iterator[tuple[list[str], str]]:
  """Rows of a TSV file without quotes, its header left out, each with `FILE:NUMBER`.

  Raises:
    UsageError: a row has fewer columns than are needed.
  """
  rows = lines(content, where)
  next(rows, None)
  for line, place in rows:
    row = [column.strip() for column in line.strip().split('\t')]
    if len(row) < needed:
      raise UsageError(f'{len(row)} columns, and {needed} are needed', where=place, fix='fetch the file again')
    yield row, place
