"""What is there of XTREME's data: files by task, split and language, how many examples, labels, and what is missing."""

import csv
import dataclasses
import functools
import io
import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from rembert.errors import UsageError
from rembert.files import parsed_json
from rembert.tracking.console import Console
from tasks.xtreme import bucc2018, tatoeba
from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.config import PAIRS
from tasks.xtreme.layout import XtremeFolder, read_json, read_lines

# Languages that XTREME evaluates each task in (`TASK2LANGS` of its evaluate.py).
LANGUAGES: dict[str, tuple[str, ...]] = {
  **{name: task.languages for name, task in TASKS.items()},
  'tatoeba': tatoeba.LANGUAGES,
  'bucc2018': bucc2018.LANGUAGES,
}
_TAGGING = ('panx', 'udpos')
# The file that examples are counted in, by task and split.
FILES: dict[str, Mapping[str, str]] = {
  **{name: task.files for name, task in TASKS.items()},
  'tatoeba': {'test': 'tatoeba/{language}-en.{language}'},
  'bucc2018': {'dev': 'bucc2018/{language}-en.dev.gold', 'test': 'bucc2018/{language}-en.test.{language}'},
}
_FURTHER = {  # files that a split needs beside the one that is counted
  ('tatoeba', 'test'): ('tatoeba/{language}-en.en',),
  ('bucc2018', 'dev'): ('bucc2018/{language}-en.dev.{language}', 'bucc2018/{language}-en.dev.en'),
  ('bucc2018', 'test'): ('bucc2018/{language}-en.test.en',),
}


@functools.cache
def expected_counts() -> dict[str, dict[str, dict[str, int]]]:
  """How many examples files of XTREME have, as far as it is known for certain, by task, split and language.

  From the paper's Table 11 (XTREME's Table 2) and from the splits' own publications: XNLI, PAWS-X, WikiANN by Rahimi et
  al. 2019, SQuAD v1.1, XQuAD, MLQA, TyDi QA GoldP v1.1, Tatoeba v1 of LASER, BUCC 2018 (pairs). Of Universal
  Dependencies, the languages whose treebanks nobody counts differently.

  Table 11 itself is not always what the files are: its 34,726 for SQuAD's dev set are answers, of 10,570 questions; its
  634 and 323–2,719 for TyDi QA fit no file of GoldP v1.1; PAN-X has 100 test sentences in jv, my and yo, not 1,000; and
  BUCC's 1,896–14,330 pairs are some fewer than the 1,899–14,435 of the published training sets.
  """
  return json.loads((pathlib.Path(__file__).parent / 'counts.json').read_text('utf-8'))


def expected_count(task: str, split: str, language: str) -> int | None:
  """Examples of a file; None where it is not known for certain."""
  return expected_counts()[task].get(split, {}).get(language)


@dataclasses.dataclass(frozen=True)
class File:
  """One file of the data.

  Attributes:
    split: `train`, `dev` or `test`.
    language: of the file.
    count: of its examples; None where it is not there.
    expected: how many XTREME has; None where that is not known for certain.
    labels: of a test file, how many gold labels there are; None where there are none, or elsewhere.
    fault: what is wrong with it, one of `FAULTS`; '' if nothing is.
    detail: of the fault, in few words.
  """

  split: str
  language: str
  count: int | None
  expected: int | None
  labels: int | None
  fault: str = ''
  detail: str = ''


FAULTS = {
  'missing': 'missing',
  'count': 'not as many examples as XTREME has',
  'unlabelled': 'no gold labels',
  'labels': 'not as many labels as examples',
  'broken': 'cannot be read',
}


@dataclasses.dataclass(frozen=True)
class Inventory:
  """The files of a task that XTREME's protocol needs: English to learn from and to choose by, and all test languages.

  `dev` and `train` of other languages are counted where they are there, and missed by nobody.
  """

  task: str
  files: tuple[File, ...]

  @property
  def is_complete(self) -> bool:
    """Whether everything is there, with labels, and as much as it should be."""
    return not any(file.fault for file in self.files)

  @property
  def problems(self) -> tuple[str, ...]:
    """What is wrong, a line for each fault of each split."""
    found = []
    for split in ('train', 'dev', 'test'):
      for fault, words in FAULTS.items():
        files = [file for file in self.files if (file.split, file.fault) == (split, fault)]
        if files:
          languages = ', '.join(f'{file.language} {file.detail}'.strip() for file in files)
          found.append(f'{split}: {words}: {languages}')
    return tuple(found)


