"""XTREME's data: fetched from where it has a public home, laid out as XTREME's own scripts lay it out, and counted.

python -m tasks.xtreme.download --data_dir=DIR

`sources.json` says where the data of each task has a public home, with the sizes and SHA-256 that TensorFlow Datasets
and Hugging Face's `xtreme` and `xnli` have recorded for the same files. (PAN-X is at another address than XTREME's own,
a shared folder of Amazon Drive, which went with Amazon Drive; its splits are the same.)
"""

import argparse
import collections
import dataclasses
import errno
import http.client
import itertools
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence

from rembert.command_line import command_parser, run_command
from rembert.errors import RunError, UsageError, first_line
from rembert.files import is_remote, sha256_of, write_errors, write_whole
from rembert.tracking.console import Console, human_bytes
from tasks.tables import SPLITS
from tasks.xtreme import FILES, LANGUAGES, TASKS, retrieval
from tasks.xtreme.benchmark import TASKS as FINE_TUNED
from tasks.xtreme.convert import CONVERSIONS
from tasks.xtreme.files import MissingFileError, XtremeFolder

_DIRECTORY = pathlib.Path(__file__).parent
EPILOG = """\
examples
  all tasks (downloads 1.4 GB):
    python -m tasks.xtreme.download --data_dir=xtreme
  two tasks:
    python -m tasks.xtreme.download --data_dir=xtreme --tasks=xnli,tatoeba
  list existing data by task, split and language; the exit code is 1 if something is missing:
    python -m tasks.xtreme.download --data_dir=xtreme --check

Files are downloaded to DIR/downloads, where they can also be saved by hand, and may be deleted once all is done. Each
is compared with the SHA-256 of tasks/xtreme/sources.json; what is complete is not downloaded again.
Test files have no labels in XTREME's layout; gold labels are written to DIR/labels, where evaluations look for them.
Tasks that are complete are skipped.

Licences are the datasets' own: XNLI CC BY-NC 4.0, PAWS-X free use, PAN-X (WikiANN) of Wikipedia, Universal
Dependencies by treebank, SQuAD, XQuAD and MLQA CC BY-SA, TyDi QA Apache 2.0, Tatoeba CC BY 2.0 FR, BUCC for research.
"""


def main(argv: Sequence[str] | None = None) -> int:
  """The command line; errors that a user can fix are printed without a traceback."""
  description = 'Download the data of XTREME, and lay it out as XTREME does.'
  flags = command_parser('tasks.xtreme.download', description, EPILOG)
  flags.add_argument('--data_dir', required=True, metavar='DIR', help='root of the data, a local directory')
  flags.add_argument(
    '--tasks', default=','.join(TASKS), metavar='A,B', help=f'some of {" ".join(TASKS)} (default: all)'
  )
  flags.add_argument('--check', action='store_true', help='download nothing; list existing data')
  flags.add_argument('--traceback', action='store_true', help='show where in the code an error arose')
  options = flags.parse_args(argv)
  return run_command('tasks.xtreme.download', lambda: run(options, Console()), show_traceback=options.traceback)


def run(options: argparse.Namespace, console: Console) -> int:
  """Runs the command, and returns the exit code: 0 if all the tasks asked for are complete, 1 if not."""
  tasks = list(dict.fromkeys(name.strip() for name in options.tasks.split(',') if name.strip()))
  if unknown := [name for name in tasks if name not in TASKS]:
    raise UsageError(f'unknown task {unknown[0]!r}', where='--tasks', fix=f'one of {", ".join(TASKS)}')
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
  inventories: dict[str, list[File]] = {}
  failed = []
  for task in tasks:
    inventories[task] = take_inventory(folder, task)
    if options.check:
      continue
    if is_complete(inventories[task]):
      console.say(f'{task}: complete already')
      continue
    try:
      _fetch_and_convert(task, root, console)
    except UsageError as error:  # the other tasks do not depend on it
      cause = error.__cause__
      if options.traceback or (isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)):
        raise
      failed.append(error)
      console.say(f'{task}: {error}')
    inventories[task] = take_inventory(folder, task)
  _show(console, folder, inventories)
  if failed:
    return max(error.exit_code for error in failed)
  return 0 if all(map(is_complete, inventories.values())) else 1


