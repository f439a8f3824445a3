"""The paper's tables of models: each row with what the paper prints, and beside it what was measured here."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from rembert import paper
from rembert.report.page import MISSING, Cell, Group, Section, Table
from rembert.report.reading import Model, Source
from rembert.report.scores import TaskScores, task_scores
from rembert.report.sections.models import all_models
from rembert.report.sections.parameters import counts_of, kept_layers, millions
from rembert.report.significance import LEVEL, Comparison, compare, holm, sign_flip_p
from rembert.report.xtreme_scores import NUM_LANGUAGES, Spread, spread
from rembert.report.xtreme_table import NAMES

TITLES = {
  2: 'Table 2: one embedding table for input and output, or two',
  3: 'Table 3: a wide input embedding, or a wide output embedding',
  4: 'Table 4: the width of the output embedding',
  5: 'Table 5: capacity for pre-training in layers instead',
  6: 'Table 6: what the input embedding saves, spent on width or depth',
  12: 'Table 12: a narrow table that input and output share',
  13: 'Table 13: English models',
}
_ENGLISH = {'mnli': 'MNLI', 'squad': 'SQuAD'}
_BETTER, _WORSE = '▲', '▼'


@dataclasses.dataclass(frozen=True)
class MeasuredRow:
  """A row of the paper and the model that stands for it.

  Attributes:
    printed: the paper's.
    model: None where none was asked for.
    scores: of its tasks, those that there are.
  """

  printed: paper.PaperRow
  model: Model | None
  scores: Mapping[str, TaskScores]

  def task_means(self) -> dict[tuple[int, int], dict[str, float]]:
    """Seed to task to its mean over languages, of the seeds that have every task of the row."""
    tasks = list(self.printed.scores)
    if any(task not in self.scores for task in tasks):
      return {}
    by_task = {task: self.scores[task].values() for task in tasks}
    common = [seed for seed in by_task[tasks[0]] if all(seed in of_task for of_task in by_task.values())]
    return {seed: {task: statistics.fmean(by_task[task][seed].values()) for task in tasks} for seed in common}


def section(sources: Sequence[Source]) -> Section:
  """Every table that a model stands in of which anything is to be learned."""
  models = all_models(sources)
  blocks = []
  for table, printed in paper.TABLES.items():
    rows = measured(models, table, printed)
    if any(row.model is not None and row.model.learned for row in rows):
      blocks += _blocks(table, rows)
  return Section('Paper tables', [*_INTRODUCTION, *blocks] if blocks else [])


_INTRODUCTION = (
  "Each table in the paper's form; what was measured here stands above what the paper prints. Ours are means over "
  'languages and seeds, ± the standard deviation of the sample over seeds; questions are exact match/F1, and count '
  "their mean. The paper's scores are on dev sets, ours on what the runs were told to be judged on (by default test).",
  f'{_BETTER} and {_WORSE} mark what is better or worse than the first row of its table: p < {LEVEL}, from flipping '
  'the signs of the differences language by language (seeds averaged), after Holm’s correction over the table. It says '
  'that the order would hold in other languages, for these very models. Whether it would hold for models trained '
  'again, only the spread over seeds can tell: with three no test can say so, the least p there is being 0.25.',
)


def measured(models: Sequence[Model], table: int, printed: Sequence[paper.PaperRow]) -> list[MeasuredRow]:
  """The rows of a table, each with the model that stands for it."""
  rows = []
  for row in printed:
    model = next((model for model in models if row.name in model.stands_for(table)), None)
    rows.append(MeasuredRow(row, model, scores_of_row(model) if model else {}))
  return rows


def scores_of_row(model: Model) -> dict[str, TaskScores]:
  """A model as the paper's row has it: with the layers that the row keeps, where it was fine-tuned so; else whole."""
  kept = kept_layers(model)
  if kept is not None:
    cut = task_scores(model, f'RemBertConfig.num_hidden_layers={kept}')
    if cut:
      return cut
  return task_scores(model)


def _blocks(table: int, rows: Sequence[MeasuredRow]) -> list[Table]:
  tasks = [task for task in rows[0].printed.scores]
  differences = compared(rows, tasks)
  blocks = [_table(table, rows, tasks, differences)]
  if differences:
    blocks.append(_significance_table(table, rows, differences))
  return blocks


def compared(
  rows: Sequence[MeasuredRow], tasks: Sequence[str]
) -> dict[tuple[int, str], tuple[Comparison, float | None]]:
  """(number of the row, task) to its comparison with the first row, and p over languages after Holm's correction."""
  found: dict[tuple[int, str], Comparison] = {}
  first = rows[0].scores
  for number, row in enumerate(rows[1:], 1):
    for task in tasks:
      if task in row.scores and task in first:
        comparison = compare(row.scores[task].values(), first[task].values())
        if comparison is not None:
          found[number, task] = comparison
  corrected = holm([comparison.p_languages for comparison in found.values()])
  return {key: (comparison, p) for (key, comparison), p in zip(found.items(), corrected, strict=True)}


