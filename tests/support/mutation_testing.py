"""Runs `tests/mutants.py`: applies one mutant at a time to a copy of a commit, and runs the tests that should notice.

  make mutants                                  # all mutants on HEAD; stop it at any time, run it again to resume
  make mutants ARGS='--commit=0b7a7f7'          # on another commit
  make mutants ARGS='--area=data --jobs=1'      # one area
  make mutants ARGS='--file=rembert/data/masking.py --file=launch/sweep.py'
  make mutants ARGS='--survivors-of=tests/data/mutants/0b7a7f7.csv'   # what was not killed there

Results are appended to build/mutants/COMMIT.csv, one line per mutant. A mutant is

- `killed`: a test fails, as it should; the first one is named;
- `timeout`: the tests did not end in time, counted as killed;
- `survived`: every test passes, although the behaviour is wrong;
- `invalid`: it does not test anything: the anchor is not found exactly once, the mutant does not import, or the first
  failure is a NameError, an ImportError or a SyntaxError.

Exit code 0 if every mutant was killed or its survival is explained (`survives_because`), 1 otherwise.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import csv
import dataclasses
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence, Set

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests'))  # of this process alone: in it, folders of tests would pass for packages

from mutants import MUTANTS, Mutant  # noqa: E402

# What no assertion raises, and a mistake in the mutant itself does.
_MISTAKES = ('NameError', 'ImportError', 'ModuleNotFoundError', 'SyntaxError', 'IndentationError', 'UnboundLocalError')


@dataclasses.dataclass(frozen=True)
class Result:
  """What became of a mutant, a line of the table; `test` and `error` are of the first test that failed."""

  area: str
  mutant: str
  outcome: str
  seconds: int
  test: str = ''
  error: str = ''


def mirrored_tests(mutant: Mutant) -> tuple[str, ...]:
  """The test files that a mutant is run against: its own, or else the one that mirrors the module."""
  if mutant.tests:
    return mutant.tests
  parts = pathlib.PurePath(mutant.file).parts
  parts = parts[1:] if parts[0] == 'rembert' else parts
  return (str(pathlib.PurePath('tests', *parts[:-1], f'test_{parts[-1]}')),)


def chosen_mutants(
  mutants: Sequence[Mutant],
  *,
  areas: Sequence[str] = (),
  files: Sequence[str] = (),
  text: str = '',
  names: Set[str] | None = None,
) -> list[Mutant]:
  """Mutants of any of the areas and files; the sentence contains `text` and is, if they are given, in `names`."""
  return [
    mutant
    for mutant in mutants
    if (not areas or mutant.area in areas)
    and (not files or mutant.file in files)
    and text in mutant.sentence
    and (names is None or mutant.sentence in names)
  ]


def mutated(mutant: Mutant, source: str) -> str:
  """The file's content with the mutant in it; ValueError unless the anchor occurs exactly once."""
  if (count := source.count(mutant.anchor)) != 1:
    raise ValueError(f'the anchor occurs {count} times in {mutant.file}')
  return source.replace(mutant.anchor, mutant.replacement)


def run(mutant: Mutant, root: pathlib.Path, *, seconds: float) -> Result:
  """Applies a mutant to the tree at `root`, runs its tests, and restores the tree."""
  began = time.monotonic()
  result = lambda outcome, *details: Result(
    mutant.area, mutant.sentence, outcome, round(time.monotonic() - began), *details
  )
  file = root / mutant.file
  try:
    original = file.read_text(encoding='utf-8')
    file.write_text(mutated(mutant, original), encoding='utf-8')
  except (OSError, ValueError) as error:
    return result('invalid', '', without_folders(str(error)))
  try:
    with tempfile.TemporaryDirectory(prefix='mutant-') as scratch:
      report = pathlib.Path(scratch, 'report.xml')
      code = _pytest(mutated_tests=mirrored_tests(mutant), root=root, report=report, scratch=scratch, seconds=seconds)
      if code is None:
        return result('timeout')
      if code == 0:
        return result('survived')
      test, error = _first_failure(report)
      # 2: interrupted, by a signal that the mutant lets through, or by a file that does not import.
      is_mistake = error.split(':')[0].split('.')[-1] in _MISTAKES or code not in (1, 2)
      return result('invalid' if is_mistake else 'killed', test, error or f'pytest ended with exit code {code}')
  finally:
    file.write_text(original, encoding='utf-8')


