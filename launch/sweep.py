"""Pre-trains, fine-tunes, evaluates and analyses many models with one command, and writes a report of them.

The models are gin files, such as the rows of the paper's tables in gin/experiments, times a grid of bindings."""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from launch.experiment import (
  Benchmark,
  Run,
  add_benchmark,
  benchmark_from,
  code_version,
  module_flags,
  show_plan,
  words,
  write_json,
)
from launch.scheduler import RunState, add_run_options, chosen_slots, run_all, write_report
from rembert.command_line import command_parser, import_modules, parse_bindings, run_command
from rembert.errors import UsageError
from rembert.runtime.signals import EXIT_STOPPED
from rembert.tracking.console import Console
from rembert.validation import CountOrZero, NotNegative, comma_separated, number
from tasks.xtreme import RETRIEVAL

FILE = 'sweep.json'
SCALES = ('full', 'small', 'mini', 'micro')

EXAMPLES = """
examples
  Table 4 of the paper at a size for a laptop; prints the commands, then runs them:
    python -m launch.sweep gin/experiments/table4 --scale=mini --data_dir=download --dry_run
    python -m launch.sweep gin/experiments/table4 --scale=mini --data_dir=download --gin.data.source=store \\
        --gin.data.store=store --gin.data.languages=None
  a custom grid, two seeds of pre-training, no fine-tuning, on four GPUs:
    python -m launch.sweep gin/pretrain_base.gin --grid=RemBertConfig.output_embedding_size=128,768,3072 \\
        --pretrain_seeds=0,1 --tasks= --devices=0,1,2,3
  layers dropped before fine-tuning (Figure 1), and the input embedding frozen (footnote 4):
    python -m launch.sweep gin/experiments/table4 --data_dir=download --tasks=xnli \\
        --finetune_grid=RemBertConfig.num_hidden_layers=8,9,10,11,12
    python -m launch.sweep gin/experiments/table3 --data_dir=download --tasks=xnli \\
        --finetune_grid=optimizer.freeze_embeddings=False,True

bindings
  --gin.A.b=V applies to pre-training, --finetune_gin.A.b=V to fine-tuning, --analyze_gin.A.b=V to the analyses;
  --scale=NAME means --gin_file=gin/scales/NAME.gin and --finetune_gin_file=gin/scales/finetuning/NAME.gin

Equal configurations, such as 128 in and 768 out in four tables, are pre-trained once. Every run has its own workdir,
with its output in log.txt, and its command, code version, times and exit code in run.json. Running the command again
resumes, also with more seeds, tasks or files. A run that is killed is restarted; if one fails, or its loss diverges,
only the runs that depend on it are skipped.

exit codes
  0 done · 75 stopped early, run again to resume · 2 wrong usage · 1 a run failed; the report has the other runs
"""

# --- models: gin files times a grid -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Model:
  """A configuration that is pre-trained once per seed."""

  name: str  # unique, of its directories and in tables
  rows: tuple[tuple[int, str], ...]  # (table, row) of the paper that it reproduces
  gin_files: tuple[str, ...]  # of its pre-training
  bindings: tuple[str, ...]  # NAME=VALUE, after the gin files
  settings: Mapping[str, str]  # bindings of the grid
  kept_layers: int | None  # that fine-tuning keeps, from the bottom; None for all


def find_gin_files(paths: Sequence[str]) -> list[str]:
  """The given files, and the gin files of given directories, sorted; UsageError for other paths."""
  from rembert import configuration

  found = []
  for path in paths:
    folders = [folder / path for folder in map(pathlib.Path, configuration.search_paths())]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None:
      configuration.find_gin_file(path)  # UsageError if it does not exist
      found.append(path)
      continue
    files = sorted(file.relative_to(folder) for file in folder.rglob('*.gin'))
    if not files:
      raise UsageError('no gin file in this directory', where=path, fix='for example gin/experiments/table4')
    found += [str(pathlib.PurePath(path) / file) for file in files]
  # The base files of gin/experiments are only for inclusion.
  is_base = lambda path: path.stem.endswith('base') and 'experiments' in path.parts
  return [path for path in dict.fromkeys(found) if not is_base(pathlib.PurePath(path))]


