"""Files that analyses read. Errors name the file and the line.

translations    two files of sentences, line i of one translates line i of the other: FLORES, WMT's newstest
word pairs      two words and a similarity score per line: MEN, WordSim, MTurk, SimLex
labelled spans  JSON lines: Tenney et al. (2019), jiant
points          CSV or JSON: a size, a score and, if known, the standard deviation of the score
token counts    lines of ID TAB COUNT
"""

import csv
import dataclasses
import json
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from etils import epath

from rembert.errors import UsageError
from rembert.files import parsed_json
from tasks.xtreme.files import Line, read_lines


def _existing(path: epath.PathLike, fix: str) -> epath.Path:
  path = epath.Path(path)
  if not path.is_file():
    raise UsageError('there is no such file', where=str(path), fix=fix)
  return path


def _finite(cell: Any) -> float | None:
  """The number in a cell; None if there is none, or it is not finite."""
  try:
    value = float(cell)
  except (TypeError, ValueError):
    return None
  return value if math.isfinite(value) else None


# --- translations -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class AlignedLines:
  """Sentences and their translations.

  Attributes:
    source: N sentences.
    target: M sentences.
    gold: [N] int64, the index of each source's translation; None if both are in the same order.
    blank: pairs that were skipped because a side has no text.
  """

  source: tuple[str, ...]
  target: tuple[str, ...]
  gold: np.ndarray | None = None
  blank: int = 0


def read_aligned(source: epath.PathLike, target: epath.PathLike, max_pairs: int | None = None) -> AlignedLines:
  """The first `max_pairs` pairs of two files in UTF-8, or all; pairs with a blank side are skipped.

  Raises:
    UsageError: a file cannot be read, the files differ in length, or there is no pair.
  """
  sides = [list(read_lines(_existing(path, 'a text file, one sentence a line'))) for path in (source, target)]
  if len(sides[0]) != len(sides[1]):
    longer = max(sides, key=len)
    raise UsageError(
      f'{len(sides[0]):,} lines and {len(sides[1]):,} translations',
      where=f'{source}, {target}; {longer[min(map(len, sides))].where} has no partner',
      fix='give files of which line i translates line i; for Tatoeba --gin.xtreme.data_dir=FOLDER reads its labels too',
    )
  pairs = [(a.text.strip(), b.text.strip()) for a, b in zip(*sides, strict=True)]
  kept = [pair for pair in pairs if all(pair)]
  if not kept:
    raise UsageError('there is no pair of sentences', where=f'{source}, {target}', fix='a sentence a line')
  texts, translations = zip(*kept[:max_pairs], strict=True)
  return AlignedLines(texts, translations, blank=len(pairs) - len(kept))


# --- word pairs -------------------------------------------------------------------------------------------------------

_PAIR = 'two words and a score a line'
_PART_OF_SPEECH = re.compile(r'(?P<word>.+)-[njvra]')


@dataclasses.dataclass(frozen=True)
class WordPair:
  """Two words, and their similarity as judged by humans."""

  first: str
  second: str
  score: float


def read_word_pairs(path: epath.PathLike, columns: Sequence[int | str] = (1, 2, 3)) -> list[WordPair]:
  """The pairs of a file in UTF-8. Blank lines and lines that begin with # are skipped.

      tiger   cat   7.35                 columns separated by tabs, semicolons, commas or spaces
      sun-n sunlight-n 50.0              MEN's lemma form: parts of speech (-n, -j, -v) are removed
      word1 word2 POS SimLex999 …        a header is a first line whose score is not a number

  `columns` are those of both words and the score: numbers from 1, or names in the header.

  Raises:
    UsageError: no such file or column, a line of too few columns, a score that is not a number.
  """
  path = _existing(path, _PAIR)
  lines = [line for line in read_lines(path) if line.text.strip() and not line.text.startswith('#')]
  if not lines:
    raise UsageError('there is no word pair in the file', where=str(path), fix=_PAIR)
  separator = next((sign for sign in '\t;,' if sign in lines[0].text), None)
  cells = [[cell.strip() for cell in line.text.strip('\r\n').split(separator)] for line in lines]
  places = [_column_index(column, cells[0], lines[0].where) for column in columns]
  by_name = any(isinstance(column, str) for column in columns)
  has_header = by_name or places[2] >= len(cells[0]) or _finite(cells[0][places[2]]) is None
  rows = list(zip(cells, lines, strict=True))[has_header:]
  pairs = [_word_pair(row, places, line, columns) for row, line in rows]
  if not pairs:
    raise UsageError('there is a header, and no word pair', where=lines[0].where, fix=_PAIR)
  words = {word for pair in pairs for word in (pair.first, pair.second)}
  bare = {word: match['word'] for word in words if (match := _PART_OF_SPEECH.fullmatch(word)) is not None}
  if len(bare) == len(words):  # all of them: a file with `x-n` here and there has words like that
    pairs = [dataclasses.replace(pair, first=bare[pair.first], second=bare[pair.second]) for pair in pairs]
  return pairs


