"""All runs of a sweep, and the file that says which run is what."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence

from etils import epath

from launch.runs import Run, code_version
from launch.sweep.model import Model
from launch.xtreme_runs import Benchmark, TaskRun
from rembert.errors import UsageError
from rembert.storage import write_whole
from tasks.xtreme.config import RETRIEVAL

FILE = 'sweep.json'


@dataclasses.dataclass(frozen=True)
class Asked:
  """What is done with every model.

  Attributes:
    benchmark: what it is judged on; None for nothing.
    pretrain_seeds: a pre-training each.
    variants: of fine-tuning: bindings by name, `NAME` to `VALUE`; an empty one is fine-tuning as it is.
    analyses: names, each with its gin file `gin/analyze_NAME.gin`.
    analysis_bindings: for all of these.
    modules: that register the SeqIO tasks of pre-training.
  """

  benchmark: Benchmark | None
  pretrain_seeds: tuple[int, ...]
  variants: tuple[Mapping[str, str], ...] = ({},)
  analyses: tuple[str, ...] = ()
  analysis_bindings: tuple[str, ...] = ()
  modules: tuple[str, ...] = ()

  @property
  def module_flags(self) -> list[str]:
    """For a command line."""
    return [f'--module={module}' for module in self.modules]


@dataclasses.dataclass(frozen=True)
class Plan:
  """Runs in an order that suits one after the other: a model is finished before the next begins.

  Attributes:
    runs: all of them.
    models: the entries of the file; see `rembert.report`.
  """

  runs: list[Run]
  models: list[dict]


def planned(models: Sequence[Model], asked: Asked, workdir: epath.Path) -> Plan:
  """All runs of all models; every pre-training is made once, whatever is made of it."""
  runs, entries = [], []
  for model in models:
    entry = {'name': model.name, 'rows': [list(row) for row in model.rows], 'settings': dict(model.settings)}
    entry |= {'gin_files': list(model.gin_files), 'pretrained': [], 'learned': [], 'analyses': []}
    for seed in asked.pretrain_seeds:
      pretraining = _pretraining(model, seed, asked, workdir)
      runs.append(pretraining)
      entry['pretrained'].append({'seed': seed, 'workdir': _relative(pretraining.workdir, workdir)})
      for variant, task_run in _learned(model, seed, pretraining, asked, workdir):
        runs.append(task_run.run)
        entry['learned'].append(_learned_entry(seed, variant, task_run, workdir))
      for what in asked.analyses:
        analysis = _analysis(model, seed, what, pretraining, asked, workdir)
        runs.append(analysis)
        entry['analyses'].append({'pretrain_seed': seed, 'what': what, 'workdir': _relative(analysis.workdir, workdir)})
    entries.append(entry)
  return Plan(runs, entries)


def _pretraining(model: Model, seed: int, asked: Asked, workdir: epath.Path) -> Run:
  folder = workdir / 'pretrained' / model.name / f'seed_{seed}'
  files = [f'--gin_file={file}' for file in model.gin_files]
  bindings = [f'--gin.{binding}' for binding in (*model.bindings, f'train.seed={seed}')]
  return Run(
    f'pretrain {model.name} · seed {seed}', folder, (*asked.module_flags, *files, *bindings, f'--workdir={folder}')
  )


def _learned(model: Model, seed: int, pretraining: Run, asked: Asked, workdir: epath.Path) -> list[tuple[str, TaskRun]]:
  """Variant and run."""
  if asked.benchmark is None:
    return []
  kept = {} if model.kept_layers is None else {'RemBertConfig.num_hidden_layers': str(model.kept_layers)}
  needs, found = (pretraining.name,), []
  for variant in asked.variants:
    name = ','.join(f'{name}={value}' for name, value in variant.items())
    bindings = [f'--gin.{name}={value}' for name, value in (kept | dict(variant)).items()]
    folder = workdir / 'learned' / model.name / f'pretrain_seed_{seed}' / (name or 'as_it_is')
    label = f'{model.name} · pre-training {seed}' + (f' · {name}' if name else '')
    tasks = [task for task in asked.benchmark.tasks if variant == asked.variants[0] or task not in RETRIEVAL]
    model_path = os.fspath(pretraining.workdir)
    task_runs = asked.benchmark.runs(model_path, folder, label=label, needs=needs, bindings=bindings, tasks=tasks)
    found += [(name, task_run) for task_run in task_runs]
  return found


def _learned_entry(pretrain_seed: int, variant: str, task_run: TaskRun, workdir: epath.Path) -> dict:
  return {
    'pretrain_seed': pretrain_seed,
    'seed': task_run.seed,
    'task': task_run.task,
    'judged': list(task_run.judged),
    'variant': variant,
    'learning_rate': task_run.learning_rate,
    'workdir': _relative(task_run.run.workdir, workdir),
  }


def _analysis(model: Model, seed: int, what: str, pretraining: Run, asked: Asked, workdir: epath.Path) -> Run:
  folder = workdir / 'analyses' / model.name / f'pretrain_seed_{seed}' / what
  # Held-out text is that of the run: its own configuration names it.
  files = [f'{pretraining.workdir}/config.gin'] if what == 'masked_accuracy' else []
  files.append(f'gin/analyze_{what}.gin')
  arguments = [*asked.module_flags, *(f'--gin_file={file}' for file in files)]
  arguments += [f'--gin.analyze.model={pretraining.workdir}', f'--gin.analyze.model_name={model.name}']
  arguments += [*asked.analysis_bindings, f'--workdir={folder}']
  return Run(f'analyze {what} {model.name} · pre-training {seed}', folder, tuple(arguments), (pretraining.name,))


def _relative(folder: epath.Path, workdir: epath.Path) -> str:
  return os.fspath(folder.relative_to(workdir))


def write(plan: Plan, asked: Sequence[str], scale: str, workdir: epath.Path) -> None:
  """Writes `sweep.json`: what the runs are to each other. What an earlier command asked for in this folder stays.

  Raises:
    UsageError: a model of the same name was another one; nothing is written.
  """
  file = workdir / FILE
  before = json.loads(file.read_text()) if file.exists() else {'models': [], 'asked': []}
  entries = {entry['name']: entry for entry in before['models']}
  for entry in plan.models:
    old = entries.get(entry['name'])
    entries[entry['name']] = entry if old is None else _joined(old, entry, workdir)
  content = {
    'name': workdir.name,
    'scale': scale,
    'code': code_version(),
    'asked': [*(line for line in before['asked'] if line != list(asked)), list(asked)],
    'models': list(entries.values()),
  }
  write_whole(file, json.dumps(content, indent=1, ensure_ascii=False) + '\n')


def _joined(old: dict, new: dict, workdir: epath.Path) -> dict:
  if old['settings'] != new['settings'] or old['gin_files'] != new['gin_files']:
    raise UsageError(
      f'the model {new["name"]} of this sweep was made of other files or settings: {old["gin_files"]}, '
      f'{old["settings"]}, and now {new["gin_files"]}, {new["settings"]}',
      where=os.fspath(workdir),
      fix='take another folder: --workdir=DIR',
    )
  joined = dict(new)
  joined['rows'] = [*old['rows'], *(row for row in new['rows'] if row not in old['rows'])]
  for part in ('pretrained', 'learned', 'analyses'):
    joined[part] = list({each['workdir']: each for each in (*old[part], *new[part])}.values())
  return joined
