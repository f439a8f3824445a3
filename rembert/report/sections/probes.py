"""Tables 8 and 9: what the embeddings and the layers know, ours above what the paper prints."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rembert import paper
from rembert.report.page import MISSING, Cell, Group, Section, Table
from rembert.report.reading import Model, Source
from rembert.report.sections.models import all_models
from rembert.report.xtreme_scores import Spread, spread

_WORDS = {
  'men': 'MEN',
  'mturk771': 'MTurk771',
  'rare_word': 'Rare-Word',
  'simlex999': 'SimLex999',
  'verb143': 'Verb-143',
}
_PROBES = {
  **{'pos': 'POS', 'constituents': 'Const.', 'dependencies': 'Deps.', 'entities': 'Entities', 'srl': 'SRL'},
  **{'coref_ontonotes': 'Coref O.', 'coref_winograd': 'Coref W.', 'spr1': 'SPR1', 'spr2': 'SPR2'},
  **{'relations': 'Rel.'},
}


def section(sources: Sequence[Source]) -> Section:
  """The tables that models of the paper's rows were analysed for."""
  models = {name: model for model in reversed(all_models(sources)) for _, name in model.rows}
  return Section('Tables 8 and 9', [*_table_8(models), *_table_9(models)])


def _table_8(models: Mapping[str, Model]) -> Iterator[Table]:
  whats = ('word_similarity', 'masked_accuracy')
  if not any(_has(models.get(row.name), whats) for row in paper.TABLE_8):
    return
  groups = []
  for row in paper.TABLE_8:
    model = models.get(row.name)
    ours, printed = ['ours'], ['paper']
    for name in paper.WORD_SIMILARITY:
      both = [_spread(_over_seeds(model, 'word_similarity', _rho(name, table))) for table in ('input', 'output')]
      ours.append('/'.join(both) if both[1] != MISSING else both[0])
      values = [row.inputs[name], row.outputs[name]]
      printed.append('/'.join(f'{value:.1f}' for value in dict.fromkeys(values)))
    ours.append(_spread(_over_seeds(model, 'masked_accuracy', lambda results: _at(results, 'all', 'accuracy'))))
    printed.append(f'{row.mlm_accuracy:.1f}')
    groups.append(Group(row.label, [ours, [printed[0], *(Cell(text, kind='paper') for text in printed[1:])]]))
  notes = [
    'Correlation, times 100, of dot products of word vectors with what people say: input/output embedding. Data sets '
    'are known by the names of their files. MLM accuracy in percent.'
  ]
  yield Table(
    'Table 8: word similarity, and masked pieces predicted', ['model', 'from', *_WORDS.values(), 'MLM'], groups, notes
  )


def _table_9(models: Mapping[str, Model]) -> Iterator[Table]:
  if not any(_has(models.get(row.name), ('edge_probing',)) for row in paper.TABLE_9):
    return
  groups = []
  for row in paper.TABLE_9:
    found = {task: _over_seeds(models.get(row.name), 'edge_probing', _probe(task)) for task in paper.EDGE_PROBING}
    means = [each.mean for each in found.values() if each is not None]
    mean = f'{sum(means) / len(means):.1f}' if len(means) == len(found) else MISSING
    printed = [*(f'{row.scores[task][0]:.1f}' for task in paper.EDGE_PROBING), f'{row.mean:.1f}']
    ours = ['ours', *map(_spread, found.values()), mean]
    groups.append(Group(row.label, [ours, ['paper', *(Cell(text, kind='paper') for text in printed)]]))
  notes = ['Micro-F1 on the test sets of each task, mean over them. Tasks are known by their names.']
  columns = ['model', 'from', *_PROBES.values(), 'Avg']
  yield Table('Table 9: edge probing of frozen layers', columns, groups, notes)


def _has(model: Model | None, whats: Sequence[str]) -> bool:
  return model is not None and any(each.what in whats and each.results is not None for each in model.analyses)


def _over_seeds(model: Model | None, what: str, value: Callable[[Mapping], float | None]) -> Spread | None:
  results = [each.results for each in (model.analyses if model else ()) if each.what == what]
  found = [number for each in results if each is not None and (number := value(each)) is not None]
  return spread(found) if found else None


def _rho(name: str, table: str) -> Callable[[Mapping], float | None]:
  """ρ of one embedding on a data set, whose file may be called `MEN_dataset_natural_form_full`."""

  def value(results: Mapping) -> float | None:
    sets = results.get('sets')
    named = [each for each in (sets if isinstance(sets, Mapping) else {}) if _bare(each).startswith(_bare(name))]
    return _at(sets, named[0], table, 'rho') if named else None

  return value


def _probe(task: str) -> Callable[[Mapping], float | None]:
  def value(results: Mapping) -> float | None:
    is_it = _bare(str(results.get('task', ''))).startswith(_bare(task))
    return _at(results, 'encoders', 'model', 'mean', 'micro_f1') if is_it else None

  return value


def _bare(text: str) -> str:
  return re.sub(r'[^a-z0-9]', '', text.lower())


def _at(content: Any, *names: str) -> float | None:
  """A number deep in an object; None where anything on the way is not there."""
  for name in names:
    content = content.get(name) if isinstance(content, Mapping) else None
  return float(content) if isinstance(content, int | float) and not isinstance(content, bool) else None


def _spread(found: Spread | None) -> str:
  if found is None:
    return MISSING
  return f'{found.mean:.1f}' + ('' if found.deviation is None else f' ± {found.deviation:.1f}')
