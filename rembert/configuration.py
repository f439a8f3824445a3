"""gin files and bindings in, frozen dataclasses out.

gin builds these objects before anything is compiled; nothing under jit, scan or a data map is configurable. The classes
know nothing of gin: the table below gives each its name in a gin file.
"""

import contextlib
import dataclasses
import difflib
import io
import os
import pathlib
import re
import tokenize
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeVar

import gin
from etils import epath

import rembert
from rembert.analysis.config import AnalyzeConfig, ProbeConfig
from rembert.command_line import MODES
from rembert.data.config import DataConfig, VocabularyConfig
from rembert.data.masking import MaskingConfig
from rembert.data.packing import PackingConfig
from rembert.errors import UsageError
from rembert.files import read_text, write_whole
from rembert.jobs.config import EvaluateConfig, FinetuneOptions
from rembert.model.config import Execution, RemBertConfig
from rembert.paper import PaperFigures
from rembert.runtime.distributed import HostsConfig
from rembert.runtime.xla import HardwareConfig
from rembert.tracking.metric_writers import TrackingConfig
from rembert.tracking.profiler import ProfileConfig
from rembert.train.anomaly_detection import GuardsConfig
from rembert.train.optimizer import OptimizerConfig
from rembert.train.sharding import MeshConfig
from rembert.train.trainer import TrainConfig
from rembert.validation import OneOf, check_fields
from tasks.xtreme.config import XtremeConfig


@dataclasses.dataclass(frozen=True)
class RunConfig:
  """Which job a gin file is for.

  Attributes:
    mode: the job; `--mode` overrides it.
    workdir: where it writes; `--workdir` overrides it. None is `runs/NAME` for `gin/NAME.gin`.
  """

  mode: Annotated[str, OneOf(MODES)] = 'pretrain'
  workdir: str | None = None

  def __post_init__(self):
    check_fields(self, 'run')


CONFIGURABLES = {
  'run': RunConfig,
  'RemBertConfig': RemBertConfig,
  'paper': PaperFigures,
  'execution': Execution,
  'data': DataConfig,
  'vocabulary': VocabularyConfig,
  'masking': MaskingConfig,
  'packing': PackingConfig,
  'optimizer': OptimizerConfig,
  'mesh': MeshConfig,
  'hardware': HardwareConfig,
  'hosts': HostsConfig,
  'train': TrainConfig,
  'guards': GuardsConfig,
  'profile': ProfileConfig,
  'tracking': TrackingConfig,
  'xtreme': XtremeConfig,
  'finetune': FinetuneOptions,
  'evaluate': EvaluateConfig,
  'analyze': AnalyzeConfig,
  'probe': ProbeConfig,
}
for _name, _class in CONFIGURABLES.items():
  gin.register(_name, module='rembert')(_class)

_being_read: list[str] = []  # a gin file, what it includes, what that includes, …


@contextlib.contextmanager
def _opened(path: str) -> Iterator[io.StringIO]:
  """A gin file as gin reads it: while it is open, what it includes is read."""
  if os.path.realpath(path) in _being_read:
    raise UsageError('a gin file includes itself, or one that includes it', where=path, fix='leave out the include')
  text = io.StringIO(read_text(path, what='a gin file'))
  text.name = path
  _being_read.append(os.path.realpath(path))
  try:
    yield text
  finally:
    _being_read.pop()


# gin would also look for files inside importable packages, and log an error for every folder where it finds none.
gin.config._FILE_READERS[:] = [(_opened, os.path.isfile)]

Config = TypeVar('Config')


def build(cls: type[Config]) -> Config:
  """An instance of a class of the table with what has been bound; UsageError if the values do not fit."""
  name = _name_of(cls)
  try:
    _refuse_left_open(name)
    configured = gin.get_configurable(f'rembert.{name}')()
    return cls(**{field.name: getattr(configured, field.name) for field in dataclasses.fields(cls)})
  except UsageError as error:  # without the lines that gin adds to an exception on its way
    raise UsageError(error.what, where=error.where, fix=error.fix) from None
  except (TypeError, ValueError) as error:
    raise UsageError(f'{name} cannot be built: {str(error).splitlines()[0]}', where=f'{name}.*') from error


