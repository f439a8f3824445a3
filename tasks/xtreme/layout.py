"""Where XTREME's files are: the layout that its own download script leaves, and what is there of it."""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from etils import epath

from rembert.errors import UsageError
from rembert.files import parsed_json

VARIABLE = 'XTREME_DATA_DIR'


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
        'where is the data?',
        where=f'xtreme.data_dir, environment variable {VARIABLE}',
        fix=[
          '--gin.xtreme.data_dir=FOLDER, as python -m tasks.xtreme.download --help makes it',
          f"export {VARIABLE}=FOLDER, or tasks.add_xtreme(data_dir='…')",
        ],
      )
    self.root = epath.Path(data_dir)
    if not self.root.is_dir():
      raise UsageError(
        'there is no such folder', where=f'xtreme.data_dir = {data_dir}', fix='python -m tasks.xtreme.download --help'
      )
    self.labels_root = epath.Path(labels_dir) if labels_dir else self.root / 'labels'

  def file(self, *names: str) -> epath.Path:
    """A file of the data; MissingFileError if it is not there."""
    path = self.root.joinpath(*names)
    if not path.is_file():
      raise MissingFileError(
        'a file of the data is missing', where=str(path), fix='python -m tasks.xtreme.download --help'
      )
    return path

  def has(self, *names: str) -> bool:
    """Whether a file of the data is there."""
    return self.root.joinpath(*names).is_file()

  def labels_file(self, task: str, language: str, suffix: str) -> epath.Path:
    """Where the gold labels of a test file are looked for: `labels/TASK/test-LANGUAGE.SUFFIX`."""
    return self.labels_root / task / f'test-{language}.{suffix}'


def read_lines(path: epath.Path) -> Iterator[Line]:
  """Lines of a UTF-8 file. They end at `\\n` or `\\r\\n` and nowhere else: texts hold the other line ends of Unicode.

  Raises:
    UsageError: the file cannot be read, or is not UTF-8.
  """
  content, file = _read(path), str(path)
  for number, line in enumerate(content.removesuffix(b'\n').split(b'\n') if content else (), 1):
    where = f'{file}:{number}'
    try:
      yield Line(line.removesuffix(b'\r').decode(), where)
    except UnicodeDecodeError as error:
      raise UsageError(f'not UTF-8: {error.reason}', where=where, fix='fetch the file again') from None


def read_json(path: epath.Path) -> Any:
  """The content of a JSON file; UsageError with file and line if it is none."""
  return parsed_json(_read(path), path)


def _read(path: epath.Path) -> bytes:
  try:
    return path.read_bytes()
  except OSError as error:
    raise UsageError(f'a file cannot be read: {error.strerror}', where=str(path), fix='mend it') from error
