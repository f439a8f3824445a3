"""Pre-trains, fine-tunes, judges and analyses many models with one command, and writes a report of them.

The models are gin files, such as the rows of the paper's tables in gin/experiments, times a grid of bindings."""

import argparse
import re
import sys
from collections.abc import Sequence

from etils import epath

from launch.execution import State
from launch.making import add_slots, make, print_commands, report, slots_of
from launch.sweep.plan import Asked, planned, write
from launch.xtreme_runs import add_benchmark, benchmark_of, listed
from rembert.command_line import add_modules
from rembert.errors import UsageError
from rembert.training.console import Console
from rembert.training.preemption import EXIT_STOPPED

SCALES = ('full', 'small', 'mini', 'micro')

EXAMPLES = """
examples
  Table 4 of the paper, small enough for a laptop; what it would run, and then run:
    python -m launch.sweep gin/experiments/table4 --scale=mini --data_dir=download --dry_run
    python -m launch.sweep gin/experiments/table4 --scale=mini --data_dir=download --gin.data.source=store \\
        --gin.data.store=store --gin.data.languages=None
  a grid of your own, two seeds of pre-training, nothing fine-tuned, on four GPUs:
    python -m launch.sweep gin/pretrain_base.gin --grid=RemBertConfig.output_embedding_size=128,768,3072 \\
        --pretrain_seeds=0,1 --tasks= --devices=0,1,2,3
  layers dropped before fine-tuning (Figure 1), and the input embedding frozen (footnote 4):
    python -m launch.sweep gin/experiments/table4 --data_dir=download --tasks=xnli \\
        --finetune_grid=RemBertConfig.num_hidden_layers=8,9,10,11,12
    python -m launch.sweep gin/experiments/table3 --data_dir=download --tasks=xnli \\
        --finetune_grid=optimizer.freeze_embeddings=False,True

which binding goes where
  --gin.A.b=V to pre-training, --finetune_gin.A.b=V to all that is learned, --analyze_gin.A.b=V to the analyses;
  --scale=NAME is --gin_file=gin/scales/NAME.gin and 
  --finetune_gin_file=gin/scales/finetuning/NAME.gin

A configuration that comes twice, as that of 128 in and 768 out in four tables, is pre-trained once. Every run has a
workdir of its own with what it prints in log.txt, and run.json with command, code version, times and end. Repeating the
command goes on where it stands, also with more seeds, tasks or files. A run that is killed is started again; one that
fails, or whose loss goes up for good, costs what needs it and nothing else.

exit codes
  0 done · 75 stopped early, run again to resume · 2 wrong usage · 1 a run failed; the report has the others
"""


def parser() -> argparse.ArgumentParser:
  """The command line, but for bindings."""
  flags = argparse.ArgumentParser(
    'python -m launch.sweep',
    description=__doc__,
    epilog=EXAMPLES,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  numbers = lambda text: tuple(int(number) for number in text.split(','))
  flags.add_argument('files', nargs='+', metavar='FILE', help='gin files of pre-training, or folders of them')
  flags.add_argument('--workdir', default='runs/sweep', metavar='DIR', help='default %(default)s')
  models = flags.add_argument_group('models')
  models.add_argument(
    '--grid', action='append', default=[], metavar='A.b=V,W', help='values of a binding; repeatable: all combinations'
  )
  models.add_argument('--scale', choices=SCALES, help='of the models and of all that is done with them')
  models.add_argument('--gin_file', action='append', default=[], metavar='FILE', help='after each FILE; repeatable')
  add_modules(models)
  models.add_argument(
    '--pretrain_seeds', type=numbers, default=(0,), metavar='0,1', help='one pre-training each; default 0'
  )
  models.add_argument(
    '--stop_diverged',
    type=float,
    default=1.0,
    metavar='NATS',
    help='stop a pre-training whose mean loss is so much above its lowest; 0 for never; default %(default)s',
  )
  learned = flags.add_argument_group('fine-tuning')
  add_benchmark(learned, seeds='0,1,2', is_required=False)
  learned.add_argument(
    '--finetune_grid', action='append', default=[], metavar='A.b=V,W', help='the same for fine-tuning; repeatable'
  )
  learned.add_argument(
    '--finetune_gin_file', action='append', default=[], metavar='FILE', help='for all that is learned; repeatable'
  )
  analyses = flags.add_argument_group('analyses')
  analyses.add_argument(
    '--analyses', type=listed, default=(), metavar='A,B', help='files gin/analyze_NAME.gin by their names'
  )
  add_slots(flags.add_argument_group('where'))
  return flags


def sorted_bindings(flags: argparse.ArgumentParser, rest: Sequence[str]) -> dict[str, list[str]]:
  """`gin`, `finetune_gin` and `analyze_gin` to their bindings, `NAME=VALUE`; ends the program for anything else."""
  found = {'gin': [], 'finetune_gin': [], 'analyze_gin': []}
  for argument in rest:
    match = re.fullmatch(r'--(\w*gin)\.([\w.]+=.*)', argument, re.DOTALL)
    if not match or match[1] not in found:
      flags.error(f'unknown argument {argument}')
    found[match[1]].append(match[2])
  return found


def run(flags: argparse.ArgumentParser, options: argparse.Namespace, rest: Sequence[str], argv: Sequence[str]) -> int:
  """Plans, makes what is not done, reports."""
  from launch.sweep.models import gin_files_of, grid_of, models_of

  bindings, scale = sorted_bindings(flags, rest), options.scale
  gin_files = [*([f'gin/scales/{scale}.gin'] if scale else []), *options.gin_file]
  finetune_files = [*([f'gin/scales/finetuning/{scale}.gin'] if scale else []), *options.finetune_gin_file]
  learned = [f'--gin.{binding}' for binding in bindings['finetune_gin']]
  benchmark = benchmark_of(flags, options, finetune_files, learned) if options.tasks else None
  console, workdir = Console(), epath.Path(options.workdir)
  guard = [f'guards.diverged_nats={options.stop_diverged}']
  models = models_of(
    gin_files_of(options.files), grid_of(options.grid, '--grid'), gin_files, [*guard, *bindings['gin']]
  )
  analysis_bindings = tuple(f'--gin.{binding}' for binding in bindings['analyze_gin'])
  variants = tuple(grid_of(options.finetune_grid, '--finetune_grid'))
  asked = Asked(benchmark, options.pretrain_seeds, variants, options.analyses, analysis_bindings, tuple(options.module))
  plan = planned(models, asked, workdir)
  for task, reason in (benchmark.missing_scores() if benchmark else {}).items():
    console.say(f'left out: {task} ({reason})')
  if options.dry_run:
    print_commands(plan.runs, console)
    return 0

  slots = slots_of(options)
  workdir.mkdir(parents=True, exist_ok=True)
  write(plan, argv, scale or 'full', workdir)
  progress, is_finished = make(plan.runs, slots, workdir, console)
  report(workdir, console)
  if not is_finished:
    return EXIT_STOPPED
  return 0 if all(each.state is State.DONE for each in progress) else 1


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  argv = sys.argv[1:] if argv is None else argv
  flags = parser()
  options, rest = flags.parse_known_args(argv)
  try:
    return run(flags, options, rest, argv)
  except UsageError as error:
    print(f'rembert: {error}', file=sys.stderr)
    return error.exit_code


if __name__ == '__main__':
  sys.exit(main())
