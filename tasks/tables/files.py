"""Rows of CSV, TSV, JSONL and Parquet files, one after the other: what is in memory does not grow with a file.

The format is that of the file's name, without a suffix of compression (`reviews.csv.gz`). Files are local or in any
storage that fsspec reads. A byte order mark at the beginning is no part of the text; lines end with LF or CRLF.
"""

import csv
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from rembert.errors import UsageError, first_line
from rembert.files import decompressed, is_archive_damage

Row = dict[str, Any]
FORMATS = ('.csv', '.tsv', '.jsonl', '.ndjson', '.parquet')
_DELIMITERS = {'.csv': ',', '.tsv': '\t'}
_COMPRESSIONS = ('.gz', '.bz2', '.xz', '.zst')
_LONGEST_CELL = 1 << 24  # characters; a quote that is not closed would take the rest of the file
_ROWS_AT_ONCE = 1024


class Example(NamedTuple):
  """An example: where it stands, its text by feature, its label or None, and the row of the file."""

  where: str
  features: Mapping[str, Any]
  label: Any
  row: Row = {}  # noqa: RUF012 - never changed


def format_of(path: str | os.PathLike) -> str:
  """The suffix of a file's name, in lower case and without that of its compression: `.csv` for `a.CSV.gz`."""
  name = pathlib.PurePath(os.fspath(path).lower())
  return (name.with_suffix('') if name.suffix in _COMPRESSIONS else name).suffix


def read_rows(path: str | os.PathLike, columns: Sequence[str] | None = None) -> Iterator[tuple[str, Row]]:
  """Rows by column, each after the place where it begins: `FILE:LINE`, in Parquet `FILE:ROW`, both from 1.

  Cells of CSV and TSV are strings; those of JSONL and Parquet are as they are. Blank lines are skipped.

  Args:
    path: of the file.
    columns: the only ones to read of a Parquet file, of those that it has; None for all.

  Raises:
    UsageError: the file cannot be read, is not UTF-8, or a line breaks the rules of its format; with the line.
  """
  kind = format_of(path)
  if kind not in FORMATS:
    raise UsageError(f'unknown format {kind!r}', where=os.fspath(path), fix=f'a file of {", ".join(FORMATS)}')
  if kind == '.parquet':
    return _parquet_rows(path, columns)
  return _csv_rows(path, _DELIMITERS[kind]) if kind in _DELIMITERS else _json_rows(path)


def read_lines(path: str | os.PathLike) -> Iterator[tuple[str, str]]:
  """Lines of a UTF-8 file with LF or CRLF at their ends, as they are, each after its `FILE:LINE`.

  Raises:
    UsageError: the file cannot be read, or is not UTF-8.
  """
  number = 0
  with open_file(path) as file:
    try:
      for number, line in enumerate(file, 1):
        try:
          yield f'{os.fspath(path)}:{number}', line.decode('utf-8-sig' if number == 1 else 'utf-8')
        except UnicodeDecodeError as error:
          raise UsageError(
            f'not UTF-8: {error.reason}',
            where=f'{os.fspath(path)}:{number}',
            fix='iconv -f UTF-16 -t UTF-8, or -f LATIN1, or another encoding',
          ) from None
    except Exception as error:  # each compression has its own
      if isinstance(error, UsageError) or not is_archive_damage(error):
        raise
      raise _unreadable(error, f'{os.fspath(path)}:{number + 1}') from error


def open_file(path: str | os.PathLike) -> IO[bytes]:
  """A file, decompressed; UsageError if it cannot be opened."""
  import fsspec  # what plans runs imports this module

  try:
    return decompressed(fsspec.open(os.fspath(path), 'rb').open())
  except Exception as error:  # local files and each storage have their own
    raise _unreadable(error, os.fspath(path)) from error


def _unreadable(error: Exception, where: str) -> UsageError:
  reason = getattr(error, 'strerror', None) or first_line(error)
  return UsageError(f'the file cannot be read: {reason}', where=where, fix='correct the path, or fetch the file again')


def _csv_rows(path: str | os.PathLike, delimiter: str) -> Iterator[tuple[str, Row]]:
  csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))
  where = f'{os.fspath(path)}:1'
  # csv counts the lines that it has taken: a quoted cell may go over several.
  reader = csv.reader((line for _, line in read_lines(path)), delimiter=delimiter, strict=True)
  header: list[str] = []
  try:
    for cells in reader:
      where, begins = f'{os.fspath(path)}:{reader.line_num + 1}', where
      if not header:
        header = [name.strip() for name in cells]
        if repeated := sorted({name for name in header if header.count(name) > 1}):
          raise UsageError(f'two columns are called {repeated[0]!r}', where=begins, fix='rename one of them')
      elif len(cells) == len(header):
        yield begins, dict(zip(header, cells, strict=True))
      elif cells:
        raise UsageError(
          f'a row of {len(cells)} cells under {len(header)} columns',
          where=begins,
          fix=f'the columns are {", ".join(header)}; a cell with {delimiter!r} or a line break stands in quotes',
        )
  except csv.Error as error:
    raise UsageError(
      f'not as a csv writer writes it: {error}',
      where=where,
      fix='a cell that begins with a quote ends with one, and quotes in it are doubled: "He said ""no""."',
    ) from None
  if not header:
    raise UsageError('an empty file', where=where, fix='the first line has the names of the columns')


def _json_rows(path: str | os.PathLike) -> Iterator[tuple[str, Row]]:
  for where, line in read_lines(path):
    if not line.strip():
      continue
    try:
      row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
      raise UsageError(f'not JSON: {first_line(error)}', where=where, fix='one JSON object per line') from None
    if not isinstance(row, dict):
      raise UsageError(f'a line with {type(row).__name__}', where=where, fix='one JSON object per line')
    yield where, row


def _parquet_rows(path: str | os.PathLike, columns: Sequence[str] | None) -> Iterator[tuple[str, Row]]:
  import pyarrow as pa
  import pyarrow.parquet

  number = 0
  with open_file(path) as file:
    try:
      table = pa.parquet.ParquetFile(file)
      chosen = None if columns is None else [name for name in table.schema_arrow.names if name in columns]
      for batch in table.iter_batches(_ROWS_AT_ONCE, columns=chosen):
        for row in batch.to_pylist():
          number += 1
          yield f'{os.fspath(path)}:{number}', row
    except pa.ArrowException as error:
      raise _unreadable(error, f'{os.fspath(path)}:{number + 1}') from error