def bound(cls: type) -> dict[str, Any]:
  """The fields of a class of the table that gin files or bindings have set, and to what."""
  return dict(gin.get_bindings(f'rembert.{_name_of(cls)}'))


def check_bound() -> None:
  """UsageError if a value that gin files or bindings have set is wrong, whatever job it is for."""
  for cls in CONFIGURABLES.values():
    if bound(cls):
      build(cls)


def _name_of(cls: type) -> str:
  return next(name for name, configurable in CONFIGURABLES.items() if configurable is cls)


def _refuse_left_open(name: str) -> None:
  values = gin.get_bindings(f'rembert.{name}')
  left_open = [f'{name}.{field}' for field, value in values.items() if value is gin.REQUIRED]
  if left_open:
    raise UsageError(
      'a gin file leaves open what another has to set: it is made to be included',
      where=', '.join(left_open),
      fix=['take a file that includes it', 'or set the values: ' + ' '.join(f'--gin.{field}=…' for field in left_open)],
    )


def search_paths(gin_files: Sequence[str] = ()) -> list[str]:
  """Where gin files and includes are looked for: here, beside those given, in the project, in the installed copy."""
  package = pathlib.Path(rembert.__file__).parent
  beside = [str(pathlib.Path(name).parent) for name in gin_files]
  return list(dict.fromkeys(['', *beside, str(package.parent), str(package / 'gin_files')]))


def find_gin_file(name: str) -> str:
  """Path of a gin file given as typed; files that ship with the project are found from any folder."""
  candidates = [pathlib.Path(folder) / name for folder in search_paths()]
  if os.path.islink(name) and not os.path.exists(name):
    read_text(name, what='a gin file')  # says where the link leads
  for candidate in candidates:
    if candidate.is_file():
      return str(candidate)
  package = pathlib.Path(rembert.__file__).parent
  known = sorted(
    str(file.relative_to(folder))
    for folder in (package.parent, package / 'gin_files')
    for file in folder.glob('gin/**/*.gin')
  )
  near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
  raise UsageError(
    f'no gin file {name}',
    where=', '.join(str(candidate) for candidate in candidates),
    fix=[f'did you mean {near[0]}?'] if near else [f'the project has {", ".join(known)}'],
  )


def load(gin_files: Sequence[str], bindings: Sequence[str]) -> None:
  """Parses files and then bindings, which win. Unknown and misspelt names are UsageErrors, macros included."""
  gin.clear_config()
  paths = [find_gin_file(name) for name in gin_files]
  gin.config._LOCATION_PREFIXES.clear()
  for folder in search_paths(paths):
    gin.add_config_file_search_path(folder)
  where = ''
  try:
    with _without_imports():
      for path in paths:
        where = path
        gin.parse_config_file(path, skip_unknown=False)
      for binding in bindings:
        where = f'--gin.{binding}'
        gin.parse_config(quoted_if_bare(binding), skip_unknown=False)
    _check_macros(gin_files, bindings)
  except UsageError as error:  # without the lines that gin adds to an exception on its way
    raise UsageError(error.what, where=error.where, fix=error.fix) from None
  except OSError as error:
    raise UsageError(f'a gin file cannot be read: {error}', where=where, fix='check the path of the include') from error
  except (SyntaxError, tokenize.TokenError, ValueError, AttributeError, TypeError) as error:
    raise _parse_error(error, where) from error


