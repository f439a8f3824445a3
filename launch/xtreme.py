"""The whole of XTREME with one command: every task that has data, over seeds and learning rates, to one table."""

import argparse
import dataclasses
import functools
import itertools
import pathlib
import re
import sys
from collections.abc import Sequence

from etils import epath

from launch.command_line import exit_code_of
from launch.experiment import Run, RunState
from launch.scheduler import add_run_options, chosen_slots, run_all, shared_flags, show_plan, write_report
from rembert.command_line import command_parser
from rembert.errors import UsageError
from rembert.paper import TABLE_10
from rembert.runtime.signals import EXIT_STOPPED
from rembert.tracking.console import Console
from rembert.validation import CountOrZero, number
from tasks.xtreme import leaderboard
from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.config import RETRIEVAL
from tasks.xtreme.files import XtremeFolder

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

# The fine-tuned task, and what the model is then evaluated on.
FINE_TUNED = {
  'xnli': ('xnli',),
  'pawsx': ('pawsx',),
  'udpos': ('udpos',),
  'panx': ('panx',),
  'squad': ('xquad', 'mlqa'),
  'tydiqa': ('tydiqa',),
}
ALL_TASKS = (*FINE_TUNED, *RETRIEVAL)
GIN_FILES = {name: f'gin/finetune_{name}.gin' for name in FINE_TUNED}
GIN_FILES |= {'tatoeba': 'gin/evaluate_tatoeba.gin', 'bucc2018': 'gin/evaluate_bucc.gin'}


@dataclasses.dataclass(frozen=True)
class TaskRun:
  """A run that ends with scores.

  Attributes:
    run: the run.
    task: that is fine-tuned, or retrieval.
    seed: None for retrieval.
    learning_rate: None for that of the gin file.
  """

  run: Run
  task: str
  seed: int | None = None
  learning_rate: float | None = None

  @property
  def evaluated(self) -> tuple[str, ...]:
    """Tasks that it has scores of."""
    return FINE_TUNED.get(self.task, (self.task,))


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """The tasks that models are evaluated on, and how they are fine-tuned.

  Attributes:
    data_dir: XTREME's download folder.
    labels_dir: gold labels; None for those in the data.
    tasks: of ALL_TASKS.
    seeds: one run each.
    learning_rates: table10, or numbers with commas between them; None for those of the gin files.
    gin_files: for all fine-tuning.
    bindings: likewise, as --gin.NAME=VALUE.
    flags: for every run.
  """

  data_dir: str
  labels_dir: str | None
  tasks: tuple[str, ...]
  seeds: tuple[int, ...]
  learning_rates: str | None
  gin_files: tuple[str, ...]
  bindings: tuple[str, ...]
  flags: tuple[str, ...] = ()

  @functools.cached_property
  def missing(self) -> dict[str, str]:
    """Tasks that cannot be run with this data, and why. UsageError for data that is broken."""
    folder = XtremeFolder(self.data_dir, self.labels_dir)
    found = {task: _why_not(task, folder) for task in self.tasks}
    return {task: reason for task, reason in found.items() if reason}

  def missing_scores(self) -> dict[str, str]:
    """The same by the tasks that there will be no scores of."""
    return {name: reason for task, reason in self.missing.items() for name in FINE_TUNED.get(task, (task,))}

  def runs(
    self,
    model: str,
    workdir: epath.Path,
    *,
    label: str = '',
    needs: tuple[str, ...] = (),
    bindings: Sequence[str] = (),
    tasks: Sequence[str] | None = None,
  ) -> list[TaskRun]:
    """All runs of a model.

    Args:
      model: workdir, checkpoint, or Hugging Face model directory.
      workdir: of the whole; each run has a folder in it.
      label: of the model, for the names of the runs.
      needs: names of the runs that make the model.
      bindings: more of them.
      tasks: those that are fine-tuned with them; None for all, with retrieval.
    """
    found = []
    shared = [f'--gin.xtreme.data_dir={self.data_dir}']
    shared += [f'--gin.xtreme.labels_dir={self.labels_dir}'] if self.labels_dir else []
    for task in self.tasks if tasks is None else tasks:
      if task in self.missing:
        continue
      name = f'{task} {label}'.strip()
      if task in RETRIEVAL:
        own = [f'--gin_file={GIN_FILES[task]}', *shared, f'--gin.evaluate.model={model}', f'--workdir={workdir / task}']
        found.append(TaskRun(Run(name, workdir / task, (*self.flags, *own), needs), task))
        continue
      files = [f'--gin_file={file}' for file in (GIN_FILES[task], *self.gin_files)]
      for rate, seed in itertools.product(_rates(self.learning_rates, task), self.seeds):
        folder = workdir / task / (f'rate_{rate:g}' if rate else 'rate_of_file') / f'seed_{seed}'
        own = [f'--gin.train.init_from={model}', f'--gin.train.seed={seed}', f'--workdir={folder}']
        own += [f'--gin.optimizer.learning_rate={rate!r}'] if rate else []
        full_name = name + (f' · learning rate {rate:g}' if rate else '') + f' · seed {seed}'
        arguments = (*self.flags, *files, *shared, *own, *self.bindings, *bindings)
        found.append(TaskRun(Run(full_name, folder, arguments, needs), task, seed, rate))
    return found