def _column_index(column: int | str, header: Sequence[str], where: str) -> int:
  if isinstance(column, str):
    if column not in header:
      raise UsageError(f'no column {column!r}', where=where, fix=f'the header has {", ".join(header)}')
    return header.index(column)
  if column < 1:
    raise UsageError(f'no column {column}', where='analyze.columns', fix='columns are counted from 1')
  return column - 1


def _word_pair(cells: Sequence[str], places: Sequence[int], line: Line, columns: Sequence[int | str]) -> WordPair:
  if len(cells) <= max(places):
    raise UsageError(
      f'a line of {len(cells)} column{"" if len(cells) == 1 else "s"}, and column {max(places) + 1} is wanted',
      where=line.where,
      fix=f'two words and a score, apart by tabs, commas, semicolons or spaces; analyze.columns = {tuple(columns)}',
    )
  first, second, text = (cells[place] for place in places)
  score = _finite(text)
  if score is None:
    raise UsageError(
      f'{text!r} is no score', where=line.where, fix='choose other columns: --gin.analyze.columns="(1, 2, 4)"'
    )
  if not first or not second:
    raise UsageError('a word is missing', where=line.where, fix=_PAIR)
  return WordPair(first, second, score)


# --- labelled spans ---------------------------------------------------------------------------------------------------

Span = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Target:
  """One or two spans, begin and end in words, and their labels."""

  span1: Span
  span2: Span | None
  labels: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class SpanExample:
  """A sentence, its labelled spans, and `FILE:LINE`."""

  words: tuple[str, ...]
  targets: tuple[Target, ...]
  where: str


@dataclasses.dataclass(frozen=True)
class SpanSet:
  """The examples of a file, or of a language, that have targets."""

  name: str
  examples: tuple[SpanExample, ...]

  @property
  def has_lists(self) -> bool:
    """Whether a target has another number of labels than one."""
    return any(len(target.labels) != 1 for example in self.examples for target in example.targets)


def read_spans(path: epath.PathLike) -> SpanSet:
  """The examples of a file of JSON lines.

      {"text": "The dog barks .", "targets": [{"span1": [1, 2], "label": "NOUN"}, …]}
      {"text": "The dog barks .", "targets": [{"span1": [0, 2], "span2": [2, 3], "label": ["a", "b"]}, …]}

  Spans count words, separated by white space; their end is exclusive. A label may be a list (semantic proto-roles have
  any number of labels).

  Raises:
    UsageError: no such file, another form, no target, or targets of one span and of two.
  """
  form = 'JSON lines: {"text": …, "targets": […]}'
  path = _existing(path, form)
  examples = [_span_example(line) for line in read_lines(path) if line.text.strip()]
  kept = tuple(example for example in examples if example.targets)
  if not kept:
    raise UsageError('there is no target in the file', where=str(path), fix=form)
  if len({target.span2 is None for example in kept for target in example.targets}) > 1:
    raise UsageError('targets of one span and of two', where=str(path), fix='a file for each task')
  return SpanSet(path.name.partition('.')[0], kept)


def _span_example(line: Line) -> SpanExample:
  def refuse(what: str) -> NoReturn:
    raise UsageError(what, where=line.where, fix='{"text": "…", "targets": [{"span1": [0, 1], "label": "…"}]}')

  def span_of(target: dict, key: str) -> Span:
    span = target[key]
    is_pair = isinstance(span, list) and len(span) == 2 and all(type(end) is int for end in span)
    if not is_pair or not 0 <= span[0] < span[1] <= len(words):
      refuse(f'{key} {span} is no span of {len(words)} words')
    begin, end = span
    return begin, end

  try:
    content = json.loads(line.text)
  except json.JSONDecodeError as error:
    refuse(f'not JSON: {error.msg}')
  except RecursionError:
    refuse('not JSON that can be read: nested too deeply')
  if not isinstance(content, dict) or not isinstance(content.get('text'), str):
    refuse('no text')
  if not isinstance(content.get('targets', []), list):
    refuse('targets are a list')
  words, targets = tuple(content['text'].split()), []
  for target in content.get('targets', []):
    if not isinstance(target, dict) or 'label' not in target or target.get('span1') is None:
      refuse('a target without span1 or label')
    span1 = span_of(target, 'span1')
    span2 = None if target.get('span2') is None else span_of(target, 'span2')
    labels = target['label'] if isinstance(target['label'], list) else [target['label']]
    if not all(isinstance(label, str) for label in labels):
      refuse('a label is a string, or a list of them')
    targets.append(Target(span1, span2, tuple(labels)))
  return SpanExample(words, tuple(targets), line.where)


