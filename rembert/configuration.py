"""Builds frozen dataclasses from gin files and bindings.

gin builds these objects before anything is compiled; nothing under jit, scan or a data map is configurable. The classes
do not import gin: the table below gives each its name in a gin file.
"""

import contextlib
import dataclasses
import difflib
import io
import os
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import gin
from etils import epath

import rembert
from rembert.analysis.config import AnalyzeConfig, ProbeConfig
from rembert.command_line import MODES
from rembert.data.config import DataConfig, VocabularyConfig
from rembert.data.masking import MaskingConfig
from rembert.data.packing import PackingConfig
from rembert.data.phases import PhasesConfig
from rembert.errors import UsageError, first_line
from rembert.files import read_text, write_whole
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
from rembert.validation import Count, FractionBelowOne, OneOf, Positive, check_fields
from tasks.tables import DatasetConfig
from tasks.xtreme import XtremeConfig

if TYPE_CHECKING:
  from _typeshed import DataclassInstance

HEADS = ('classification', 'tagging', 'qa', 'multiple_choice', 'regression')  # of fine-tuning
# Old names of fields, read until the next release.
_RENAMED = {
  'finetune.judge_batch_size': 'finetune.eval_batch_size',
  'finetune.warmup_share': 'finetune.warmup_ratio',
}


@dataclasses.dataclass(frozen=True)
class RunConfig:
  """The job of a gin file.

  Attributes:
    mode: the job; `--mode` overrides it.
    workdir: its output directory; `--workdir` overrides it. None is `runs/NAME` for `gin/NAME.gin`.
  """

  mode: Annotated[str, OneOf(MODES)] = 'pretrain'
  workdir: str | None = None

  def __post_init__(self):
    check_fields(self, 'run')


@dataclasses.dataclass(frozen=True)
class FinetuneOptions:
  """Settings of fine-tuning, in addition to `train` and `optimizer`.

  Attributes:
    mixture: a registered SeqIO task or mixture to fine-tune and evaluate on, instead of `xtreme.task`; see
      `tasks.rows`. Examples are sampled at the mixture's rates.
    head: head of the model for a mixture: `classification`, `tagging`, `qa`, `multiple_choice` or `regression`.
    epochs: passes over the training examples, of a mixture on average; None takes `train.steps`.
    warmup_ratio: fraction of the steps for learning-rate warmup (BERT's fine-tuning: 0.1); None takes
      `optimizer.warmup_steps`.
    evaluations_per_epoch: evaluations on the dev set in the training language; None takes `train.eval_every`.
    max_examples: training examples at most, the same sample for all seeds and models; None for all, as in the paper.
    max_dev_examples: dev examples at most for checkpoint selection; the final evaluation uses all.
    select: checkpoint of the final evaluation: `best` (highest dev score, the earliest on ties) or `last`.
    eval_batch_size: examples of an evaluation batch; the number of data-parallel devices must divide it.
  """

  mixture: str | None = None
  head: Annotated[str, OneOf(HEADS)] | None = None
  epochs: Positive | None = 3
  warmup_ratio: FractionBelowOne | None = 0.1
  evaluations_per_epoch: Positive | None = 2
  max_examples: Count | None = None
  max_dev_examples: Count | None = None
  select: Annotated[str, OneOf(('best', 'last'))] = 'best'
  eval_batch_size: Count = 64

  def __post_init__(self):
    check_fields(self, 'finetune')
    if (self.mixture is None) != (self.head is None):
      raise UsageError(
        'finetune.mixture and finetune.head must be set together; the head of an XTREME task is fixed',
        where=f'finetune.mixture = {self.mixture!r}, finetune.head = {self.head!r}',
        fix='--gin.finetune.mixture=NAME --gin.finetune.head=classification, or neither',
      )


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
  """The model that `--mode=evaluate` evaluates.

  Attributes:
    model: a workdir, a checkpoint, or a Hugging Face model directory or Hub id.
  """

  model: str | None = None

  def __post_init__(self):
    check_fields(self, 'evaluate')


CONFIGURABLES: dict[str, type] = {
  'run': RunConfig,
  'RemBertConfig': RemBertConfig,
  'paper': PaperFigures,
  'execution': Execution,
  'data': DataConfig,
  'vocabulary': VocabularyConfig,
  'masking': MaskingConfig,
  'packing': PackingConfig,
  'phases': PhasesConfig,
  'optimizer': OptimizerConfig,
  'mesh': MeshConfig,
  'hardware': HardwareConfig,
  'hosts': HostsConfig,
  'train': TrainConfig,
  'guards': GuardsConfig,
  'profile': ProfileConfig,
  'tracking': TrackingConfig,
  'xtreme': XtremeConfig,
  'dataset': DatasetConfig,
  'finetune': FinetuneOptions,
  'evaluate': EvaluateConfig,
  'analyze': AnalyzeConfig,
  'probe': ProbeConfig,
}
for _name, _class in CONFIGURABLES.items():
  gin.register(_name, module='rembert')(_class)

