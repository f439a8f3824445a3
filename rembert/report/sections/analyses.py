"""What was looked at in the models: numbers and pictures of each analysis, as the analysis left them."""

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from rembert.report.drawing import Drawing
from rembert.report.markup import element
from rembert.report.page import MISSING, Block, Cell, Details, Group, Picture, Section, Table, rows_table
from rembert.report.reading import Analysis, Source
from rembert.report.sections.models import all_models

_NAMES = {
  'masked_accuracy': 'Masked pieces predicted',
  'layer_retrieval': 'Translations found, layer by layer',
  'word_similarity': 'Word similarity',
  'edge_probing': 'Edge probing',
  'spectra': 'Spectra',
  'fertility': 'Fertility of the vocabulary',
}
_MOST_ROWS = 400
_MOST_OPEN = 40  # what is longer has to be opened
_MOST_LISTED = 40  # numbers of a list
# What a picture may weigh, and still lie within the page.
_MOST_BYTES = 4 << 20


def section(sources: Sequence[Source]) -> Section:
  """A table for each analysis, models side by side, and its pictures."""
  by_name: dict[str, list[tuple[str, Analysis]]] = {}
  for model in all_models(sources):
    several = len({each.pretrain_seed for each in model.analyses}) > 1
    for analysis in model.analyses:
      column = f'{model.name}, seed {analysis.pretrain_seed}' if several else model.name
      by_name.setdefault(analysis.what, []).append((column, analysis))
  blocks: list[Block] = []
  for what, analyses in by_name.items():
    blocks += _blocks(what, analyses)
  return Section('Analyses', blocks)


def _blocks(what: str, analyses: Sequence[tuple[str, Analysis]]) -> Iterator[Block]:
  title = _NAMES.get(what, what.replace('_', ' '))
  there = [(column, analysis.results) for column, analysis in analyses if analysis.results is not None]
  notes = [f'{column}: no results yet.' for column, analysis in analyses if analysis.results is None]
  tabular = list(dict.fromkeys(name for _, results in there for name in results if _is_table(results[name])))
  columns = [
    (column, dict(_flat({name: value for name, value in results.items() if name not in tabular})))
    for column, results in there
  ]
  names = list(dict.fromkeys(name for _, found in columns for name in found))
  if names:
    rows = [[name, *(_cell(found.get(name)) for _, found in columns)] for name in names[:_MOST_ROWS]]
    yield rows_table(title, ['result', *(column for column, _ in columns)], rows, [*notes, *_cut(len(names))])
  elif not tabular:
    yield f'{title}: {" ".join(notes) or "nothing in it."}'
  for name in tabular:
    table = _nested(f'{title}: {name}', [(column, results.get(name)) for column, results in there], notes)
    is_long = sum(len(group.rows) for group in table.groups) > _MOST_OPEN
    yield Details(f'{title}: {name}', table) if is_long else table
  for column, analysis in analyses:
    for file in analysis.pictures:
      picture = _picture(file, f'{title}, {column}')
      if picture is not None:
        yield picture


def _is_table(value: Any) -> bool:
  """Whether a part of the results is one: names to objects with the same fields, as scores by language are."""
  if not isinstance(value, Mapping) or len(value) < 2:
    return False
  return all(isinstance(each, Mapping) and each.keys() == next(iter(value.values())).keys() for each in value.values())


def _nested(caption: str, parts: Sequence[tuple[str, Any]], notes: Sequence[str]) -> Table:
  found = [
    (column, {name: dict(_flat(fields)) for name, fields in part.items()}) for column, part in parts if _is_table(part)
  ]
  fields = list(dict.fromkeys(field for _, part in found for of_name in part.values() for field in of_name))
  groups = [
    Group(
      column,
      [[name, *(_cell(of_name.get(field)) for field in fields)] for name, of_name in list(part.items())[:_MOST_ROWS]],
    )
    for column, part in found
  ]
  return Table(caption, ['model', 'of', *fields], groups, [*notes, *_cut(max(len(part) for _, part in found))])


def _cut(count: int) -> list[str]:
  return [f'The first {_MOST_ROWS} of {count} lines; analysis.json has all.'] if count > _MOST_ROWS else []


def _flat(results: Mapping[str, Any], before: str = '') -> Iterator[tuple[str, Any]]:
  """Numbers and texts by the path to them; short lists of numbers as text."""
  for name, value in results.items():
    path = f'{before} · {name}' if before else str(name)
    if isinstance(value, Mapping):
      yield from _flat(value, path)
    elif isinstance(value, list):
      if value and len(value) <= _MOST_LISTED and all(map(_is_number, value)):
        yield path, '  '.join(f'{each:.3g}' for each in value)
    elif value is not None:
      yield path, value


def _is_number(value: Any) -> bool:
  return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str | Cell:
  if value is None:
    return MISSING
  if not _is_number(value):
    return Cell(str(value)[:300], kind='text')
  if isinstance(value, int):
    return f'{value:,}'
  return f'{value:.4g}' if math.isfinite(value) else MISSING


def _picture(file: epath.Path, title: str) -> Picture | None:
  try:
    content = file.read_bytes()
  except OSError:
    return None
  if not content.startswith(b'\x89PNG') or len(content) > _MOST_BYTES:
    return None
  words = f'{title}: {file.stem.replace("_", " ")}'
  image = element('img', src=f'data:image/png;base64,{base64.b64encode(content).decode()}', alt=words)
  return Picture(words, f'{words}.', Drawing(image, content))
