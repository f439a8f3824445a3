"""What pages of docs/ share whose tables are made by a program, between words that are not, from a JSON file."""

import re
from collections.abc import Mapping, Sequence

DIGITS = 4  # of what is kept of a figure: enough for every table


def rounded(value):
  """A JSON value with its floats cut to `DIGITS` digits, so that a file made again differs where figures do."""
  if isinstance(value, dict):
    return {name: rounded(item) for name, item in value.items()}
  if isinstance(value, list):
    return [rounded(item) for item in value]
  return float(f'{value:.{DIGITS}g}') if isinstance(value, float) else value


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Markdown; the first column to the left, the others to the right."""
  lines = ['| ' + ' | '.join(columns) + ' |', '|---|' + '--:|' * (len(columns) - 1)]
  return '\n'.join([*lines, *('| ' + ' | '.join(row) + ' |' for row in rows)])


def with_tables(page: str, tables: Mapping[str, str]) -> str:
  """The page with its tables replaced, each between `<!-- table: NAME -->` and `<!-- end -->`; the words stay."""
  for name, made in tables.items():
    between = rf'(<!-- table: {name} -->\n).*?(<!-- end -->)'
    page, count = re.subn(between, lambda match, made=made: f'{match[1]}{made}\n{match[2]}', page, flags=re.DOTALL)
    assert count == 1, f'the page has no place for the table {name}'
  return page