def take_inventory(folder: XtremeFolder, task: str) -> Inventory:
  """Looks at the files of a task, and counts what is in them."""
  files = []
  for split in FILES[task]:
    for language in LANGUAGES[task]:
      is_needed = split == 'test' or (language == 'en' or task == 'bucc2018')
      file = _look_at(folder, task, split, language, is_needed)
      if is_needed or file.count is not None:
        files.append(file)
  return Inventory(task, tuple(files))


def _look_at(folder: XtremeFolder, task: str, split: str, language: str, is_needed: bool) -> File:
  names = [name.format(language=language) for name in (FILES[task][split], *_FURTHER.get((task, split), ()))]
  expected = expected_count(task, split, language)
  if not all(folder.has(name) for name in names):
    return File(split, language, None, expected, None, 'missing' if is_needed else '')
  labels_file = folder.labels_file(task, language, 'json' if names[0].endswith('.json') else 'tsv')
  try:
    count = count_examples(task, folder.file(names[0]))
    has_labels = split == 'test' and labels_file.is_file()
    labels = count_examples(task, labels_file, is_labels=True) if has_labels else None
  except UsageError as error:
    return File(split, language, None, expected, None, 'broken', f'({error.where}: {error.what})')
  found = functools.partial(File, split, language, count, expected, labels)
  in_pairs = task == 'bucc2018'  # sentences are many more than the pairs among them, which are what is counted
  counted = labels if in_pairs and split == 'test' else count
  if expected is not None and counted is not None and counted != expected:
    return found('count', f'({counted:,}, not {expected:,})')
  if split == 'test' and labels is None:
    return found('unlabelled')
  if split == 'test' and labels != count and not in_pairs:
    return found('labels', f'({labels:,} for {count:,})')
  return found()


def count_examples(task: str, path: epath.Path, *, is_labels: bool = False) -> int:
  """Examples in a file, or labels in a file of labels; UsageError if it cannot be read."""
  if path.suffix == '.json':
    return _count_questions(read_json(path), str(path))
  text = '\n'.join(line.text for line in read_lines(path))
  return count_text(task, str(path), text, is_labels=is_labels)


def count_text(task: str, path: str, text: str, *, is_labels: bool = False) -> int:
  """Examples in what is, or will be, the content of a file: questions, sentences, pairs, or lines.

  It counts what the task's own reader would read, in a fifth of the time: reading builds every example.
  """
  if path.endswith('.json'):
    return _count_questions(parsed_json(text, path), path)
  if task in _TAGGING:  # blocks of lines between empty ones
    return sum(has_words for has_words, _ in itertools.groupby(text.split('\n'), lambda line: bool(line.strip())))
  if task in PAIRS and not is_labels:  # quoted sentences may hold line ends
    csv.field_size_limit(1 << 24)
    return sum(bool(row) for row in csv.reader(io.StringIO(text, newline=''), delimiter='\t'))
  return len(text.removesuffix('\n').split('\n')) if text else 0


def _count_questions(content: Any, where: str) -> int:
  try:
    return sum(len(paragraph['qas']) for article in content['data'] for paragraph in article['paragraphs'])
  except (KeyError, TypeError) as error:
    raise UsageError(
      f'not a file of SQuAD’s form: {type(error).__name__} {error}', where=where, fix='fetch the file again'
    ) from None


# --- shown ------------------------------------------------------------------------------------------------------------


def show(console: Console, folder: XtremeFolder, inventories: Sequence[Inventory]) -> None:
  """A table with a row for each task, and below it what is wrong."""
  rows = [
    (
      inventory.task,
      *(_split_in_words(inventory, split) for split in ('train', 'dev', 'test')),
      'complete' if inventory.is_complete else 'incomplete',
    )
    for inventory in inventories
  ]
  console.table(f'XTREME in {folder.root}', ('task', 'train', 'dev', 'test (labels)', ''), rows)
  for inventory in inventories:
    for problem in inventory.problems:
      console.say(f'{inventory.task} {problem}')


def _split_in_words(inventory: Inventory, split: str) -> str:
  if split not in FILES[inventory.task]:
    return ''
  there = [file for file in inventory.files if file.split == split]
  counts = [file.count for file in there if file.count is not None]
  if not counts:
    return '–'
  span = f'{min(counts):,}' if min(counts) == max(counts) else f'{min(counts):,}–{max(counts):,}'
  languages = f'{len(counts)} of {len(LANGUAGES[inventory.task])}: ' if len(LANGUAGES[inventory.task]) > 1 else ''
  labelled = sum(file.labels is not None for file in there)
  return f'{languages}{span}' + (f' ({labelled})' if split == 'test' else '')
