"""One run as its workdir tells it: settings, metrics, results, time, the model. What is not there is empty."""

import ast
import dataclasses
import functools
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from etils import epath

from rembert.errors import UsageError
from rembert.model.config import RemBertConfig
from rembert.training.checkpoint_description import Damaged, read_json_item
from rembert.training.goodput import Session, read_sessions

# What makes a folder a workdir: any of them.
SIGNS = ('metrics.jsonl', 'results.json', 'config.gin', 'operative_config.gin')
_BINDING = re.compile(r'^([\w./]+)\s*=\s*(.*)')
_MODEL = 'RemBertConfig.'


@dataclasses.dataclass(frozen=True)
class Run:
  """A workdir.

  Attributes:
    name: what it is called on the page.
    workdir: the folder.
    metrics: rows of `metrics.jsonl` in the order of their steps; finite numbers alone.
    broken_lines: lines of it that could not be read.
    settings: what the run was told (`config.gin`), by gin name, as gin writes the values.
    results: `results.json`; None where there is none, or none that can be read.
    sessions: `goodput.json`.
    meta: what the newest checkpoint says of itself.
  """

  name: str
  workdir: epath.Path
  metrics: tuple[Mapping[str, float], ...] = ()
  broken_lines: int = 0
  settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
  results: Mapping[str, Any] | None = None
  sessions: tuple[Session, ...] = ()
  meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def is_pre_training(self) -> bool:
    """Whether it learned the language model: its checkpoints have no head of a task, and nothing was judged."""
    return self.results is None and self.meta.get('head', 'mlm') == 'mlm' and 'xtreme.task' not in self.settings

  @functools.cached_property
  def model(self) -> RemBertConfig | None:
    """The architecture: the checkpoint's, else what a pre-training run was told; None if neither says."""
    told = {name: _literal(text) for name, text in self.settings.items() if name.startswith(_MODEL)}
    said = {name: value for name, value in self.meta.items() if name.startswith(_MODEL)}
    if not said and not (told and self.is_pre_training):
      return None
    fields = {field.name for field in dataclasses.fields(RemBertConfig)}
    values = {name.removeprefix(_MODEL): value for name, value in (said or told).items()}
    try:
      return RemBertConfig(**{name: value for name, value in values.items() if name in fields})
    except (UsageError, TypeError, ValueError):
      return None

  @property
  def kept_layers(self) -> int | None:
    """How many layers the paper's row keeps for fine-tuning (Tables 5 and 13); None for all."""
    value = _literal(self.settings.get('paper.kept_layers', 'None'))
    return value if isinstance(value, int) else None

  @property
  def row(self) -> tuple[int, str] | None:
    """Table and row of the paper that the run says it stands for; None if it says none."""
    table, name = (_literal(self.settings.get(f'paper.{field}', 'None')) for field in ('table', 'row'))
    return (table, name) if isinstance(table, int) and isinstance(name, str) else None

  @property
  def scale(self) -> str:
    """Of which sizes it says to be (gin/scales); '' if it does not say."""
    value = _literal(self.settings.get('paper.scale', 'None'))
    return value if isinstance(value, str) else ''

  def curve(self, key: str) -> tuple[list[float], list[float]]:
    """Steps and values of a metric, wherever it was logged."""
    points = [(row['step'], row[key]) for row in self.metrics if key in row]
    return [step for step, _ in points], [value for _, value in points]

  def last(self, key: str) -> float | None:
    """The last value of a metric."""
    return next((row[key] for row in reversed(self.metrics) if key in row), None)

  def parts_of(self, key: str) -> list[str]:
    """What comes behind `key/` in the metrics: the languages of `eval/loss`, the scores of `eval/dev`."""
    found = {name.removeprefix(f'{key}/') for row in self.metrics for name in row if name.startswith(f'{key}/')}
    return sorted(found)


def is_workdir(folder: epath.Path) -> bool:
  """Whether a run has left something in a folder."""
  return any((folder / sign).exists() for sign in SIGNS)


def read_run(folder: epath.PathLike, name: str) -> Run:
  """Reads a workdir; what is broken in it is left out, and never stops the reading."""
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


def read_metrics(file: epath.Path) -> tuple[tuple[dict[str, float], ...], int]:
  """Rows that have a step, in its order, with their finite numbers; and how many lines could not be read.

  Unlike a run that resumes, which trusts nothing after a broken line, a report loses that line alone.
  """
  rows, broken = [], 0
  for line in _text_of(file).splitlines():
    if not line.strip():
      continue
    try:
      row = json.loads(line)
    except (ValueError, RecursionError):
      row = None
    if not isinstance(row, dict) or not _is_finite(row.get('step')):
      broken += 1
      continue
    rows.append({name: value for name, value in row.items() if _is_finite(value)})
  return tuple(sorted(rows, key=lambda row: row['step'])), broken


def read_settings(file: epath.Path) -> dict[str, str]:
  """Bindings of a file that gin wrote, name to value as text; values over several lines become one.

  Where a binding refers to a macro (`%HIDDEN`, of gin/scales), it gets the macro's value; macros are then left out.
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

  # A macro may be another macro, and that is as far as it goes here.
  return {name: resolved(resolved(value)) for name, value in found.items() if name not in macros}


def read_object(file: epath.Path) -> dict[str, Any] | None:
  """A JSON object; None where there is none, or what is there is none."""
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
    except (Damaged, OSError):
      continue
  return {}


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
