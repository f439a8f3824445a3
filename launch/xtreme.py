"""Fine-tunes and evaluates a model on all XTREME tasks that have data, over seeds and learning rates."""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from etils import epath

from launch.experiment import Benchmark, Run, TaskRun, add_benchmark, benchmark_from, show_plan
from launch.scheduler import RunState, add_run_options, chosen_slots, run_all, write_report
from rembert.command_line import command_parser, parse_bindings, run_command
from rembert.errors import UsageError
from rembert.runtime.signals import EXIT_STOPPED
from rembert.tracking.console import Console
from tasks.xtreme import leaderboard

EXAMPLES = """
examples
  all tasks with data, with the hyper-parameters of the paper's Table 15, three seeds, on four GPUs:
    python -m launch.xtreme --init=runs/pretrain_large --data_dir=download --devices=0,1,2,3
  the released model as a Hugging Face directory, two tasks, one seed:
    python -m launch.xtreme --init=google/rembert --data_dir=download --tasks=udpos,panx --seeds=0
  the best of the learning rates of Table 10, batches of 32; prints the commands only:
    python -m launch.xtreme --init=MODEL --data_dir=download --learning_rates=table10 --gin.train.batch_size=32 \\
        --dry_run

Bindings (--gin.NAME=VALUE) and further gin files apply to all fine-tuning. Each run has its own workdir, with its
output in log.txt. Running the command again resumes; a run that is killed is restarted.

exit codes
  0 done · 75 stopped early, run again to resume · 2 wrong usage · 1 a run failed; the table has the other runs
"""


def collect_scores(runs: Sequence[TaskRun], done: set[str], missing: dict[str, str], console: Console):
  """Scores by task, one per seed, of the best learning rate on dev; adds the reasons for missing ones to `missing`."""
  by_task: dict[str, list] = {}
  missing = dict(missing)
  for task in dict.fromkeys(each.task for each in runs):
    task_runs = [each for each in runs if each.task == task]
    by_rate: dict[float | None, list[Run]] = {}
    for each in task_runs:
      if each.run.name in done:
        by_rate.setdefault(each.learning_rate, []).append(each.run)
    if not by_rate:
      missing |= dict.fromkeys(task_runs[0].evaluated, 'failed')
      continue
    best = max(by_rate, key=lambda rate: _mean_dev(by_rate[rate]))
    if len(by_rate) > 1:
      rows = [[f'{rate:g}', f'{_mean_dev(of_rate):.2f}'] for rate, of_rate in by_rate.items()]
      console.table(f'{task}: learning rates, mean score on dev; best {best:g}', ('rate', 'dev'), rows)
    found = [leaderboard.parse_results(leaderboard.read_results(run.workdir)) for run in by_rate[best]]
    for name in task_runs[0].evaluated:
      if of_seeds := [scores[name] for scores in found if name in scores]:
        by_task[name] = [{language: scores for language, (scores, _) in of_seed.items()} for of_seed in of_seeds]
      else:
        missing[name] = 'no data, or no gold labels'
  return by_task, missing


def _mean_dev(runs: Sequence[Run]) -> float:
  scores = [leaderboard.parse_dev_score(leaderboard.read_results(run.workdir)) for run in runs]
  return sum(score or 0.0 for score in scores) / len(scores)


def run(options: argparse.Namespace, benchmark: Benchmark) -> int:
  """Runs everything that is not done, then prints and writes the table."""
  console, workdir = Console(), epath.Path(options.workdir)
  task_runs = benchmark.runs(options.init, workdir)
  if not task_runs:
    raise UsageError(
      'no data found for any task',
      where=f'--data_dir={options.data_dir}',
      fix='python -m tasks.xtreme.download --help',
    )
  runs, missing = [each.run for each in task_runs], benchmark.missing_scores()
  show_plan(runs, missing, options.dry_run, console)
  if options.dry_run:
    return 0
  progress, is_finished = run_all(runs, chosen_slots(options), workdir, console)
  if not is_finished:
    return EXIT_STOPPED
  done = {each.run.name for each in progress if each.state is RunState.DONE}
  by_task, missing = collect_scores(task_runs, done, missing, console)
  row = leaderboard.leaderboard_row(options.name or pathlib.PurePath(options.init).name, by_task, missing)
  leaderboard.show_row(console, row)
  leaderboard.write_row(row, options.workdir)
  write_report(workdir, console)
  return 0 if len(done) == len(progress) else 1


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  argv = sys.argv[1:] if argv is None else argv
  parser = command_parser('launch.xtreme', __doc__, EXAMPLES)
  help_text = 'model to fine-tune: workdir, checkpoint, or Hugging Face model directory or Hub id'
  parser.add_argument('--init', required=True, metavar='MODEL', help=help_text)
  add_benchmark(parser)
  parser.add_argument('--workdir', default='runs/xtreme', metavar='DIR', help='default: %(default)s')
  parser.add_argument('--name', help='name of the model in the table (default: the last part of MODEL)')
  help_text = 'gin file for all fine-tuning; repeatable'
  parser.add_argument('--gin_file', action='append', default=[], metavar='FILE', help=help_text)
  add_run_options(parser)
  options, bindings = parse_bindings(parser, argv)
  benchmark = benchmark_from(parser, options, options.gin_file, bindings['gin'])
  return run_command('rembert', lambda: run(options, benchmark))


if __name__ == '__main__':
  sys.exit(main())