def _pytest(
  *, mutated_tests: Sequence[str], root: pathlib.Path, report: pathlib.Path, scratch: str, seconds: float
) -> int | None:
  """Exit code of the tests, None if they did not end in time; all their processes are ended."""
  command = [sys.executable, '-m', 'pytest', '-x', '--no-header', '-p', 'no:cacheprovider', f'--junitxml={report}']
  marks = 'not slow and not parity and not gcs and not tpu'
  with subprocess.Popen(
    [*command, '-m', marks, *mutated_tests],
    cwd=root,
    env=os.environ | {'TMPDIR': scratch, 'PYTHONDONTWRITEBYTECODE': '1'},
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
    start_new_session=True,
  ) as process:
    try:
      return process.wait(seconds)
    except subprocess.TimeoutExpired:
      return None
    finally:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _first_failure(report: pathlib.Path) -> tuple[str, str]:
  if not report.is_file():
    return '', ''
  for case in ElementTree.parse(report).iter('testcase'):
    for kind in ('failure', 'error'):
      if (found := case.find(kind)) is not None:
        message = (found.get('message') or '').strip()
        if kind == 'error' and 'collection failure' in message:  # the mutant does not even import
          return '', f'ImportError: {(found.text or "").strip().splitlines()[-1][:120]}'
        return f'{case.get("classname")}::{case.get("name")}'[:120], without_folders((message.splitlines() or [''])[0])[
          :120
        ]
  return '', ''


def without_folders(message: str) -> str:
  """A message without the folders of this machine: the table is kept with the project."""
  return re.sub(r'/(?:[\w.+-]+/)+', '…/', message)


# --- many -------------------------------------------------------------------------------------------------------------


