"""Files of text: plain text, JSON lines, CSV, TSV and Parquet, compressed or not, wherever fsspec can read.

A file consists of items: paragraphs between blank lines, lines of JSON, rows of a table. An item that cannot be read is
lost by itself; `TextFile.items` returns the reason in its place.
"""

import codecs
import contextlib
import csv
import dataclasses
import itertools
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from rembert.errors import UsageError, first_line
from rembert.files import decompressed, is_archive_damage, is_remote

if TYPE_CHECKING:
  import fsspec
  import pyarrow as pa
  import pyarrow.parquet as pq

ENDINGS = 'txt, jsonl, csv, tsv, parquet; also .gz, .bz2, .xz, .zst of all but Parquet'
_NAME = re.compile(r'(?P<stem>.+?)\.(?P<format>txt|jsonl|ndjson|json|csv|tsv|parquet)(?:\.(?:gz|bz2|xz|zst))?')
_NUMBER = re.compile(r'[-_.]\d+(?:-of-\d+)?$')  # of one of several files
_INSPECTED_LINES = 100
_LARGEST_CELL = 1 << 24  # characters; a quote that is never closed ends here
_ROWS_AT_A_TIME = 256
_RANGE_BYTES = 64 << 20
_UNREADABLE = ('truncated files', 'files in UTF-16')  # the reasons why a file has no more lines
DAMAGED = 'damaged row groups'


class Range(NamedTuple):
  """Row groups of Parquet from `start` to before `stop`, 0 and 0 of another format, and the bytes of their text."""

  start: int
  stop: int
  size: int


class Item(NamedTuple):
  """A document of a file."""

  number: int  # of its line or row, from 1
  text: Any  # the content of the column of text; None, or another type than a string, if the item has no text
  language: Any = None  # the content of the column of languages, in the same way


_Record = tuple[int, dict[str, Any] | str]


def find_files(pattern: str) -> list[tuple[str, int]]:
  """Files of text and their sizes, sorted by name: one file, those directly in a directory, or those of a glob.

  UsageError if there is none, or the place cannot be reached.
  """
  system, path = _file_system(pattern)
  try:
    if is_folder := system.isdir(path):
      found = system.ls(path, detail=True)
    else:
      found = [system.info(path)] if system.isfile(path) else list(system.glob(path, detail=True).values())
  except Exception as error:  # every file system has types of its own
    raise UsageError(
      f'files of text cannot be listed: {first_line(error)}', where=pattern, fix='check the path, access and network'
    ) from error
  files = []
  for info in found:
    name = system.unstrip_protocol(info['name']) if is_remote(pattern) else info['name']
    match = _NAME.fullmatch(name.rsplit('/', 1)[-1])
    # A .json of a folder may be anything; as JSON lines it is named.
    if info['type'] != 'directory' and match and not (is_folder and match['format'] == 'json'):
      files.append((name, info.get('size') or 0))
  if not files:
    raise UsageError(
      'no text files', where=pattern, fix=f'name a file, a glob, or a folder with de.txt, en.jsonl.gz, …: {ENDINGS}'
    )
  return sorted(files)


def _file_system(url: str) -> 'tuple[fsspec.AbstractFileSystem, str]':
  """The file system of a local path or URL, and the path in it; UsageError if its package is missing."""
  from fsspec.core import url_to_fs
  from fsspec.implementations.local import LocalFileSystem

  if not is_remote(url):  # also names with '::', which chain URLs
    return LocalFileSystem(), url
  try:
    return url_to_fs(url)
  except (ImportError, ValueError) as error:
    packages = {'gs': 'gcsfs', 'gcs': 'gcsfs', 's3': 's3fs', 's3a': 's3fs', 'abfs': 'adlfs', 'az': 'adlfs'}
    protocol = url.partition('://')[0].rpartition('::')[2]
    raise UsageError(
      f'fsspec cannot read {protocol}:// here: {first_line(error)}',
      where=url,
      fix=f'pip install {packages[protocol]}'
      if protocol in packages
      else 'a local path, gs://, s3://, hf://datasets/…',
    ) from error