def _table(table, rows, tasks, differences) -> Table:
  has_mean = any(row.printed.mean is not None for row in rows)
  columns = [
    'model',
    'from',
    'PT',
    'FT',
    *(_ENGLISH.get(task) or NAMES[task] for task in tasks),
    *(['Avg'] if has_mean else []),
  ]
  groups, notes = [], []
  for number, row in enumerate(rows):
    ours = [_scores_cell(row.scores.get(task), differences.get((number, task))) for task in tasks]
    printed = ['/'.join(f'{value:.1f}' for value in row.printed.scores.get(task, ())) or MISSING for task in tasks]
    if has_mean:
      means = [statistics.fmean(of_tasks.values()) for of_tasks in row.task_means().values()]
      ours.append(_spread(spread(means)) if means else MISSING)
      printed.append(MISSING if row.printed.mean is None else f'{row.printed.mean:.1f}')
    counts = counts_of(row.model) if row.model else None
    own = [millions(counts.pre_training), millions(counts.fine_tuning)] if counts else [MISSING, MISSING]
    said = [_printed_millions(row.printed.pre_training_millions), _printed_millions(row.printed.fine_tuning_millions)]
    paper_cells = [Cell(text, kind='paper') for text in (*said, *printed)]
    groups.append(Group(row.printed.label, [['ours', *own, *ours], ['paper', *paper_cells]]))
    notes += _seed_notes(row)
  notes += _partial_notes(rows, tasks)
  if has_mean and not all(row.task_means() for row in rows):
    notes.append('Avg is given where a seed has all tasks of the table.')
  return Table(TITLES.get(table, f'Table {table}'), columns, groups, notes)


def _scores_cell(scores: TaskScores | None, difference) -> Cell | str:
  if scores is None:
    return MISSING
  comparison, p = difference or (None, None)
  mark = ''
  if comparison is not None and p is not None and p < LEVEL:
    mark = _BETTER if comparison.difference > 0 else _WORSE
  return Cell('/'.join(_spread(each) for each in scores.means()), mark=mark)


def _spread(found: Spread) -> str:
  return f'{found.mean:.1f}' + ('' if found.deviation is None else f' ± {found.deviation:.1f}')


def _printed_millions(value: int | None) -> str:
  return MISSING if value is None else f'{value}M'


def _seed_notes(row: MeasuredRow) -> list[str]:
  if row.model is None:
    return [f'{row.printed.label}: not part of this.']
  if not row.scores:
    return [f'{row.printed.label}: no scores yet.']
  counts = {(len(scores.by_seed), scores.planned) for scores in row.scores.values()}
  if len(counts) == 1:
    ((done, planned),) = counts
    return [f'{row.printed.label} ({row.model.name}): {_seeds(done, planned)}.']
  each = ', '.join(f'{NAMES.get(task, task)} {_seeds(len(s.by_seed), s.planned)}' for task, s in row.scores.items())
  return [f'{row.printed.label} ({row.model.name}): {each}.']


def _seeds(done: int, planned: int) -> str:
  return f'{done} seed(s)' if done == planned else f'{done} of {planned} seeds'


def _partial_notes(rows: Sequence[MeasuredRow], tasks: Sequence[str]) -> list[str]:
  notes = []
  for task in tasks:
    sizes = sorted({len(row.scores[task].languages) for row in rows if task in row.scores})
    whole = NUM_LANGUAGES.get(task)
    if whole and sizes and sizes[0] < whole:
      notes.append(f'{NAMES[task]}: {" or ".join(map(str, sizes))} of {whole} languages.')
  return notes


def _significance_table(table, rows, differences) -> Table:
  groups: dict[int, list] = {}
  for (number, task), (found, p) in differences.items():
    groups.setdefault(number, []).append(
      [
        _ENGLISH.get(task) or NAMES[task],
        f'{found.difference:+.2f}',
        f'{found.low:+.2f} to {found.high:+.2f}',
        f'{found.languages}',
        _p(found.p_languages),
        _p(p),
        f'{found.seeds}',
        _p(found.p_seeds),
      ]
    )
  for number, lines in groups.items():
    p = over_tasks(rows[number], rows[0])
    if p is not None:
      difference, count, value = p
      lines.append(['Avg', f'{difference:+.2f}', MISSING, f'{count} tasks', _p(value), MISSING, MISSING, MISSING])
  return Table(
    f'Table {table}, differences to “{rows[0].printed.label}”: points, and how sure they are',
    ['model', 'task', 'difference', '95 % (bootstrap)', 'languages', 'p, languages', 'p, Holm', 'seeds', 'p, seeds'],
    [Group(rows[number].printed.label, lines) for number, lines in groups.items()],
    [
      'p is two-sided, of flipping signs: all ways up to 16 pairs, 65,536 drawn ones beyond. The interval draws '
      'languages and seeds again, both at once. Avg flips the signs of the tasks.'
    ],
  )


def over_tasks(row: MeasuredRow, first: MeasuredRow) -> tuple[float, int, float] | None:
  """Mean difference of the average, number of tasks, and p of flipping their signs; None without common tasks."""
  ours, theirs = row.task_means(), first.task_means()
  if not ours or not theirs:
    return None
  mean = lambda runs, task: statistics.fmean(run[task] for run in runs.values())
  tasks = list(next(iter(ours.values())))
  if len(tasks) < 2:
    return None
  differences = [mean(ours, task) - mean(theirs, task) for task in tasks]
  return statistics.fmean(differences), len(tasks), sign_flip_p(differences)


def _p(value: float | None) -> str:
  if value is None:
    return MISSING
  return '< 0.001' if value < 0.001 else f'{value:.3f}'