def _why_not(task: str, folder: XtremeFolder) -> str:
  """Why a task cannot be run with this data; '' if it can."""
  if task in RETRIEVAL:
    return '' if (folder.root / task).is_dir() else 'no data'
  if not TASKS[task].has_data(folder, 'train', ('en',)):
    return 'no training data'
  return '' if any(TASKS[name].has_data(folder, 'test') for name in FINE_TUNED[task]) else 'no test data'


def _rates(asked_for: str | None, task: str) -> tuple[float | None, ...]:
  if asked_for is None:
    return (None,)
  if asked_for == 'table10':
    return TABLE_10[task].learning_rates if task in TABLE_10 else (None,)
  return tuple(float(rate) for rate in asked_for.split(','))


# --- options, of launch.sweep too -------------------------------------------------------------------------------------


def words(text: str) -> tuple[str, ...]:
  """`A,B` as the value of an option; may be empty."""
  return tuple(part for part in text.split(',') if part)


def numbers(text: str) -> tuple[int, ...]:
  """`0,1` as the value of an option."""
  return tuple(number(CountOrZero)(each) for each in text.split(','))


def add_benchmark(parser: argparse._ActionsContainer, *, is_required: bool = True) -> None:
  """Adds the options that a benchmark is made of, except those of gin."""
  parser.add_argument('--data_dir', required=is_required, metavar='DIR', help="XTREME's download folder")
  parser.add_argument('--labels_dir', metavar='DIR', help='gold labels (default: DIR/labels)')
  parser.add_argument('--tasks', type=words, default=ALL_TASKS, metavar='A,B', help=f'of {", ".join(ALL_TASKS)}')
  parser.add_argument('--seeds', type=numbers, default=(0, 1, 2), metavar='0,1,2', help='one run of fine-tuning each')
  help_text = "table10 for the paper's sweeps, or numbers, of which dev chooses (default: those of the gin files)"
  parser.add_argument('--learning_rates', metavar='A,B', help=help_text)


