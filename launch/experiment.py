"""The runs of an experiment: their commands and records, and the plan that `launch.sweep` and `launch.xtreme` share."""

import argparse
import contextlib
import dataclasses
import datetime
import functools
import itertools
import json
import pathlib
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

import rembert
from launch.command_line import check_command
from launch.processes import git_output
from rembert.errors import UsageError
from rembert.files import write_whole
from rembert.paper import TABLE_10
from rembert.tracking.console import Console
from rembert.validation import CountOrZero, number
from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.config import RETRIEVAL
from tasks.xtreme.files import XtremeFolder


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of `python -m rembert.main`.

  Its record, `run.json` in the workdir, has `name`, `arguments`, `code` and `host` of the last start; `starts`, each
  with `began`, `ended` (ISO 8601, UTC) and `exit_code`; `reason` is the error message of a run that failed.

  Attributes:
    name: short and unique.
    workdir: its own.
    arguments: of `python -m rembert.main`.
    needs: names of the runs that have to be done before.
  """

  name: str
  workdir: epath.Path
  arguments: tuple[str, ...]
  needs: tuple[str, ...] = ()

  @property
  def command(self) -> list[str]:
    """With this Python."""
    return [sys.executable, '-m', 'rembert.main', *self.arguments]

  def record(self) -> dict[str, Any]:
    """The record; without starts if the run was never started."""
    file = self.workdir / 'run.json'
    return json.loads(file.read_text()) if file.exists() else {'starts': []}

  def is_done(self) -> bool:
    """Whether its last start ended without an error."""
    return any(start['exit_code'] == 0 for start in self.record()['starts'][-1:])

  def seconds(self) -> float:
    """Total time of its starts that have ended."""
    moment = datetime.datetime.fromisoformat
    spans = [(start['began'], start['ended']) for start in self.record()['starts'] if start['ended']]
    return sum((moment(ended) - moment(began)).total_seconds() for began, ended in spans)

  def check(self) -> None:
    """UsageError if it was done with other arguments; a run that is not done checks its workdir itself."""
    before, now = self.record().get('arguments', []), list(self.arguments)
    if not self.is_done() or before == now:
      return
    changed = [f'- {argument}' for argument in before if argument not in now]
    changed += [f'+ {argument}' for argument in now if argument not in before]
    raise UsageError(
      f'{self.name} was run with other arguments: ' + ', '.join(changed or ['in another order']),
      where=str(self.workdir),
      fix=['choose another workdir: --workdir=DIR', 'or delete this one, and the runs that started from it'],
    )

  def record_start(self, code: dict[str, Any]) -> None:
    """Adds a start of this code (`code_version`) to the record."""
    start = {'began': _now(), 'ended': None, 'exit_code': None}
    content = {'name': self.name, 'arguments': list(self.arguments), 'code': code, 'host': platform.node()}
    write_json(self.workdir / 'run.json', content | {'reason': '', 'starts': [*self.record()['starts'], start]})

  def record_end(self, exit_code: int, reason: str = '') -> None:
    """Completes the last start in the record."""
    record = self.record()
    if record['starts']:  # otherwise the workdir was deleted in the meantime
      record['starts'][-1] |= {'ended': _now(), 'exit_code': exit_code}
      write_json(self.workdir / 'run.json', record | {'reason': reason})


def _now() -> str:
  return datetime.datetime.now(datetime.UTC).isoformat(timespec='milliseconds')


def write_json(file: epath.Path, content: Any) -> None:
  """Writes a file that people read too."""
  write_whole(file, json.dumps(content, indent=1, ensure_ascii=False) + '\n')


def code_version() -> dict[str, Any]:
  """Version, git commit, and whether files differ from it; the last two are None for an installed copy."""
  folder, commit, is_dirty = pathlib.Path(rembert.__file__).parent.parent, None, None
  if (folder / '.git').exists():
    with contextlib.suppress(OSError, subprocess.SubprocessError):
      commit = git_output(folder, 'rev-parse', 'HEAD').strip()
      is_dirty = bool(git_output(folder, 'status', '--porcelain', '--untracked-files=no'))
  return {'version': rembert.__version__, 'commit': commit, 'dirty': is_dirty}


# --- the plan: commands in two stages ---------------------------------------------------------------------------------


def show_plan(runs: Sequence[Run], left_out: Mapping[str, str], is_dry: bool, console: Console) -> None:
  """Checks the commands, and prints which tasks are left out and why; in a dry run also the commands, in two stages.

  Runs of a stage may be made side by side. The second stage needs runs of the first.

  Raises:
    UsageError: a run would refuse its settings.
  """
  made = {f'--gin_file={run.workdir / "config.gin"}' for run in runs}  # which others begin with
  for run in (run for run in runs if not made & set(run.arguments)):
    try:
      check_command(run.command)
    except UsageError as error:
      raise UsageError(f'{run.name}: {error.what}', where=error.where, fix=error.fix) from error
  for task, reason in left_out.items():
    console.say(f'left out: {task} ({reason})')
  if not is_dry:
    return
  stages = [stage for stage in ([run for run in runs if not run.needs], [run for run in runs if run.needs]) if stage]
  console.say(f'# {len(runs)} run(s), {sum(run.is_done() for run in runs)} of them done')
  for count, stage in enumerate(stages, 1):
    if len(stages) > 1:
      console.say(f'# stage {count} of {len(stages)}')
    for run in (run for run in stage if not run.is_done()):
      console.say(shlex.join(['python', '-m', 'rembert.main', *run.arguments]))


# --- evaluation on XTREME ---------------------------------------------------------------------------------------------

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
    data_dir: XTREME's download directory.
    labels_dir: gold labels; None for those in the data.
    tasks: of ALL_TASKS.
    seeds: one run each.
    learning_rates: 'table10', or the rates to choose from; None for those of the gin files.
    gin_files: for all fine-tuning.
    bindings: likewise, NAME=VALUE.
    flags: for every run.
  """

  data_dir: str
  labels_dir: str | None
  tasks: tuple[str, ...]
  seeds: tuple[int, ...]
  learning_rates: str | tuple[float, ...] | None
  gin_files: tuple[str, ...]
  bindings: tuple[str, ...]
  flags: tuple[str, ...] = ()

  @functools.cached_property
  def missing(self) -> dict[str, str]:
    """Tasks that cannot be run with this data, and why. UsageError for data that is broken."""
    folder = XtremeFolder(self.data_dir, self.labels_dir)
    found = {task: _why_missing(task, folder) for task in self.tasks}
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
      workdir: each run has a directory in it.
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
      for rate, seed in itertools.product(self._rates(task), self.seeds):
        folder = workdir / task / (f'rate_{rate:g}' if rate else 'rate_of_file') / f'seed_{seed}'
        own = [f'--gin.train.init_from={model}', f'--gin.train.seed={seed}', f'--workdir={folder}']
        own += [f'--gin.optimizer.learning_rate={rate!r}'] if rate else []
        full_name = name + (f' · learning rate {rate:g}' if rate else '') + f' · seed {seed}'
        for_all = [f'--gin.{binding}' for binding in (*self.bindings, *bindings)]
        arguments = (*self.flags, *files, *shared, *own, *for_all)
        found.append(TaskRun(Run(full_name, folder, arguments, needs), task, seed, rate))
    return found

  def _rates(self, task: str) -> Sequence[float | None]:
    if isinstance(self.learning_rates, str):
      return TABLE_10[task].learning_rates if task in TABLE_10 else (None,)
    return self.learning_rates or (None,)


