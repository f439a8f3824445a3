"""Runs of an experiment: commands, records and plans, shared by `launch.sweep` and `launch.xtreme`."""

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
from rembert.validation import CountOrZero, comma_separated
from tasks.xtreme import RETRIEVAL
from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.files import XtremeFolder


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of `python -m rembert.main`.

  Its record, `run.json` in the workdir, has `name`, `arguments`, `code` and `host` of the last start; `starts`, each
  with `began`, `ended` (ISO 8601, UTC) and `exit_code`; `reason` is the error message of a run that failed.
  """

  name: str  # unique
  workdir: epath.Path  # not shared with other runs
  arguments: tuple[str, ...]
  needs: tuple[str, ...] = ()  # names of the runs that must be done before

  @property
  def command(self) -> list[str]:
    """The command, with this Python interpreter."""
    return [sys.executable, '-m', 'rembert.main', *self.arguments]

  def record(self) -> dict[str, Any]:
    """The record; it has no starts if the run was never started."""
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
    """UsageError if it was completed with other arguments; an incomplete run checks its workdir itself."""
    before, now = self.record().get('arguments', []), list(self.arguments)
    if not self.is_done() or before == now:
      return
    changed = [f'- {argument}' for argument in before if argument not in now]
    changed += [f'+ {argument}' for argument in now if argument not in before]
    raise UsageError(
      f'{self.name} was run with other arguments: ' + ', '.join(changed or ['another order of arguments']),
      where=str(self.workdir),
      fix=['choose another workdir: --workdir=DIR', 'or delete this one, and the runs that started from it'],
    )

  def record_start(self, code: dict[str, Any]) -> None:
    """Adds a start, with the version of the code (`code_version`), to the record."""
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
  """Writes indented JSON."""
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
  """Checks the commands, and prints skipped tasks with the reason; UsageError if the settings of a run are invalid.

  In a dry run it also prints the commands in two stages, of which the second needs runs of the first.
  """
  made = {f'--gin_file={run.workdir / "config.gin"}' for run in runs}  # used by other runs
  for run in (run for run in runs if not made & set(run.arguments)):
    try:
      check_command(run.command)
    except UsageError as error:
      raise UsageError(f'{run.name}: {error.what}', where=error.where, fix=error.fix) from error
  for task, reason in left_out.items():
    console.say(f'skipped: {task} ({reason})')
  if not is_dry:
    return
  stages = [stage for stage in ([run for run in runs if not run.needs], [run for run in runs if run.needs]) if stage]
  console.say(f'# {len(runs)} run(s), {sum(run.is_done() for run in runs)} already done')
  for count, stage in enumerate(stages, 1):
    if len(stages) > 1:
      console.say(f'# stage {count} of {len(stages)}')
    for run in (run for run in stage if not run.is_done()):
      console.say(shlex.join(['python', '-m', 'rembert.main', *run.arguments]))


# --- evaluation on XTREME ---------------------------------------------------------------------------------------------

# For each fine-tuned task, the tasks that the model is evaluated on.
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
  """A run that produces scores, by fine-tuning or retrieval."""

  run: Run
  task: str
  seed: int | None = None  # None for retrieval
  learning_rate: float | None = None  # None for that of the gin file

  @property
  def evaluated(self) -> tuple[str, ...]:
    """Tasks for which it has scores."""
    return FINE_TUNED.get(self.task, (self.task,))


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """The tasks to evaluate, and the settings of fine-tuning."""

  data_dir: str | None  # XTREME's download directory; None without tasks
  labels_dir: str | None  # gold labels; None for those in the data
  tasks: tuple[str, ...]  # among ALL_TASKS
  seeds: tuple[int, ...]
  learning_rates: str | tuple[float, ...] | None  # 'table10', or rates to choose from; None for those of the gin files
  gin_files: tuple[str, ...]  # for all fine-tuning, as are the bindings, NAME=VALUE
  bindings: tuple[str, ...]
  flags: tuple[str, ...] = ()  # for every run

  @functools.cached_property
  def missing(self) -> dict[str, str]:
    """Tasks that cannot be run with this data, with the reason. UsageError for malformed data."""
    if not self.tasks:
      return {}  # a sweep without fine-tuning has no data
    folder = XtremeFolder(self.data_dir, self.labels_dir)
    found = {task: _why_missing(task, folder) for task in self.tasks}
    return {task: reason for task, reason in found.items() if reason}

  def missing_scores(self) -> dict[str, str]:
    """The tasks without scores that follow from `missing`, with the reason."""
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
    """Plans all runs of a model (a workdir, checkpoint, or Hugging Face model directory), in directories of `workdir`.

    `label` is added to the names of the runs; `needs` are the runs that produce the model, `bindings` further ones.
    `tasks` are by default all.
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
  """The reason why a task cannot be run with this data, or ''."""
  if task in RETRIEVAL:
    return '' if (folder.root / task).is_dir() else 'no data'
  if not TASKS[task].has_data(folder, 'train', ('en',)):
    return 'no training data'
  return '' if any(TASKS[name].has_data(folder, 'test') for name in FINE_TUNED[task]) else 'no test data'


def words(text: str) -> tuple[str, ...]:
  """Parses `A,B`, possibly empty."""
  return tuple(part for part in text.split(',') if part)


def _tasks(text: str) -> tuple[str, ...]:
  for task in words(text):
    if task not in ALL_TASKS:
      raise argparse.ArgumentTypeError(f'unknown task {task}: choose from {", ".join(ALL_TASKS)}')
  return words(text)


def _learning_rates(text: str) -> str | tuple[float, ...]:
  try:
    return text if text == 'table10' else tuple(map(float, text.split(',')))
  except ValueError:
    raise argparse.ArgumentTypeError(f'must be table10 or numbers such as 1e-5,3e-5, not {text}') from None


def add_benchmark(parser: argparse._ActionsContainer) -> None:
  """Adds the options of a benchmark, except bindings."""
  parser.add_argument('--data_dir', metavar='DIR', help='directory of the downloaded XTREME data')
  parser.add_argument('--labels_dir', metavar='DIR', help='directory of gold labels (default: labels/ in --data_dir)')
  parser.add_argument('--tasks', type=_tasks, default=ALL_TASKS, metavar='A,B', help=f'default: {", ".join(ALL_TASKS)}')
  seeds = comma_separated(CountOrZero)
  parser.add_argument('--seeds', type=seeds, default=(0, 1, 2), metavar='0,1,2', help='seeds (default: 0,1,2)')
  help_text = "candidates, or table10 for the paper's; the best on dev is used (default: that of the gin file)"
  parser.add_argument('--learning_rates', type=_learning_rates, metavar='A,B', help=help_text)


def module_flags(options: argparse.Namespace) -> tuple[str, ...]:
  """Flags of `rembert.main` for every run."""
  return tuple(f'--module={name}' for name in options.module)


def benchmark_from(
  parser: argparse.ArgumentParser, options: argparse.Namespace, gin_files: Sequence[str], bindings: Sequence[str]
) -> Benchmark:
  """The benchmark that the options ask for; ends the program if there are tasks and no data directory."""
  if options.tasks and options.data_dir is None:
    parser.error('--data_dir=DIR is missing: the directory of the downloaded XTREME data')
  named = {name: getattr(options, name) for name in ('data_dir', 'labels_dir', 'tasks', 'seeds', 'learning_rates')}
  return Benchmark(**named, gin_files=tuple(gin_files), bindings=tuple(bindings), flags=module_flags(options))
