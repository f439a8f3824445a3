"""Word pairs that people have judged: two words and a score a line, as MEN, WordSim, MTurk or SimLex have them.

    tiger   cat   7.35                 columns apart by tabs, commas, semicolons or spaces
    sun-n sunlight-n 50.0              MEN's lemma form: a part of speech behind the word (-n, -j, -v) is taken off
    word1 word2 POS SimLex999 …        a header is a first line whose score is no number

Other columns than the first three can be chosen, by number or by name.
"""

import dataclasses
import math
import re
from collections.abc import Sequence

from etils import epath

from rembert.errors import UsageError
from tasks.xtreme.files import Line, read_lines

_PART_OF_SPEECH = re.compile(r'(?P<word>.+)-[njvra]')
_SEPARATORS = {'\t': 'tabs', ';': 'semicolons', ',': 'commas'}


@dataclasses.dataclass(frozen=True)
class WordPair:
  """Two words and how similar people find them; `where` is `FILE:LINE`."""

  first: str
  second: str
  score: float
  where: str


def read_word_pairs(path: epath.PathLike, columns: Sequence[int | str] = (1, 2, 3)) -> list[WordPair]:
  """The pairs of a file.

  Args:
    path: UTF-8. Blank lines and lines that begin with # are passed over.
    columns: of the first word, the second word and the score: numbers from 1, or names in the header.

  Raises:
    UsageError: no such file, no such column, a line of too few columns, or a score that is no number, with the line.
  """
  path = epath.Path(path)
  if not path.is_file():
    raise UsageError('there is no such file', where=str(path), fix='two words and a score a line')
  lines = [line for line in read_lines(path) if line.text.strip() and not line.text.startswith('#')]
  if not lines:
    raise UsageError('there is no word pair in the file', where=str(path), fix='two words and a score a line')
  separator = next((sign for sign in _SEPARATORS if sign in lines[0].text), None)
  table = [([cell.strip() for cell in line.text.strip('\r\n').split(separator)], line) for line in lines]
  header = table[0][0]
  has_names = any(isinstance(column, str) for column in columns)
  places = [_place(column, header, lines[0].where) for column in columns]
  if has_names or _number(header[places[2]] if places[2] < len(header) else '') is None:
    table = table[1:]
  pairs = [_pair(cells, places, line, columns) for cells, line in table]
  if not pairs:
    raise UsageError('there is a header, and no word pair', where=lines[0].where, fix='two words and a score a line')
  words = {word for pair in pairs for word in (pair.first, pair.second)}
  bare = {word: match['word'] for word in words if (match := _PART_OF_SPEECH.fullmatch(word)) is not None}
  if len(bare) == len(words):  # all of them: a file with `x-n` here and there has words like that
    pairs = [dataclasses.replace(pair, first=bare[pair.first], second=bare[pair.second]) for pair in pairs]
  return pairs


def _place(column: int | str, header: Sequence[str], where: str) -> int:
  if isinstance(column, str):
    if column not in header:
      raise UsageError(f'no column {column!r}', where=where, fix=f'the header has {", ".join(header)}')
    return header.index(column)
  if column < 1:
    raise UsageError(f'no column {column}', where='analyze.columns', fix='columns are counted from 1')
  return column - 1


def _pair(cells: Sequence[str], places: Sequence[int], line: Line, columns: Sequence[int | str]) -> WordPair:
  if len(cells) <= max(places):
    raise UsageError(
      f'a line of {len(cells)} column{"" if len(cells) == 1 else "s"}, and column {max(places) + 1} is wanted',
      where=line.where,
      fix=f'two words and a score, apart by tabs, commas, semicolons or spaces; analyze.columns = {tuple(columns)}',
    )
  first, second, text = (cells[place] for place in places)
  score = _number(text)
  if score is None:
    raise UsageError(
      f'{text!r} is no score', where=line.where, fix='choose other columns: --gin.analyze.columns="(1, 2, 4)"'
    )
  if not first or not second:
    raise UsageError('a word is missing', where=line.where, fix='two words and a score a line')
  return WordPair(first, second, score, line.where)


def _number(text: str) -> float | None:
  try:
    value = float(text)
  except ValueError:
    return None
  return value if math.isfinite(value) else None