# --- points -----------------------------------------------------------------------------------------------------------

_POINT = 'rows of x, score and, if known, the standard deviation of the score'


@dataclasses.dataclass(frozen=True)
class Points:
  """Sizes, scores and weights of runs, [n] float64 each. A weight is 1 / variance, up to a factor."""

  x: np.ndarray
  score: np.ndarray
  weight: np.ndarray


def read_points(path: epath.PathLike) -> Points:
  """Points of a CSV with or without a header (x, score[, deviation]), or of a JSON list of such rows or objects.

  Raises:
    UsageError: no such file, or a row that is not a point.
  """
  path = _existing(path, f'a CSV or JSON file, {_POINT}')
  cells = _json_cells(path) if path.suffix == '.json' else _csv_cells(path)
  rows = [(_point(row, where), where) for row, where in cells]
  if not rows:
    raise UsageError('there are no points', where=str(path), fix=_POINT)
  for (x, _, *deviation), where in rows:
    if x <= 0 or any(value <= 0 for value in deviation):
      raise UsageError('a size and a deviation are above 0', where=where, fix=_POINT)
  if len({len(row) for row, _ in rows}) > 1:
    raise UsageError('rows with and without a deviation', where=rows[0][1], fix='a deviation in all rows, or in none')
  x, score, *deviation = np.array([row for row, _ in rows], np.float64).T
  return Points(x, score, np.power(deviation[0], -2) if deviation else np.ones_like(x))


def _json_cells(path: epath.Path) -> list[tuple[list, str]]:
  content = parsed_json(path.read_text(), path, fix=f'a list, {_POINT}')
  if not isinstance(content, list):
    raise UsageError('not a list', where=f'{path}:1', fix=f'a list, {_POINT}')
  found = []
  for number, row in enumerate(content, 1):
    values = [row.get('x'), row.get('score'), row.get('deviation')] if isinstance(row, dict) else row
    values = [value for value in values if value is not None] if isinstance(values, list) else []
    found.append((values, f'{path}, row {number}'))
  return found


def _csv_cells(path: epath.Path) -> list[tuple[list, str]]:
  lines = path.read_text().splitlines()
  separator = next((sign for sign in '\t;' if any(sign in line for line in lines if not line.startswith('#'))), ',')
  rows = enumerate(csv.reader(lines, delimiter=separator), 1)
  found = [(cells, f'{path}:{number}') for number, cells in rows if any(cells) and not cells[0].startswith('#')]
  has_header = bool(found) and _finite(found[0][0][0]) is None
  return found[has_header:]


def _point(cells: Sequence, where: str) -> tuple[float, ...]:
  values = [value for value in map(_finite, cells) if value is not None]
  if len(cells) not in (2, 3) or len(values) < len(cells):
    raise UsageError(f'{list(cells)!r} is no point', where=where, fix=_POINT)
  return tuple(values)


# --- token counts -----------------------------------------------------------------------------------------------------


def read_counts(path: epath.PathLike, vocab_size: int) -> np.ndarray:
  """A file of `ID TAB COUNT` lines, int64 [V]; tokens without a line count 0. UsageError with file and line."""
  counts = np.zeros(vocab_size, np.int64)
  for line in read_lines(_existing(path, "lines of a piece's id, a tab, and its count")):
    cells = line.text.split('\t')
    if len(cells) != 2 or not all(cell.isascii() and cell.isdigit() for cell in cells) or int(cells[0]) >= vocab_size:
      raise UsageError(
        f'{line.text!r} is no id and count', where=line.where, fix=f'an id below {vocab_size}, a tab, a count'
      )
    counts[int(cells[0])] += int(cells[1])
  return counts
