"""XTREME's files, in the layout that its own download script leaves: pairs of sentences, tagged words, questions.

Pairs are in `TASK/SPLIT-LANGUAGE.tsv`, written by Python's csv writer: sentence TAB sentence, in train and dev TAB
label; fields with a quote, a tab or a line break in them stand in quotes, quotes in them are doubled, lines end with
CRLF. XTREME itself reads them with quoting switched off, so that its models see the outer quotes and the doubled ones;
here the texts are read as they were before they were written.

Words are in `TASK/SPLIT-LANGUAGE.tsv`, too: in train and dev a word TAB its tag a line, in test the word alone. A blank
line ends a sentence, as in XTREME's `evaluate.py`: two in succession have a sentence of no words between them. A word
may be the empty string: XTREME's preprocessing of PAN-X leaves some, as lines that begin with the TAB.

Gold labels of test files are in `labels/TASK/test-LANGUAGE.tsv`, one a line. If a test file has a column for them, that
counts.

Questions are in the JSON of SQuAD v1.1. XTREME's preprocessing (`utils_preprocess.py`) blanks the answers of XQuAD, of
MLQA's test files and of TyDiQA's dev files: one answer at 0 whose text is empty. The gold ones are in
`labels/TASK/test-LANGUAGE.json`, in the same form.
"""

import csv
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from etils import epath

from rembert.errors import UsageError
from rembert.files import parsed_json
from tasks.tables.files import Example
from tasks.tables.question_answering import FETCH, answered, entries, is_blank, parse_questions

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


# --- pairs of sentences -----------------------------------------------------------------------------------------------


def read_pairs(
  path: epath.Path, split: str, gold_file: epath.Path, labels: Sequence[str], needs_labels: bool
) -> list[Example]:
  """Examples with `first` and `second`, either of which may be empty, and a label; None is unknown.

  Args:
    path: of the file.
    split: `train`, `dev` or `test`.
    gold_file: of the labels of a test file that comes without.
    labels: of the task.
    needs_labels: whether it is an error if there are none.

  Raises:
    UsageError: a wrong line, or not as many gold labels as pairs; with the line. MissingLabelsError without any.
  """
  table = list(_rows_of_pairs(path))
  columns = same_columns(table, (2, 3), 'sentence TAB sentence, in train and dev TAB label')
  examples = [
    Example(where, {'first': row[0], 'second': row[1]}, known_label(row[2], labels, where) if columns == 3 else None)
    for row, where in table
  ]
  if not needs_labels or columns == 3:
    return examples
  if split != 'test':
    raise labels_missing(examples[0].where, 'it takes three columns: sentence, sentence, label')
  gold = labels_lines(gold_file, path)
  if len(gold) != len(examples):
    raise UsageError(
      f'{len(gold)} gold labels for {len(examples)} pairs',
      where=f'{gold[-1].where} and {examples[-1].where}, where they end',
      fix=f'one line in {gold_file} for each pair in {path}',
    )
  return [
    example._replace(label=known_label(line.text, labels, line.where))
    for example, line in zip(examples, gold, strict=True)
  ]


def _rows_of_pairs(path: epath.Path) -> Iterator[tuple[list[str], str]]:
  """Rows of a file, and where each begins."""
  lines = text_lines(path, allows_carriage_returns=True)
  # csv counts the lines that it has taken: a quoted field may go over several. CRLF within one becomes LF.
  reader = csv.reader((f'{line.text}\n' for line in lines), delimiter='\t', strict=True)
  taken = 0
  try:
    for row in reader:
      yield row, lines[taken].where
      taken = reader.line_num
  except csv.Error as error:
    raise UsageError(
      f'not as a csv writer writes it: {error}',
      where=lines[taken].where,
      fix='a field that begins with a quote stands in quotes, and quotes in it are doubled: "He said ""no""."',
    ) from None


# --- words with tags --------------------------------------------------------------------------------------------------


