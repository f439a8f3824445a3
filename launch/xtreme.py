"""The whole of XTREME with one command: every task that has data, over seeds and learning rates, to one table."""

import argparse
import pathlib
import re
import sys
from collections.abc import Sequence

from etils import epath

from launch.execution import Progress, State
from launch.making import add_slots, make, print_commands, report, slots_of
from launch.xtreme_runs import Benchmark, TaskRun, add_benchmark, benchmark_of
from rembert.errors import UsageError
from rembert.jobs import xtreme_results, xtreme_table
from rembert.training.console import Console
from rembert.training.preemption import EXIT_STOPPED

EXAMPLES = """
examples
  all tasks that there is data for, with the hyper-parameters of the paper's Table 15, three seeds:
    python -m launch.xtreme --init=runs/pretrain_large --data_dir=download
  the released model in Hugging Face's form, two tasks, one seed:
    python -m launch.xtreme --init=google/rembert-folder --data_dir=download --tasks=udpos,panx --seeds=0
  the best of the learning rates of Table 10, batches of 32:
    python -m launch.xtreme --init=MODEL --data_dir=download --learning_rates=table10 --gin.train.batch_size=32
  what would be run:
    python -m launch.xtreme --init=MODEL --data_dir=download --dry_run

  four runs at a time:
    python -m launch.xtreme --init=MODEL --data_dir=download --devices=0,1,2,3

Bindings (--gin.NAME=VALUE) and further gin files go to all that is learned. Each run has a workdir of its own, with
what it prints in log.txt, and goes on where it stands: repeating the command costs nothing for what is done. A run that
is killed is started again.

exit codes
  0 done · 75 stopped early, run again to resume · 2 wrong usage · 1 a run failed; the table has the others
"""


def collected(runs: Sequence[TaskRun], done: set[str], missing: dict[str, str], console: Console):
  """Scores by task, one entry a seed, of the best learning rate by dev; and why the others are missing."""
  by_task, missing = {}, dict(missing)
  for task in dict.fromkeys(each.task for each in runs):
    judged = next(each.judged for each in runs if each.task == task)
    by_rate = {}
    for each in runs:
      if each.task == task and each.run.name in done:
        by_rate.setdefault(each.learning_rate, []).append(each.run)
    if not by_rate:
      missing |= dict.fromkeys(judged, 'failed')
      continue
    best = max(by_rate, key=lambda rate: _mean_dev(by_rate[rate]))
    if len(by_rate) > 1:
      rows = [[f'{rate:g}', f'{_mean_dev(of_rate):.2f}'] for rate, of_rate in by_rate.items()]
      console.table(f'{task}: learning rates, mean score on dev; {best:g} is taken', ('rate', 'dev'), rows)
    found = [xtreme_results.read_scores(run.workdir) for run in by_rate[best]]
    for name in judged:
      scored = [scores[name] for scores in found if name in scores]
      if scored:
        by_task[name] = scored
      else:
        missing[name] = 'no data, or no gold labels'
  return by_task, missing


def _mean_dev(runs) -> float:
  scores = [xtreme_results.dev_score(run.workdir) for run in runs]
  return sum(score or 0.0 for score in scores) / len(scores)


def run(options: argparse.Namespace, benchmark: Benchmark) -> int:
  """Runs what is not done, then shows and writes the table."""
  console, workdir = Console(), epath.Path(options.workdir)
  task_runs = benchmark.runs(options.init, workdir)
  if not task_runs:
    raise UsageError(
      'there is no data for any task',
      where=f'--data_dir={options.data_dir}',
      fix='python -m tasks.xtreme.download --help',
    )
  for task, reason in benchmark.missing_scores().items():
    console.say(f'left out: {task} ({reason})')
  runs = [each.run for each in task_runs]
  if options.dry_run:
    print_commands(runs, console)
    return 0
  progress, is_finished = make(runs, slots_of(options), workdir, console)
  if not is_finished:
    return EXIT_STOPPED
  return _show(options, benchmark, task_runs, progress, console)


def _show(options, benchmark, task_runs, progress: Sequence[Progress], console: Console) -> int:
  done = {each.run.name for each in progress if each.state is State.DONE}
  by_task, missing = collected(task_runs, done, benchmark.missing_scores(), console)
  summaries = {task: xtreme_results.summary_of(task, of_seeds) for task, of_seeds in by_task.items()}
  for task, summary in summaries.items():
    xtreme_table.show_task(console, task, summary)
  row = xtreme_results.leaderboard_row(options.name or pathlib.PurePath(options.init).name, by_task, missing)
  xtreme_table.show(console, row)
  xtreme_table.write(row, options.workdir, summaries)
  console.say(f'table: {options.workdir}/xtreme.md, {options.workdir}/xtreme.json')
  report(epath.Path(options.workdir), console)
  return 0 if len(done) == len(progress) else 1


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = argparse.ArgumentParser(
    'python -m launch.xtreme',
    description=__doc__,
    epilog=EXAMPLES,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  parser.add_argument('--init', required=True, metavar='MODEL', help='workdir, checkpoint, or folder of Hugging Face')
  add_benchmark(parser, seeds='0,1,2')
  parser.add_argument('--workdir', default='runs/xtreme', metavar='DIR', help='default %(default)s')
  parser.add_argument('--name', help='of the model in the table (default: the last part of MODEL)')
  parser.add_argument(
    '--gin_file', action='append', default=[], metavar='FILE', help='for all that is learned; repeatable'
  )
  add_slots(parser)
  options, bindings = parser.parse_known_args(argv)
  if unknown := [binding for binding in bindings if not re.match(r'--gin\.\w+\.\w+=', binding)]:
    parser.error(f'unknown argument {unknown[0]}')
  try:
    return run(options, benchmark_of(parser, options, options.gin_file, bindings))
  except UsageError as error:
    print(f'rembert: {error}', file=sys.stderr)
    return error.exit_code


if __name__ == '__main__':
  sys.exit(main())
