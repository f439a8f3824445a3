"""Analyses of the models: numbers and pictures of each, as the job wrote them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from etils import epath

from rembert.report.html import MISSING, Block, Picture, Section, Table, table_frame
from rembert.report.load import Analysis
from rembert.report.scores import Results

_NAMES = {
  'masked_accuracy': 'Masked pieces predicted',
  'layer_retrieval': 'Translations found, layer by layer',
  'word_similarity': 'Word similarity',
  'edge_probing': 'Edge probing',
  'spectra': 'Spectra',
  'fertility': 'Fertility of the vocabulary',
}
_MOST_ROWS = 400
_MOST_OPEN = 40  # rows of a table that is not folded
_MOST_LISTED = 40  # numbers of a list
# The largest picture that is put into the page.
_MOST_BYTES = 4 << 20


def analyses(results: Results) -> Section:
  """A table per analysis, models side by side, and its pictures."""
  by_name: dict[str, list[tuple[str, Analysis]]] = {}
  for model in results.models:
    several = len({each.pretrain_seed for each in model.analyses}) > 1
    for analysis in model.analyses:
      column = f'{model.name}, seed {analysis.pretrain_seed}' if several else model.name
      by_name.setdefault(analysis.what, []).append((column, analysis))
  return Section('Analyses', [block for what, each in by_name.items() for block in _blocks(what, each)])


def _blocks(what: str, found: Sequence[tuple[str, Analysis]]) -> Iterator[Block]:
  title = _NAMES.get(what, what.replace('_', ' '))
  there = [(column, analysis.results) for column, analysis in found if analysis.results is not None]
  notes = [f'{column}: no results yet.' for column, analysis in found if analysis.results is None]
  tabular = list(dict.fromkeys(name for _, results in there for name in results if _is_table(results[name])))
  numbers = {
    column: dict(_flat({name: value for name, value in results.items() if name not in tabular}))
    for column, results in there
  }
  if any(numbers.values()):
    names = dict.fromkeys(name for of_model in numbers.values() for name in of_model)
    rows = {name: {column: of_model.get(name) for column, of_model in numbers.items()} for name in names}
    yield _table(title, table_frame(rows.items(), 'result'), notes)
  elif not tabular:
    yield f'{title}: {" ".join(notes) or "nothing in it."}'
  for name in tabular:
    rows = {
      (column, row): dict(_flat(fields))
      for column, results in there
      if _is_table(results.get(name))
      for row, fields in results[name].items()
    }
    yield _table(f'{title}: {name}', table_frame(rows.items(), 'model', 'of'), notes)
  for column, analysis in found:
    yield from (picture for file in analysis.pictures for picture in _picture(file, f'{title}, {column}'))


def _table(caption: str, values: pd.DataFrame, notes: Sequence[str]) -> Table:
  """The first rows, of each model if they are grouped by models; long tables are folded."""
  is_nested = values.index.nlevels > 1
  count = values.groupby(level=0).size().max() if is_nested else len(values)
  if count > _MOST_ROWS:
    values = values.groupby(level=0, sort=False).head(_MOST_ROWS) if is_nested else values.head(_MOST_ROWS)
    notes = [*notes, f'The first {_MOST_ROWS} of {count} lines; analysis.json has all.']
  look = lambda row, column: 'text' if isinstance(values.at[row, column], str | bool) else ''
  return Table(caption, values.map(_cell), notes, look, is_folded=is_nested and len(values) > _MOST_OPEN)


def _is_table(value: Any) -> bool:
  """Whether a part of the results is one: names to objects with the same fields, as scores by language are."""
  if not isinstance(value, Mapping) or len(value) < 2:
    return False
  return all(isinstance(each, Mapping) and each.keys() == next(iter(value.values())).keys() for each in value.values())


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


def _cell(value: Any) -> str:
  if not _is_number(value):
    return MISSING if value is None else str(value)[:300]
  if isinstance(value, int):
    return f'{value:,}'
  return f'{value:.4g}' if math.isfinite(value) else MISSING


def _picture(file: epath.Path, title: str) -> Iterator[Picture]:
  """The picture, if it is a PNG of a size that fits into the page."""
  try:
    content = file.read_bytes()
  except OSError:
    return
  if content.startswith(b'\x89PNG') and len(content) <= _MOST_BYTES:
    words = f'{title}: {file.stem.replace("_", " ")}'
    yield Picture(words, f'{words}.', words, content)
