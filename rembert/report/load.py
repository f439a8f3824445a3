"""Folders of runs, of whole benchmarks and of sweeps as models with their runs. Unfinished ones are read too."""

import ast
import dataclasses
import functools
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from etils import epath

from rembert.checkpoint.integrity import Corrupt, read_json_item
from rembert.errors import UsageError
from rembert.model.config import RemBertConfig
from rembert.tracking.goodput import Session, read_sessions
from tasks.xtreme.leaderboard import NAMES

SWEEP, ANALYSIS, BENCHMARK = 'sweep.json', 'analysis.json', 'xtreme.json'
# Any of them makes a folder the workdir of a run.
SIGNS = ('metrics.jsonl', 'results.json', 'config.gin', 'operative_config.gin')
_SEED = re.compile(r'seed_(\d+)')
_RATE = re.compile(r'rate_([\d.e+-]+)')
_BINDING = re.compile(r'^([\w./]+)\s*=\s*(.*)')
_MODEL = 'RemBertConfig.'


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """A workdir. What is not there is empty.

  Attributes:
    name: on the page.
    workdir: the folder.
    metrics: `metrics.jsonl`, a column per metric, by step.
    broken_lines: lines of it that could not be read.
    settings: `config.gin`, gin name to value as gin writes it.
    results: `results.json`; None if there is none, or it cannot be read.
    sessions: `goodput.json`.
    meta: metadata of the newest checkpoint.
  """

  name: str
  workdir: epath.Path
  metrics: pd.DataFrame = dataclasses.field(default_factory=pd.DataFrame)
  broken_lines: int = 0
  settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
  results: Mapping[str, Any] | None = None
  sessions: tuple[Session, ...] = ()
  meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def is_pre_training(self) -> bool:
    """Whether it trained the language model: no checkpoint has the head of a task, and nothing was evaluated."""
    return self.results is None and self.meta.get('head', 'mlm') == 'mlm' and 'xtreme.task' not in self.settings

  @functools.cached_property
  def model(self) -> RemBertConfig | None:
    """The architecture: the checkpoint's, else that of a pre-training run's settings; None if neither has one."""
    values = {name: value for name, value in self.meta.items() if name.startswith(_MODEL)}
    if not values and self.is_pre_training:
      values = {name: _literal(text) for name, text in self.settings.items() if name.startswith(_MODEL)}
    if not values:
      return None
    fields = {field.name for field in dataclasses.fields(RemBertConfig)}
    values = {name.removeprefix(_MODEL): value for name, value in values.items()}
    try:
      return RemBertConfig(**{name: value for name, value in values.items() if name in fields})
    except (UsageError, TypeError, ValueError):
      return None

  def paper(self, field: str) -> Any:
    """A binding `paper.FIELD`: the row of the paper that the run reproduces, and how; None if there is none."""
    return _literal(self.settings.get(f'paper.{field}', 'None'))

  @property
  def row(self) -> tuple[int, str] | None:
    """Table and row of the paper that the run reproduces; None if it names none."""
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
    """Names that follow `key/` in the metrics: languages of `eval/loss`, scores of `eval/dev`."""
    return sorted(name.removeprefix(f'{key}/') for name in self.metrics.columns if name.startswith(f'{key}/'))


@dataclasses.dataclass(frozen=True)
class FinetuneRun:
  """One fine-tuning run of a model, or its evaluation.

  Attributes:
    pretrain_seed: of the pre-training run that it started from.
    seed: its own.
    task: the training task, or that of retrieval.
    evaluated: tasks that it is evaluated on.
    variant: the binding that was changed for it; '' for none.
    learning_rate: None for that of the gin file.
    run: None before it has started.
  """

  pretrain_seed: int
  seed: int
  task: str
  evaluated: tuple[str, ...]
  variant: str = ''
  learning_rate: float | None = None
  run: Run | None = None

  @property
  def is_done(self) -> bool:
    """Whether it has results."""
    return self.run is not None and self.run.results is not None


@dataclasses.dataclass(frozen=True)
class Analysis:
  """One analysis of a model; `results` are None before there are any, `pictures` are the PNG files of the workdir."""

  what: str
  pretrain_seed: int
  results: Mapping[str, Any] | None
  pictures: tuple[epath.Path, ...] = ()


