"""XTREME's files: the layout that its own download script leaves, and how lines and labels are read."""

import collections
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from etils import epath

from rembert.errors import UsageError
from rembert.files import parsed_json

VARIABLE = 'XTREME_DATA_DIR'
_BYTE_ORDER_MARK = '\N{ZERO WIDTH NO-BREAK SPACE}'


class Line(NamedTuple):
  """A line of a file, without its end, and where it stands: `FILE:NUMBER`."""

  text: str
  where: str


class MissingFileError(UsageError):
  """A file of the data is not there: of one language among many that may be no misfortune."""


class MissingLabelsError(UsageError):
  """The data are there, and no gold labels: they can be predicted and cannot be scored."""


class XtremeFolder:
  """The root of the data. Files are named as XTREME names them.

  Args:
    data_dir: root, with a folder for each task; None is the one that `XTREME_DATA_DIR` names.
    labels_dir: of the gold labels of test files that come without; None is `labels/` under the root.
  """

  def __init__(self, data_dir: epath.PathLike | None, labels_dir: epath.PathLike | None = None):
    data_dir = data_dir or os.environ.get(VARIABLE)
    if not data_dir:
      raise UsageError(
        'xtreme.data_dir is not set',
        where=f'xtreme.data_dir, environment variable {VARIABLE}',
        fix=[
          '--gin.xtreme.data_dir=FOLDER, as python -m tasks.xtreme.download --help makes it',
          f"export {VARIABLE}=FOLDER, or tasks.add_xtreme(data_dir='…')",
        ],
      )
    self.root = epath.Path(data_dir)
    if not self.root.is_dir():
      raise UsageError(
        'no such directory', where=f'xtreme.data_dir = {data_dir}', fix='python -m tasks.xtreme.download --help'
      )
    self.labels_root = epath.Path(labels_dir) if labels_dir else self.root / 'labels'

  def file(self, name: str) -> epath.Path:
    """A file of the data; MissingFileError if it is not there."""
    path = self.root / name
    if not path.is_file():
      raise MissingFileError(
        'a file of the data is missing', where=str(path), fix='python -m tasks.xtreme.download --help'
      )
    return path

  def has(self, name: str) -> bool:
    """Whether a file of the data is there."""
    return (self.root / name).is_file()

  def labels_file(self, task: str, language: str, suffix: str) -> epath.Path:
    """Where the gold labels of a test file are looked for: `labels/TASK/test-LANGUAGE.SUFFIX`."""
    return self.labels_root / task / f'test-{language}.{suffix}'


# --- lines and columns ------------------------------------------------------------------------------------------------


def read_file(path: epath.Path) -> bytes:
  """The content of a file; UsageError if it cannot be read."""
  try:
    return path.read_bytes()
  except OSError as error:
    raise UsageError(f'a file cannot be read: {error.strerror}', where=str(path), fix='repair it') from error


def read_json(path: epath.Path) -> Any:
  """The content of a JSON file; UsageError with file and line if it is none."""
  return parsed_json(read_file(path), path)


def read_lines(path: epath.Path) -> Iterator[Line]:
  """Lines of a UTF-8 file; UsageError if it cannot be read, or is not UTF-8."""
  return split_lines(read_file(path), str(path))


def split_lines(content: bytes, file: str) -> Iterator[Line]:
  """Lines of UTF-8. They end at `\\n` or `\\r\\n` and nowhere else: texts hold the other line ends of Unicode."""
  for number, line in enumerate(content.removesuffix(b'\n').split(b'\n') if content else (), 1):
    where = f'{file}:{number}'
    try:
      yield Line(line.removesuffix(b'\r').decode(), where)
    except UnicodeDecodeError as error:
      raise UsageError(f'not UTF-8: {error.reason}', where=where, fix='fetch the file again') from None


def text_lines(path: epath.Path, *, allows_carriage_returns: bool = False) -> list[Line]:
  """All lines of a file that has some.

  Raises:
    UsageError: the file is empty, begins with a byte order mark, which would become part of its first word, is not
      UTF-8, or holds carriage returns within a line, unless they are allowed since they may stand in quotes.
  """
  lines = list(read_lines(path))
  if not lines:
    raise UsageError('the file is empty', where=f'{path}:1', fix='fetch the file again')
  if lines[0].text.startswith(_BYTE_ORDER_MARK):
    raise UsageError(
      'the file begins with a byte order mark', where=lines[0].where, fix='write it as UTF-8 without: its first 3 bytes'
    )
  for line in lines:
    if '\r' in line.text and not allows_carriage_returns:
      raise UsageError(
        'a carriage return within a line', where=line.where, fix='lines end with \\n or \\r\\n; rewrite the file so'
      )
  return lines


def same_columns(table: Sequence[tuple[Sequence[str], str]], allowed: Sequence[int], meaning: str) -> int:
  """How many columns all rows of a table have, whose rows come with `FILE:LINE`.

  UsageError if that is not an `allowed` number, or not the same for all; it says the `meaning` of the columns.
  """
  columns = len(table[0][0])
  for row, where in table:
    what = f'a line of {len(row)} column{"" if len(row) == 1 else "s"}'
    if len(row) not in allowed:
      raise UsageError(what, where=where, fix=meaning)
    if len(row) != columns:
      raise UsageError(f'{what}, and of {columns} before', where=where, fix=f'each line: {meaning}')
  return columns


# --- labels -----------------------------------------------------------------------------------------------------------


def known_label(label: str, labels: Sequence[str], where: str) -> str:
  """`label`, without space around it, if it is one of `labels`; else UsageError."""
  label = label.strip()
  if label not in labels:
    raise UsageError(f'unknown label {label!r}', where=where, fix=f'one of {", ".join(labels)}')
  return label


def labels_lines(path: epath.Path, data: epath.Path) -> list[Line]:
  """Lines of the file of gold labels of `data`; MissingLabelsError if there is none."""
  if not path.is_file():
    raise labels_missing(str(data), f'{path} is not there either', f'put them into {path}')
  return text_lines(path)


def labels_missing(where: str, why: str, fix: str = 'fetch the file again') -> MissingLabelsError:
  """For data that should bring its labels along."""
  evaluate_dev = "or take the dev split: --gin.xtreme.split='dev'"
  return MissingLabelsError(f'there are no gold labels; {why}', where=where, fix=(fix, evaluate_dev))


def most_frequent(found: Iterable[str | None], labels: Sequence[str]) -> str:
  """The most frequent of the labels that were found; of several, the first in the order of `labels`."""
  counts = collections.Counter(found)
  return max(labels, key=lambda label: counts[label])
