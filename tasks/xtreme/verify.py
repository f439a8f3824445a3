"""Which of XTREME's files are there, and whether they hold as many examples and gold labels as they should."""

import dataclasses
import json
import pathlib

from rembert.errors import UsageError
from tasks.xtreme import retrieval
from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.config import FILES, LANGUAGES
from tasks.xtreme.files import MissingFileError, XtremeFolder

# How many examples files of XTREME have, as far as it is known for certain, by task, split and language.
#
# From the paper's Table 11 (XTREME's Table 2) and from the splits' own publications: XNLI, PAWS-X, WikiANN by Rahimi et
# al. 2019, SQuAD v1.1, XQuAD, MLQA, TyDi QA GoldP v1.1, Tatoeba v1 of LASER, BUCC 2018 (pairs). Of Universal
# Dependencies, the languages whose treebanks all publications count in the same way.
#
# Table 11 itself is not always what the files are: its 34,726 for SQuAD's dev set are answers, of 10,570 questions; its
# 634 and 323–2,719 for TyDi QA fit no file of GoldP v1.1; PAN-X has 100 test sentences in jv, my and yo, not 1,000; and
# BUCC's 1,896–14,330 pairs are some fewer than the 1,899–14,435 of the published training sets.
COUNTS: dict[str, dict[str, dict[str, int]]] = json.loads(
  pathlib.Path(__file__).with_name('counts.json').read_text('utf-8')
)

FAULTS = {
  'missing': 'missing',
  'count': 'not as many examples as XTREME has',
  'unlabelled': 'no gold labels',
  'broken': 'cannot be read',
}


@dataclasses.dataclass(frozen=True)
class File:
  """One file of the data, and how many examples and, of a test file, gold labels it has; None if there are none.

  What is wrong with it, if anything, is one of `FAULTS`, and a detail in few words.
  """

  split: str
  language: str
  count: int | None = None
  labels: int | None = None
  fault: str = ''
  detail: str = ''


@dataclasses.dataclass(frozen=True)
class Inventory:
  """The files of a task that XTREME's protocol requires: English for training and selection, and all test languages.

  `dev` and `train` of other languages are counted if they are there, and are not required.
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
  """Reads the files of a task as a run reads them, and counts the examples."""
  files = []
  for split in FILES[task]:
    for language in LANGUAGES[task]:
      is_required = split == 'test' or language == 'en' or task == 'bucc2018'
      file = _count(folder, task, split, language, is_required)
      if is_required or file.count is not None:
        files.append(file)
  return Inventory(task, tuple(files))


def _count(folder: XtremeFolder, task: str, split: str, language: str, is_required: bool) -> File:
  reader = TASKS.get(task) or retrieval.TASKS[task]
  try:
    count, labels = reader.count(folder, split, language)
  except MissingFileError:
    return File(split, language, fault='missing' if is_required else '')
  except UsageError as error:
    return File(split, language, fault='broken', detail=f'({error.where}: {error.what})')
  # BUCC's sentences are many more than the pairs among them, which are what XTREME counts.
  counted = labels if (task, split) == ('bucc2018', 'test') else count
  expected = COUNTS[task].get(split, {}).get(language)
  if None not in (expected, counted) and counted != expected:
    return File(split, language, count, labels, 'count', f'({counted:,}, not {expected:,})')
  return File(split, language, count, labels, 'unlabelled' if split == 'test' and labels is None else '')
