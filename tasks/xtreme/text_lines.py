"""Lines of the files that are lines of text, what must not be in them, and how many columns they have."""

from collections.abc import Sequence

from etils import epath

from rembert.errors import UsageError
from tasks.xtreme.layout import Line, read_lines

_BYTE_ORDER_MARK = '\N{ZERO WIDTH NO-BREAK SPACE}'


def text_lines(path: epath.Path, *, allows_carriage_returns: bool = False) -> list[Line]:
  """All lines of a file that has some.

  Args:
    path: the file.
    allows_carriage_returns: also within a line, where they may stand in quotes. At its end they may stand everywhere.

  Raises:
    UsageError: the file is empty, begins with a byte order mark, which would become part of its first word, holds
      carriage returns within a line, or is not UTF-8.
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
        'a carriage return within a line', where=line.where, fix='lines end with \\n or \\r\\n; write the file anew'
      )
  return lines


def same_columns(table: Sequence[tuple[Sequence[str], str]], allowed: Sequence[int], meaning: str) -> int:
  """How many columns all rows of a table have.

  Args:
    table: rows, at least one, and where each begins, `FILE:LINE`.
    allowed: numbers of columns.
    meaning: of the columns, for the error.

  Raises:
    UsageError: a number that is not allowed, or more than one.
  """
  columns = len(table[0][0])
  for row, where in table:
    what = f'a line of {len(row)} column{"" if len(row) == 1 else "s"}'
    if len(row) not in allowed:
      raise UsageError(what, where=where, fix=meaning)
    if len(row) != columns:
      raise UsageError(f'{what}, and of {columns} before', where=where, fix=f'all lines alike: {meaning}')
  return columns
