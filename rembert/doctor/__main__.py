"""Looks for what is wrong before a run does: `python -m rembert.doctor`."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

DESCRIPTION = """\
Look for what is wrong before a run finds it: packages, devices, data, workdir, memory, disk. Nothing is changed."""

EPILOG = """\
examples
  this machine and what is installed on it:
    python -m rembert.doctor
  before a long run:
    python -m rembert.doctor --gin_file=gin/pretrain_large.gin --store=store --workdir=runs/large
  why does it not go on? (reads the newest checkpoint whole)
    python -m rembert.doctor --workdir=runs/large --only=workdir,checkpoints,clock
  XTREME's data, and TensorFlow really imported (ten seconds):
    python -m rembert.doctor --data_dir=download --tensorflow

exit codes
  0 nothing that would keep a run from working (warnings may be there) · 1 a problem was found · 2 wrong usage
"""

# By which flag a check is asked for; those without one are always made.
CHECKS: Mapping[str, tuple[str, ...]] = {
  'python': (),
  'packages': (),
  'tensorflow': (),
  'imports': (),
  'devices': (),
  'disk': (),
  'open_files': (),
  'clock': (),
  'proxy': (),
  'memory': (),
  'vocabulary': ('vocabulary', 'workdir', 'store'),
  'xtreme': ('data_dir',),
  'store': ('store',),
  'dumps': ('dumps',),
  'workdir': ('workdir',),
  'checkpoints': ('workdir',),
}


def parser() -> argparse.ArgumentParser:
  """The command line."""
  flags = argparse.ArgumentParser(
    prog='python -m rembert.doctor',
    description=DESCRIPTION,
    epilog=EPILOG,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  run = flags.add_argument_group('the run that is meant')
  run.add_argument('--gin_file', action='append', default=[], metavar='FILE', help='what is to run; repeatable')
  run.add_argument('--gin.A.b', metavar='VALUE', help='a binding, as for rembert.main', dest='_', default=None)
  run.add_argument('--workdir', metavar='DIR', help='of a run, there or to be')
  data = flags.add_argument_group('its data')
  data.add_argument('--vocabulary', metavar='FILE', help='a sentencepiece.model (default: of workdir and store)')
  data.add_argument('--data_dir', metavar='DIR', help='XTREME, as tasks.xtreme.download leaves it')
  data.add_argument('--store', metavar='DIR', help='a token store')
  data.add_argument('--dumps', metavar='FOLDER|GLOB', help='MediaWiki dumps')
  how = flags.add_argument_group('how')
  how.add_argument('--only', metavar='A,B', help=f'these checks alone, of {" ".join(CHECKS)}')
  how.add_argument('--tensorflow', action='store_true', help='import TensorFlow, SeqIO and t5, to see if they can be')
  how.add_argument('--traceback', action='store_true', help='show where in the code an error arose')
  return flags


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """Flags and gin bindings; exits with 2 on anything else."""
  flags = parser()
  options, rest = flags.parse_known_args(argv)
  for argument in rest:
    if not argument.startswith('--gin.') or '=' not in argument:
      flags.error(f'unknown argument {argument}')
  if rest and not options.gin_file:
    flags.error('a binding is of no use without --gin_file=FILE')
  for name in (options.only or '').split(',') if options.only else ():
    if name not in CHECKS:
      flags.error(f'--only={name}: there is no such check; there are {", ".join(CHECKS)}')
    if CHECKS[name] and not any(getattr(options, flag) for flag in CHECKS[name]):
      flags.error(f'--only={name} needs ' + ' or '.join(f'--{flag}' for flag in CHECKS[name]))
  return options, [argument.removeprefix('--gin.') for argument in rest]


def chosen_checks(options: argparse.Namespace) -> Mapping:
  """The checks that the flags ask for, by name."""
  from rembert.doctor import data, devices, imports, memory, packages, surroundings, workdirs

  functions = {
    'python': packages.check_python,
    'packages': packages.check_packages,
    'tensorflow': packages.check_tensorflow,
    'imports': imports.check_imports,
    'devices': devices.check_devices,
    'disk': surroundings.check_disk,
    'open_files': surroundings.check_open_files,
    'clock': surroundings.check_clock,
    'proxy': surroundings.check_proxy,
    'memory': memory.check_memory,
    'vocabulary': data.check_vocabulary,
    'xtreme': data.check_xtreme,
    'store': data.check_store,
    'dumps': data.check_dumps,
    'workdir': workdirs.check_workdir,
    'checkpoints': workdirs.check_checkpoints,
  }
  only = options.only.split(',') if options.only else list(CHECKS)
  is_asked_for = lambda name: not CHECKS[name] or any(getattr(options, flag) for flag in CHECKS[name])
  return {name: functions[name] for name in only if is_asked_for(name)}


def run(options: argparse.Namespace, bindings: Sequence[str]) -> int:
  """Examines, prints the table, returns the exit code."""
  # Before anything imports JAX: counting parameters and reading checkpoints must not take an accelerator.
  environment = dict(os.environ)
  os.environ['JAX_PLATFORMS'] = 'cpu'
  from rembert.doctor.examined import Examined
  from rembert.doctor.findings import Level, examine
  from rembert.doctor.table import show

  examined = Examined(
    vocabulary=options.vocabulary,
    data_dir=options.data_dir,
    store=options.store,
    dumps=options.dumps,
    workdir=options.workdir,
    gin_files=tuple(options.gin_file),
    bindings=tuple(bindings),
    imports_tensorflow=options.tensorflow,
    show_traceback=options.traceback,
    environment=environment,
  )
  findings = list(examine(chosen_checks(options), examined))
  show(findings)
  return 1 if any(finding.level is Level.PROBLEM for finding in findings) else 0


def main(argv: Sequence[str] | None = None) -> int:
  """The whole program."""
  options, bindings = parse(sys.argv[1:] if argv is None else argv)
  return run(options, bindings)


if __name__ == '__main__':
  sys.exit(main())
