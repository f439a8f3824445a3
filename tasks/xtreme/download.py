"""XTREME's data: fetched from where it has a public home, laid out as XTREME's own scripts lay it out, and counted.

python -m tasks.xtreme.download --data_dir=DIR
"""

import argparse
import csv
import dataclasses
import errno
import functools
import io
import itertools
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from rembert.command_line import command_parser, run_command
from rembert.errors import UsageError
from rembert.files import is_remote, parsed_json, write_errors, write_whole
from rembert.tracking.console import Console, human_bytes
from tasks.xtreme.archives import SOURCES, Downloads
from tasks.xtreme.benchmark import FILES, LANGUAGES
from tasks.xtreme.config import PAIRS, TASKS
from tasks.xtreme.convert import CONVERSIONS, squad_form
from tasks.xtreme.files import XtremeFolder, read_json, read_lines

EPILOG = """\
examples
  everything, 1.4 GB to fetch:
    python -m tasks.xtreme.download --data_dir=xtreme
  two tasks:
    python -m tasks.xtreme.download --data_dir=xtreme --tasks=xnli,tatoeba
  what is there, by task, split and language; the exit code is 1 where something is missing:
    python -m tasks.xtreme.download --data_dir=xtreme --check

Files are fetched to DIR/downloads, where they can be put by hand as well, and may be deleted once all is done; a
download that broke off goes on. DIR/checksums.json says of each what it is, and whether that could be verified.
Test files have no labels in XTREME's layout; gold labels go to DIR/labels, where evaluations look for them.
Tasks that are complete are left alone.

Licences are the datasets' own: XNLI CC BY-NC 4.0, PAWS-X free use, PAN-X (WikiANN) of Wikipedia, Universal
Dependencies by treebank, SQuAD, XQuAD and MLQA CC BY-SA, TyDi QA Apache 2.0, Tatoeba CC BY 2.0 FR, BUCC for research.
"""


def main(argv: Sequence[str] | None = None) -> int:
  """The command line; errors that a user can put right are told without a traceback."""
  options, codes = _parser().parse_args(argv), []
  command = lambda: codes.append(run(options, Console()))
  return run_command('tasks.xtreme.download', command, show_traceback=options.traceback) or codes[0]


def _parser() -> argparse.ArgumentParser:
  description = 'Fetch the data of XTREME, and lay it out as XTREME does.'
  flags = command_parser('tasks.xtreme.download', description, EPILOG)
  flags.add_argument('--data_dir', required=True, metavar='DIR', help='root of the data, a local folder')
  flags.add_argument(
    '--tasks', default=','.join(TASKS), metavar='A,B', help=f'some of {" ".join(TASKS)} (default: all)'
  )
  flags.add_argument('--check', action='store_true', help='fetch nothing; say what is there')
  flags.add_argument('--traceback', action='store_true', help='show where in the code an error arose')
  return flags


def run(options: argparse.Namespace, console: Console, downloads: Downloads | None = None) -> int:
  """Does what the flags say, and returns the exit code: 0 if all the tasks asked for are complete, 1 if not."""
  tasks = list(dict.fromkeys(name.strip() for name in options.tasks.split(',') if name.strip()))
  for name in tasks:
    if name not in TASKS:
      raise UsageError(f'unknown task {name!r}', where='--tasks', fix=f'one of {", ".join(TASKS)}')
  if is_remote(options.data_dir):
    raise UsageError(
      'archives are fetched and unpacked on a local disk',
      where=f'--data_dir={options.data_dir}',
      fix='name a local folder, and copy it to the bucket afterwards: gcloud storage cp -r',
    )
  root = pathlib.Path(options.data_dir)
  if not options.check:
    with write_errors('the folder of the data', root):
      root.mkdir(parents=True, exist_ok=True)
  folder = XtremeFolder(root)
  failed = []
  for task in () if options.check else tasks:
    if take_inventory(folder, task).is_complete:
      console.say(f'{task}: complete already')
      continue
    try:
      _from_web(task, downloads or Downloads(root), root, console)
    except UsageError as error:  # the other tasks do not depend on it
      cause = error.__cause__
      if options.traceback or (isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)):
        raise
      failed.append(error)
      console.say(f'{task}: {error}')
  inventories = [take_inventory(folder, task) for task in tasks]
  show(console, folder, inventories)
  if failed:
    return max(error.exit_code for error in failed)
  return 0 if all(each.is_complete for each in inventories) else 1


