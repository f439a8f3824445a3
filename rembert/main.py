"""Flags → gin → job.

python -m rembert.main --gin_file=gin/pretrain_smoke.gin
"""

import argparse
import pathlib
import signal
import sys
from collections.abc import Sequence

from rembert.errors import UsageError
from rembert.training.preemption import EXIT_STOPPED, Stopped, StopSignal, heed_maintenance, stopped_message

MODES = ('pretrain',)

DESCRIPTION = """\
Pre-train RemBERT. A gin file says what to run; bindings on the command line override it.
Running the same command again resumes the run in its workdir."""

EPILOG = """\
examples
  the sample corpus on a CPU, about three minutes:
    python -m rembert.main --gin_file=gin/pretrain_smoke.gin
  your own MediaWiki dumps, in all the languages found there:
    python -m rembert.main --gin_file=gin/pretrain_smoke.gin --workdir=runs/mine \\
        --gin.data.dumps=/path/to/dumps
  what a configuration amounts to, without running it:
    python -m rembert.main --gin_file=gin/pretrain_large.gin --dry_run
  another of the paper's models, of which gin/models has a file each:
    python -m rembert.main --gin_file=gin/pretrain_base.gin --gin_file=gin/models/in128_out3072.gin

often changed
  train.steps train.batch_size train.sequence_length train.seed train.eval_every train.checkpoint_every
  mesh.data mesh.fsdp mesh.tensor   data.dumps data.languages data.alpha   vocabulary.path   optimizer.learning_rate

exit codes
  0 done · 75 stopped early, run again to resume · 2 wrong usage or configuration · 1 anything else
"""


def parser() -> argparse.ArgumentParser:
  """The command line."""
  flags = argparse.ArgumentParser(
    prog='python -m rembert.main',
    description=DESCRIPTION,
    epilog=EPILOG,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  flags.add_argument(
    '--gin_file', action='append', default=[], metavar='FILE', help='a gin file; repeatable, later ones win'
  )
  flags.add_argument(
    '--gin_bindings', action='append', default=[], metavar='"A.b = 1"', help='a binding in gin syntax; repeatable'
  )
  flags.add_argument(
    '--gin.A.b', metavar='VALUE', help='the same, shorter: --gin.train.steps=1000', dest='_', default=None
  )
  flags.add_argument('--workdir', metavar='DIR', help='where the run lives (default: runs/NAME for gin/NAME.gin)')
  flags.add_argument('--mode', choices=MODES, help='the job, if not the one that the gin file names')
  flags.add_argument('--dry_run', action='store_true', help='print model, counts and schedule, and exit')
  flags.add_argument('--traceback', action='store_true', help='show where in the code an error arose')
  return flags


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """Flags and gin bindings, in the order given; exits with 2 on anything else."""
  flags = parser()
  options, rest = flags.parse_known_args(argv)
  bindings = list(options.gin_bindings)
  for argument in rest:
    if not argument.startswith('--gin.') or '=' not in argument:
      flags.error(f'unknown argument {argument}' + (': write --gin.NAME.FIELD=VALUE' if '--gin' in argument else ''))
    bindings.append(argument.removeprefix('--gin.'))
  if not options.gin_file:
    flags.error('--gin_file=FILE is missing; try --gin_file=gin/pretrain_smoke.gin')
  return options, bindings


def run(options: argparse.Namespace, bindings: Sequence[str], stop: StopSignal) -> int:
  """Runs the job and returns its exit code."""
  from etils import epath

  from rembert import configuration
  from rembert.jobs import pretrain

  configuration.load(options.gin_file, bindings)
  settings = configuration.build(configuration.RunConfig)
  job = {'pretrain': pretrain}.get(options.mode or settings.mode)
  if job is None:
    raise UsageError(f'unknown mode {settings.mode!r}', where='run.mode', fix=f'one of {", ".join(MODES)}')
  config = job.configured()
  if options.dry_run:
    return job.dry_run(config)
  workdir = options.workdir or settings.workdir or f'runs/{pathlib.Path(options.gin_file[-1]).stem}'
  return job.run(config, epath.Path(workdir), stop)


def main(argv: Sequence[str] | None = None) -> int:
  """The whole program; errors that a user can put right are told without a traceback."""
  options, bindings = parse(sys.argv[1:] if argv is None else argv)
  with StopSignal() as stop, heed_maintenance(stop):
    try:
      return run(options, bindings, stop)
    except UsageError as error:
      if options.traceback:
        raise
      print(f'rembert: {error}', file=sys.stderr)
      return error.exit_code
    except Stopped as stopped:
      print(stopped_message(str(stopped)), file=sys.stderr)
      return EXIT_STOPPED


if __name__ == '__main__':
  exit_code = main()
  signal.signal(signal.SIGTERM, signal.SIG_IGN)  # all is written: a late signal must not turn it into a failure
  if 'jax' in sys.modules:
    from rembert.hosts.joining import leave

    leave(exit_code)
  sys.exit(exit_code)