def _check_macros(gin_files: Sequence[str], bindings: Sequence[str]) -> None:
  """UsageError for a macro that is referred to and not defined, or given on the command line and not referred to.

  A macro is a number with a name, `HIDDEN = 96` (gin/scales); gin takes any name for one. Those of files may be idle,
  since a scale is for all models and each refers to some of its numbers, but not a whole scale.
  """
  references = gin.config.iterate_references(gin.config._CONFIG)
  referred_to = {'/'.join(each.scopes) for each in references if each.configurable.selector == 'gin.macro'}
  defined = {scope for scope, selector in gin.config._CONFIG if selector == 'gin.macro'}
  for name in sorted(referred_to - defined):
    raise UsageError(f'%{name} is not defined', where=f'%{name}', fix=f'--gin.{name}=…, or a file of gin/scales')
  scales = [name for name in gin_files if pathlib.Path(name).parent.name == 'scales']
  if scales and not referred_to:
    raise UsageError(
      'nothing refers to the numbers of a scale',
      where=', '.join(scales),
      fix=['give it after a file of gin/experiments', 'fine-tuning has its own: gin/scales/finetuning'],
    )
  for name in (binding.partition('=')[0].strip() for binding in bindings):
    if '.' not in name and name not in referred_to:
      near = difflib.get_close_matches(name, sorted(referred_to), n=1, cutoff=0.5)
      known = f'the files refer to {", ".join(sorted(referred_to))}' if referred_to else '--gin.NAME.FIELD=VALUE'
      raise UsageError(
        f'nothing refers to {name}', where=f'--gin.{name}', fix=f'did you mean {near[0]}?' if near else known
      )


@contextlib.contextmanager
def _without_imports() -> Iterator[None]:
  """Keeps gin files data: `import` would run a module, and with dynamic registration call anything in it."""

  def refuse(context, statement) -> None:
    del context
    raise UsageError(
      f'a gin file cannot import: {statement.format()}',
      where=f'{statement.location.filename}:{statement.location.line_num}',
      fix='leave the line out: values and includes are all that is needed; code belongs into a module',
    )

  taken = gin.config.ParseContext.process_import
  gin.config.ParseContext.process_import = refuse
  try:
    yield
  finally:
    gin.config.ParseContext.process_import = taken


def quoted_if_bare(binding: str) -> str:
  """`a.b=dev` as `a.b='dev'`: the shell takes the quotes away that gin wants around a string."""
  key, _, value = (part.strip() for part in binding.partition('='))
  is_literal = re.fullmatch(r"""[-+.\d].*|['"({\[@%].*|True|False|None""", value) and not re.fullmatch(
    r'(\.{0,2}/|\d+-).*', value
  )
  return f'{key} = {value}' if is_literal else f'{key} = {value!r}'


def _parse_error(error: Exception, where: str) -> UsageError:
  message = str(error).strip()
  names = [f'{name}.{field.name}' for name, cls in CONFIGURABLES.items() for field in dataclasses.fields(cls)]
  parameter = re.search(r"Configurable '(?:rembert\.)?(\w+)' doesn't have a parameter named '(\w+)'", message)
  unknown = re.search(r"No configurable matching '([\w./]+)'", message)
  wanted = f'{parameter[1]}.{parameter[2]}' if parameter else unknown[1] if unknown else None
  if wanted is None:
    line = next((line for line in message.splitlines() if line.strip()), type(error).__name__)
    return UsageError(f'the configuration cannot be read: {line}', where=where, fix='gin syntax is NAME.FIELD = VALUE')
  if parameter:
    fields = [field.name for field in dataclasses.fields(CONFIGURABLES[parameter[1]])]
    near = difflib.get_close_matches(parameter[2], fields, n=1, cutoff=0.5)
    fix = f'did you mean {parameter[1]}.{near[0]}?' if near else f'{parameter[1]} has {", ".join(fields)}'
  else:
    near = difflib.get_close_matches(wanted, [*CONFIGURABLES, *names], n=1, cutoff=0.5)
    fix = f'did you mean {near[0]}?' if near else f'there are {", ".join(CONFIGURABLES)}'
  return UsageError(f'unknown name {wanted}', where=where, fix=fix)


def save(workdir: epath.Path) -> None:
  """Writes what was set (`config.gin`) and everything in effect (`operative_config.gin`) to the workdir."""
  for name, text in (('config.gin', gin.config_str()), ('operative_config.gin', gin.operative_config_str())):
    write_whole(workdir / name, text)


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
  """Lines `name: old → new` for everything that two JSON dicts do not agree on."""
  as_json = lambda value: list(value) if isinstance(value, tuple) else value
  return [
    f'{name}: {before.get(name)!r} → {after.get(name)!r}'
    for name in sorted({*before, *after})
    if as_json(before.get(name)) != as_json(after.get(name))
  ]
