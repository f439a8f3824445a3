"""XTREME's files, in the layout that its own download script leaves: pairs of sentences, tagged words, questions.

Pairs are in `TASK/SPLIT-LANGUAGE.tsv`, written by Python's csv writer: sentence TAB sentence, in train and dev TAB
label; fields with a quote, a tab or a line break in them stand in quotes, quotes in them are doubled, lines end with
CRLF. XTREME itself reads them with quoting switched off, so that its models see the outer quotes and the doubled ones;
here the texts are read as they were before they were written.

Words are in `TASK/SPLIT-LANGUAGE.tsv`, too: in train and dev a word TAB its tag a line, in test the word alone. A blank
line ends a sentence, as in XTREME's `evaluate.py`: two in succession have a sentence of no words between them. A word
may be the empty string: XTREME's preprocessing of PAN-X leaves some, as lines that begin with the TAB.

Questions are in the JSON of SQuAD v1.1. XTREME's preprocessing (`utils_preprocess.py`) blanks the answers of XQuAD, of
MLQA's test files and of TyDiQA's dev files: one answer at 0 whose text is empty.

Gold labels of test files are in `labels/TASK/test-LANGUAGE.tsv`, one a line, gold answers in
`labels/TASK/test-LANGUAGE.json`, in the form of SQuAD. If a test file has labels itself, those count.
"""

import os
from collections.abc import Sequence

from etils import epath

from rembert.errors import UsageError
from tasks.tables.files import FETCH, Example, Line, answer_in, read_cells, read_questions, some_lines

VARIABLE = 'XTREME_DATA_DIR'
_DOWNLOAD = 'python -m tasks.xtreme.download --help'


class MissingFileError(UsageError):
  """A file of the data is not there: of one language among many that may be no misfortune."""


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
          f'--gin.xtreme.data_dir=FOLDER, as {_DOWNLOAD} makes it',
          f"export {VARIABLE}=FOLDER, or tasks.add_xtreme(data_dir='…')",
        ],
      )
    self.root = epath.Path(data_dir)
    if not self.root.is_dir():
      raise UsageError('no such directory', where=f'xtreme.data_dir = {data_dir}', fix=_DOWNLOAD)
    self.labels_root = epath.Path(labels_dir) if labels_dir else self.root / 'labels'

  def file(self, name: str) -> epath.Path:
    """A file of the data; MissingFileError if it is not there."""
    if not self.has(name):
      raise MissingFileError('a file of the data is missing', where=str(self.root / name), fix=_DOWNLOAD)
    return self.root / name

  def has(self, name: str) -> bool:
    """Whether a file of the data is there."""
    return (self.root / name).is_file()

  def labels_file(self, task: str, language: str, suffix: str) -> epath.Path:
    """Where the gold labels of a test file are looked for: `labels/TASK/test-LANGUAGE.SUFFIX`."""
    return self.labels_root / task / f'test-{language}.{suffix}'


# Each format has a function (path, labels of the task) that reads examples, whose labels are None if the file has none,
# and one (examples, file of gold labels, labels of the task) that reads their labels. Errors name the line.


def _known(label: str, labels: Sequence[str], where: str) -> str:
  """`label`, without space around it, if it is one of `labels`; else UsageError."""
  label = label.strip()
  if label not in labels:
    raise UsageError(f'unknown label {label!r}', where=where, fix=f'one of {", ".join(labels)}')
  return label


def _has_labels(rows: Sequence[tuple[str, Sequence[str]]], columns: int, meaning: str) -> bool:
  """Whether all rows, which come with `FILE:LINE`, have a column for labels behind the others; UsageError if some."""
  width = len(rows[0][1])
  for where, cells in rows:
    what = f'a line of {len(cells)} column{"" if len(cells) == 1 else "s"}'
    if len(cells) not in (columns, columns + 1):
      raise UsageError(what, where=where, fix=meaning)
    if len(cells) != width:
      raise UsageError(f'{what}, and of {width} before', where=where, fix=f'each line: {meaning}')
  return width > columns


# --- pairs of sentences -----------------------------------------------------------------------------------------------


def read_pairs(path: epath.Path, labels: Sequence[str]) -> list[Example]:
  """Examples with `first` and `second`, either of which may be empty, and a label."""
  rows = list(read_cells(path, '\t'))
  if not rows:
    raise UsageError('the file is empty', where=f'{path}:1', fix=FETCH)
  has_labels = _has_labels(rows, 2, 'sentence TAB sentence, in train and dev TAB label')
  return [
    Example(where, {'first': cells[0], 'second': cells[1]}, _known(cells[2], labels, where) if has_labels else None)
    for where, cells in rows
  ]