@dataclasses.dataclass(frozen=True)
class Model:
  """A model and all runs of it.

  Attributes:
    name: unique in a report.
    rows: (table, row name) of the paper that it reproduces.
    pretrained: seed to pre-training run; None before it has started.
    finetuned: fine-tuning runs.
    analyses: analyses.
  """

  name: str
  rows: tuple[tuple[int, str], ...] = ()
  pretrained: Mapping[int, Run | None] = dataclasses.field(default_factory=dict)
  finetuned: tuple[FinetuneRun, ...] = ()
  analyses: tuple[Analysis, ...] = ()

  @property
  def runs(self) -> list[Run]:
    """Pre-training runs that have started."""
    return [run for run in self.pretrained.values() if run is not None]

  @property
  def all_runs(self) -> list[Run]:
    """Pre-training, then fine-tuning runs that have started."""
    return [*self.runs, *(each.run for each in self.finetuned if each.run is not None)]

  @property
  def config(self) -> RemBertConfig | None:
    """The architecture; None if it is not known."""
    return next((run.model for run in self.runs if run.model is not None), None)

  @property
  def kept_layers(self) -> int | None:
    """How many layers fine-tuning keeps, if the paper's row keeps fewer (Tables 5 and 13); None for all."""
    return next((kept for run in self.runs if isinstance(kept := run.paper('kept_layers'), int)), None)


@dataclasses.dataclass(frozen=True)
class Source:
  """A folder that the report was asked for.

  Attributes:
    folder: as given.
    kind: of the folder, in a word or two.
    models: in it.
    facts: about it, name to text.
    scale: name of its model sizes (gin/scales); '' if it has none.
  """

  folder: str
  kind: str
  models: tuple[Model, ...]
  facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  scale: str = ''


def read(folders: Sequence[epath.PathLike]) -> list[Source]:
  """Reads each folder; models get names that tell them apart.

  Raises:
    UsageError: a folder that does not exist, that holds nothing known, or a `sweep.json` that is none.
  """
  sources = [_read_folder(epath.Path(folder)) for folder in folders]
  names = [model.name for source in sources for model in source.models]
  unique = iter(_unique(names, [source.folder for source in sources for _ in source.models]))
  return [
    dataclasses.replace(source, models=tuple(dataclasses.replace(model, name=next(unique)) for model in source.models))
    for source in sources
  ]


def _read_folder(folder: epath.Path) -> Source:
  if not folder.is_dir():
    raise UsageError('there is no such folder', where=str(folder), fix='name the --workdir of a run, or a sweep')
  if (folder / SWEEP).exists():
    return _sweep(folder)
  if (folder / BENCHMARK).exists() or any(_benchmark_workdirs(folder)):
    return _benchmark(folder)
  name = _name_of(folder)
  if (folder / ANALYSIS).exists():
    model_name = (read_object(folder / ANALYSIS) or {}).get('model_name')
    return Source(str(folder), 'analysis', (Model(str(model_name or name), analyses=(_analysis(folder, '', 0),)),))
  if is_workdir(folder):
    run = read_run(folder, name)
    if run.is_pre_training:
      model = Model(name, (run.row,) if run.row else (), pretrained={_seed_of(run): run})
      scale = run.paper('scale')
      return Source(str(folder), 'pre-training', (model,), scale=scale if isinstance(scale, str) else '')
    return Source(str(folder), 'XTREME', (Model(name, finetuned=(_finetune_run(run),)),))
  raise UsageError(
    'nothing here that a report can be made of',
    where=f'{folder}: none of {", ".join((SWEEP, BENCHMARK, ANALYSIS, *SIGNS))}',
    fix='name the --workdir of a run, of launch.xtreme, or the folder of a sweep; several are set side by side',
  )


def _name_of(folder: epath.Path) -> str:
  return folder.name or folder.resolve().name or str(folder)


def _unique(names: Sequence[str], folders: Sequence[str]) -> Iterator[str]:
  """Names; equal ones get the folder before them, and a number if that does not help."""
  full = [
    name if names.count(name) == 1 else f'{epath.Path(folder).parent.name}/{name}'.lstrip('/')
    for name, folder in zip(names, folders, strict=True)
  ]
  for index, name in enumerate(full):
    earlier = full[:index].count(name)
    yield f'{name} ({earlier + 1})' if earlier else name


