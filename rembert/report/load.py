"""Reads directories of runs, benchmarks and sweeps, finished or not, as models with their runs."""

import ast
import dataclasses
import functools
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import pandas as pd
from etils import epath

from rembert.errors import UsageError
from rembert.files import absolute
from rembert.model.config import RemBertConfig
from tasks.xtreme.leaderboard import NAMES

PRE_TRAINING, FINE_TUNING, ANALYSIS = 'pre-training', 'fine-tuning', 'analysis'
_SWEEP, _BENCHMARK, _ANALYSIS = 'sweep.json', 'xtreme.json', 'analysis.json'
# A directory with any of these is the workdir of a run.
_SIGNS = ('metrics.jsonl', 'results.json', 'config.gin')
_SEED = re.compile(r'seed_(\d+)')
_RATE = re.compile(r'rate_(\d+(?:\.\d*)?(?:e[+-]?\d+)?)')
_BINDING = re.compile(r'^([\w./]+)[ \t]*=(.*(?:\n[ \t]+.*)*)', re.MULTILINE)
_MODEL = 'RemBertConfig.'


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """A run of a model, possibly only planned; fields that its workdir lacks are empty.

  Attributes:
    name: name on the page.
    workdir: the directory.
    kind: pre-training, fine-tuning (or evaluation only), or analysis.
    is_started: whether the workdir exists.
    pretrain_seed: seed of the pre-training run that it is or started from.
    seed: seed of fine-tuning; -1 for others.
    task: the training task, or that of retrieval; the name of an analysis.
    evaluated: tasks that it is evaluated on.
    variant: the binding that was changed for it; '' for none.
    learning_rate: learning rate; None for that of the gin file.
    metrics: `metrics.jsonl`, a column per metric, by step.
    broken_lines: number of its lines that could not be read.
    settings: values in `config.gin` by gin name, as text.
    results: content of `results.json` or `analysis.json`; None if missing or unreadable.
  """

  name: str
  workdir: epath.Path
  kind: str = PRE_TRAINING
  is_started: bool = True
  pretrain_seed: int = 0
  seed: int = -1
  task: str = ''
  evaluated: tuple[str, ...] = ()
  variant: str = ''
  learning_rate: float | None = None
  metrics: pd.DataFrame = dataclasses.field(default_factory=pd.DataFrame)
  broken_lines: int = 0
  settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
  results: dict[str, Any] | None = None

  @functools.cached_property
  def model(self) -> RemBertConfig | None:
    """The architecture of the settings; None if they do not define one."""
    values = {
      name.removeprefix(_MODEL): _literal(text) for name, text in self.settings.items() if name.startswith(_MODEL)
    }
    try:
      return RemBertConfig(**values) if values else None
    except (UsageError, TypeError, ValueError):
      return None

  def paper(self, field: str) -> Any:
    """The binding of `paper.FIELD` (the row of the paper that the run reproduces, and how), or None."""
    return _literal(self.settings.get(f'paper.{field}', 'None'))

  @property
  def row(self) -> tuple[int, str] | None:
    """Table and row of the paper that the run reproduces, or None."""
    table, name = self.paper('table'), self.paper('row')
    return (table, name) if isinstance(table, int) and isinstance(name, str) else None

  def curve(self, key: str) -> pd.Series:
    """Values of a metric by step."""
    return self.metrics[key].dropna() if key in self.metrics else pd.Series(dtype=float)

  def last(self, key: str) -> float | None:
    """The last value of a metric."""
    curve = self.curve(key)
    return None if curve.empty else float(curve.iloc[-1])

  def parts_of(self, key: str) -> list[str]:
    """Names after `key/` in the metrics: languages of `eval/loss`, scores of `eval/dev`."""
    return sorted(name.removeprefix(f'{key}/') for name in self.metrics.columns if name.startswith(f'{key}/'))


