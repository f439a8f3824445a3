"""Files of examples: tables (CSV, TSV, JSONL, Parquet), CoNLL columns, SQuAD's JSON. An error names file and line.

A table is read one row after the other: what is in memory does not grow with it. Its format is that of the file's name,
without a suffix of compression (`reviews.csv.gz`). Files are local or in any storage that fsspec reads. A byte order
mark at the beginning is no part of the text; lines end with LF or CRLF.
"""

import csv
import io
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

from etils import epath

from rembert.errors import UsageError, first_line
from rembert.files import decompressed, is_archive_damage, parsed_json

Row = dict[str, Any]
FORMATS = ('.csv', '.tsv', '.jsonl', '.ndjson', '.parquet')
FETCH = 'fetch the file again'
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


class Line(NamedTuple):
  """A line of a file, without its end, and where it stands: `FILE:NUMBER`."""

  text: str
  where: str


class Answer(NamedTuple):
  """A part of a context: `context[start : start + len(text)] == text`, with something in it that is not white space."""

  text: str
  start: int


def open_file(path: str | os.PathLike) -> IO[bytes]:
  """A file, decompressed; a path is read as a whole, a name piece by piece. UsageError if it cannot be opened."""
  import fsspec  # what plans runs imports this module

  try:
    # Paths are XTREME's, of `epath`: without gcsfs, TensorFlow reads those in buckets, whose lines lack all `\r`.
    is_path = isinstance(path, os.PathLike)
    return decompressed(io.BytesIO(epath.Path(path).read_bytes()) if is_path else fsspec.open(path, 'rb').open())
  except Exception as error:  # local files and each storage have their own
    raise _unreadable(error, os.fspath(path)) from error


def read_json(path: str | os.PathLike) -> Any:
  """The content of a JSON file; UsageError with file and line if it is none."""
  with open_file(path) as file:
    return parsed_json(file.read(), path)


def _unreadable(error: Exception, where: str) -> UsageError:
  reason = getattr(error, 'strerror', None) or first_line(error)
  return UsageError(f'the file cannot be read: {reason}', where=where, fix='correct the path, or fetch the file again')


# --- lines ------------------------------------------------------------------------------------------------------------


def read_lines(path: str | os.PathLike) -> Iterator[Line]:
  """Lines of a UTF-8 file. They end at LF or CRLF and nowhere else: texts hold the other line ends of Unicode.

  UsageError if the file cannot be read, or is not UTF-8.
  """
  for where, line in _raw_lines(path):
    yield Line(line.removesuffix('\n').removesuffix('\r'), where)


def some_lines(path: str | os.PathLike) -> list[Line]:
  """All lines of a file; UsageError if it has none, and as `read_lines`."""
  lines = list(read_lines(path))
  if not lines:
    raise UsageError('the file is empty', where=f'{os.fspath(path)}:1', fix=FETCH)
  return lines


def _raw_lines(path: str | os.PathLike) -> Iterator[tuple[str, str]]:
  """Lines as they are, each after its `FILE:LINE`."""
  name = os.fspath(path)
  where = f'{name}:1'
  with open_file(path) as file:
    try:
      for number, line in enumerate(file, 1):
        where = f'{name}:{number}'
        try:
          yield where, line.decode('utf-8-sig' if number == 1 else 'utf-8')
        except UnicodeDecodeError as error:
          fix = 'iconv -f UTF-16 -t UTF-8, or -f LATIN1, or another encoding'
          raise UsageError(f'not UTF-8: {error.reason}', where=where, fix=fix) from None
    except Exception as error:  # each compression has its own
      if isinstance(error, UsageError) or not is_archive_damage(error):
        raise
      raise _unreadable(error, where) from error


# --- tables -----------------------------------------------------------------------------------------------------------


def format_of(path: str | os.PathLike) -> str:
  """The suffix of a file's name, in lower case and without that of its compression: `.csv` for `a.CSV.gz`."""
  name = pathlib.PurePath(os.fspath(path).lower())
  return (name.with_suffix('') if name.suffix in _COMPRESSIONS else name).suffix


