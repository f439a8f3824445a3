"""What a report is made of: folders of runs, of whole benchmarks and of sweeps become models with their runs."""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from rembert.errors import UsageError
from rembert.report.runs import SIGNS, Run, is_workdir, read_object, read_run
from rembert.report.xtreme_table import NAMES

SWEEP, ANALYSIS, BENCHMARK = 'sweep.json', 'analysis.json', 'xtreme.json'
_SEED = re.compile(r'seed_(\d+)')
_RATE = re.compile(r'rate_([\d.e+-]+)')


@dataclasses.dataclass(frozen=True)
class Pretrained:
  """One pre-training run of a model; `run` is None while there is nothing of it."""

  seed: int
  run: Run | None


@dataclasses.dataclass(frozen=True)
class Learned:
  """One fine-tuning of a model, or its evaluation.

  Attributes:
    pretrain_seed: of the run that it began with.
    seed: of its own.
    task: that was learned, or retrieved.
    judged: tasks that it is judged on.
    variant: what was changed for it, as a binding; '' is nothing.
    learning_rate: None is that of the gin file.
    run: None while there is nothing of it.
  """

  pretrain_seed: int
  seed: int
  task: str
  judged: tuple[str, ...]
  variant: str = ''
  learning_rate: float | None = None
  run: Run | None = None

  @property
  def is_judged(self) -> bool:
    """Whether it has results."""
    return self.run is not None and self.run.results is not None


@dataclasses.dataclass(frozen=True)
class Analysis:
  """One analysis of a model; `results` are None while there are none, and `pictures` are the PNG files beside."""

  what: str
  pretrain_seed: int
  facts: Mapping[str, Any]
  results: Mapping[str, Any] | None
  pictures: tuple[epath.Path, ...] = ()


@dataclasses.dataclass(frozen=True)
class Model:
  """A model and everything that was done with it.

  Attributes:
    name: unique in a report.
    rows: (table, row name) of the paper that it stands for.
    settings: what makes it this model, by gin name.
    pretrained: a run for each seed.
    learned: what was learned with it.
    analyses: what was looked at in it.
  """

  name: str
  rows: tuple[tuple[int, str], ...] = ()
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  pretrained: tuple[Pretrained, ...] = ()
  learned: tuple[Learned, ...] = ()
  analyses: tuple[Analysis, ...] = ()

  @property
  def runs(self) -> list[Run]:
    """Pre-training runs that there are."""
    return [each.run for each in self.pretrained if each.run is not None]

  @property
  def judged(self) -> list[Learned]:
    """What was learned and has results."""
    return [each for each in self.learned if each.is_judged]

  def stands_for(self, table: int) -> list[str]:
    """Rows of a table of the paper."""
    return [name for number, name in self.rows if number == table]


@dataclasses.dataclass(frozen=True)
class Source:
  """A folder that the report was asked for.

  Attributes:
    folder: as given.
    kind: what it is, in a word or two.
    models: of it.
    facts: what it says of itself, name to text.
    scale: of which sizes it says to be; '' if it does not say.
  """

  folder: str
  kind: str
  models: tuple[Model, ...]
  facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  scale: str = ''


def read(folders: Sequence[epath.PathLike]) -> list[Source]:
  """Reads what each folder holds; models get names that tell them apart.

  Raises:
    UsageError: a folder that is not there, that holds nothing known, or a `sweep.json` that is none.
  """
  sources = [_read_one(epath.Path(folder)) for folder in folders]
  names = [model.name for source in sources for model in source.models]
  unique = iter(_unique(names, [source.folder for source in sources for _ in source.models]))
  return [
    dataclasses.replace(source, models=tuple(dataclasses.replace(model, name=next(unique)) for model in source.models))
    for source in sources
  ]