# --- a workdir --------------------------------------------------------------------------------------------------------


def is_workdir(folder: epath.Path) -> bool:
  """Whether a run has written something into a folder."""
  return any((folder / sign).exists() for sign in SIGNS)


def read_run(folder: epath.PathLike, name: str) -> Run:
  """Reads a workdir; broken parts of it are left out, and never stop the reading."""
  folder = epath.Path(folder)
  metrics, broken = read_metrics(folder / 'metrics.jsonl')
  return Run(
    name=name,
    workdir=folder,
    metrics=metrics,
    broken_lines=broken,
    settings=read_settings(folder / 'config.gin') or read_settings(folder / 'operative_config.gin'),
    results=read_object(folder / 'results.json'),
    sessions=tuple(read_sessions(folder / 'goodput.json')),
    meta=_newest_meta(folder / 'checkpoints'),
  )


def read_metrics(file: epath.Path) -> tuple[pd.DataFrame, int]:
  """Finite numbers by step, a column per metric, and how many lines could not be read.

  A resuming run distrusts all that follows a broken line; a report loses that line alone.
  """
  rows, broken = [], 0
  for line in filter(str.strip, _text_of(file).splitlines()):
    try:
      row = json.loads(line)
    except (ValueError, RecursionError):
      row = None
    if isinstance(row, dict) and _is_finite(row.get('step')):
      rows.append({name: value for name, value in row.items() if _is_finite(value)})
    else:
      broken += 1
  metrics = pd.DataFrame(rows)
  return (metrics.set_index('step').sort_index(kind='stable') if rows else metrics), broken


def read_settings(file: epath.Path) -> dict[str, str]:
  """Bindings of a file that gin wrote, name to value as text; a value over several lines becomes one line.

  A reference to a macro (`%HIDDEN`, of gin/scales) is replaced by the macro's value; macros themselves are left out.
  """
  found: dict[str, str] = {}
  name = None
  for line in _text_of(file).splitlines():
    if line.startswith('#') or not line.strip():
      continue
    if (match := _BINDING.match(line)) is not None:
      name, value = match.groups()
      found[name] = value.strip()
    elif name is not None:
      found[name] = f'{found[name].rstrip(chr(92))} {line.strip()}'.strip()
  macros = {name: value for name, value in found.items() if '.' not in name}

  def resolved(value: str) -> str:
    return macros.get(value.removeprefix('%'), value) if value.startswith('%') else value

  # A macro may refer to another one, and no further.
  return {name: resolved(resolved(value)) for name, value in found.items() if name not in macros}


def read_object(file: epath.Path) -> dict[str, Any] | None:
  """A JSON object; None if the file has none."""
  try:
    content = json.loads(_text_of(file) or 'null')
  except (ValueError, RecursionError):
    return None
  return content if isinstance(content, dict) else None


def _newest_meta(checkpoints: epath.Path) -> dict[str, Any]:
  if not checkpoints.is_dir():
    return {}
  steps = sorted((int(child.name) for child in checkpoints.iterdir() if child.name.isdigit()), reverse=True)
  for step in steps:
    try:
      return read_json_item(checkpoints / str(step), 'meta')
    except (Corrupt, OSError):
      continue
  return {}


def _seed_of(run: Run) -> int:
  return _int(run.meta.get('train.seed', run.settings.get('train.seed', 0)))


def _finetune_run(run: Run) -> FinetuneRun:
  results = run.results or {}
  tasks = results.get('tasks')
  evaluated = tuple(tasks) if isinstance(tasks, dict) else (str(results.get('task', '')),)
  task = str(results.get('task') or run.settings.get('xtreme.task', ''))
  return FinetuneRun(0, _seed_of(run), task, evaluated, run=run)


def _analysis(folder: epath.Path, what: str, pretrain_seed: int) -> Analysis:
  content = read_object(folder / ANALYSIS) or {}
  results = content.get('results') if isinstance(content.get('results'), dict) else None
  pictures = tuple(sorted(folder.glob('*.png'), key=str)) if folder.is_dir() else ()
  return Analysis(str(content.get('analysis', what)), pretrain_seed, results, pictures)


# --- the folder of launch.xtreme --------------------------------------------------------------------------------------