@dataclasses.dataclass(frozen=True)
class Model:
  """A model and all its runs.

  Attributes:
    name: unique in a report.
    rows: (table, row name) of the paper that it reproduces.
    plan: runs of pre-training, fine-tuning and analyses, in this order, including planned ones.
  """

  name: str
  rows: tuple[tuple[int, str], ...] = ()
  plan: tuple[Run, ...] = ()

  def runs(self, kind: str) -> list[Run]:
    """Runs of one kind, including planned ones."""
    return [run for run in self.plan if run.kind == kind]

  def results(self, analysis: str) -> list[dict[str, Any]]:
    """Results of each run of an analysis."""
    return [run.results for run in self.runs(ANALYSIS) if run.task == analysis and run.results]

  @property
  def pretrained(self) -> list[Run]:
    """Pre-training runs that have started."""
    return [run for run in self.runs(PRE_TRAINING) if run.is_started]

  @property
  def trained(self) -> list[Run]:
    """Pre-training runs, then fine-tuning runs, that have started."""
    return [run for run in self.plan if run.is_started and run.kind != ANALYSIS]

  @property
  def config(self) -> RemBertConfig | None:
    """The architecture; None if it is unknown."""
    return next((run.model for run in self.pretrained if run.model is not None), None)

  @property
  def kept_layers(self) -> int | None:
    """Number of layers that fine-tuning keeps, if the paper's row keeps fewer (Tables 5 and 13); None for all."""
    return next((kept for run in self.pretrained if isinstance(kept := run.paper('kept_layers'), int)), None)


@dataclasses.dataclass(frozen=True)
class Source:
  """A directory of a report.

  Attributes:
    folder: the directory, as given.
    kind: what the directory is, in a word or two.
    models: the models in it.
    facts: facts about it, text by name.
    scale: name of its model sizes (gin/scales), or ''.
  """

  folder: str
  kind: str
  models: tuple[Model, ...]
  facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  scale: str = ''


def read(folders: Sequence[epath.PathLike]) -> list[Source]:
  """Reads each directory; models get distinct names.

  Raises:
    UsageError: a directory does not exist, has no known results, or is given twice, or a `sweep.json` is malformed.
  """
  places = [os.fspath(absolute(folder)) for folder in folders]
  if twice := sorted({place for place in places if places.count(place) > 1}):
    raise UsageError('a directory is given twice', where=', '.join(twice), fix='name each once')
  sources = [_read_folder(epath.Path(folder)) for folder in folders]
  names = [model.name for source in sources for model in source.models]
  unique = iter(_unique(names, [source.folder for source in sources for _ in source.models]))
  return [
    dataclasses.replace(source, models=tuple(dataclasses.replace(model, name=next(unique)) for model in source.models))
    for source in sources
  ]


def _read_folder(folder: epath.Path) -> Source:
  if not folder.is_dir():
    raise UsageError('no such directory', where=str(folder), fix='name the --workdir of a run, or a sweep')
  name = _name_of(folder)
  if (folder / _SWEEP).exists():
    return _sweep(folder)
  if (folder / _BENCHMARK).exists() or any(_benchmark_workdirs(folder)):
    return _benchmark(folder)
  if (folder / _ANALYSIS).exists():
    model_name = read_object(folder / _ANALYSIS).get('model_name')
    return Source(str(folder), 'analysis', (Model(str(model_name or name), plan=(_analysis(folder, '', 0),)),))
  if is_workdir(folder):
    run = _run_without_plan(folder, name)
    kind, scale = 'XTREME' if run.kind == FINE_TUNING else run.kind, run.paper('scale')
    model = Model(name, (run.row,) if run.row else (), (run,))
    return Source(str(folder), kind, (model,), scale=scale if isinstance(scale, str) else '')
  raise UsageError(
    'no results of a run, sweep or benchmark found',
    where=f'{folder}: none of {", ".join((_SWEEP, _BENCHMARK, _ANALYSIS, *_SIGNS))}',
    fix='name the --workdir of a run, of launch.xtreme, or the directory of a sweep; several are compared',
  )


def _name_of(folder: epath.Path) -> str:
  return folder.name or folder.resolve().name or str(folder)