def _read_one(folder: epath.Path) -> Source:
  if not folder.is_dir():
    raise UsageError('there is no such folder', where=str(folder), fix='name the --workdir of a run, or a sweep')
  if (folder / SWEEP).exists():
    return _sweep(folder)
  if (folder / BENCHMARK).exists() or any(_benchmark_workdirs(folder)):
    return _benchmark(folder)
  name = _name_of(folder)
  if (folder / ANALYSIS).exists():
    said = (read_object(folder / ANALYSIS) or {}).get('model_name')
    return Source(str(folder), 'analysis', (Model(str(said or name), analyses=(_analysis(folder, '', 0),)),))
  if is_workdir(folder):
    run = read_run(folder, name)
    if run.is_pre_training:
      model = Model(name, (run.row,) if run.row else (), pretrained=(Pretrained(_seed_of(run), run),))
      return Source(str(folder), 'pre-training', (model,), scale=run.scale)
    return Source(str(folder), 'XTREME', (Model(name, learned=(_learned(run),)),))
  raise UsageError(
    'nothing here that a report can be made of',
    where=f'{folder}: none of {", ".join((SWEEP, BENCHMARK, ANALYSIS, *SIGNS))}',
    fix='name the --workdir of a run, of launch.xtreme, or the folder of a sweep; several are set side by side',
  )


def _name_of(folder: epath.Path) -> str:
  return folder.name or folder.resolve().name or str(folder)


def _unique(names: Sequence[str], folders: Sequence[str]) -> Iterator[str]:
  """Names; those that come twice get the folder before them, and a number if that does not help."""
  full = [
    name if names.count(name) == 1 else f'{epath.Path(folder).parent.name}/{name}'.lstrip('/')
    for name, folder in zip(names, folders, strict=True)
  ]
  for index, name in enumerate(full):
    earlier = full[:index].count(name)
    yield f'{name} ({earlier + 1})' if earlier else name


# --- a run of its own -------------------------------------------------------------------------------------------------


def _seed_of(run: Run) -> int:
  return _int(run.meta.get('train.seed', run.settings.get('train.seed', 0)))


def _learned(run: Run) -> Learned:
  results = run.results or {}
  tasks = results.get('tasks')
  judged = tuple(tasks) if isinstance(tasks, dict) else (str(results.get('task', '')),)
  return Learned(0, _seed_of(run), str(results.get('task') or run.settings.get('xtreme.task', '')), judged, run=run)


def _analysis(folder: epath.Path, what: str, pretrain_seed: int) -> Analysis:
  content = read_object(folder / ANALYSIS) or {}
  part = lambda name: content.get(name) if isinstance(content.get(name), dict) else None
  pictures = tuple(sorted(folder.glob('*.png'), key=str)) if folder.is_dir() else ()
  return Analysis(str(content.get('analysis', what)), pretrain_seed, part('facts') or {}, part('results'), pictures)


# --- the folder of launch.xtreme --------------------------------------------------------------------------------------


def _benchmark_workdirs(folder: epath.Path) -> Iterator[epath.Path]:
  """`TASK/HOW/seed_N`, and `TASK` of retrieval."""
  for pattern in ('*/*/seed_*', '*'):
    yield from (found for found in sorted(folder.glob(pattern), key=str) if (found / 'results.json').exists())


def _benchmark(folder: epath.Path) -> Source:
  said = read_object(folder / BENCHMARK) or {}
  learned = []
  for workdir in _benchmark_workdirs(folder):
    # By the path below the folder: above it, anything may be called seed_7.
    parts = workdir.parts[len(folder.parts) :]
    run = read_run(workdir, '/'.join(parts))
    seed, rate = _SEED.fullmatch(parts[-1]), _RATE.fullmatch(parts[1]) if len(parts) > 1 else None
    found = _learned(run)
    learned.append(
      dataclasses.replace(
        found,
        task=parts[0] if parts[0] in NAMES else found.task,
        seed=int(seed[1]) if seed else 0,
        learning_rate=_float(rate[1]) if rate else None,
      )
    )
  return Source(str(folder), 'XTREME', (Model(str(said.get('name') or _name_of(folder)), learned=tuple(learned)),))


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
    # A line for each time that the sweep was asked for more.
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

  pretrained = []
  for entry in content.get('pretrained', ()):
    run, seed = run_of(entry), _int(entry['seed'])
    label = name if len(content['pretrained']) == 1 else f'{name}, seed {seed}'
    pretrained.append(Pretrained(seed, run and dataclasses.replace(run, name=label)))
  learned = tuple(
    Learned(
      pretrain_seed=_int(entry.get('pretrain_seed', 0)),
      seed=_int(entry.get('seed', 0)),
      task=str(entry['task']),
      judged=tuple(map(str, entry.get('judged') or (entry['task'],))),
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
  return Model(name, rows, dict(content.get('settings') or {}), tuple(pretrained), learned, analyses)


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