def grid_points(axes: Sequence[str], flag: str) -> list[dict[str, str]]:
  """All combinations of axes `NAME=A,B`; a single empty one without axes. UsageError for a malformed axis."""
  parsed = []
  for axis in axes:
    name, sign, values = axis.partition('=')
    if not sign or not re.fullmatch(r'[\w.]+', name) or not values:
      raise UsageError(f'invalid grid axis {axis!r}', where=flag, fix=f'{flag}=train.seed=0,1,2')
    parsed.append([(name, value) for value in values.split(',')])
  return [dict(point) for point in itertools.product(*parsed)]


def build_models(
  files: Sequence[str], grid: Sequence[Mapping[str, str]], shared_files: Sequence[str], bindings: Sequence[str]
) -> list[Model]:
  """Builds a model for every file at every point of the grid; equal configurations are one model.

  `shared_files` (scale, hardware, data) follow each file, then `bindings`, then those of the grid. An invalid
  configuration is a UsageError with its file and point of the grid.
  """
  from rembert import configuration
  from rembert.jobs import pretrain
  from rembert.paper import PaperFigures

  found: dict[str, Model] = {}
  for file, point in itertools.product(files, grid):
    own = (*bindings, *(f'{name}={value}' for name, value in point.items()))
    gin_files = (file, *shared_files)
    try:
      configuration.load(gin_files, own)
      config = pretrain.configured()
      figures = configuration.build(PaperFigures)
    except UsageError as error:
      at = ', '.join(f'{name}={value}' for name, value in point.items())
      raise UsageError(error.what, where=f'{file} {at}: {error.where}', fix=error.fix) from error
    kept_layers = None if figures.kept_layers == config.model.num_hidden_layers else figures.kept_layers
    # The fields of `paper` do not affect training.
    parts = [getattr(config, field.name) for field in dataclasses.fields(config)]
    trained = [dataclasses.asdict(part) for part in parts if not isinstance(part, PaperFigures)]
    fingerprint = json.dumps([trained, kept_layers], sort_keys=True)
    # At a point of the grid it is no longer the paper's row.
    rows = ((figures.table, figures.row),) if figures.table is not None and not point else ()
    if fingerprint in found:
      found[fingerprint] = dataclasses.replace(found[fingerprint], rows=(*found[fingerprint].rows, *rows))
      continue
    settings = [f'{name.rpartition(".")[2]}={value}' for name, value in point.items()]
    name = '-'.join([pathlib.PurePath(file).stem, *settings])
    if any(name == model.name for model in found.values()):
      name = f'{pathlib.PurePath(file).parent.name}-{name}'
    found[fingerprint] = Model(name, rows, gin_files, own, dict(point), kept_layers)
  return list(found.values())


# --- the plan: all runs of all models ---------------------------------------------------------------------------------