def _fetch_and_convert(task: str, root: pathlib.Path, console: Console) -> None:
  sources, fetched = SOURCES[task], {}
  with console.task(f'{task}: {len(sources)} files') as progress:
    for number, source in enumerate(sources):
      within = lambda fraction, number=number, name=source.name: progress((number + fraction) / len(sources), name)
      fetched[source.name] = fetch(source, root / 'downloads', within)
  console.say(f'{task}: {human_bytes(sum(source.size for source in sources))} downloaded, verified')
  files = dict(CONVERSIONS[task](fetched))
  with write_errors(f'the files of {task}', root):
    for path, content in files.items():
      write_whole(root / path, content)
  console.say(f'{task}: {len(files)} files written')


# --- what is there ----------------------------------------------------------------------------------------------------

# How many examples files of XTREME have, as far as it is known for certain, by task, split and language.
#
# From the paper's Table 11 (XTREME's Table 2) and from the splits' own publications: XNLI, PAWS-X, WikiANN by Rahimi et
# al. 2019, SQuAD v1.1, XQuAD, MLQA, TyDi QA GoldP v1.1, Tatoeba v1 of LASER, BUCC 2018 (pairs). Of Universal
# Dependencies, the languages whose treebanks all publications count in the same way.
#
# Table 11 itself is not always what the files are: its 34,726 for SQuAD's dev set are answers, of 10,570 questions; its
# 634 and 323–2,719 for TyDi QA fit no file of GoldP v1.1; PAN-X has 100 test sentences in jv, my and yo, not 1,000; and
# BUCC's 1,896–14,330 pairs are some fewer than the 1,899–14,435 of the published training sets.
COUNTS: dict[str, dict[str, dict[str, int]]] = json.loads((_DIRECTORY / 'counts.json').read_text('utf-8'))


@dataclasses.dataclass(frozen=True)
class File:
  """One file of the data, and how many examples and, of a test file, gold labels it has; None if there are none.

  `fault` is what is wrong with it, '' for nothing, and `detail` more of it in few words.
  """

  split: str
  language: str
  count: int | None = None
  labels: int | None = None
  fault: str = ''
  detail: str = ''


def take_inventory(folder: XtremeFolder, task: str) -> list[File]:
  """The files of a task, read as a run reads them, with their numbers of examples.

  XTREME's protocol requires English for training and selection, and all test languages. `dev` and `train` of other
  languages are counted if they are there.
  """
  files = []
  for split, language in itertools.product(FILES[task], LANGUAGES[task]):
    try:
      files.append(_count(folder, task, split, language))
    except MissingFileError:
      if split == 'test' or language == 'en' or task == 'bucc2018':
        files.append(File(split, language, fault='missing'))
    except UsageError as error:
      files.append(File(split, language, fault='cannot be read', detail=f'({error.where}: {error.what})'))
  return files


def _count(folder: XtremeFolder, task: str, split: str, language: str) -> File:
  reader = FINE_TUNED.get(task) or retrieval.TASKS[task]
  count, labels = reader.count(folder, split, language)
  # BUCC's sentences are many more than the pairs among them, which are what XTREME counts.
  counted = labels if (task, split) == ('bucc2018', 'test') else count
  expected, fault, detail = COUNTS[task].get(split, {}).get(language), '', ''
  if None not in (expected, counted) and counted != expected:
    fault, detail = 'not as many examples as XTREME has', f'({counted:,}, not {expected:,})'
  elif split == 'test' and labels is None:
    fault = 'no gold labels'
  return File(split, language, count, labels, fault, detail)


def is_complete(files: Sequence[File]) -> bool:
  """Whether everything is there, with labels, and as much as it should be."""
  return not any(file.fault for file in files)


def _show(console: Console, folder: XtremeFolder, inventories: Mapping[str, Sequence[File]]) -> None:
  """A table with a row for each task, and below it what is wrong, a line for each fault of each split."""
  rows = [
    (task, *(_format_split(task, split, files) for split in SPLITS), 'complete' if is_complete(files) else 'incomplete')
    for task, files in inventories.items()
  ]
  console.table(f'XTREME in {folder.root}', ('task', 'train', 'dev', 'test (labels)', ''), rows)
  wrong = collections.defaultdict(list)
  for task, files in inventories.items():
    for file in files:
      if file.fault:
        wrong[f'{task} {file.split}: {file.fault}'].append(f'{file.language} {file.detail}'.strip())
  for fault, languages in wrong.items():
    console.say(f'{fault}: {", ".join(languages)}')


