"""Checks the machine, the installation and a workdir before a run: `python -m rembert.doctor`."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rembert.command_line import command_parser, parse_bindings

DESCRIPTION = """\
Check packages, devices, memory, disk and a workdir before a run. Nothing is changed."""

EPILOG = """\
examples
  check this machine and its packages:
    python -m rembert.doctor
  check a run before it starts:
    python -m rembert.doctor --gin_file=gin/pretrain_large.gin --workdir=runs/large
  check why a run does not resume (reads the newest checkpoint completely):
    python -m rembert.doctor --workdir=runs/large --only=workdir,checkpoints
  also import TensorFlow (ten seconds):
    python -m rembert.doctor --tensorflow

exit codes
  0 no problems (possibly warnings) · 1 at least one problem · 2 wrong usage
"""

# Functions `check_NAME` of `rembert.doctor.checks`, here for --help, which imports nothing heavy.
CHECKS = ('packages', 'tensorflow', 'imports', 'devices', 'disk', 'memory', 'workdir', 'checkpoints')
_OF_A_WORKDIR = ('workdir', 'checkpoints')


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """Returns flags and gin bindings; exits with 2 on any other argument."""
  flags = command_parser('rembert.doctor', DESCRIPTION, EPILOG)
  run = flags.add_argument_group('run to check')
  run.add_argument('--gin_file', action='append', default=[], metavar='FILE', help='gin file of the run; repeatable')
  run.add_argument('--gin.A.b', metavar='VALUE', help='set a field: --gin.train.steps=1000', dest='_', default=None)
  run.add_argument('--workdir', metavar='DIR', help='directory of the run, which need not exist')
  how = flags.add_argument_group('how')
  how.add_argument('--only', metavar='A,B', help=f'run only these checks: {", ".join(CHECKS)}')
  how.add_argument('--tensorflow', action='store_true', help='also import TensorFlow, SeqIO and t5 (ten seconds)')
  how.add_argument('--traceback', action='store_true', help='print the full traceback of an error')
  options, bindings = parse_bindings(flags, argv)
  if bindings['gin'] and not options.gin_file:
    flags.error('bindings require --gin_file=FILE')
  for name in options.only.split(',') if options.only else ():
    if name not in CHECKS:
      flags.error(f'--only={name}: no such check; available: {", ".join(CHECKS)}')
    if name in _OF_A_WORKDIR and options.workdir is None:
      flags.error(f'--only={name} requires --workdir=DIR')
  return options, bindings['gin']


def chosen_checks(options: argparse.Namespace) -> Mapping[str, Callable]:
  """The checks that the flags ask for, by name."""
  from rembert.doctor import checks

  possible = [name for name in CHECKS if name not in _OF_A_WORKDIR or options.workdir is not None]
  names = options.only.split(',') if options.only else possible
  return {name: getattr(checks, f'check_{name}') for name in names}


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the checks, prints the table and returns the exit code."""
  options, bindings = parse(sys.argv[1:] if argv is None else argv)
  # Before JAX is imported: counting parameters and reading checkpoints must not claim an accelerator.
  variables = dict(os.environ)
  os.environ['JAX_PLATFORMS'] = 'cpu'
  from rembert.doctor.checks import Environment, examine

  named = {name: value for name, value in vars(options).items() if name not in ('only', 'gin_file', '_')}
  environment = Environment(**named, gin_files=tuple(options.gin_file), bindings=tuple(bindings), variables=variables)
  findings = list(examine(chosen_checks(options), environment))
  show(findings)
  return 1 if any(finding.level == 'problem' for finding in findings) else 0


def show(findings: Sequence) -> None:
  """Prints the table of findings and their number by level; wide columns if the output is not a terminal."""
  import rich.box
  import rich.console
  import rich.table

  console = rich.console.Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False, emoji=False)
  table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
  for column in ('check', '', 'result', 'fix'):
    table.add_column(column, overflow='fold')
  styles = {'ok': 'green', 'warning': 'yellow', 'problem': 'red'}
  name = None
  for finding in findings:
    label = finding.check if finding.check != name else ''
    table.add_row(label, finding.level, finding.text, finding.fix, style=styles[finding.level])
    name = finding.check
  console.print(table)
  counts = Counter(finding.level for finding in findings)
  console.print(f'{counts["problem"]} problem(s), {counts["warning"]} warning(s), {counts["ok"]} ok')


if __name__ == '__main__':
  sys.exit(main())