def plan_sweep(
  models: Sequence[Model],
  benchmark: Benchmark,
  workdir: epath.Path,
  *,
  pretrain_seeds: Sequence[int] = (0,),
  variants: Sequence[Mapping[str, str]] = ({},),
  analyses: Sequence[str] = (),
  analysis_bindings: Sequence[str] = (),
  flags: Sequence[str] = (),
) -> tuple[list[Run], list[dict[str, Any]]]:
  """Plans all runs of all models, with one pre-training per model and seed.

  Args:
    models: models, from `build_models`.
    benchmark: tasks to fine-tune on.
    workdir: directory of the sweep.
    pretrain_seeds: seeds of pre-training.
    variants: variants of fine-tuning, each with bindings (NAME to VALUE); {} is fine-tuning without changes.
    analyses: analyses; NAME means gin/analyze_NAME.gin.
    analysis_bindings: bindings for the analyses, NAME=VALUE.
    flags: flags for pre-training and analyses.

  Returns:
    the runs, ordered so that each model is finished before the next begins; and the models as in `sweep.json` (see
    `rembert.report`).
  """
  runs: list[Run] = []
  entries: list[dict[str, Any]] = []

  def add(part: str, run: Run, **facts: Any) -> None:
    runs.append(run)
    entries[-1][part].append({**facts, 'workdir': os.fspath(run.workdir.relative_to(workdir))})

  for model in models:
    entry: dict[str, Any] = {'name': model.name, 'rows': [list(row) for row in model.rows]}
    entry |= {'settings': dict(model.settings), 'gin_files': list(model.gin_files)}
    entries.append(entry | {'pretrained': [], 'learned': [], 'analyses': []})
    kept = {} if model.kept_layers is None else {'RemBertConfig.num_hidden_layers': str(model.kept_layers)}
    for seed in pretrain_seeds:
      folder = workdir / 'pretrained' / model.name / f'seed_{seed}'
      arguments = [*flags, *(f'--gin_file={file}' for file in model.gin_files)]
      arguments += [f'--gin.{binding}' for binding in (*model.bindings, f'train.seed={seed}')]
      pretraining = Run(f'pretrain {model.name} · seed {seed}', folder, (*arguments, f'--workdir={folder}'))
      add('pretrained', pretraining, seed=seed)
      needs, of_model = (pretraining.name,), f'{model.name} · pre-training {seed}'

      for variant in variants:
        name = ','.join(f'{setting}={value}' for setting, value in variant.items())
        finetuning = benchmark.runs(
          os.fspath(pretraining.workdir),
          workdir / 'learned' / model.name / f'pretrain_seed_{seed}' / (name or 'as_it_is'),
          label=of_model + (f' · {name}' if name else ''),
          needs=needs,
          bindings=[f'{setting}={value}' for setting, value in (kept | dict(variant)).items()],
          tasks=[task for task in benchmark.tasks if variant == variants[0] or task not in RETRIEVAL],
        )
        for each in finetuning:
          made = {'pretrain_seed': seed, 'seed': each.seed, 'task': each.task, 'evaluated': list(each.evaluated)}
          add('learned', each.run, **made, variant=name, learning_rate=each.learning_rate)

      for what in analyses:
        folder = workdir / 'analyses' / model.name / f'pretrain_seed_{seed}' / what
        # The eval set is that of the run, from its own configuration.
        files = [f'{pretraining.workdir}/config.gin'] if what == 'masked_accuracy' else []
        arguments = [*flags, *(f'--gin_file={file}' for file in (*files, f'gin/analyze_{what}.gin'))]
        arguments += [f'--gin.analyze.model={pretraining.workdir}', f'--gin.analyze.model_name={model.name}']
        arguments += [*(f'--gin.{binding}' for binding in analysis_bindings), f'--workdir={folder}']
        add(
          'analyses', Run(f'analyze {what} {of_model}', folder, tuple(arguments), needs), pretrain_seed=seed, what=what
        )
  return runs, entries


def write_plan(models: Sequence[dict], argv: Sequence[str], scale: str, workdir: epath.Path) -> None:
  """Writes `sweep.json`, which describes models and their runs; keeps models of earlier commands in this directory.

  A model of the same name with another configuration is a UsageError, and nothing is written.
  """
  file = workdir / FILE
  before = json.loads(file.read_text()) if file.exists() else {'models': [], 'asked': []}
  entries = {entry['name']: entry for entry in before['models']}
  for entry in models:
    old = entries.get(entry['name'])
    entries[entry['name']] = entry if old is None else _merged(old, entry, workdir)
  content = {
    'name': workdir.name,
    'scale': scale,
    'code': code_version(),
    'asked': [*(line for line in before['asked'] if line != list(argv)), list(argv)],
    'models': list(entries.values()),
  }
  write_json(file, content)


def _merged(old: dict, new: dict, workdir: epath.Path) -> dict:
  if old['settings'] != new['settings'] or old['gin_files'] != new['gin_files']:
    raise UsageError(
      f'the model {new["name"]} of this sweep has other files or settings: {old["gin_files"]}, '
      f'{old["settings"]}; requested: {new["gin_files"]}, {new["settings"]}',
      where=os.fspath(workdir),
      fix='choose another workdir: --workdir=DIR',
    )
  merged = new | {'rows': [*old['rows'], *(row for row in new['rows'] if row not in old['rows'])]}
  for part in ('pretrained', 'learned', 'analyses'):
    merged[part] = list({each['workdir']: each for each in (*old[part], *new[part])}.values())
  return merged


