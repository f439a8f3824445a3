"""The main command: parses flags and gin files, builds the configuration and runs a job.

python -m rembert.main --gin_file=gin/pretrain_smoke.gin
"""

import argparse
import importlib
import pathlib
import signal
import sys
from collections.abc import Sequence

from rembert.command_line import MODES, add_modules, command_parser, import_modules, parse_bindings, report_error
from rembert.errors import UsageError
from rembert.runtime.signals import Stopped, StopSignal, exit_stopped, watch_maintenance

# (the mode that gin files name, another mode that they can be run in).
_OTHER_MODES = (('pretrain', 'compile'), ('finetune', 'compile'), ('finetune', 'evaluate'))

DESCRIPTION = """\
Pre-train, fine-tune, evaluate or analyse RemBERT. A gin file describes the job; bindings on the command line
override it. Running the same command again resumes the run in its workdir."""

EPILOG = """\
examples
  the sample corpus on a CPU, about three minutes:
    python -m rembert.main --gin_file=gin/pretrain_smoke.gin
  your own MediaWiki dumps, in all the languages found there:
    python -m rembert.main --gin_file=gin/pretrain_smoke.gin --workdir=runs/mine \\
        --gin.data.dumps=/path/to/dumps
  print the model, its parameter counts and the schedule, without running anything:
    python -m rembert.main --gin_file=gin/pretrain_large.gin --dry_run
  compile for a TPU slice: memory, and a lower bound on the step time (needs libtpu, but no TPU):
    python -m rembert.main --gin_file=gin/pretrain_large.gin --gin_file=gin/hardware/v5e_64.gin \\
        --mode=compile --topology=v5e:8x8
  an XTREME task: fine-tune on English, evaluate in all languages that have data:
    python -m rembert.main --gin_file=gin/finetune_udpos.gin --gin.xtreme.data_dir=download \\
        --gin.train.init_from=runs/pretrain_large
  translation retrieval by layer (Figure 2); other analyses are in gin/analyze_*.gin:
    python -m rembert.main --gin_file=gin/analyze_layer_retrieval.gin --gin.analyze.model=runs/pretrain_large \\
        --gin.analyze.source=newstest.en --gin.analyze.target=newstest.de
  a SeqIO task or mixture of your own, registered by my_tasks.py in this directory:
    python -m rembert.main --module=my_tasks --gin_file=gin/pretrain_smoke.gin --gin.data.mixture=my_mixture
  another model of the paper (all are in gin/models):
    python -m rembert.main --gin_file=gin/pretrain_base.gin --gin_file=gin/models/in128_out3072.gin
  a row of the paper's tables (gin/experiments), at a size for two CPU cores (gin/scales):
    python -m rembert.main --gin_file=gin/experiments/table4/in128_out3072.gin --gin_file=gin/scales/mini.gin

often changed
  train.steps train.batch_size train.sequence_length train.seed train.eval_every train.checkpoint_every
  train.init_from xtreme.data_dir xtreme.languages finetune.epochs   evaluate.model analyze.model
  mesh.data mesh.fsdp mesh.tensor   data.dumps data.languages data.alpha   vocabulary.path   optimizer.learning_rate

exit codes
  0 done (compile: it fits) · 75 stopped early, run again to resume · 2 wrong usage or configuration ·
  1 anything else (compile: it does not fit)
"""