def benchmark_from(
  parser: argparse.ArgumentParser, options: argparse.Namespace, gin_files: Sequence[str], bindings: Sequence[str]
) -> Benchmark:
  """The benchmark given by the options; ends the program if they are misspelt."""
  if options.data_dir is None:
    parser.error('--data_dir=DIR is missing, where XTREME lies; or --tasks= to fine-tune nothing')
  if unknown := [task for task in options.tasks if task not in ALL_TASKS]:
    parser.error(f'unknown task {unknown[0]}: choose from {", ".join(ALL_TASKS)}')
  try:
    for task in options.tasks:
      _rates(options.learning_rates, task)
  except ValueError:
    parser.error(f'--learning_rates={options.learning_rates}: table10, or numbers as in 1e-5,3e-5')
  named = {name: getattr(options, name) for name in ('data_dir', 'labels_dir', 'tasks', 'seeds', 'learning_rates')}
  return Benchmark(**named, gin_files=tuple(gin_files), bindings=tuple(bindings), flags=shared_flags(options))


# --- the command ------------------------------------------------------------------------------------------------------


def collect_scores(runs: Sequence[TaskRun], done: set[str], missing: dict[str, str], console: Console):
  """Scores by task, one entry per seed, of the best learning rate by dev; and why the others are missing."""
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
      console.table(f'{task}: learning rates, mean score on dev; {best:g} is taken', ('rate', 'dev'), rows)
    found = [leaderboard.read_scores(run.workdir) for run in by_rate[best]]
    for name in task_runs[0].evaluated:
      if scored := [scores[name] for scores in found if name in scores]:
        by_task[name] = scored
      else:
        missing[name] = 'no data, or no gold labels'
  return by_task, missing


def _mean_dev(runs: Sequence[Run]) -> float:
  scores = [leaderboard.dev_score(run.workdir) for run in runs]
  return sum(score or 0.0 for score in scores) / len(scores)


def run(options: argparse.Namespace, benchmark: Benchmark) -> int:
  """Makes the runs that are not done, then shows and writes the table."""
  console, workdir = Console(), epath.Path(options.workdir)
  task_runs = benchmark.runs(options.init, workdir)
  if not task_runs:
    raise UsageError(
      'there is no data for any task',
      where=f'--data_dir={options.data_dir}',
      fix='python -m tasks.xtreme.download --help',
    )
  runs, missing = [each.run for each in task_runs], benchmark.missing_scores()
  if not show_plan(runs, missing, options, console):
    return 0
  progress, is_finished = run_all(runs, chosen_slots(options), workdir, console)
  if not is_finished:
    return EXIT_STOPPED
  done = {each.run.name for each in progress if each.state is RunState.DONE}
  by_task, missing = collect_scores(task_runs, done, missing, console)
  summaries = {task: leaderboard.summary_of(task, of_seeds) for task, of_seeds in by_task.items()}
  for task, summary in summaries.items():
    leaderboard.show_task(console, task, summary)
  row = leaderboard.leaderboard_row(options.name or pathlib.PurePath(options.init).name, by_task, missing)
  leaderboard.show_row(console, row)
  leaderboard.write_row(row, options.workdir, summaries)
  console.say(f'table: {options.workdir}/xtreme.md, {options.workdir}/xtreme.json')
  write_report(workdir, console)
  return 0 if len(done) == len(progress) else 1


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = command_parser('launch.xtreme', __doc__, EXAMPLES)
  parser.add_argument('--init', required=True, metavar='MODEL', help='workdir, checkpoint, or folder of Hugging Face')
  add_benchmark(parser)
  parser.add_argument('--workdir', default='runs/xtreme', metavar='DIR', help='default %(default)s')
  parser.add_argument('--name', help='of the model in the table (default: the last part of MODEL)')
  help_text = 'for all that is learned; repeatable'
  parser.add_argument('--gin_file', action='append', default=[], metavar='FILE', help=help_text)
  add_run_options(parser)
  options, bindings = parser.parse_known_args(argv)
  if unknown := [binding for binding in bindings if not re.match(r'--gin\.\w+\.\w+=', binding)]:
    parser.error(f'unknown argument {unknown[0]}')
  return exit_code_of(lambda: run(options, benchmark_from(parser, options, options.gin_file, bindings)))


if __name__ == '__main__':
  sys.exit(main())