_being_read: list[str] = []  # a gin file, the file that it includes, and so on


@contextlib.contextmanager
def _opened(path: str) -> Iterator[io.StringIO]:
  """Opens a gin file for gin, which reads the files that it includes while it is open."""
  if os.path.realpath(path) in _being_read:
    raise UsageError('a gin file includes itself, directly or through another', where=path, fix='remove the include')
  text = io.StringIO(_with_new_names(read_text(path, what='a gin file'), path))
  text.name = path
  _being_read.append(os.path.realpath(path))
  try:
    yield text
  finally:
    _being_read.pop()


def _with_new_names(text: str, where: str) -> str:
  """Replaces the old names of fields (`_RENAMED`) in gin text by the new ones, with a warning for each."""
  for old, new in _RENAMED.items():
    text, count = re.subn(rf'^{re.escape(old)}\b', new, text, flags=re.MULTILINE)
    if count:
      print(f'rembert: warning: {old} is now {new} ({where})', file=sys.stderr)
  return text


# gin would also search importable packages, and log an error for every directory without such a file.
gin.config._FILE_READERS[:] = [(_opened, os.path.isfile)]

Config = TypeVar('Config', bound='DataclassInstance')


def build(cls: type[Config]) -> Config:
  """Builds an instance of a class of the table from its bound values; UsageError if one is missing or invalid."""
  name = _name_of(cls)
  if left_open := [f'{name}.{field}' for field, value in bound(cls).items() if value is gin.REQUIRED]:
    raise UsageError(
      'a gin file is incomplete: it is meant to be included by another, which sets the rest',
      where=', '.join(left_open),
      fix=['use a file that includes it', 'or set the values: ' + ' '.join(f'--gin.{field}=…' for field in left_open)],
    )
  try:
    configured = gin.get_configurable(f'rembert.{name}')()
    return cls(**{field.name: getattr(configured, field.name) for field in dataclasses.fields(cls)})
  except UsageError as error:  # without the lines that gin adds
    raise UsageError(error.what, where=error.where, fix=error.fix) from None
  except (TypeError, ValueError) as error:
    raise UsageError(f'{name} cannot be built: {first_line(error)}', where=f'{name}.*') from error


def bound(cls: type) -> dict[str, Any]:
  """Values that gin files and bindings set for a class of the table, by field."""
  return dict(gin.get_bindings(f'rembert.{_name_of(cls)}'))


def check_bound() -> None:
  """Raises UsageError if any value set by gin files or bindings is invalid, whether or not the job uses it."""
  for cls in CONFIGURABLES.values():
    if bound(cls):
      build(cls)


def _name_of(cls: type) -> str:
  return next(name for name, configurable in CONFIGURABLES.items() if configurable is cls)


def search_paths(gin_files: Sequence[str] = ()) -> list[str]:
  """Directories of gin files and includes: the current one, those of `gin_files`, the project, the installed copy."""
  package = pathlib.Path(rembert.__file__).parent
  given = [str(pathlib.Path(name).parent) for name in gin_files]
  return list(dict.fromkeys(['', *given, str(package.parent), str(package / 'gin_files')]))


def find_gin_file(name: str) -> str:
  """Path of a gin file as named on the command line; the project's own are found from any directory."""
  candidates = [pathlib.Path(folder) / name for folder in search_paths()]
  if os.path.islink(name) and not os.path.exists(name):
    read_text(name, what='a gin file')  # raises an error that names the target of the link
  for candidate in candidates:
    if candidate.is_file():
      return str(candidate)
  shipped = [pathlib.Path(folder) for folder in search_paths()[1:]]
  known = sorted(str(file.relative_to(folder)) for folder in shipped for file in folder.glob('gin/**/*.gin'))
  raise UsageError(
    f'no gin file {name}',
    where=', '.join(str(candidate) for candidate in candidates),
    fix=_nearest(name, known, cutoff=0.4) or f'the project has {", ".join(known)}',
  )


def _nearest(name: str, known: Iterable[str], *, cutoff: float = 0.5, prefix: str = '') -> str:
  """A question that names the nearest of the known names; '' if none is near."""
  near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=cutoff)
  return f'did you mean {prefix}{near[0]}?' if near else ''