def read_sentences(
  path: epath.Path, split: str, gold_file: epath.Path, labels: Sequence[str], needs_labels: bool
) -> list[Example]:
  """Examples with `words`, and as many tags; None is unknown. `where` is the line of the first word.

  Arguments and errors are those of `read_pairs`.
  """
  blocks = _blocks(text_lines(path))
  table = [(line.text.split('\t'), line.where) for lines, _ in blocks for line in lines]
  if not table:
    raise UsageError('a file without words', where=f'{path}:1', fix='fetch it again')
  has_tags = same_columns(table, (1, 2), 'word, in train and dev TAB tag') == 2
  known = lambda text, where: known_label(text, labels, where)
  words = lambda lines: tuple(line.text.partition('\t')[0] for line in lines)
  tags = lambda lines: tuple(known(line.text.partition('\t')[2], line.where) for line in lines)
  sentences = [Example(where, {'words': words(lines)}, tags(lines) if has_tags else None) for lines, where in blocks]
  if not needs_labels or has_tags:
    return sentences
  if split != 'test':
    raise labels_missing(table[0][1], 'it takes two columns: word, tag')
  gold = _blocks(labels_lines(gold_file, path))
  for (lines, where), sentence in zip(gold, sentences, strict=False):
    count = len(sentence.features['words'])
    if len(lines) != count:
      raise UsageError(
        f'a sentence of {count} words with {len(lines)} gold tags',
        where=f'{where}, for {sentence.where}',
        fix=f'a tag in {gold_file} for each word in {path}, blank lines at the same places',
      )
  if len(gold) != len(sentences):
    raise UsageError(
      f'gold tags of {len(gold)} sentences for {len(sentences)}',
      where=f'{gold[-1][1]} and {sentences[-1].where}, where the last ones begin',
      fix=f'blank lines in {gold_file} at the same places as in {path}',
    )
  return [
    sentence._replace(label=tuple(known(*line) for line in lines))
    for sentence, (lines, _) in zip(sentences, gold, strict=True)
  ]


def _blocks(lines: Sequence[Line]) -> list[tuple[list[Line], str]]:
  """Lines up to a blank one, and where they begin."""
  blocks, block = [], []
  for line in lines:
    if line.text.strip(' \t'):
      block.append(line)
    else:
      blocks.append((block, (block or [line])[0].where))
      block = []
  return blocks + ([(block, block[0].where)] if block else [])


# --- questions --------------------------------------------------------------------------------------------------------


def read_questions(path: epath.Path, *, needs_answers: bool, unique_ids: bool) -> list[Example]:
  """Questions of a file of SQuAD v1.1, which has some; else as `parse_questions`."""
  _, questions = parse_questions(read_file(path), str(path), needs_answers=needs_answers, unique_ids=unique_ids)
  if not questions:
    raise UsageError('a file without questions', where=str(path), fix=FETCH)
  return questions


def read_task_questions(
  path: epath.Path, split: str, gold_file: epath.Path, labels: Sequence[str], needs_labels: bool
) -> list[Example]:
  """Questions with the answers that are needed; those of a test file are matched by id to the gold ones.

  If there is no gold file, the answers may be in the test file itself, as before XTREME's preprocessing. In a training
  file ids may repeat: XTREME's of TyDiQA gives many questions the same.

  Arguments and errors are those of `read_pairs`, and those of `parse_questions`; UsageError also for a question in one
  file that is not in the other, or without any gold answers.
  """
  if split != 'test' or not needs_labels:
    return read_questions(path, needs_answers=needs_labels, unique_ids=split != 'train')
  if not gold_file.is_file():
    if all(is_blank(answers) for _, answers in entries(read_json(path), str(path))):
      raise MissingLabelsError(
        'the gold answers of a test file are missing',
        where=f'{path}: its answers are blank',
        fix=f'put them into {gold_file}, in the form of SQuAD',
      )
    return read_questions(path, needs_answers=True, unique_ids=True)
  by_id = lambda file, needs_answers: {
    question.features['id']: question for question in read_questions(file, needs_answers=needs_answers, unique_ids=True)
  }
  asked, gold = by_id(path, False), by_id(gold_file, True)
  for name, question in (*asked.items(), *gold.items()):
    if name not in gold:
      what, fix = f'no gold answer for the question {name!r}', f'add it: {gold_file}'
      raise UsageError(what, where=question.where, fix=fix)
    if name not in asked:
      what, fix = f'a gold answer for {name!r}, which is not a question of the file', f'labels that fit {path}'
      raise UsageError(what, where=question.where, fix=fix)
  return [answered(question, gold[name].label) for name, question in asked.items()]