def _unique(names: Sequence[str], folders: Sequence[str]) -> Iterator[str]:
  """Makes names unique: equal ones get the directory as a prefix, then a number if necessary."""
  full = [
    name if names.count(name) == 1 else f'{epath.Path(folder).parent.name}/{name}'.lstrip('/')
    for name, folder in zip(names, folders, strict=True)
  ]
  for index, name in enumerate(full):
    earlier = full[:index].count(name)
    yield f'{name} ({earlier + 1})' if earlier else name


# --- a workdir --------------------------------------------------------------------------------------------------------


def is_workdir(folder: epath.Path) -> bool:
  """Whether a directory has files of a run."""
  return any((folder / sign).exists() for sign in _SIGNS)


def read_run(workdir: epath.PathLike, name: str, **plan: Any) -> Run:
  """Reads a workdir, skipping malformed parts without an error. `plan` has other fields of `Run`."""
  folder = epath.Path(workdir)
  metrics, broken = read_metrics(folder / 'metrics.jsonl')
  return Run(
    name=name,
    workdir=folder,
    metrics=metrics,
    broken_lines=broken,
    settings=read_settings(folder / 'config.gin'),
    results=read_object(folder / 'results.json') or None,
    **plan,
  )


def _run_without_plan(folder: epath.Path, name: str) -> Run:
  """A run that is described by its workdir only."""
  run = read_run(folder, name)
  seed = _int(run.settings.get('train.seed', 0))
  if run.results is None and _literal(run.settings.get('run.mode', "'pretrain'")) == 'pretrain':
    return dataclasses.replace(run, pretrain_seed=seed)
  results = run.results or {}
  tasks = results.get('tasks')
  return dataclasses.replace(
    run,
    kind=FINE_TUNING,
    seed=seed,
    task=str(results.get('task') or run.settings.get('xtreme.task', '')),
    evaluated=tuple(tasks) if isinstance(tasks, dict) else (str(results.get('task', '')),),
  )


def _analysis(folder: epath.Path, what: str, pretrain_seed: int) -> Run:
  content = read_object(folder / _ANALYSIS)
  results, task = content.get('results'), str(content.get('analysis', what))
  results = results if isinstance(results, dict) else None
  return Run(task, folder, ANALYSIS, pretrain_seed=pretrain_seed, task=task, results=results)


def read_metrics(file: epath.Path) -> tuple[pd.DataFrame, int]:
  """Finite numbers by step, a column per metric, and the number of lines that could not be read.

  A resuming run ignores everything after a malformed line; a report skips that line only.
  """
  rows, broken = [], 0
  for line in filter(str.strip, _text_of(file).splitlines()):
    row = {name: value for name, value in _json_object(line).items() if is_number(value) and math.isfinite(value)}
    if 'step' in row:
      rows.append(row)
    else:
      broken += 1
  metrics = pd.DataFrame(rows)
  return (metrics.set_index('step').sort_index(kind='stable') if rows else metrics), broken


def read_settings(file: epath.Path) -> dict[str, str]:
  """Bindings of a file written by gin, values as text by name; multi-line values become one line.

  References to macros (`%HIDDEN`, of gin/scales) are replaced by their values; macros themselves are skipped.
  """
  found = {
    name: ' '.join(line.strip(' \\') for line in value.splitlines()).strip()
    for name, value in _BINDING.findall(_text_of(file))
  }
  macros = {name: value for name, value in found.items() if '.' not in name}

  def resolved(value: str) -> str:
    return macros.get(value.removeprefix('%'), value) if value.startswith('%') else value

  # A macro may refer to another one, but not further.
  return {name: resolved(resolved(value)) for name, value in found.items() if name not in macros}


def read_object(file: epath.Path) -> dict[str, Any]:
  """Reads a JSON object; {} if the file does not have one."""
  return _json_object(_text_of(file))


# --- the directory of launch.xtreme -----------------------------------------------------------------------------------


def _benchmark_workdirs(folder: epath.Path) -> Iterator[epath.Path]:
  """`TASK/HOW/seed_N`, and `TASK` of retrieval."""
  for pattern in ('*/*/seed_*', '*'):
    yield from (found for found in sorted(folder.glob(pattern), key=str) if (found / 'results.json').exists())


