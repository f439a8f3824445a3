"""XTREME's data: fetched from where it has a public home, and laid out as XTREME's own scripts lay it out.

python -m tasks.xtreme.download --data_dir=DIR
"""

import argparse
import errno
import pathlib
import sys
from collections.abc import Iterable, Sequence

from rembert.command_line import run_command
from rembert.errors import UsageError
from rembert.files import is_remote, write_errors, write_whole
from rembert.tracking.console import Console, human_bytes
from tasks.xtreme import verify
from tasks.xtreme.config import TASKS
from tasks.xtreme.convert import CONVERSIONS, Converted
from tasks.xtreme.fetching import SOURCES, Downloads
from tasks.xtreme.layout import XtremeFolder

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
  options = _parser().parse_args(argv)
  found = {'exit_code': 0}

  def command() -> None:
    found['exit_code'] = run(options, Console())

  return run_command('tasks.xtreme.download', command, show_traceback=options.traceback) or found['exit_code']


def _parser() -> argparse.ArgumentParser:
  flags = argparse.ArgumentParser(
    prog='python -m tasks.xtreme.download',
    description='Fetch the data of XTREME, and lay it out as XTREME does.',
    epilog=EPILOG,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
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
  if not options.check:
    downloads = downloads or Downloads(root)
    for task in tasks:
      if verify.take_inventory(folder, task).is_complete:
        console.say(f'{task}: complete already')
        continue
      try:
        _from_web(task, downloads, root, console)
      except UsageError as error:  # the other tasks do not depend on it
        if options.traceback or _is_out_of_room(error):
          raise
        failed.append(error)
        console.say(f'{task}: {error}')
  inventories = [verify.take_inventory(folder, task) for task in tasks]
  verify.show(console, folder, inventories)
  if failed:
    return max(error.exit_code for error in failed)
  return 0 if all(each.is_complete for each in inventories) else 1


def _is_out_of_room(error: UsageError) -> bool:
  return isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT)


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
  unverified = [name for name, file in fetched.items() if not file.is_verified]
  size = human_bytes(sum(file.size for file in fetched.values()))
  console.say(f'{task}: {size} fetched' + (f'; unverified: {", ".join(unverified)}' if unverified else ', verified'))
  files = list(CONVERSIONS[task]({name: file.path for name, file in fetched.items()}))
  check_counts(task, files)
  _write(task, files, root, console)


def check_counts(task: str, files: Iterable[Converted]) -> None:
  """Raises UsageError if a file that was made has more or fewer examples than XTREME's."""
  made = {file.path: file.content for file in files}
  for split, pattern in verify.FILES[task].items():
    for language in verify.LANGUAGES[task]:
      expected, path = verify.expected_count(task, split, language), pattern.format(language=language)
      if task == 'bucc2018' and split == 'test':
        path = f'labels/bucc2018/test-{language}.tsv'
      if expected is None or path not in made:
        continue
      count = verify.count_text(task, path, made[path])
      if count != expected:
        raise UsageError(
          f'{path} would have {count:,} examples, and XTREME has {expected:,}',
          where=', '.join(source.name for source in SOURCES[task]),
          fix='is this the release that XTREME uses? Nothing has been written',
        )


def _write(task: str, files: Sequence[Converted], root: pathlib.Path, console: Console) -> None:
  with write_errors(f'the files of {task}', root):
    for file in files:
      write_whole(root / file.path, file.content)
  console.say(f'{task}: {len(files)} files written')


if __name__ == '__main__':
  sys.exit(main())
