"""Looks for what is wrong before a run does: `python -m rembert.doctor`."""

import argparse
import importlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rembert.command_line import command_parser, parse_bindings

DESCRIPTION = """\
Look for what is wrong before a run finds it: packages, devices, memory, disk, workdir. Nothing is changed."""

EPILOG = """\
examples
  this machine and what is installed on it:
    python -m rembert.doctor
  before a long run:
    python -m rembert.doctor --gin_file=gin/pretrain_large.gin --workdir=runs/large
  why does it not resume? (reads the newest checkpoint completely)
    python -m rembert.doctor --workdir=runs/large --only=workdir,checkpoints
  TensorFlow really imported (ten seconds):
    python -m rembert.doctor --tensorflow

exit codes
  0 nothing that would keep a run from working (warnings may be there) · 1 a problem was found · 2 wrong usage
"""

# By name, the module of `check_NAME`; those of `checks_workdir` are made if there is a --workdir.
CHECKS: Mapping[str, str] = {
  'packages': 'checks_system',
  'tensorflow': 'checks_system',
  'imports': 'checks_system',
  'devices': 'checks_devices',
  'disk': 'checks_system',
  'memory': 'checks_devices',
  'workdir': 'checks_workdir',
  'checkpoints': 'checks_workdir',
}


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """Flags and gin bindings; exits with 2 on anything else."""
  flags = command_parser('rembert.doctor', DESCRIPTION, EPILOG)
  run = flags.add_argument_group('the run that is meant')
  run.add_argument('--gin_file', action='append', default=[], metavar='FILE', help='what is to run; repeatable')
  run.add_argument('--gin.A.b', metavar='VALUE', help='a binding, as for rembert.main', dest='_', default=None)
  run.add_argument('--workdir', metavar='DIR', help='of a run, there or to be')
  how = flags.add_argument_group('how')
  how.add_argument('--only', metavar='A,B', help=f'these checks alone, of {" ".join(CHECKS)}')
  how.add_argument('--tensorflow', action='store_true', help='import TensorFlow, SeqIO and t5, to see if they can be')
  how.add_argument('--traceback', action='store_true', help='show where in the code an error arose')
  options, bindings = parse_bindings(flags, argv)
  if bindings['gin'] and not options.gin_file:
    flags.error('a binding is of no use without --gin_file=FILE')
  for name in options.only.split(',') if options.only else ():
    if name not in CHECKS:
      flags.error(f'--only={name}: there is no such check; there are {", ".join(CHECKS)}')
    if not _is_possible(name, options):
      flags.error(f'--only={name} needs --workdir')
  return options, bindings['gin']


def _is_possible(name: str, options: argparse.Namespace) -> bool:
  return CHECKS[name] != 'checks_workdir' or options.workdir is not None


def chosen_checks(options: argparse.Namespace) -> Mapping[str, Callable]:
  """The checks that the flags ask for, by name."""
  names = options.only.split(',') if options.only else [name for name in CHECKS if _is_possible(name, options)]
  modules = {name: importlib.import_module(f'rembert.doctor.{CHECKS[name]}') for name in names}
  return {name: getattr(module, f'check_{name}') for name, module in modules.items()}


def main(argv: Sequence[str] | None = None) -> int:
  """Examines, prints the table, returns the exit code."""
  options, bindings = parse(sys.argv[1:] if argv is None else argv)
  # Before anything imports JAX: counting parameters and reading checkpoints must not take an accelerator.
  variables = dict(os.environ)
  os.environ['JAX_PLATFORMS'] = 'cpu'
  from rembert.doctor.environment import Environment, Level, examine

  named = {name: value for name, value in vars(options).items() if name not in ('only', 'gin_file', '_')}
  environment = Environment(**named, gin_files=tuple(options.gin_file), bindings=tuple(bindings), variables=variables)
  findings = list(examine(chosen_checks(options), environment))
  show(findings)
  return 1 if any(finding.level is Level.PROBLEM for finding in findings) else 0


def show(findings: Sequence) -> None:
  """Prints the table of findings and their number by level; to a log file, in wide columns."""
  import rich.box
  import rich.console
  import rich.table

  console = rich.console.Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False, emoji=False)
  table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
  for column in ('check', '', 'finding', 'what to do'):
    table.add_column(column, overflow='fold')
  styles = {'ok': 'green', 'warning': 'yellow', 'problem': 'red'}
  name = None
  for finding in findings:
    label, level = finding.check if finding.check != name else '', finding.level.value
    table.add_row(label, level, finding.text, finding.fix, style=styles[level])
    name = finding.check
  console.print(table)
  counts = Counter(finding.level.value for finding in findings)
  console.print(f'{counts["problem"]} problem(s), {counts["warning"]} warning(s), {counts["ok"]} ok')


if __name__ == '__main__':
  sys.exit(main())
