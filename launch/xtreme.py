"""The whole of XTREME with one command: every task that has data, over seeds and learning rates, to one table."""

import argparse
import dataclasses
import itertools
import json
import pathlib
import re
import shlex
import sys
from collections.abc import Sequence

from etils import epath

from launch.supervise import Patience, Supervisor
from rembert.errors import UsageError
from rembert.paper import TABLE_10
from rembert.report import xtreme_results, xtreme_table
from rembert.storage import write_whole
from rembert.training.console import Console
from rembert.training.preemption import EXIT_STOPPED
from tasks.xtreme.config import RETRIEVAL
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.tasks import get_task

# What is learned, and what it is judged on.
LEARNED = {
  'xnli': ('xnli',),
  'pawsx': ('pawsx',),
  'udpos': ('udpos',),
  'panx': ('panx',),
  'squad': ('xquad', 'mlqa'),
  'tydiqa': ('tydiqa',),
}
GIN_FILES = {name: f'gin/finetune_{name}.gin' for name in LEARNED}
GIN_FILES |= {'tatoeba': 'gin/evaluate_tatoeba.gin', 'bucc2018': 'gin/evaluate_bucc.gin'}

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

Bindings (--gin.NAME=VALUE) and further gin files go to every run. Each run has a workdir of its own and goes on where
it stands: repeating the command costs nothing for what is done. A run that is killed is started again.

exit codes
  0 done · 75 stopped early, run again to resume · 2 wrong usage · 1 a run failed; the table has the others
"""


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of the program.

  Attributes:
    task: that is learned, or retrieval.
    workdir: of its own.
    arguments: of `python -m rembert.main`.
    seed: None for retrieval.
    learning_rate: None for that of the gin file.
  """

  task: str
  workdir: epath.Path
  arguments: tuple[str, ...]
  seed: int | None = None
  learning_rate: float | None = None

  @property
  def name(self) -> str:
    """In few words."""
    rate = '' if self.learning_rate is None else f' · learning rate {self.learning_rate:g}'
    return self.task + rate + ('' if self.seed is None else f' · seed {self.seed}')

  def is_done(self) -> bool:
    """Whether the very same command has run to its end."""
    file = self.workdir / 'done.json'
    return file.exists() and json.loads(file.read_text()) == list(self.arguments)

  def run(self) -> int:
    """The exit code, after as many starts as it takes."""
    command = [sys.executable, '-m', 'rembert.main', *self.arguments]
    code = Supervisor(command, Patience(max_short_runs=3), lambda text: print(text, flush=True)).run()
    if code == 0:
      write_whole(self.workdir / 'done.json', json.dumps(list(self.arguments), indent=1))
    return code


def planned(options: argparse.Namespace, bindings: Sequence[str]) -> tuple[list[Run], dict[str, str]]:
  """All runs, and why tasks are left out. UsageError for data that is broken."""
  folder = XtremeFolder(options.data_dir, options.labels_dir)
  runs, missing = [], {}
  shared = [f'--gin.xtreme.data_dir={options.data_dir}']
  shared += [f'--gin.xtreme.labels_dir={options.labels_dir}'] if options.labels_dir else []
  for task in options.tasks:
    files = [f'--gin_file={file}' for file in (GIN_FILES[task], *(() if task in RETRIEVAL else options.gin_file))]
    if reason := _why_not(task, folder):
      missing |= dict.fromkeys(LEARNED.get(task, (task,)), reason)
      continue
    if task in RETRIEVAL:
      workdir = epath.Path(options.workdir) / task
      model = [f'--gin.evaluate.model={options.init}', f'--workdir={workdir}']
      runs.append(Run(task, workdir, (*files, *shared, *model)))
      continue
    for rate, seed in itertools.product(_rates(options.learning_rates, task), options.seeds):
      workdir = epath.Path(options.workdir) / task / (f'rate_{rate:g}' if rate else 'as_in_table_15') / f'seed_{seed}'
      own = [f'--gin.train.init_from={options.init}', f'--gin.train.seed={seed}', f'--workdir={workdir}']
      own += [f'--gin.optimizer.learning_rate={rate!r}'] if rate else []
      runs.append(Run(task, workdir, (*files, *shared, *own, *bindings), seed, rate))
  return runs, missing


def _why_not(task: str, folder: XtremeFolder) -> str:
  """Why a task cannot be run with this data; '' if it can."""
  if task in RETRIEVAL:
    return '' if (folder.root / task).is_dir() else 'no data'
  from rembert.jobs.judging import has_data

  if not has_data(get_task(task), folder, 'train', ('en',)):
    return 'no training data'
  judged = [name for name in LEARNED[task] if has_data(get_task(name), folder, 'test')]
  return '' if judged else 'no test data'


def _rates(asked_for: str | None, task: str) -> tuple[float | None, ...]:
  if asked_for is None:
    return (None,)
  if asked_for == 'table10':
    return TABLE_10[task].learning_rates if task in TABLE_10 else (None,)
  return tuple(float(rate) for rate in asked_for.split(','))


