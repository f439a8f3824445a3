"""The paper's Tables 2 to 6, 8, 9, 12 and 13, each row with our scores above the paper's."""

import dataclasses
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from rembert import paper
from rembert.plotting.training import millions
from rembert.report.html import MISSING, Section, Table, table_frame
from rembert.report.load import FINE_TUNING, Model, is_number
from rembert.report.runs import counts_of
from rembert.report.scores import Results, TaskProgress
from rembert.report.statistics import LEVEL, Comparison, compare, holm, sign_flip_p
from tasks.xtreme.leaderboard import NAMES, NUM_LANGUAGES, Spread, spread

TITLES = {
  2: 'Table 2: one embedding matrix for input and output, or two',
  3: 'Table 3: a large input or a large output embedding',
  4: 'Table 4: size of the output embedding',
  5: 'Table 5: additional layers in pre-training instead',
  6: 'Table 6: parameters saved in the input embedding, used for width or depth',
  12: 'Table 12: a small embedding matrix for input and output',
  13: 'Table 13: English models',
}
_NAMES = NAMES | {'mnli': 'MNLI'}
_BETTER, _WORSE = '▲', '▼'
_INTRODUCTION = (
  "Each table has the paper's form, with our scores above the paper's. Ours are means over "
  'languages and seeds, ± the sample standard deviation over seeds; question answering has exact match/F1, and counts '
  "their mean. The paper's scores are on dev sets, ours on the split that the runs evaluate (by default test).",
  f'{_BETTER} and {_WORSE} mark scores that are significantly better or worse than the first row of the table: p < '
  f'{LEVEL} in a paired sign-flip permutation test over languages (seeds averaged), with Holm’s correction over the '
  'table. This tests whether the order holds in other languages, for these models. Whether it holds for models '
  'that are trained again is a test over seeds; with three seeds its smallest p is 0.25.',
)


@dataclasses.dataclass(frozen=True)
class MeasuredRow:
  """A row of the paper and the model that reproduces it, with its results by task."""

  printed: paper.PaperRow
  model: Model | None = None
  by_seed: Mapping[str, pd.DataFrame] = dataclasses.field(default_factory=dict)  # a row per seed, a column per language
  by_metric: Mapping[str, Sequence[Spread]] = dataclasses.field(default_factory=dict)  # (exact match, F1) for questions
  progress: Mapping[str, TaskProgress] = dataclasses.field(default_factory=dict)

  def task_means(self) -> pd.DataFrame:
    """Means over languages: a row per seed that has every task of the paper's row, a column per task."""
    tasks = [task for task in self.printed.scores if task in self.by_seed]
    if len(tasks) < len(self.printed.scores):
      return pd.DataFrame()
    return pd.concat({task: self.by_seed[task].mean(axis='columns') for task in tasks}, axis='columns', join='inner')


def paper_tables(results: Results) -> Section:
  """All tables with a row that one of the models reproduces and was fine-tuned for."""
  blocks = []
  for table in paper.TABLES:
    rows = measure(results, table)
    if any(row.model is not None and row.model.runs(FINE_TUNING) for row in rows):
      blocks += table_blocks(table, rows)
  return Section('Paper tables', [*_INTRODUCTION, *blocks] if blocks else [])


def measure(results: Results, table: int) -> list[MeasuredRow]:
  """The rows of a table with the models that reproduce them; fine-tuned with as many layers as the row keeps if
  available, else with all."""
  rows = []
  for printed in paper.TABLES[table]:
    row = MeasuredRow(printed)
    if model := next((model for model in results.models if (table, printed.name) in model.rows), None):
      cut = f'RemBertConfig.num_hidden_layers={model.kept_layers}'
      variant = cut if cut in results.variants(model) else ''
      tasks = results.tasks(model, variant)
      by_seed, by_metric = (
        {task: of(model, task, variant) for task in tasks} for of in (results.by_seed, results.by_metric)
      )
      progress = {task: results.progress[model.name, variant, task] for task in tasks}
      row = MeasuredRow(printed, model, by_seed, by_metric, progress)
    rows.append(row)
  return rows


def table_blocks(table: int, rows: Sequence[MeasuredRow]) -> list[Table]:
  """A table, and its differences to the first row, if there are any."""
  differences = compare_rows(rows)
  blocks = [_scores_table(table, rows, differences)]
  return [*blocks, _significance_table(table, rows, differences)] if differences else blocks


def compare_rows(rows: Sequence[MeasuredRow]) -> dict[tuple[int, str], Comparison]:
  """Comparison with the first row by (row number, task), including p over languages after Holm's correction."""
  first = rows[0].by_seed
  found = {
    (number, task): comparison
    for number, row in enumerate(rows[1:], 1)
    for task in rows[0].printed.scores
    if task in row.by_seed and task in first
    if (comparison := compare(row.by_seed[task], first[task])) is not None
  }
  corrected = holm([comparison.p_languages for comparison in found.values()])
  return {key: dataclasses.replace(each, p_holm=p) for (key, each), p in zip(found.items(), corrected, strict=True)}