def _from_web(task: str, downloads: Downloads, root: pathlib.Path, console: Console) -> None:
  if task not in SOURCES:
    raise UsageError(
      f'nobody has said where the files of {task} come from',
      where='tasks/xtreme/sources.json',
      fix=f'put them into {root / task} by hand; --check says which are missing',
    )
  sources, fetched = SOURCES[task], {}
  with console.task(f'{task}: {len(sources)} files') as progress:
    for number, source in enumerate(sources):
      within = lambda fraction, note, number=number: progress((number + fraction) / len(sources), note)
      fetched[source.name] = downloads.fetch(source, within)
  unverified = [source.name for source in sources if not source.sha256]
  size = human_bytes(sum(file.stat().st_size for file in fetched.values()))
  console.say(f'{task}: {size} fetched' + (f'; unverified: {", ".join(unverified)}' if unverified else ', verified'))
  files = list(CONVERSIONS[task](fetched))
  _check_counts(task, dict(files))
  with write_errors(f'the files of {task}', root):
    for file in files:
      write_whole(root / file.path, file.content)
  console.say(f'{task}: {len(files)} files written')


def _check_counts(task: str, made: Mapping[str, str]) -> None:
  """Raises UsageError if a file that was made, by its path, has more or fewer examples than XTREME's."""
  for split, (pattern, *_) in FILES[task].items():
    is_counted_in_labels = task == 'bucc2018' and split == 'test'
    for language in LANGUAGES[task]:
      path = f'labels/bucc2018/test-{language}.tsv' if is_counted_in_labels else pattern.format(language=language)
      expected = expected_count(task, split, language)
      if expected is not None and path in made and (count := count_text(task, path, made[path])) != expected:
        raise UsageError(
          f'{path} would have {count:,} examples, and XTREME has {expected:,}',
          where=', '.join(source.name for source in SOURCES[task]),
          fix='is this the release that XTREME uses? Nothing has been written',
        )


# --- what is there ----------------------------------------------------------------------------------------------------


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
  return json.loads(pathlib.Path(__file__).with_name('counts.json').read_text('utf-8'))


def expected_count(task: str, split: str, language: str) -> int | None:
  """Examples of a file; None where it is not known for certain."""
  return expected_counts()[task].get(split, {}).get(language)


@dataclasses.dataclass(frozen=True)
class File:
  """One file of the data, and how many examples and, of a test file, gold labels it has; None where there are none.

  What is wrong with it, if anything, is one of `FAULTS`, and a detail in few words.
  """

  split: str
  language: str
  count: int | None = None
  labels: int | None = None
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
  names = [name.format(language=language) for name in FILES[task][split]]
  if not all(map(folder.has, names)):
    return File(split, language, fault='missing' if is_needed else '')
  labels_file = folder.labels_file(task, language, 'json' if names[0].endswith('.json') else 'tsv')
  try:
    count = count_examples(task, folder.file(names[0]))
    has_labels = split == 'test' and labels_file.is_file()
    labels = count_examples(task, labels_file, is_labels=True) if has_labels else None
  except UsageError as error:
    return File(split, language, fault='broken', detail=f'({error.where}: {error.what})')
  found = functools.partial(File, split, language, count, labels)
  in_pairs = task == 'bucc2018'  # sentences are many more than the pairs among them, which are what is counted
  counted = labels if in_pairs and split == 'test' else count
  expected = expected_count(task, split, language)
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
  return count_text(task, str(path), '\n'.join(line.text for line in read_lines(path)), is_labels=is_labels)


def count_text(task: str, path: str, text: str, *, is_labels: bool = False) -> int:
  """Examples in what is, or will be, the content of a file: questions, sentences, pairs, or lines.

  It counts what the task's own reader would read, in a fifth of the time: reading builds every example.
  """
  if path.endswith('.json'):
    return _count_questions(parsed_json(text, path), path)
  if task in ('panx', 'udpos'):  # blocks of lines between empty ones
    return sum(has_words for has_words, _ in itertools.groupby(text.split('\n'), lambda line: bool(line.strip())))
  if task in PAIRS and not is_labels:  # quoted sentences may hold line ends
    csv.field_size_limit(1 << 24)
    return sum(bool(row) for row in csv.reader(io.StringIO(text, newline=''), delimiter='\t'))
  return len(text.removesuffix('\n').split('\n')) if text else 0


def _count_questions(content: Any, where: str) -> int:
  with squad_form(where):
    return sum(len(paragraph['qas']) for article in content['data'] for paragraph in article['paragraphs'])


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


if __name__ == '__main__':
  sys.exit(main())