def label_pairs(examples: Sequence[Example], gold_file: epath.Path, labels: Sequence[str]) -> list[Example]:
  """Pairs with the labels of a file."""
  gold = some_lines(gold_file)
  if len(gold) != len(examples):
    where = f'{gold[-1].where} and {examples[-1].where}, where they end'
    raise UsageError(f'{len(gold)} gold labels for {len(examples)} pairs', where=where, fix='a label for each pair')
  return [
    example._replace(label=_known(line.text, labels, line.where)) for example, line in zip(examples, gold, strict=True)
  ]


# --- words with tags --------------------------------------------------------------------------------------------------


def read_sentences(path: epath.Path, labels: Sequence[str]) -> list[Example]:
  """Examples with `words`, and as many tags. `where` is the line of the first word."""
  sentences = read_blocks(path)
  rows = [(line.where, line.text.split('\t')) for lines, _ in sentences for line in lines]
  if not rows:
    raise UsageError('a file without words', where=f'{path}:1', fix=FETCH)
  has_tags = _has_labels(rows, 1, 'word, in train and dev TAB tag')
  words = lambda lines: tuple(line.text.partition('\t')[0] for line in lines)
  tags = lambda lines: tuple(_known(line.text.partition('\t')[2], labels, line.where) for line in lines)
  return [Example(where, {'words': words(lines)}, tags(lines) if has_tags else None) for lines, where in sentences]


def label_sentences(examples: Sequence[Example], gold_file: epath.Path, labels: Sequence[str]) -> list[Example]:
  """Sentences with the tags of a file, in which blank lines are at the same places."""
  gold, fix = read_blocks(gold_file), 'a tag for each word, and blank lines at the same places'
  for (lines, where), sentence in zip(gold, examples, strict=False):
    count = len(sentence.features['words'])
    if len(lines) != count:
      what = f'a sentence of {count} words with {len(lines)} gold tags'
      raise UsageError(what, where=f'{where}, for {sentence.where}', fix=fix)
  if len(gold) != len(examples):
    what = f'gold tags of {len(gold)} sentences for {len(examples)}'
    raise UsageError(what, where=f'{gold[-1][1]} and {examples[-1].where}, where the last ones begin', fix=fix)
  return [
    sentence._replace(label=tuple(_known(line.text, labels, line.where) for line in lines))
    for sentence, (lines, _) in zip(examples, gold, strict=True)
  ]


def read_blocks(path: epath.Path) -> list[tuple[list[Line], str]]:
  """Lines of each sentence, and where it begins; UsageError for a carriage return within a line."""
  blocks, block = [], []
  for line in some_lines(path):
    if '\r' in line.text:
      raise UsageError('a carriage return within a line', where=line.where, fix='end lines with \\n or \\r\\n')
    if line.text.strip(' \t'):
      block.append(line)
    else:
      blocks.append((block, (block or [line])[0].where))
      block = []
  return blocks + ([(block, block[0].where)] if block else [])


# --- questions --------------------------------------------------------------------------------------------------------


def label_questions(examples: Sequence[Example], gold_file: epath.Path, labels: Sequence[str]) -> list[Example]:
  """Questions with the answers of a file, which are matched by id.

  Only here may no id repeat: XTREME's training files of TyDiQA give many questions the same.
  """
  asked, gold = _by_id(examples), _by_id(read_questions(gold_file))
  for name, question in (*asked.items(), *gold.items()):
    if name not in gold or gold[name].label is None:
      what, fix = f'no gold answer for the question {name!r}', f'add it: {gold_file}'
      raise UsageError(what, where=question.where, fix=fix)
    if name not in asked:
      what = f'a gold answer for {name!r}, which is not a question of the file'
      raise UsageError(what, where=question.where, fix='labels that fit the questions')
  return [
    question._replace(
      label=[
        answer_in(question.features['context'], {'text': text, 'answer_start': start}, question.where)
        for text, start in gold[name].label
      ]
    )
    for name, question in asked.items()
  ]


def _by_id(questions: Sequence[Example]) -> dict[str, Example]:
  found: dict[str, Example] = {}
  for question in questions:
    first = found.setdefault(question.features['id'], question)
    if first is not question:
      what = f'two questions have the id {question.features["id"]!r}'
      raise UsageError(what, where=f'{question.where}, {first.where}', fix=FETCH)
  return found
