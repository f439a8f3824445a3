"""The table of findings, and one line that says what they come to."""

import sys
from collections import Counter
from collections.abc import Sequence

import rich.box
import rich.console
import rich.table

from rembert.doctor.findings import Finding, Level

_STYLES = {Level.WELL: 'green', Level.WARNING: 'yellow', Level.PROBLEM: 'red'}
_WIDE = 160


def show(findings: Sequence[Finding]) -> None:
  """Prints to standard output; in a log file, in wide columns."""
  width = None if sys.stdout.isatty() else _WIDE
  console = rich.console.Console(width=width, highlight=False, markup=False, emoji=False)
  table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
  for column in ('check', '', 'finding', 'what to do'):
    table.add_column(column, overflow='fold')
  name = None
  for finding in findings:
    label = finding.check if finding.check != name else ''
    table.add_row(label, finding.level.value, finding.text, finding.fix, style=_STYLES[finding.level])
    name = finding.check
  console.print(table)
  counts = Counter(finding.level for finding in findings)
  problems, warnings = counts[Level.PROBLEM], counts[Level.WARNING]
  console.print(f'{problems} problem(s), {warnings} warning(s), {counts[Level.WELL]} ok')