def _scores_table(table: int, rows: Sequence[MeasuredRow], differences: Mapping) -> Table:
  tasks = list(rows[0].printed.scores)
  has_mean = any(row.printed.mean is not None for row in rows)
  cells, notes = {}, []
  for number, row in enumerate(rows):
    printed, means = row.printed, row.task_means()
    counts = counts_of(row.model) if row.model else None
    ours = {'PT': counts and millions(counts.pre_training), 'FT': counts and millions(counts.fine_tuning)}
    theirs = {'PT': f'{printed.pre_training_millions}M', 'FT': f'{printed.fine_tuning_millions}M'}
    for task in tasks:
      ours[_NAMES[task]] = _scores_cell(row.by_metric.get(task, ()), differences.get((number, task)))
      theirs[_NAMES[task]] = '/'.join(f'{value:.1f}' for value in printed.scores.get(task, ()))
    if has_mean:
      ours['Avg'] = str(spread(means.mean(axis='columns').tolist())) if len(means) else None
      theirs['Avg'] = '' if printed.mean is None else f'{printed.mean:.1f}'
    cells |= {(printed.label, 'ours'): ours, (printed.label, 'paper'): theirs}
    notes.append(_progress_note(row))
  notes += _partial_notes(rows, tasks)
  if has_mean and any(row.task_means().empty for row in rows):
    notes.append('Avg is given where a seed has all tasks of the table.')
  return _with_paper(TITLES.get(table, f'Table {table}'), cells, notes)


def _with_paper(caption: str, cells: Mapping[tuple[str, str], Mapping[str, str | None]], notes: Sequence[str]) -> Table:
  """A table with rows (model, ours or paper)."""
  frame = table_frame(cells.items(), 'model', 'from').map(lambda text: text or MISSING)
  return Table(caption, frame, notes, lambda row, column: 'paper' if row[1] == 'paper' else '')


def _scores_cell(metrics: Sequence[Spread], comparison: Comparison | None) -> str:
  mark = ''
  if comparison is not None and comparison.p_holm is not None and comparison.p_holm < LEVEL:
    mark = _BETTER if comparison.difference > 0 else _WORSE
  return '/'.join(map(str, metrics)) + mark


def _progress_note(row: MeasuredRow) -> str:
  if row.model is None:
    return f'{row.printed.label}: not among these models.'
  if not row.progress:
    return f'{row.printed.label}: no scores yet.'
  seeds = {
    task: f'{each.done} seed(s)' if each.done == each.planned else f'{each.done} of {each.planned} seeds'
    for task, each in row.progress.items()
  }
  if len({(each.done, each.planned) for each in row.progress.values()}) == 1:
    words = next(iter(seeds.values()))
  else:
    words = ', '.join(f'{_NAMES.get(task, task)} {of_task}' for task, of_task in seeds.items())
  return f'{row.printed.label} ({row.model.name}): {words}.'


def _partial_notes(rows: Sequence[MeasuredRow], tasks: Sequence[str]) -> Iterator[str]:
  for task in tasks:
    sizes = sorted({len(row.by_seed[task].columns) for row in rows if task in row.by_seed})
    if sizes and sizes[0] < NUM_LANGUAGES.get(task, 0):
      yield f'{_NAMES[task]}: {" or ".join(map(str, sizes))} of {NUM_LANGUAGES[task]} languages.'


def _significance_table(table: int, rows: Sequence[MeasuredRow], differences: Mapping) -> Table:
  cells: dict[tuple[str, str], dict[str, str]] = {}
  for number, row in enumerate(rows):
    of_row = {task: each for (of, task), each in differences.items() if of == number}
    for task, found in of_row.items():
      cells[row.printed.label, _NAMES[task]] = {
        'difference': f'{found.difference:+.2f}',
        '95 % (bootstrap)': f'{found.low:+.2f} to {found.high:+.2f}',
        'languages': f'{found.languages}',
        'p, languages': _p(found.p_languages),
        'p, Holm': _p(found.p_holm),
        'seeds': f'{found.seeds}',
        'p, seeds': _p(found.p_seeds),
      }
    if of_row and (average := compare_averages(row, rows[0])) is not None:
      difference, tasks, p = average
      texts = {'difference': f'{difference:+.2f}', 'languages': f'{tasks} tasks', 'p, languages': _p(p)}
      cells[row.printed.label, 'Avg'] = texts
  frame = table_frame(cells.items(), 'model', 'task').fillna(MISSING)
  caption = f'Table {table}, differences to “{rows[0].printed.label}”: points and significance'
  notes = [
    'p is two-sided, from a paired sign-flip test: all flips up to 16 pairs, 65,536 random ones beyond. The interval '
    'resamples languages and seeds together. Avg flips the signs of the tasks.'
  ]
  return Table(caption, frame, notes)