def _why_missing(task: str, folder: XtremeFolder) -> str:
  """Why a task cannot be run with this data; '' if it can."""
  if task in RETRIEVAL:
    return '' if (folder.root / task).is_dir() else 'no data'
  if not TASKS[task].has_data(folder, 'train', ('en',)):
    return 'no training data'
  return '' if any(TASKS[name].has_data(folder, 'test') for name in FINE_TUNED[task]) else 'no test data'


def words(text: str) -> tuple[str, ...]:
  """`A,B` as the value of an option; may be empty."""
  return tuple(part for part in text.split(',') if part)


def numbers(text: str) -> tuple[int, ...]:
  """`0,1` as the value of an option."""
  return tuple(number(CountOrZero)(each) for each in text.split(','))


def _tasks(text: str) -> tuple[str, ...]:
  for task in words(text):
    if task not in ALL_TASKS:
      raise argparse.ArgumentTypeError(f'unknown task {task}: choose from {", ".join(ALL_TASKS)}')
  return words(text)


def _learning_rates(text: str) -> str | tuple[float, ...]:
  try:
    return text if text == 'table10' else tuple(map(float, text.split(',')))
  except ValueError:
    raise argparse.ArgumentTypeError(f'{text} is not table10, or numbers as in 1e-5,3e-5') from None


def add_benchmark(parser: argparse._ActionsContainer) -> None:
  """Adds the options that a benchmark is made of, except those of gin."""
  parser.add_argument('--data_dir', metavar='DIR', help="XTREME's download directory")
  parser.add_argument('--labels_dir', metavar='DIR', help='gold labels (default: DIR/labels)')
  parser.add_argument('--tasks', type=_tasks, default=ALL_TASKS, metavar='A,B', help=f'of {", ".join(ALL_TASKS)}')
  parser.add_argument('--seeds', type=numbers, default=(0, 1, 2), metavar='0,1,2', help='one run of fine-tuning each')
  help_text = "table10 for the paper's sweeps, or numbers, of which dev chooses (default: those of the gin files)"
  parser.add_argument('--learning_rates', type=_learning_rates, metavar='A,B', help=help_text)


def shared_flags(options: argparse.Namespace) -> tuple[str, ...]:
  """Flags of `rembert.main` for every run."""
  return tuple(f'--module={name}' for name in options.module)


def benchmark_from(
  parser: argparse.ArgumentParser, options: argparse.Namespace, gin_files: Sequence[str], bindings: Sequence[str]
) -> Benchmark:
  """The benchmark given by the options of `add_benchmark`; ends the program if there is no data directory."""
  if options.data_dir is None:
    parser.error("--data_dir=DIR is missing: XTREME's download directory")
  named = {name: getattr(options, name) for name in ('data_dir', 'labels_dir', 'tasks', 'seeds', 'learning_rates')}
  return Benchmark(**named, gin_files=tuple(gin_files), bindings=tuple(bindings), flags=shared_flags(options))
