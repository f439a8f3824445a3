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


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """A run of a model, possibly only planned; fields that its workdir lacks are empty."""

  name: str  # on the page
  workdir: epath.Path
  kind: str = PRE_TRAINING  # FINE_TUNING includes evaluation only
  is_started: bool = True
  pretrain_seed: int = 0  # of the pre-training run that it is or started from
  seed: int = -1  # of fine-tuning; -1 for others
  task: str = ''  # the training task, or that of retrieval; the name of an analysis
  evaluated: tuple[str, ...] = ()  # tasks
  variant: str = ''  # the binding that was changed for it
  learning_rate: float | None = None  # None for that of the gin file
  metrics: pd.DataFrame = dataclasses.field(default_factory=pd.DataFrame)  # a column per metric, by step
  settings: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of `config.gin`, as text
  results: dict[str, Any] | None = None  # of `results.json` or `analysis.json`; None if missing or unreadable

  @functools.cached_property
  def model(self) -> RemBertConfig | None:
    """The architecture of the settings; None if they do not define one."""
    prefix = 'RemBertConfig.'
    values = {name.removeprefix(prefix): _literal(text) for name, text in self.settings.items() if prefix in name}
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
  """A model and all its runs."""

  name: str  # unique in a report
  rows: tuple[tuple[int, str], ...] = ()  # (table, row name) of the paper that it reproduces
  plan: tuple[Run, ...] = ()  # pre-training, then fine-tuning, then analyses, including planned runs

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
  """A directory of a report, as given, and what it is in a word or two."""

  folder: str
  kind: str
  models: tuple[Model, ...]
  facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  scale: str = ''  # of its models (gin/scales)


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
  return Run(
    name=name,
    workdir=folder,
    metrics=read_metrics(folder / 'metrics.jsonl'),
    settings=read_settings(folder / 'config.gin'),
    results=read_object(folder / 'results.json') or None,
    **plan,
  )


def _run_without_plan(folder: epath.Path, name: str) -> Run:
  """A run that is described by its workdir only."""
  run = read_run(folder, name)
  seed = int(run.settings.get('train.seed', 0))
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


def read_metrics(file: epath.Path) -> pd.DataFrame:
  """Finite numbers by step, a column per metric.

  A resuming run ignores everything after a malformed line; a report skips that line only.
  """
  rows = [
    {name: value for name, value in _json_object(line).items() if is_number(value) and math.isfinite(value)}
    for line in _text_of(file).splitlines()
  ]
  metrics = pd.DataFrame([row for row in rows if 'step' in row])
  return metrics.set_index('step').sort_index(kind='stable') if len(metrics) else metrics


def read_settings(file: epath.Path) -> dict[str, str]:
  """Bindings of a file written by gin, values as text by name; multi-line values become one line.

  References to macros (`%HIDDEN`, of gin/scales) are replaced by their values; macros themselves are skipped.
  """
  found = {
    name: ' '.join(line.strip(' \\') for line in value.splitlines()).strip()
    for name, value in _BINDING.findall(_text_of(file))
  }
  macros = {f'%{name}': value for name, value in found.items() if '.' not in name}

  def resolved(value: str) -> str:
    return macros.get(value, value)

  # A macro may refer to another one, but not further.
  return {name: resolved(resolved(value)) for name, value in found.items() if f'%{name}' not in macros}


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
    code = content['code']
    facts = {
      'name': content['name'],
      # One entry each time the sweep was extended.
      'asked for': ' · '.join(map(' '.join, content['asked'])),
      'code': ' '.join(code[name] for name in ('version', 'commit') if code[name])
      + (', with uncommitted changes' if code['dirty'] else ''),
    }
    return Source(str(folder), 'sweep', models, facts, content['scale'])
  except (KeyError, TypeError, ValueError, AttributeError) as error:
    raise UsageError(
      f'malformed description of a sweep: {type(error).__name__}: {error}',
      where=str(folder / _SWEEP),
      fix='run the sweep again with this version: it replaces the file',
    ) from error


def _sweep_model(folder: epath.Path, content: Mapping[str, Any]) -> Model:
  name, plan = content['name'], []

  def add(entry: Mapping[str, Any], run_name: str, **fields: Any) -> None:
    workdir = folder / entry['workdir']
    is_started = is_workdir(workdir)
    plan.append((read_run if is_started else Run)(workdir=workdir, name=run_name, is_started=is_started, **fields))

  for entry in content['pretrained']:
    is_only = len(content['pretrained']) == 1
    add(entry, name if is_only else f'{name}, seed {entry["seed"]}', pretrain_seed=entry['seed'])
  for number, entry in enumerate(content['learned'], 1):
    fields = {field: entry[field] for field in ('pretrain_seed', 'task', 'evaluated', 'variant', 'learning_rate')}
    add(entry, f'{name} {number}', kind=FINE_TUNING, seed=entry['seed'] or 0, **fields)  # of retrieval it is None
  plan += [_analysis(folder / each['workdir'], each['what'], each['pretrain_seed']) for each in content['analyses']]
  return Model(name, tuple((table, row) for table, row in content['rows']), tuple(plan))


# --- text and JSON ----------------------------------------------------------------------------------------------------


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