def _benchmark_workdirs(folder: epath.Path) -> Iterator[epath.Path]:
  """`TASK/HOW/seed_N`, and `TASK` of retrieval."""
  for pattern in ('*/*/seed_*', '*'):
    yield from (found for found in sorted(folder.glob(pattern), key=str) if (found / 'results.json').exists())


def _benchmark(folder: epath.Path) -> Source:
  finetuned = []
  for workdir in _benchmark_workdirs(folder):
    # The path below the folder: above it, anything may be called seed_7.
    parts = workdir.parts[len(folder.parts) :]
    found = _finetune_run(read_run(workdir, '/'.join(parts)))
    seed, rate = _SEED.fullmatch(parts[-1]), _RATE.fullmatch(parts[1]) if len(parts) > 1 else None
    finetuned.append(
      dataclasses.replace(
        found,
        task=parts[0] if parts[0] in NAMES else found.task,
        seed=int(seed[1]) if seed else 0,
        learning_rate=_float(rate[1]) if rate else None,
      )
    )
  name = (read_object(folder / BENCHMARK) or {}).get('name') or _name_of(folder)
  return Source(str(folder), 'XTREME', (Model(str(name), finetuned=tuple(finetuned)),))


# --- a sweep ----------------------------------------------------------------------------------------------------------


def _sweep(folder: epath.Path) -> Source:
  content = read_object(folder / SWEEP)
  if content is None:
    raise UsageError('this is no JSON object', where=str(folder / SWEEP), fix='run the sweep again: it writes it anew')
  try:
    models = tuple(_sweep_model(folder, each) for each in content.get('models', ()))
  except (KeyError, TypeError, ValueError, AttributeError) as error:
    raise UsageError(
      f'a sweep is described otherwise: {type(error).__name__}: {error}',
      where=str(folder / SWEEP),
      fix='run the sweep again with this version: it writes the file anew',
    ) from error
  code, asked = content.get('code'), content.get('asked')
  code = code if isinstance(code, dict) else {}
  asked = asked if isinstance(asked, list) else []
  facts = {
    'name': str(content.get('name', '')),
    # One entry for each time that the sweep was extended.
    'asked for': ' · '.join(' '.join(map(str, line)) if isinstance(line, list) else str(line) for line in asked),
    'code': ' '.join(str(code[name]) for name in ('version', 'commit') if code.get(name))
    + (', with changes that are not committed' if code.get('dirty') else ''),
  }
  return Source(
    str(folder), 'sweep', models, {name: text for name, text in facts.items() if text}, str(content.get('scale', ''))
  )


def _sweep_model(folder: epath.Path, content: Mapping[str, Any]) -> Model:
  name = str(content['name'])
  numbers = itertools.count(1)

  def run_of(entry: Mapping[str, Any]) -> Run | None:
    workdir = folder / str(entry['workdir'])
    return read_run(workdir, f'{name} {next(numbers)}') if is_workdir(workdir) else None

  pretrained = {}
  for entry in content.get('pretrained', ()):
    run, seed = run_of(entry), _int(entry['seed'])
    label = name if len(content['pretrained']) == 1 else f'{name}, seed {seed}'
    pretrained[seed] = run and dataclasses.replace(run, name=label)
  finetuned = tuple(
    FinetuneRun(
      pretrain_seed=_int(entry.get('pretrain_seed', 0)),
      seed=_int(entry.get('seed', 0)),
      task=str(entry['task']),
      evaluated=tuple(map(str, entry.get('judged') or (entry['task'],))),
      variant=str(entry.get('variant') or ''),
      learning_rate=None if entry.get('learning_rate') is None else float(entry['learning_rate']),
      run=run_of(entry),
    )
    for entry in content.get('learned', ())
  )
  analyses = tuple(
    _analysis(folder / str(entry['workdir']), str(entry['what']), _int(entry.get('pretrain_seed', 0)))
    for entry in content.get('analyses', ())
  )
  rows = tuple((int(table), str(row)) for table, row in content.get('rows', ()))
  return Model(name, rows, pretrained, finetuned, analyses)


# --- values from outside ----------------------------------------------------------------------------------------------


def _text_of(file: epath.Path) -> str:
  try:
    return file.read_bytes().decode(errors='replace')
  except OSError:
    return ''


def _is_finite(value: Any) -> bool:
  return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


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


def _float(value: Any) -> float | None:
  try:
    return float(value)
  except (TypeError, ValueError):
    return None