def collected(runs: Sequence[Run], failed: dict[str, str], missing: dict[str, str], console: Console):
  """Scores by task, one entry a seed, of the best learning rate by dev; and why the others are missing."""
  by_task, missing = {}, dict(missing)
  for task in dict.fromkeys(run.task for run in runs):
    by_rate = {}
    for run in runs:
      if run.task == task and run.name not in failed:
        by_rate.setdefault(run.learning_rate, []).append(run)
    if not by_rate:
      missing |= dict.fromkeys(LEARNED.get(task, (task,)), 'failed')
      continue
    best = max(by_rate, key=lambda rate: _mean_dev(by_rate[rate]))
    if len(by_rate) > 1:
      rows = [[f'{rate:g}', f'{_mean_dev(of_rate):.2f}'] for rate, of_rate in by_rate.items()]
      console.table(f'{task}: learning rates, mean score on dev; {best:g} is taken', ('rate', 'dev'), rows)
    found = [xtreme_results.read_scores(run.workdir) for run in by_rate[best]]
    for judged in LEARNED.get(task, (task,)):
      scored = [scores[judged] for scores in found if judged in scores]
      if scored:
        by_task[judged] = scored
      else:
        missing[judged] = 'no data, or no gold labels'
  return by_task, missing


def _mean_dev(runs: Sequence[Run]) -> float:
  scores = [xtreme_results.dev_score(run.workdir) for run in runs]
  return sum(score or 0.0 for score in scores) / len(scores)


def run(options: argparse.Namespace, bindings: Sequence[str]) -> int:
  """Runs what is not done, then shows and writes the table."""
  console = Console()
  runs, missing = planned(options, bindings)
  if not runs:
    raise UsageError(
      'there is no data for any task',
      where=f'--data_dir={options.data_dir}',
      fix='python -m tasks.xtreme.download --help',
    )
  todo = [each for each in runs if not each.is_done()]
  for task, reason in missing.items():
    console.say(f'left out: {task} ({reason})')
  console.say(f'{len(runs)} run(s), {len(runs) - len(todo)} of them done')
  if options.dry_run:
    for each in todo:
      console.say(shlex.join(['python', '-m', 'rembert.main', *each.arguments]))
    return 0
  failed: dict[str, str] = {}
  for number, each in enumerate(todo, 1):
    console.say(f'\n── {each.name} · {number} of {len(todo)} · {each.workdir}')
    code = each.run()
    if code == EXIT_STOPPED:
      console.say('stopped. Repeat the command to go on.')
      return EXIT_STOPPED
    if code:
      failed[each.name] = f'exit code {code}'

  by_task, missing = collected(runs, failed, missing, console)
  summaries = {task: xtreme_results.summary_of(task, of_seeds) for task, of_seeds in by_task.items()}
  for task, summary in summaries.items():
    xtreme_table.show_task(console, task, summary)
  row = xtreme_results.leaderboard_row(options.name or pathlib.PurePath(options.init).name, by_task, missing)
  xtreme_table.show(console, row)
  xtreme_table.write(row, options.workdir, summaries)
  console.say(f'table: {options.workdir}/xtreme.md, {options.workdir}/xtreme.json')
  console.say(f'as a page: python -m rembert.report {shlex.quote(str(options.workdir))}')
  for name, reason in failed.items():
    console.say(f'failed: {name} ({reason})')
  return 1 if failed else 0


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = argparse.ArgumentParser(
    'python -m launch.xtreme',
    description=__doc__,
    epilog=EXAMPLES,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  everything = (*LEARNED, *RETRIEVAL)
  numbers = lambda text: [int(number) for number in text.split(',')]
  parser.add_argument('--init', required=True, metavar='MODEL', help='workdir, checkpoint, or folder of Hugging Face')
  parser.add_argument('--data_dir', required=True, metavar='DIR', help="XTREME's download folder")
  parser.add_argument('--labels_dir', metavar='DIR', help='gold labels (default: DIR/labels)')
  parser.add_argument('--workdir', default='runs/xtreme', metavar='DIR', help='default %(default)s')
  parser.add_argument(
    '--tasks', type=lambda text: text.split(','), default=everything, metavar='A,B', help=f'of {", ".join(everything)}'
  )
  parser.add_argument('--seeds', type=numbers, default=[0, 1, 2], metavar='0,1,2', help='one run each; default 0,1,2')
  parser.add_argument(
    '--learning_rates', metavar='A,B', help="table10 for the paper's sweeps, or numbers (default: Table 15's, one each)"
  )
  parser.add_argument('--name', help='of the model in the table (default: the last part of MODEL)')
  parser.add_argument(
    '--gin_file', action='append', default=[], metavar='FILE', help='for all that is learned; repeatable'
  )
  parser.add_argument('--dry_run', action='store_true', help='print the commands, and run nothing')
  options, bindings = parser.parse_known_args(argv)
  if unknown := [binding for binding in bindings if not re.match(r'--gin\.\w+\.\w+=', binding)]:
    parser.error(f'unknown argument {unknown[0]}')
  if unknown := [task for task in options.tasks if task not in everything]:
    parser.error(f'unknown task {unknown[0]}: choose from {", ".join(everything)}')
  try:
    return run(options, bindings)
  except UsageError as error:
    print(f'rembert: {error}', file=sys.stderr)
    return error.exit_code


if __name__ == '__main__':
  sys.exit(main())
