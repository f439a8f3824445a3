"""Files inside zip and tar archives, and what is said when an archive is not what it should be."""

import contextlib
import io
import json
import lzma
import pathlib
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rembert.errors import UsageError, first_line

_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, UnicodeDecodeError, OSError)


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
    UsageError: the archive is damaged, or has no such member.
  """
  found = 0
  with _damage(archive):
    for name, content in (
      _zip_members(archive, wanted) if zipfile.is_zipfile(archive) else _tar_members(archive, wanted)
    ):
      found += 1
      yield name, content
  if not found:
    raise UsageError(
      'the archive has none of the files that it should have', where=str(archive), fix='is it the right one?'
    )


def _is_real(name: str) -> bool:
  parts = pathlib.PurePosixPath(name).parts
  return '__MACOSX' not in parts and not parts[-1].startswith('._')


def _zip_members(archive: pathlib.Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
  with zipfile.ZipFile(archive) as opened:
    for info in opened.infolist():
      if not info.is_dir() and _is_real(info.filename) and wanted(info.filename):
        yield info.filename, opened.read(info)


def _tar_members(archive: pathlib.Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
  with tarfile.open(archive) as opened:
    for info in opened:
      if info.isfile() and _is_real(info.name) and wanted(info.name):
        yield info.name, opened.extractfile(info).read()


def nested_tar(name: str, content: bytes, archive: pathlib.Path) -> Iterator[tuple[str, bytes]]:
  """Members of a tar archive that is itself a member."""
  with _damage(pathlib.Path(f'{archive}:{name}')), tarfile.open(fileobj=io.BytesIO(content)) as opened:
    for info in opened:
      if info.isfile() and _is_real(info.name):
        yield info.name, opened.extractfile(info).read()


def lines(content: bytes, where: str) -> Iterator[tuple[str, str]]:
  """Lines of a UTF-8 file, without their ends (`\\n`, `\\r\\n`), and `FILE:NUMBER`."""
  for number, line in enumerate(content.removesuffix(b'\n').split(b'\n') if content else (), 1):
    try:
      yield line.removesuffix(b'\r').decode(), f'{where}:{number}'
    except UnicodeDecodeError as error:
      raise UsageError(f'not UTF-8: {error.reason}', where=f'{where}:{number}', fix='fetch the file again') from None


def parsed_json(content: bytes, where: str) -> Any:
  """The content of a JSON file."""
  try:
    return json.loads(content)
  except ValueError as error:
    raise UsageError(f'not JSON: {first_line(error)}', where=where, fix='fetch the file again') from None


def columns(content: bytes, where: str, needed: int) -> Iterator[tuple[list[str], str]]:
  """Rows of a TSV file without quotes, its header left out, each with `FILE:NUMBER`.

  Raises:
    UsageError: a row has fewer columns than are needed.
  """
  rows = lines(content, where)
  next(rows, None)
  for line, place in rows:
    row = line.strip().split('\t')
    if len(row) < needed:
      raise UsageError(f'{len(row)} columns, and {needed} are needed', where=place, fix='fetch the file again')
    yield row, place


def file_content(archives: Mapping[str, pathlib.Path], name: str) -> tuple[bytes, str]:
  """Content and place of a file that is no archive."""
  return archives[name].read_bytes(), str(archives[name])