@dataclasses.dataclass(frozen=True)
class TextFile:
  """A file of text; its format is that of its name."""

  url: str  # a local path, or a URL
  text_column: str  # of JSON lines and tables
  language_column: str = ''  # the same; '' if the file has one language

  @property
  def name(self) -> str:
    """Without the directory."""
    return self.url.rsplit('/', 1)[-1]

  @property
  def stem(self) -> str:
    """The name without endings and without the number of one of several files: `de` of `de-00000-of-00002.jsonl.gz`."""
    return _NUMBER.sub('', self._match['stem'])

  @property
  def format(self) -> str:
    """`txt`, `jsonl`, `csv`, `tsv` or `parquet`."""
    name = self._match['format']
    return 'jsonl' if name in ('json', 'ndjson') else name

  @property
  def _match(self) -> re.Match:
    match = _NAME.fullmatch(self.name)
    assert match, self.name
    return match

  def ranges(self, size: int) -> list[Range]:
    """Parts that can be read alone: row groups of Parquet with about 64 MB of text; else the file of `size` bytes."""
    if self.format != 'parquet':
      return [Range(0, 0, size)]
    ranges: list[Range] = []
    with self._parquet() as table:
      for index in range(table.num_row_groups):
        group = table.metadata.row_group(index)
        columns = [group.column(number) for number in range(group.num_columns)]
        of_text = sum(each.total_compressed_size for each in columns if each.path_in_schema == self.text_column)
        last = ranges[-1] if ranges else None
        if last and last.size + of_text <= _RANGE_BYTES:
          ranges[-1] = Range(last.start, index + 1, last.size + of_text)
        else:
          ranges.append(Range(index, index + 1, of_text))
    return ranges

  def items(self, start: int = 0, stop: int = 0) -> Iterator[Item | str]:
    """The documents, of Parquet those of a range of row groups, and in place of each that is lost the reason."""
    if self.format == 'parquet':
      records = self._rows_of_groups(start, stop)
    else:
      records = {'jsonl': self._objects, 'txt': self._paragraphs}.get(self.format, self._rows)()
    for number, record in records:
      if isinstance(record, str):
        yield record
      else:
        yield Item(number, record.get(self.text_column), record.get(self.language_column))

  def check_columns(self) -> None:
    """Raises UsageError, with the existing columns, if a column is missing or does not contain text.

    Of JSON lines the first hundred are read.
    """
    columns = None if self.format == 'txt' else self._columns()
    if columns is None:
      return
    asked = {name: flag for flag in ('text_column', 'language_column') if (name := getattr(self, flag))}
    if missing := [name for name in asked if name not in columns]:
      raise UsageError(
        f'there is no column {" or ".join(map(repr, missing))}',
        where=self.url,
        fix=f'the columns are {", ".join(columns)}: '
        + ' '.join(f'--{asked[name]}=NAME (data.{asked[name]})' for name in missing),
      )
    if other := [f'{name} is {columns[name]}' for name in asked if columns[name]]:
      raise UsageError(
        f'a column does not hold text: {", ".join(other)}',
        where=self.url,
        fix=f'columns of text: {", ".join(name for name, kind in columns.items() if not kind) or "none"}',
      )

  def _columns(self) -> dict[str, str] | None:
    """The columns, and the types of those that cannot hold text; None if there are no items to tell."""
    if self.format == 'parquet':
      with self._parquet() as table:
        return {field.name: '' if _is_text(field.type) else str(field.type) for field in table.schema_arrow}
    if self.format == 'jsonl':
      records = (record for _, record in self._objects() if record not in _UNREADABLE)
      inspected = list(itertools.islice(records, _INSPECTED_LINES))
      names = dict.fromkeys((name for record in inspected if isinstance(record, dict) for name in record), '')
      if inspected and not names:
        raise UsageError(
          f'not JSON lines: none of the first {len(inspected)} is an object',
          where=self.url,
          fix='one JSON object in each line: {"text": "…"}; of an array: jq -c ".[]" FILE > FILE.jsonl',
        )
      return names or None
    header = next((row for row in self._csv_rows() if not isinstance(row, str)), None)
    return None if header is None else dict.fromkeys(header, '')

  # --- formats of lines: records by number, from 1, and in place of each that is lost the reason ----------------------

  def _lines(self) -> Iterator[bytes | str]:
    """The lines, decompressed, without a byte order mark; the last may be the reason why there are no more."""
    system, path = _file_system(self.url)
    with system.open(path, 'rb') as file:
      try:
        lines = decompressed(file)
        line = lines.readline()
        if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
          yield 'files in UTF-16'
          return
        line = line.removeprefix(codecs.BOM_UTF8) or lines.readline()
        while line:
          yield line
          line = lines.readline()
      except Exception as error:
        if not is_archive_damage(error):
          raise
        yield 'truncated files'

  def _paragraphs(self) -> Iterator[_Record]:
    """Paragraphs are lines; blank lines separate documents."""
    first, paragraphs = 0, []
    for number, line in enumerate(itertools.chain(self._lines(), [b'']), 1):
      if isinstance(line, str):
        yield number, line
      elif paragraph := line.decode('utf-8', 'surrogateescape').strip():
        first = first or number
        paragraphs.append(paragraph)
      elif paragraphs:
        yield first, {self.text_column: '\n'.join(paragraphs)}
        first, paragraphs = 0, []

  def _objects(self) -> Iterator[_Record]:
    """Lines with content."""
    for number, line in enumerate(self._lines(), 1):
      if isinstance(line, str):
        yield number, line
      elif line.strip():
        try:
          found = json.loads(line.decode('utf-8', 'surrogateescape'))
        except (ValueError, RecursionError):
          found = None
        yield number, found if isinstance(found, dict) else 'broken lines'

  def _csv_rows(self) -> Iterator[list[str] | str]:
    """Rows, the header first. Cells in quotes may contain line breaks; a row with an unclosed quote is broken."""
    csv.field_size_limit(_LARGEST_CELL)
    ended: list[str] = []

    def text() -> Iterator[str]:
      for line in self._lines():
        if isinstance(line, str):
          ended.append(line)
        else:
          yield line.decode('utf-8', 'surrogateescape')

    reader = csv.reader(text(), delimiter='\t' if self.format == 'tsv' else ',', strict=True)
    row: list[str] | str | None = []
    while row is not None:
      if row:
        yield row
      try:
        row = next(reader, None)
      except csv.Error:
        row = 'broken rows'
    yield from ended

  def _rows(self) -> Iterator[_Record]:
    header: list[str] | None = None
    number = 0
    for row in self._csv_rows():
      if isinstance(row, str):
        yield number, row
      elif header is None:
        header = row
      else:
        number += 1
        yield number, dict(zip(header, row, strict=True)) if len(row) == len(header) else 'broken rows'

  # --- Parquet ------------------------------------------------------------------------------------------------------

  @contextlib.contextmanager
  def _parquet(self) -> 'Iterator[pq.ParquetFile]':
    """The open file; UsageError if it has no valid footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    system, path = _file_system(self.url)
    with system.open(path, 'rb') as file:
      try:
        table = pq.ParquetFile(file, buffer_size=1 << 20)
      except (pa.ArrowException, OSError) as error:
        if not _is_damage(error):
          raise
        raise UsageError(
          f'not a Parquet file, or truncated: {first_line(error)}', where=self.url, fix='fetch the file again'
        ) from error
      yield table

  def _rows_of_groups(self, start: int, stop: int) -> Iterator[_Record]:
    """A few rows are in memory at a time."""
    import pyarrow as pa

    names = list(dict.fromkeys(filter(None, (self.text_column, self.language_column))))
    with self._parquet() as table:
      rows = [table.metadata.row_group(index).num_rows for index in range(stop)]
      for group in range(start, stop):
        number = sum(rows[:group])
        try:
          for batch in table.iter_batches(_ROWS_AT_A_TIME, row_groups=[group], columns=names):
            columns = [batch.column(name).cast(pa.large_binary()).to_pylist() for name in names]
            for cells in zip(*columns, strict=True):
              number += 1
              texts = (cell and cell.decode('utf-8', 'surrogateescape') for cell in cells)
              yield number, dict(zip(names, texts, strict=True))
        except (pa.ArrowException, OSError) as error:
          if not _is_damage(error):
            raise
          yield number, DAMAGED


def _is_text(kind: 'pa.DataType') -> bool:
  import pyarrow as pa

  kind = kind.value_type if pa.types.is_dictionary(kind) else kind
  return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_damage(error: Exception) -> bool:
  """Whether an exception of Arrow means that a file is corrupt, rather than that its storage failed."""
  return not isinstance(error, OSError) or is_archive_damage(error)