def read_rows(path: str | os.PathLike) -> Iterator[tuple[str, Row]]:
  """Rows by column, each after the place where it begins: `FILE:LINE`, in Parquet `FILE:ROW`, both from 1.

  Cells of CSV and TSV are strings; those of JSONL and Parquet are as they are. Blank lines are skipped.

  UsageError, with the line, if the file cannot be read, is not UTF-8, or a line breaks the rules of its format.
  """
  kind = format_of(path)
  if kind not in FORMATS:
    raise UsageError(f'unknown format {kind!r}', where=os.fspath(path), fix=f'a file of {", ".join(FORMATS)}')
  if kind == '.parquet':
    return _parquet_rows(path)
  return _csv_rows(path, _DELIMITERS[kind]) if kind in _DELIMITERS else _json_rows(path)


def read_cells(path: str | os.PathLike, delimiter: str) -> Iterator[tuple[str, list[str]]]:
  """The cells of each row that a csv writer wrote, after the `FILE:LINE` where it begins; a blank line has none."""
  csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))
  following = f'{os.fspath(path)}:1'
  # csv counts the lines that it has taken: a quoted cell may go over several.
  reader = csv.reader((line for _, line in _raw_lines(path)), delimiter=delimiter, strict=True)
  try:
    for cells in reader:
      where, following = following, f'{os.fspath(path)}:{reader.line_num + 1}'
      yield where, cells
  except csv.Error as error:
    fix = 'a cell that begins with a quote ends with one, and quotes in it are doubled: "He said ""no""."'
    raise UsageError(f'not as a csv writer writes it: {error}', where=following, fix=fix) from None


def _csv_rows(path: str | os.PathLike, delimiter: str) -> Iterator[tuple[str, Row]]:
  header: list[str] = []
  for where, cells in read_cells(path, delimiter):
    if not header:
      header = [name.strip() for name in cells]
      if repeated := sorted({name for name in header if header.count(name) > 1}):
        raise UsageError(f'two columns are called {repeated[0]!r}', where=where, fix='rename one of them')
    elif len(cells) == len(header):
      yield where, dict(zip(header, cells, strict=True))
    elif cells:
      fix = f'the columns are {", ".join(header)}; a cell with {delimiter!r} or a line break stands in quotes'
      raise UsageError(f'a row of {len(cells)} cells under {len(header)} columns', where=where, fix=fix)
  if not header:
    raise UsageError('an empty file', where=f'{os.fspath(path)}:1', fix='the first line has the names of the columns')


def _json_rows(path: str | os.PathLike) -> Iterator[tuple[str, Row]]:
  for line, where in read_lines(path):
    if not line.strip():
      continue
    try:
      row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
      raise UsageError(f'not JSON: {first_line(error)}', where=where, fix='one JSON object per line') from None
    if not isinstance(row, dict):
      raise UsageError(f'a line with {type(row).__name__}', where=where, fix='one JSON object per line')
    yield where, row


def _parquet_rows(path: str | os.PathLike) -> Iterator[tuple[str, Row]]:
  import pyarrow as pa
  import pyarrow.parquet

  number = 0
  with open_file(path) as file:
    try:
      for batch in pa.parquet.ParquetFile(file).iter_batches(_ROWS_AT_ONCE):
        for row in batch.to_pylist():
          number += 1
          yield f'{os.fspath(path)}:{number}', row
    except pa.ArrowException as error:
      raise _unreadable(error, f'{os.fspath(path)}:{number + 1}') from error


# --- CoNLL columns ----------------------------------------------------------------------------------------------------


def read_columns(path: str) -> Iterator[list[tuple[list[str], str]]]:
  """Sentences of a file with a word and its tag a line: the cells of each line, with its place.

  Columns are separated by tabs, or by spaces if there is no tab; a blank line ends a sentence. With tabs, lines without
  one that begin with # are comments. `-DOCSTART-` lines, and the ranges and empty words of CoNLL-U (`3-4`, `3.1`), are
  skipped.
  """
  sentence: list[tuple[list[str], str]] = []
  texts = (line.text for line in read_lines(path) if line.text.strip() and not line.text.startswith('#'))
  has_tabs, width = '\t' in next(texts, ''), 0
  for line, where in read_lines(path):
    if not line.strip(' \t'):
      if sentence:
        yield sentence
      sentence = []
      continue
    cells = line.split('\t') if has_tabs else line.split()
    is_comment = has_tabs and len(cells) == 1 and line.startswith('#')
    is_no_word = cells[0] == '-DOCSTART-' or (len(cells) == 10 and re.fullmatch(r'\d+[-.]\d+', cells[0]))
    if is_comment or is_no_word:
      continue
    width = width or len(cells)
    if len(cells) != width or not cells[-1].strip():
      what = f'a line of {len(cells)} columns, and {width} before' if len(cells) != width else 'an empty cell'
      raise UsageError(what, where=where, fix='write each line as a word, a tab, its tag')
    sentence.append((cells, where))
  if sentence:
    yield sentence


