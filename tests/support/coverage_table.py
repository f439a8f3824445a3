"""Lines and branches that the suite runs, by package, as a Markdown table: `make coverage`.

Reads what `coverage json` has written. Exit code 1 if the tests run less than `LEAST` percent of a package.
"""

import collections
import json
import pathlib
import sys

LEAST = 85


def package_of(file: str) -> str:
  """`rembert/train/step.py` → `rembert.train`; what is not in a package below is `rembert`."""
  return '.'.join(pathlib.PurePath(file).parts[:-1][:2])


def table(files: dict[str, dict]) -> tuple[str, list[str]]:
  """The table, and the packages of which too little is run.

  Args:
    files: `summary` of each file, as coverage writes it, by its path from the project's root.
  """
  totals = collections.defaultdict(collections.Counter)
  for file, entry in files.items():
    counts = {name: value for name, value in entry['summary'].items() if isinstance(value, int)}
    for name in (package_of(file), 'all'):
      totals[name].update(counts)
  rows, low = ['| package | lines | branches | lines and branches |', '|---|--:|--:|--:|'], []
  for name in sorted(totals, key=lambda name: (name == 'all', name)):
    count = totals[name]
    covered = [count['covered_lines'], count['covered_branches']]
    whole = [count['num_statements'], count['num_branches']]
    percent = lambda part, of: 100 * part / of if of else 100.0
    shares = [*map(percent, covered, whole), percent(sum(covered), sum(whole))]
    rows.append(f'| {name} | ' + ' | '.join(f'{share:.1f}%' for share in shares) + ' |')
    if shares[-1] < LEAST and name != 'all':
      low.append(name)
  return '\n'.join(rows), low


def main(file: str) -> int:
  """Prints the table of a JSON report."""
  text, low = table(json.loads(pathlib.Path(file).read_text())['files'])
  print(text)
  if low:
    print(f'below {LEAST}%: {", ".join(low)}')
  return int(bool(low))


if __name__ == '__main__':
  sys.exit(main(sys.argv[1]))