def _benchmark(folder: epath.Path) -> Source:
  runs = []
  for workdir in _benchmark_workdirs(folder):
    # Only the path below the directory; one above it may be called seed_7.
    parts = workdir.parts[len(folder.parts) :]
    found = _run_without_plan(workdir, '/'.join(parts))
    seed, rate = _SEED.fullmatch(parts[-1]), _RATE.fullmatch(parts[1]) if len(parts) > 1 else None
    runs.append(
      dataclasses.replace(
        found,
        kind=FINE_TUNING,
        pretrain_seed=0,
        seed=int(seed[1]) if seed else 0,
        task=parts[0] if parts[0] in NAMES else found.task,
        learning_rate=float(rate[1]) if rate else None,
      )
    )
  name = read_object(folder / _BENCHMARK).get('name') or _name_of(folder)
  return Source(str(folder), 'XTREME', (Model(str(name), plan=tuple(runs)),))


# --- a sweep ----------------------------------------------------------------------------------------------------------


def _sweep(folder: epath.Path) -> Source:
  content = read_object(folder / _SWEEP)
  try:
    models = tuple(_sweep_model(folder, each) for each in content['models'])
    code, asked = content.get('code') or {}, content.get('asked') or []
    facts = {
      'name': str(content.get('name', '')),
      # One entry each time the sweep was extended.
      'asked for': ' · '.join(' '.join(map(str, line)) if isinstance(line, list) else str(line) for line in asked),
      'code': ' '.join(str(code[name]) for name in ('version', 'commit') if code.get(name))
      + (', with uncommitted changes' if code.get('dirty') else ''),
    }
  except (KeyError, TypeError, ValueError, AttributeError) as error:
    raise UsageError(
      f'malformed description of a sweep: {type(error).__name__}: {error}',
      where=str(folder / _SWEEP),
      fix='run the sweep again with this version: it replaces the file',
    ) from error
  facts = {name: text for name, text in facts.items() if text}
  return Source(str(folder), 'sweep', models, facts, str(content.get('scale', '')))


def _sweep_model(folder: epath.Path, content: Mapping[str, Any]) -> Model:
  name, plan = str(content['name']), []

  def add(entry: Mapping[str, Any], run_name: str, **fields: Any) -> None:
    workdir = folder / str(entry['workdir'])
    is_started = is_workdir(workdir)
    plan.append((read_run if is_started else Run)(workdir=workdir, name=run_name, is_started=is_started, **fields))

  for entry in content.get('pretrained', ()):
    seed = _int(entry['seed'])
    add(entry, name if len(content['pretrained']) == 1 else f'{name}, seed {seed}', pretrain_seed=seed)
  for number, entry in enumerate(content.get('learned', ()), 1):
    rate = entry.get('learning_rate')
    add(
      entry,
      f'{name} {number}',
      kind=FINE_TUNING,
      pretrain_seed=_int(entry.get('pretrain_seed', 0)),
      seed=_int(entry.get('seed', 0)),
      task=str(entry['task']),
      evaluated=tuple(map(str, entry.get('evaluated') or (entry['task'],))),
      variant=str(entry.get('variant') or ''),
      learning_rate=None if rate is None else float(rate),
    )
  for entry in content.get('analyses', ()):
    plan.append(_analysis(folder / str(entry['workdir']), str(entry['what']), _int(entry.get('pretrain_seed', 0))))
  return Model(name, tuple((int(table), str(row)) for table, row in content.get('rows', ())), tuple(plan))


# --- validation -------------------------------------------------------------------------------------------------------


def _text_of(file: epath.Path) -> str:
  try:
    return file.read_bytes().decode(errors='replace')
  except OSError:
    return ''


def _json_object(text: str) -> dict[str, Any]:
  try:
    content = json.loads(text)
  except (ValueError, RecursionError):
    return {}
  return content if isinstance(content, dict) else {}


def is_number(value: Any) -> TypeGuard[float]:
  """Whether a value of a JSON file is a number; true and false are not."""
  return isinstance(value, int | float) and not isinstance(value, bool)


def _literal(text: str) -> Any:
  try:
    return ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return text


def _int(value: Any) -> int:
  try:
    return int(value)
  except (TypeError, ValueError):
    return 0