def parser() -> argparse.ArgumentParser:
  """The command line."""
  flags = command_parser('rembert.main', DESCRIPTION, EPILOG)
  what = flags.add_argument_group('job')
  what.add_argument(
    '--gin_file', action='append', default=[], metavar='FILE', help='gin file; repeatable, later files override'
  )
  what.add_argument(
    '--gin.A.b',
    metavar='VALUE',
    help='set a field, overriding the gin files: --gin.train.steps=1000',
    dest='_',
    default=None,
  )
  what.add_argument(
    '--gin_bindings', action='append', default=[], metavar='"A.b = 1"', help='set fields in gin syntax; repeatable'
  )
  add_modules(what)
  what.add_argument('--mode', choices=MODES, help='job to run (default: run.mode of the gin file)')
  where = flags.add_argument_group('output')
  where.add_argument('--workdir', metavar='DIR', help='directory of the run (default: runs/NAME for gin/NAME.gin)')
  compiled = flags.add_argument_group('ahead-of-time compilation (--mode=compile)')
  compiled.add_argument('--topology', metavar='NAME', help='target devices: v5e:8x8, 2*v4:4x4x4, cpu:8')
  compiled.add_argument('--search_batch', action='store_true', help='find the largest batch per device that fits')
  compiled.add_argument('--output', metavar='FILE', help='JSON report (default: WORKDIR/compile/TOPOLOGY.json)')
  looking = flags.add_argument_group('debugging')
  looking.add_argument('--dry_run', action='store_true', help='print model, parameter counts and schedule, then exit')
  looking.add_argument('--traceback', action='store_true', help='print the full traceback of an error')
  return flags


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """Returns flags and gin bindings, in the order given; exits with 2 on any other argument."""
  flags = parser()
  options, bindings = parse_bindings(flags, argv)
  if not options.gin_file:
    flags.error('--gin_file=FILE is missing; try --gin_file=gin/pretrain_smoke.gin')
  return options, [*options.gin_bindings, *bindings['gin']]


def run(options: argparse.Namespace, bindings: Sequence[str], stop: StopSignal) -> int:
  """Runs the job and returns its exit code."""
  from etils import epath

  import_modules(options.module)  # before gin builds objects that may name their tasks

  from rembert import configuration

  configuration.load(options.gin_file, bindings)
  settings = configuration.build(configuration.RunConfig)
  mode = options.mode or settings.mode
  of_files = configuration.bound(configuration.RunConfig).get('mode', mode)
  if mode != of_files and (of_files, mode) not in _OTHER_MODES:
    raise UsageError(
      f'the gin files are for --mode={of_files}, not --mode={mode}',
      where=f'--mode={mode}, run.mode = {of_files!r}',
      fix=['omit --mode', f'or use a file for that mode: gin/{"pretrain" if mode == "compile" else mode}_….gin'],
    )
  workdir = epath.Path(options.workdir or settings.workdir or f'runs/{run_name(options.gin_file)}')
  job = importlib.import_module(f'rembert.jobs.{mode}')
  config = job.configured()
  if options.dry_run:
    return job.dry_run(config, workdir)
  if mode == 'compile':
    return job.run(config, workdir, options.topology, search_batch=options.search_batch, output=options.output)
  return job.run(config, workdir, stop)


def run_name(gin_files: Sequence[str]) -> str:
  """`NAME` of the last `NAME.gin` outside the hardware, data and scales directories, followed by the scale's."""
  files = [pathlib.Path(name) for name in gin_files]
  is_scale = lambda file: 'scales' in file.parent.parts
  what = [file.stem for file in files if file.parent.name not in ('hardware', 'data') and not is_scale(file)]
  scales = [file.stem for file in files if is_scale(file)]
  return '_'.join([(what or [file.stem for file in files])[-1], *(scales[-1:] if what else [])])


def main(argv: Sequence[str] | None = None) -> int:
  """The whole program; errors that a user can fix are printed without a traceback."""
  options, bindings = parse(sys.argv[1:] if argv is None else argv)
  from rembert.runtime.xla import use_one_heap  # not for --help, which needs no dependencies

  use_one_heap()
  with StopSignal() as stop, watch_maintenance(stop):
    try:
      return run(options, bindings, stop)
    except (UsageError, OSError) as error:
      return report_error('rembert', error, show_traceback=options.traceback)
    except Stopped as stopped:
      # At once: an interpreter that shuts down while a compiler runs in another thread may crash.
      exit_stopped(str(stopped))


if __name__ == '__main__':
  exit_code = main()
  signal.signal(signal.SIGTERM, signal.SIG_IGN)  # all is written: a late signal must not change the exit code
  if 'jax' in sys.modules:
    from rembert.runtime.distributed import leave

    leave(exit_code)
  sys.exit(exit_code)