def _format_split(task: str, split: str, files: Sequence[File]) -> str:
  if split not in FILES[task]:
    return ''
  found = [file for file in files if file.split == split and file.count is not None]
  if not found:
    return '–'
  counts = sorted(file.count or 0 for file in found)
  span = f'{counts[0]:,}' if counts[0] == counts[-1] else f'{counts[0]:,}–{counts[-1]:,}'
  languages = f'{len(counts)} of {len(LANGUAGES[task])}: ' if len(LANGUAGES[task]) > 1 else ''
  labelled = sum(file.labels is not None for file in found)
  return f'{languages}{span}' + (f' ({labelled})' if split == 'test' else '')


# --- downloads --------------------------------------------------------------------------------------------------------

_CHUNK = 1 << 20
_GONE = (401, 403, 404, 410)
_PAUSES = (0.0, 2.0, 4.0, 8.0)  # seconds before each attempt
_TIMEOUT = 60.0  # seconds that a server may be silent


@dataclasses.dataclass(frozen=True)
class Source:
  """A file to be downloaded from the first of the `urls` that has it, or, as `by_hand` says, by a person."""

  name: str
  urls: tuple[str, ...]
  size: int  # bytes
  sha256: str
  by_hand: str = ''


SOURCES = {
  task: tuple(
    Source(
      name,
      tuple(f'{address}/{name}' for address in home['addresses']),
      file['bytes'],
      file['sha256'],
      home.get('by_hand', ''),
    )
    for name, file in home['files'].items()
  )
  for task, home in json.loads((_DIRECTORY / 'sources.json').read_text('utf-8')).items()
}


class _OtherFileError(OSError):
  """The address has another file than the one that is expected."""


def fetch(
  source: Source, folder: pathlib.Path, on_progress: Callable[[float], None] = lambda fraction: None
) -> pathlib.Path:
  """The file in `folder`, downloaded if it is not there, with the SHA-256 that it should have.

  Raises:
    UsageError: no address has it, or another file has its name.
    RunError: the connection breaks again and again, or the disk is full.
  """
  path = folder / source.name
  if path.is_file():
    if (sha256 := sha256_of(path)) != source.sha256:
      raise UsageError(
        f'{source.name} is not the file that was expected: {path.stat().st_size:,} bytes, SHA-256 {sha256[:12]}…',
        where=str(path),
        fix='delete it, and run the command again',
      )
    return path
  with write_errors('the folder of downloads', folder):
    folder.mkdir(parents=True, exist_ok=True)
  partial, errors = path.with_name(f'{path.name}.partial'), {}
  for url, pause in itertools.product(source.urls, _PAUSES):
    if url in errors and _is_final(errors[url]):
      continue
    time.sleep(pause)
    try:
      _download(url, source, partial, on_progress)
      return partial.replace(path)
    except (OSError, http.client.HTTPException) as error:
      partial.unlink(missing_ok=True)
      errors[url] = error
  by_hand = source.by_hand.format(path=path) if source.by_hand else f'save it by hand as {path}, and run this again'
  where = '; '.join(f'{url}: {first_line(error)}' for url, error in errors.items())
  if all(map(_is_final, errors.values())):
    raise UsageError(f'{source.name} cannot be fetched', where=where, fix=by_hand)
  fix = ['run the same command again: files that are complete are not downloaded again', by_hand]
  raise RunError(f'the download of {source.name} is interrupted', where=where, fix=fix)


def _is_final(error: BaseException) -> bool:
  """Whether there is no such file or server, so that another attempt would also fail."""
  if isinstance(error, urllib.error.HTTPError):
    return error.code in _GONE
  return isinstance(error, _OtherFileError | urllib.error.URLError)


def _download(url: str, source: Source, partial: pathlib.Path, on_progress: Callable[[float], None]) -> None:
  """Writes what the address has, if that is the file that is expected."""
  request, done = urllib.request.Request(url, headers={'User-Agent': 'rembert'}), 0
  with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
    with write_errors(source.name, partial):
      partial.touch()
    with open(partial, 'wb', buffering=0) as file:
      while done <= source.size and (chunk := response.read(_CHUNK)):  # more could fill the disk
        with write_errors(source.name, partial):
          file.write(chunk)
        done += len(chunk)
        on_progress(min(1.0, done / source.size))
  if done < source.size:
    raise ConnectionError(f'{done:,} of {source.size:,} bytes received')
  if done > source.size or sha256_of(partial) != source.sha256:
    raise _OtherFileError('another file than the one expected')


if __name__ == '__main__':
  sys.exit(main())