# --- questions and answers --------------------------------------------------------------------------------------------


def checked_text(value: Any, name: str, where: str) -> str:
  """A text or a number as text; UsageError for anything else."""
  if value is None or isinstance(value, list | dict):
    raise UsageError(f'{name!r} has no text: {str(value)[:60]}', where=where, fix='a text')
  try:
    str(value).encode()
  except UnicodeEncodeError:  # JSON may say \ud83c, half of a character, which no vocabulary and no file can take
    raise UsageError(f'{name!r} has half a character', where=where, fix='write the file again') from None
  return str(value)


def answer_in(context: str, value: Any, where: str) -> Answer:
  """An answer, a text or an object with `text` and `answer_start`; without a place, its first occurrence.

  UsageError if it is empty, or not in the context where it says.
  """
  text, start = (value.get('text'), value.get('answer_start')) if isinstance(value, dict) else (value, None)
  text = checked_text(text, 'answers', where)
  if start is None:
    start = context.find(text)
    if start < 0 or not text.strip():
      raise UsageError(f'the answer {text!r} is not in the context', where=where, fix='a part of the context, as it is')
  is_place = isinstance(start, int) and not isinstance(start, bool) and start >= 0
  if not is_place or not text.strip() or context[start : start + len(text)] != text:
    fix = 'answer_start counts characters (code points) of the context, from 0'
    raise UsageError(f'the answer {text!r} is not at {start} of the context', where=where, fix=fix)
  return Answer(text, start)


def read_questions(path: str | os.PathLike) -> list[Example]:
  """Questions of a file of SQuAD v1.1, at least one; as `parse_questions`."""
  questions = parse_questions(read_json(path), os.fspath(path))
  if not questions:
    raise UsageError('a file without questions', where=os.fspath(path), fix=FETCH)
  return questions


def parse_questions(published: Any, file: str) -> list[Example]:
  """Questions of the content of a file of SQuAD v1.1, whose name is for errors.

  An example has `id`, `question` and `context`, of which the last two may be empty. Its label are the answers, of which
  any is right; None if the file has no answers, or only those that XTREME blanks: one whose text is empty.

  Raises:
    UsageError: the file has another form; only some questions have answers, or an answer is not at its place in the
      context; with the place in the file, `FILE:data[3].paragraphs[0].qas[2]`.
  """
  questions, where = [], file
  try:
    for article_number, article in enumerate(published['data']):
      for number, paragraph in enumerate(article['paragraphs']):
        place = where = f'{file}:data[{article_number}].paragraphs[{number}]'
        context = checked_text(paragraph['context'], 'context', where)
        for question_number, entry in enumerate(paragraph['qas']):
          where = f'{place}.qas[{question_number}]'
          features = {name: checked_text(entry[name], name, where) for name in ('id', 'question')}
          questions.append(Example(where, {**features, 'context': context}, entry.get('answers')))
    has_answers = not all(_is_blank(question.label) for question in questions)
    for index, question in enumerate(questions):
      where = question.where
      questions[index] = question._replace(label=_answers(question) if has_answers else None)
  except (AttributeError, KeyError, TypeError) as error:
    raise UsageError(f'not the form of SQuAD v1.1: {error}', where=where, fix=FETCH) from None
  return questions


def _is_blank(answers: Any) -> bool:
  return not answers or (isinstance(answers, list) and all(answer['text'] == '' for answer in answers))


def _answers(question: Example) -> list[Answer]:
  if _is_blank(question.label):
    raise UsageError('a question without an answer', where=question.where, fix='SQuAD v1.1: each has one')
  context, where = question.features['context'], f'{question.where}.answers'
  return [
    answer_in(context, {name: answer[name] for name in ('text', 'answer_start')}, f'{where}[{index}]')
    for index, answer in enumerate(question.label)
  ]
