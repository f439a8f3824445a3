"""The runs that judge one model on XTREME: a task learned for every seed and learning rate, retrieval as it is."""

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Sequence

from etils import epath

from launch.runs import Run
from rembert.paper import TABLE_10
from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.config import RETRIEVAL
from tasks.xtreme.layout import XtremeFolder

# What is learned, and what it is judged on.
LEARNED = {
  'xnli': ('xnli',),
  'pawsx': ('pawsx',),
  'udpos': ('udpos',),
  'panx': ('panx',),
  'squad': ('xquad', 'mlqa'),
  'tydiqa': ('tydiqa',),
}
EVERYTHING = (*LEARNED, *RETRIEVAL)
GIN_FILES = {name: f'gin/finetune_{name}.gin' for name in LEARNED}
GIN_FILES |= {'tatoeba': 'gin/evaluate_tatoeba.gin', 'bucc2018': 'gin/evaluate_bucc.gin'}


@dataclasses.dataclass(frozen=True)
class TaskRun:
  """A run that ends with scores.

  Attributes:
    run: the run.
    task: that is learned, or retrieval.
    seed: None for retrieval.
    learning_rate: None for that of the gin file.
  """

  run: Run
  task: str
  seed: int | None = None
  learning_rate: float | None = None

  @property
  def judged(self) -> tuple[str, ...]:
    """Tasks that it has scores of."""
    return LEARNED.get(self.task, (self.task,))


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """What models are judged on, and how they learn it.

  Attributes:
    data_dir: XTREME's download folder.
    labels_dir: gold labels; None for those beside the data.
    tasks: of `EVERYTHING`.
    seeds: one run each.
    learning_rates: 'table10', or numbers with commas between them; None for those of the gin files.
    gin_files: for all that is learned.
    bindings: likewise, as `--gin.NAME=VALUE`.
  """

  data_dir: str
  labels_dir: str | None
  tasks: tuple[str, ...]
  seeds: tuple[int, ...]
  learning_rates: str | None
  gin_files: tuple[str, ...]
  bindings: tuple[str, ...]

  @functools.cached_property
  def missing(self) -> dict[str, str]:
    """Tasks that cannot be run with this data, and why. UsageError for data that is broken."""
    folder = XtremeFolder(self.data_dir, self.labels_dir)
    found = {task: _why_not(task, folder) for task in self.tasks}
    return {task: reason for task, reason in found.items() if reason}

  def missing_scores(self) -> dict[str, str]:
    """The same by the tasks that there will be no scores of."""
    return {judged: reason for task, reason in self.missing.items() for judged in LEARNED.get(task, (task,))}

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
      model: workdir, checkpoint, or folder of Hugging Face.
      workdir: that theirs are in.
      label: of the model, for the names of the runs.
      needs: names of the runs that make the model.
      bindings: more of them.
      tasks: those that are learned with them; None for all, with retrieval.
    """
    found = []
    shared = [f'--gin.xtreme.data_dir={self.data_dir}']
    shared += [f'--gin.xtreme.labels_dir={self.labels_dir}'] if self.labels_dir else []
    for task in self.tasks if tasks is None else tasks:
      if task in self.missing:
        continue
      name = f'{task} {label}'.strip()
      if task in RETRIEVAL:
        own = (f'--gin_file={GIN_FILES[task]}', *shared, f'--gin.evaluate.model={model}')
        found.append(TaskRun(Run(name, workdir / task, (*own, f'--workdir={workdir / task}'), needs), task))
        continue
      files = [f'--gin_file={file}' for file in (GIN_FILES[task], *self.gin_files)]
      for rate, seed in itertools.product(_rates(self.learning_rates, task), self.seeds):
        folder = workdir / task / (f'rate_{rate:g}' if rate else 'rate_of_file') / f'seed_{seed}'
        own = [f'--gin.train.init_from={model}', f'--gin.train.seed={seed}', f'--workdir={folder}']
        own += [f'--gin.optimizer.learning_rate={rate!r}'] if rate else []
        full_name = name + (f' · learning rate {rate:g}' if rate else '') + f' · seed {seed}'
        run = Run(full_name, folder, (*files, *shared, *own, *self.bindings, *bindings), needs)
        found.append(TaskRun(run, task, seed, rate))
    return found


def _why_not(task: str, folder: XtremeFolder) -> str:
  """Why a task cannot be run with this data; '' if it can."""
  if task in RETRIEVAL:
    return '' if (folder.root / task).is_dir() else 'no data'
  if not TASKS[task].has_data(folder, 'train', ('en',)):
    return 'no training data'
  judged = [name for name in LEARNED[task] if TASKS[name].has_data(folder, 'test')]
  return '' if judged else 'no test data'


def _rates(asked_for: str | None, task: str) -> tuple[float | None, ...]:
  if asked_for is None:
    return (None,)
  if asked_for == 'table10':
    return TABLE_10[task].learning_rates if task in TABLE_10 else (None,)
  return tuple(float(rate) for rate in asked_for.split(','))


def listed(text: str) -> tuple[str, ...]:
  """`A,B`, as the value of an option."""
  return tuple(part for part in text.split(',') if part)


def add_benchmark(parser: argparse._ActionsContainer, *, seeds: str, is_required: bool = True) -> None:
  """Adds the options that `Benchmark` is made of, but for those of gin; `seeds` are the default."""
  parser.add_argument('--data_dir', required=is_required, metavar='DIR', help="XTREME's download folder")
  parser.add_argument('--labels_dir', metavar='DIR', help='gold labels (default: DIR/labels)')
  parser.add_argument('--tasks', type=listed, default=EVERYTHING, metavar='A,B', help=f'of {", ".join(EVERYTHING)}')
  numbers = lambda text: tuple(int(number) for number in text.split(','))
  parser.add_argument(
    '--seeds', type=numbers, default=numbers(seeds), metavar=seeds, help='one run of fine-tuning each'
  )
  parser.add_argument(
    '--learning_rates',
    metavar='A,B',
    help="table10 for the paper's sweeps, or numbers, of which dev chooses (default: those of the gin files)",
  )


def benchmark_of(
  parser: argparse.ArgumentParser, options: argparse.Namespace, gin_files: Sequence[str], bindings: Sequence[str]
) -> Benchmark:
  """What the options ask for; ends the program where they are misspelt."""
  if options.data_dir is None:
    parser.error('--data_dir=DIR is missing, where XTREME lies; or --tasks= to fine-tune nothing')
  if unknown := [task for task in options.tasks if task not in EVERYTHING]:
    parser.error(f'unknown task {unknown[0]}: choose from {", ".join(EVERYTHING)}')
  try:
    for task in options.tasks:
      _rates(options.learning_rates, task)
  except ValueError:
    parser.error(f'--learning_rates={options.learning_rates}: table10, or numbers as in 1e-5,3e-5')
  return Benchmark(
    options.data_dir,
    options.labels_dir,
    tuple(options.tasks),
    tuple(options.seeds),
    options.learning_rates,
    tuple(gin_files),
    tuple(bindings),
  )
