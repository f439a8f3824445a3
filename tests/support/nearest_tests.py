"""Runs the tests nearest to what has changed, nearest first, for a minute: `make fast`.

Distance is counted along imports: a test file that has changed itself is at 0, one that imports a changed module at 1,
one that imports a module which imports it at 2, and so on. Data files count for the tests that name them.
"""

import argparse
import ast
import collections
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ('rembert', 'tasks', 'launch', 'benchmarks')
# Where a module is looked for that is imported by its bare name.
SEARCHED = ('', 'tests/support', 'tests')


def imported_files(file: pathlib.PurePath, source: str, files: set[str]) -> set[str]:
  """Files of the project that a file imports, at any depth in it.

  Args:
    file: path from the project's root.
    source: its content.
    files: all Python files of the project, as paths from the root.
  """
  names = set()
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
      names |= {node.module, *(f'{node.module}.{alias.name}' for alias in node.names)}
  found = set()
  for name in names:
    path = name.replace('.', '/')
    for folder in SEARCHED:
      prefix = f'{folder}/' if folder else ''
      found |= {f'{prefix}{path}.py', f'{prefix}{path}/__init__.py', f'{prefix}{path}/__main__.py'} & files
  if file.name.startswith('test_'):  # fixtures come without an import
    found |= {str(parent / 'conftest.py') for parent in file.parents} & files
  return found - {str(file)}


def distances(changed: Iterable[str], imports: Mapping[str, set[str]]) -> dict[str, int]:
  """Steps along imports from every file to the nearest changed one; files that reach none are absent."""
  importers = collections.defaultdict(set)
  for file, targets in imports.items():
    for target in targets:
      importers[target].add(file)
  found = dict.fromkeys(changed, 0)
  queue = collections.deque(found)
  while queue:
    file = queue.popleft()
    for importer in sorted(importers[file] - found.keys()):
      found[importer] = found[file] + 1
      queue.append(importer)
  return found


def nearest_tests(changed: Sequence[str], sources: Mapping[str, str]) -> list[tuple[int, str]]:
  """Test files with their distance, the nearest first.

  Args:
    changed: paths from the root, Python files or data.
    sources: content of every Python file of the project by its path.
  """
  files = set(sources)
  imports = {name: imported_files(pathlib.PurePath(name), source, files) for name, source in sources.items()}
  for name, source in sources.items():  # data is read by name
    imports[name] |= {path for path in changed if path not in files and pathlib.PurePath(path).name in source}
  found = distances(changed, imports)
  tests = [name for name in files if pathlib.PurePath(name).name.startswith('test_') and name in found]
  return sorted((found[name], name) for name in tests)


def changed_files(since: str) -> list[str]:
  """Paths from the root that differ from a commit, new files included."""
  git = lambda *arguments: subprocess.run(
    ['git', *arguments], cwd=ROOT, check=True, capture_output=True, text=True
  ).stdout.splitlines()
  return sorted({*git('diff', '--name-only', since), *git('ls-files', '--others', '--exclude-standard')})


class Budget:
  """A pytest plugin that stops after some seconds and remembers which test files were run."""

  def __init__(self, seconds: float):
    self._end = time.monotonic() + seconds
    self.begun: set[str] = set()
    self.is_over = self.has_failed = False

  def pytest_runtest_logstart(self, nodeid: str) -> None:
    """A test begins."""
    self.begun.add(nodeid.partition('::')[0])

  def pytest_runtest_logreport(self, report) -> None:
    """A test, its set-up or its tear-down has ended."""
    self.has_failed |= report.failed

  @pytest.hookimpl(wrapper=True)
  def pytest_runtest_protocol(self, item):
    """Ends the session once the time is over, between two tests."""
    result = yield
    if time.monotonic() > self._end:
      self.is_over = True
      item.session.shouldstop = 'the time is over'
    return result


def main(argv: Sequence[str] | None = None) -> int:
  """The command line; exit code 0 if no test failed."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--since', default='HEAD', help='commit to compare with (default HEAD: what is not committed)')
  parser.add_argument('--seconds', type=float, default=60, help='stop after this many seconds (default 60)')
  options = parser.parse_args(argv)

  changed = changed_files(options.since)
  python = subprocess.run(['git', 'ls-files', '*.py'], cwd=ROOT, check=True, capture_output=True, text=True).stdout
  names = {*python.splitlines(), *(name for name in changed if name.endswith('.py'))}
  sources = {name: (ROOT / name).read_text(encoding='utf-8') for name in names if (ROOT / name).is_file()}
  tests = nearest_tests(changed, sources)
  if not tests:
    print(f'{len(changed)} changed file(s), and no test imports any of them')
    return 0
  print(f'{len(changed)} changed file(s); {len(tests)} test files depend on them, nearest first')
  os.chdir(ROOT)
  sys.path.insert(0, str(ROOT))
  budget = Budget(options.seconds)
  marks = 'not slow and not parity and not gcs and not tpu'
  code = pytest.main(['-m', marks, '-p', 'no:cacheprovider', *(name for _, name in tests)], plugins=[budget])
  left_out = [f'{name} (distance {distance})' for distance, name in tests if name not in budget.begun]
  if left_out and budget.is_over:
    print(f'\nnot run, after {options.seconds:g} s: {len(left_out)} of {len(tests)} test files')
    for line in left_out[:20]:
      print(f'  {line}')
    if len(left_out) > 20:
      print(f'  and {len(left_out) - 20} more: make test')
  return int(budget.has_failed) if budget.is_over else int(code)


if __name__ == '__main__':
  sys.exit(main())