def trees(commit: str, number: int, parent: pathlib.Path) -> list[pathlib.Path]:
  """`number` copies of a commit's files below `parent`, each with the real data next to it if there are any."""
  archive = subprocess.run(['git', 'archive', commit], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
  copies = []
  for index in range(number):
    copy = parent / str(index) / 'project'
    copy.mkdir(parents=True)
    subprocess.run(['tar', 'x'], cwd=copy, check=True, input=archive)
    if (ROOT.parent / 'shared').is_dir():
      (copy.parent / 'shared').symlink_to(ROOT.parent / 'shared')
    if (ROOT / '.venv').exists():
      (copy / '.venv').symlink_to(ROOT / '.venv')
    copies.append(copy)
  return copies


def run_all(mutants: Sequence[Mutant], commit: str, *, jobs: int, seconds: float) -> Iterator[Result]:
  """Runs mutants side by side, each in a tree of its own; yields results as they come."""
  with tempfile.TemporaryDirectory(prefix='mutants-', ignore_cleanup_errors=True) as parent:
    free: queue.SimpleQueue = queue.SimpleQueue()
    for tree in trees(commit, jobs, pathlib.Path(parent)):
      free.put(tree)

    def run_one(mutant: Mutant) -> Result:
      tree = free.get()
      try:
        return run(mutant, tree, seconds=seconds)
      finally:
        free.put(tree)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
      pending = [pool.submit(run_one, mutant) for mutant in mutants]
      try:
        for done in concurrent.futures.as_completed(pending):
          yield done.result()
      finally:
        for future in pending:
          future.cancel()


def read_results(file: pathlib.Path) -> dict[str, Result]:
  """Results by the mutant's sentence; the last line counts."""
  if not file.is_file():
    return {}
  with file.open(encoding='utf-8', newline='') as lines:
    return {row['mutant']: Result(**row) for row in csv.DictReader(lines)}


def survivors(results: Mapping[str, Result]) -> set[str]:
  """Sentences of the mutants that no test killed, or that were invalid."""
  return {sentence for sentence, result in results.items() if result.outcome not in ('killed', 'timeout')}


def append(file: pathlib.Path, result: Result) -> None:
  """Adds one line, and the header to a new file."""
  file.parent.mkdir(parents=True, exist_ok=True)
  is_new = not file.exists()
  with file.open('a', encoding='utf-8', newline='') as lines:
    writer = csv.writer(lines, lineterminator='\n')
    if is_new:
      writer.writerow(field.name for field in dataclasses.fields(Result))
    writer.writerow(dataclasses.astuple(result))


def summary(results: Sequence[Result]) -> str:
  """A table of outcomes by area."""
  outcomes = ('killed', 'timeout', 'survived', 'invalid')
  counts = collections.Counter((area, result.outcome) for result in results for area in (result.area, 'all'))
  areas = [*sorted({result.area for result in results}), 'all']
  lines = [f'{"area":14}' + ''.join(f'{outcome:>10}' for outcome in outcomes)]
  lines += [f'{area:14}' + ''.join(f'{counts[area, outcome]:10}' for outcome in outcomes) for area in areas]
  return '\n'.join(lines)


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--commit', default='HEAD', help='commit to change and to test (default HEAD)')
  parser.add_argument('--area', action='append', help='only mutants of this area; repeatable')
  parser.add_argument('--file', action='append', help='only mutants of this file, from the root; repeatable')
  parser.add_argument('--only', default='', help='only mutants whose sentence contains this text')
  parser.add_argument(
    '--survivors-of', type=pathlib.Path, metavar='CSV', help='only mutants that were not killed in this table'
  )
  parser.add_argument('--again', action='store_true', help='run mutants again that survived or were invalid')
  parser.add_argument('--jobs', type=int, default=2, help='mutants side by side (default 2)')
  parser.add_argument('--seconds', type=float, default=900, help='time limit of one mutant (default 900)')
  options = parser.parse_args(argv)

  name = ['git', 'rev-parse', '--short=7', options.commit]
  commit = subprocess.run(name, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
  file = ROOT / 'build' / 'mutants' / f'{commit}.csv'
  known = read_results(file)
  names = None
  if options.survivors_of:
    if not options.survivors_of.is_file():
      parser.error(f'--survivors-of: no file {options.survivors_of}')
    names = survivors(read_results(options.survivors_of))
  chosen = chosen_mutants(MUTANTS, areas=options.area or (), files=options.file or (), text=options.only, names=names)
  if not chosen:
    parser.error('no mutant is chosen')
  if options.again:
    known = {sentence: result for sentence, result in known.items() if sentence not in survivors(known)}
  waiting = [mutant for mutant in chosen if mutant.sentence not in known]
  print(f'{len(waiting)} of {len(chosen)} mutants to run on {commit}, {options.jobs} side by side: {file}', flush=True)
  began = time.monotonic()
  for number, result in enumerate(run_all(waiting, commit, jobs=options.jobs, seconds=options.seconds), 1):
    append(file, result)
    known[result.mutant] = result
    left = (time.monotonic() - began) / number * (len(waiting) - number) / 60
    print(f'{number}/{len(waiting)} · {left:.0f} min left · {result.outcome:8} · {result.mutant}', flush=True)
  results = [known[m.sentence] for m in chosen]
  print(f'\n{summary(results)}')
  excused = {m.sentence for m in chosen if m.survives_because}
  bad = [r for r in results if r.outcome == 'invalid' or (r.outcome == 'survived' and r.mutant not in excused)]
  for result in bad:
    print(f'{result.outcome}: {result.mutant}  {result.error}')
  return int(bool(bad))


if __name__ == '__main__':
  sys.exit(main())