def load(gin_files: Sequence[str], bindings: Sequence[str]) -> None:
  """Parses files and then bindings, which override them. Unknown names, also of macros, are UsageErrors."""
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
        gin.parse_config(_with_new_names(quoted_if_bare(binding), where), skip_unknown=False)
    _check_macros(gin_files, bindings)
  except UsageError as error:  # without the lines that gin adds
    raise UsageError(error.what, where=error.where, fix=error.fix) from None
  except OSError as error:
    raise UsageError(f'a gin file cannot be read: {error}', where=where, fix='check the path of the include') from error
  except (SyntaxError, tokenize.TokenError, ValueError, AttributeError, TypeError) as error:
    raise _parse_error(error, where) from error


def _check_macros(gin_files: Sequence[str], bindings: Sequence[str]) -> None:
  """UsageError for a macro that is used but not defined, or set on the command line but not used.

  gin accepts any name as a macro (`HIDDEN = 96`). Macros of a file need not all be used: gin/scales serve all models,
  each of which uses some of the sizes. A scale of which no macro is used is an error.
  """
  references = gin.config.iterate_references(gin.config._CONFIG)
  referred_to = {'/'.join(each.scopes) for each in references if each.configurable.selector == 'gin.macro'}
  defined = {scope for scope, selector in gin.config._CONFIG if selector == 'gin.macro'}
  for name in sorted(referred_to - defined):
    raise UsageError(f'%{name} is not defined', where=f'%{name}', fix=f'--gin.{name}=…, or a file of gin/scales')
  scales = [name for name in gin_files if pathlib.Path(name).parent.name == 'scales']
  if scales and not referred_to:
    raise UsageError(
      'no gin file uses the macros of this scale',
      where=', '.join(scales),
      fix=['put it after a file of gin/experiments', 'fine-tuning has its own: gin/scales/finetuning'],
    )
  for name in (binding.partition('=')[0].strip() for binding in bindings):
    if '.' not in name and name not in referred_to:
      known = f'the files use {", ".join(sorted(referred_to))}' if referred_to else '--gin.NAME.FIELD=VALUE'
      fix = _nearest(name, referred_to) or known
      raise UsageError(f'no gin file uses the macro {name}', where=f'--gin.{name}', fix=fix)


@contextlib.contextmanager
def _without_imports() -> Iterator[None]:
  """Rejects `import` in gin files: it would run a module and, with dynamic registration, call any function in it."""

  def refuse(context, statement) -> None:
    del context
    raise UsageError(
      f'gin files must not import modules: {statement.format()}',
      where=f'{statement.location.filename}:{statement.location.line_num}',
      fix='remove the line; code belongs into a module: --module=NAME',
    )

  process_import = gin.config.ParseContext.process_import
  gin.config.ParseContext.process_import = refuse
  try:
    yield
  finally:
    gin.config.ParseContext.process_import = process_import


def quoted_if_bare(binding: str) -> str:
  """`a.b=dev` as `a.b='dev'`: the shell removes the quotes that gin requires around a string."""
  key, _, value = (part.strip() for part in binding.partition('='))
  is_literal = re.fullmatch(r"""[-+.\d].*|['"({\[@%].*|True|False|None""", value) and not re.fullmatch(
    r'(\.{0,2}/|\d+-).*', value
  )
  return f'{key} = {value}' if is_literal else f'{key} = {value!r}'


def _parse_error(error: Exception, where: str) -> UsageError:
  message = str(error).strip()
  parameter = re.search(r"Configurable '(?:rembert\.)?(\w+)' doesn't have a parameter named '(\w+)'", message)
  unknown = re.search(r"No configurable matching '([\w./]+)'", message)
  if parameter:
    group, name = parameter.groups()
    fields = [field.name for field in dataclasses.fields(CONFIGURABLES[group])]
    fix = _nearest(name, fields, prefix=f'{group}.') or f'{group} has {", ".join(fields)}'
    return UsageError(f'unknown name {group}.{name}', where=where, fix=fix)
  if unknown:
    names = [f'{group}.{field.name}' for group, cls in CONFIGURABLES.items() for field in dataclasses.fields(cls)]
    fix = _nearest(unknown[1], [*CONFIGURABLES, *names]) or f'available: {", ".join(CONFIGURABLES)}'
    return UsageError(f'unknown name {unknown[1]}', where=where, fix=fix)
  what = f'the configuration cannot be read: {first_line(error)}'
  return UsageError(what, where=where, fix='gin syntax is NAME.FIELD = VALUE')


def save(workdir: epath.Path) -> None:
  """Writes the values that were set (`config.gin`) and all in effect (`operative_config.gin`) to the workdir."""
  for name, text in (('config.gin', gin.config_str()), ('operative_config.gin', gin.operative_config_str())):
    write_whole(workdir / name, text)