# --- the command ------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line, without bindings."""
  flags = command_parser('launch.sweep', __doc__, EXAMPLES)
  flags.add_argument('files', nargs='+', metavar='FILE', help='gin files of pre-training, or directories of them')
  flags.add_argument('--workdir', default='runs/sweep', metavar='DIR', help='directory of runs (default: %(default)s)')
  models = flags.add_argument_group('models')
  repeatable: dict[str, Any] = {'action': 'append', 'default': []}
  help_text = 'axis of a grid: a binding and its values; repeatable, for all combinations'
  models.add_argument('--grid', metavar='A.b=V,W', help=help_text, **repeatable)
  models.add_argument('--scale', choices=SCALES, help='scale of the models, fine-tuning and analyses')
  models.add_argument('--gin_file', metavar='FILE', help='gin file to add to each FILE; repeatable', **repeatable)
  help_text = 'seeds of pre-training (default: 0)'
  models.add_argument(
    '--pretrain_seeds', type=comma_separated(CountOrZero), default=(0,), metavar='0,1', help=help_text
  )
  help_text = 'stop pre-training if the mean loss rises this far above its minimum; 0 disables (default: %(default)s)'
  models.add_argument('--stop_diverged', type=number(NotNegative), default=1.0, metavar='NATS', help=help_text)
  finetuning = flags.add_argument_group('fine-tuning')
  add_benchmark(finetuning)
  finetuning.add_argument(
    '--finetune_grid', metavar='A.b=V,W', help='axis of a grid of fine-tuning; repeatable', **repeatable
  )
  finetuning.add_argument('--finetune_gin_file', metavar='FILE', help='of fine-tuning; repeatable', **repeatable)
  analyses = flags.add_argument_group('analyses')
  help_text = 'analyses to run: A means gin/analyze_A.gin (default: none)'
  analyses.add_argument('--analyses', type=words, default=(), metavar='A,B', help=help_text)
  add_run_options(flags.add_argument_group('execution'))
  return flags


def run(
  flags: argparse.ArgumentParser,
  options: argparse.Namespace,
  bindings: Mapping[str, Sequence[str]],
  argv: Sequence[str],
) -> int:
  """Plans the runs, runs those that are not done, and writes the report."""
  scale = options.scale
  gin_files = [*([f'gin/scales/{scale}.gin'] if scale else []), *options.gin_file]
  finetune_files = [*([f'gin/scales/finetuning/{scale}.gin'] if scale else []), *options.finetune_gin_file]
  benchmark = benchmark_from(flags, options, finetune_files, bindings['finetune_gin'])
  import_modules(options.module)  # now, so that an import error is reported here and not in every run
  console, workdir = Console(), epath.Path(options.workdir)
  guard = f'guards.diverged_nats={options.stop_diverged}'
  grid = grid_points(options.grid, '--grid')
  models = build_models(find_gin_files(options.files), grid, gin_files, [guard, *bindings['gin']])
  runs, entries = plan_sweep(
    models,
    benchmark,
    workdir,
    pretrain_seeds=options.pretrain_seeds,
    variants=grid_points(options.finetune_grid, '--finetune_grid'),
    analyses=options.analyses,
    analysis_bindings=bindings['analyze_gin'],
    flags=module_flags(options),
  )
  show_plan(runs, benchmark.missing_scores(), options.dry_run, console)
  if options.dry_run:
    return 0
  slots = chosen_slots(options)
  workdir.mkdir(parents=True, exist_ok=True)
  write_plan(entries, argv, scale or 'full', workdir)
  progress, is_finished = run_all(runs, slots, workdir, console)
  write_report(workdir, console)
  if not is_finished:
    return EXIT_STOPPED
  return 0 if all(each.state is RunState.DONE for each in progress) else 1


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  argv = sys.argv[1:] if argv is None else argv
  flags = parser()
  options, bindings = parse_bindings(flags, argv, ('gin', 'finetune_gin', 'analyze_gin'))
  return run_command('rembert', lambda: run(flags, options, bindings, argv))


if __name__ == '__main__':
  sys.exit(main())
