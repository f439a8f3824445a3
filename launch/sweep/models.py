"""Which models a sweep trains: gin files times a grid, each different configuration once."""

import dataclasses
import itertools
import json
import pathlib
import re
from collections.abc import Mapping, Sequence

from launch.sweep.model import Model
from rembert import configuration
from rembert.errors import UsageError
from rembert.jobs import pretrain
from rembert.paper import PaperFigures


def gin_files_of(paths: Sequence[str]) -> list[str]:
  """Files as they are, and the gin files of folders in the order of their names; UsageError for what is neither."""
  found = []
  for path in paths:
    folder = next((folder / path for folder in _roots() if (folder / path).is_dir()), None)
    if folder is None:
      configuration.find_gin_file(path)  # says what there is
      found.append(path)
      continue
    files = sorted(file.relative_to(folder) for file in folder.rglob('*.gin'))
    if not files:
      raise UsageError('no gin file in this folder', where=path, fix='gin/experiments/table4, for one')
    found += [str(pathlib.PurePath(path) / file) for file in files]
  return [path for path in dict.fromkeys(found) if not _is_base(path)]


def _roots() -> list[pathlib.Path]:
  return [pathlib.Path(folder) for folder in configuration.search_paths()]


def _is_base(path: str) -> bool:
  """Whether a file is made to be included by its neighbours."""
  return pathlib.PurePath(path).stem.endswith('base') and 'experiments' in pathlib.PurePath(path).parts


def grid_of(lines: Sequence[str], flag: str) -> list[dict[str, str]]:
  """`NAME=A,B` each, to all combinations; one empty one for an empty grid. UsageError for another form."""
  axes = []
  for line in lines:
    name, sign, values = line.partition('=')
    if not sign or not re.fullmatch(r'[\w.]+', name) or not values:
      raise UsageError(f'no axis of a grid: {line}', where=flag, fix=f'{flag}=train.seed=0,1,2')
    axes.append([(name, value) for value in values.split(',')])
  return [dict(point) for point in itertools.product(*axes)]


def models_of(
  files: Sequence[str], grid: Sequence[Mapping[str, str]], shared_files: Sequence[str], bindings: Sequence[str]
) -> list[Model]:
  """Every file at every point of the grid; what comes out with the same configuration is one model.

  Args:
    files: of `gin_files_of`.
    grid: of `grid_of`.
    shared_files: given after each of them: a scale, hardware, data.
    bindings: `NAME=VALUE`, for all; the grid's go after them.

  Raises:
    UsageError: a configuration does not fit; told with the file and the point of the grid.
  """
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
    kept_layers = figures.kept_layers
    if kept_layers == config.model.num_hidden_layers:
      kept_layers = None
    identity = json.dumps([_as_json(config), kept_layers], sort_keys=True)
    # At a point of the grid it is the paper's row no longer.
    rows = ((figures.table, figures.row),) if figures.table is not None and not point else ()
    if identity in found:
      found[identity] = dataclasses.replace(found[identity], rows=(*found[identity].rows, *rows))
      continue
    name = '-'.join([pathlib.PurePath(file).stem, *(f'{_short(name)}={value}' for name, value in point.items())])
    if any(name == model.name for model in found.values()):
      name = f'{pathlib.PurePath(file).parent.name}-{name}'
    found[identity] = Model(name, rows, gin_files, own, dict(point), kept_layers)
  return list(found.values())


def _as_json(config) -> dict:
  """What two files have to agree on to train the same model; their remarks on the paper are none of it."""
  fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
  return {name: dataclasses.asdict(value) for name, value in fields.items() if not isinstance(value, PaperFigures)}


def _short(name: str) -> str:
  return name.rsplit('.', 1)[-1]