def compare_averages(row: MeasuredRow, first: MeasuredRow) -> tuple[float, int, float] | None:
  """Mean difference of the averages, number of tasks, and p of their sign-flip test; None without common tasks."""
  ours, theirs = row.task_means(), first.task_means()
  if ours.empty or theirs.empty or len(ours.columns) < 2:
    return None
  differences = (ours.mean() - theirs.mean())[ours.columns].tolist()
  return statistics.fmean(differences), len(differences), sign_flip_p(differences)


def _p(value: float | None) -> str:
  if value is None:
    return MISSING
  return '< 0.001' if value < 0.001 else f'{value:.3f}'


# --- Tables 8 and 9 ---------------------------------------------------------------------------------------------------

_WORDS = {
  **{'men': 'MEN', 'mturk771': 'MTurk771', 'rare_word': 'Rare-Word'},
  **{'simlex999': 'SimLex999', 'verb143': 'Verb-143'},
}
_PROBES = {
  **{'pos': 'POS', 'constituents': 'Const.', 'dependencies': 'Deps.', 'entities': 'Entities', 'srl': 'SRL'},
  **{'coref_ontonotes': 'Coref O.', 'coref_winograd': 'Coref W.', 'spr1': 'SPR1', 'spr2': 'SPR2', 'relations': 'Rel.'},
}


def probing_tables(results: Results) -> Section:
  """Tables 8 and 9, if models of their rows were analysed: what the embeddings and the layers encode."""
  models = {name: model for model in reversed(results.models) for _, name in model.rows}
  return Section('Tables 8 and 9', [*_table_8(models), *_table_9(models)])


def _table_8(models: Mapping[str, Model]) -> Iterator[Table]:
  cells, is_analysed = {}, False
  for row in paper.TABLE_8:
    model = models.get(row.name, Model(row.name))
    words, masked = model.results('word_similarity'), model.results('masked_accuracy')
    is_analysed |= bool(words or masked)
    ours, theirs = {}, {}
    for name, title in _WORDS.items():
      of_input, of_output = (_mean([_rho(found, name, table) for found in words]) for table in ('input', 'output'))
      ours[title] = f'{of_input}/{of_output}' if of_output != MISSING else of_input
      theirs[title] = '/'.join(f'{value:.1f}' for value in dict.fromkeys((row.inputs[name], row.outputs[name])))
    ours['MLM'] = _mean([_number_at(found, 'all', 'accuracy') for found in masked])
    theirs['MLM'] = f'{row.mlm_accuracy:.1f}'
    cells |= {(row.label, 'ours'): ours, (row.label, 'paper'): theirs}
  notes = [
    'Correlation (× 100) of dot products of word vectors with human judgements: input/output embedding. Data sets '
    'are recognised by their file names. MLM accuracy in percent.'
  ]
  if is_analysed:
    yield _with_paper('Table 8: word similarity, and masked-token accuracy', cells, notes)


def _table_9(models: Mapping[str, Model]) -> Iterator[Table]:
  cells, is_analysed = {}, False
  for row in paper.TABLE_9:
    probes = models.get(row.name, Model(row.name)).results('edge_probing')
    is_analysed |= bool(probes)
    scores: dict[str, list[float]] = {task: [] for task in _PROBES}
    for found in probes:
      task = next((task for task in _PROBES if _bare(str(found.get('task'))).startswith(_bare(task))), None)
      score = _number_at(found, 'encoders', 'model', 'mean', 'micro_f1')
      if task is not None and score is not None:
        scores[task].append(score)
    ours = {title: _mean(scores[task]) for task, title in _PROBES.items()}
    ours['Avg'] = f'{statistics.fmean(map(statistics.fmean, scores.values())):.1f}' if all(scores.values()) else MISSING
    theirs = {title: f'{row.scores[task][0]:.1f}' for task, title in _PROBES.items()}
    cells |= {(row.label, 'ours'): ours, (row.label, 'paper'): theirs | {'Avg': f'{row.mean:.1f}'}}
  notes = ['Micro-F1, mean over the test sets of each task. Tasks are recognised by their names.']
  if is_analysed:
    yield _with_paper('Table 9: edge probing of frozen layers', cells, notes)


def _mean(values: Sequence[float | None]) -> str:
  """Mean and standard deviation of the known values."""
  known = [value for value in values if value is not None]
  return str(spread(known)) if known else MISSING


def _rho(results: Mapping[str, Any], name: str, table: str) -> float | None:
  """ρ of one embedding on a data set, whose file may be called `MEN_dataset_natural_form_full`."""
  sets = results.get('sets')
  named = [each for each in (sets if isinstance(sets, Mapping) else {}) if _bare(each).startswith(_bare(name))]
  return _number_at(sets, named[0], table, 'rho') if named else None


def _bare(text: str) -> str:
  return re.sub(r'[^a-z0-9]', '', text.lower())


def _number_at(content: Any, *names: str) -> float | None:
  """A number nested in an object; None if it is missing."""
  for name in names:
    content = content.get(name) if isinstance(content, Mapping) else None
  return float(content) if is_number(content) else None
