"""The paper's results by table and row, read from paper.json.

"Rethinking Embedding Coupling in Pre-trained Language Models" (arXiv 2010.12821). Scores are percentages: (exact match,
F1) for question answering, accuracy for sentence pairs, F1 for tagging. Scores of Tables 2 to 6 are on dev sets, means
of three fine-tuning runs and of languages. Parameters are in millions, as printed.

All numbers are copied from the paper, averages too; tests/test_paper.py lists the averages that follow from their rows.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Annotated, Any

from rembert.errors import UsageError
from rembert.validation import Count, OneOf, check_fields

_PAPER = json.loads(pathlib.Path(__file__).with_suffix('.json').read_text('utf-8'))
_TABLES: dict[int, dict[str, Any]] = {int(number): table for number, table in _PAPER['tables'].items()}


@dataclasses.dataclass(frozen=True)
class PaperRow:
  """A row of a table of models.

  Attributes:
    table: number of the table.
    name: name of the model, the stem of its file in gin/models and, if there is one, in gin/experiments/table{N}.
    label: what the paper calls the row.
    pre_training_millions: parameters in pre-training.
    fine_tuning_millions: parameters in fine-tuning, without a task's own head.
    scores: by task, (accuracy or F1,), or (exact match, F1) for question answering.
    mean: the average that the paper prints, or None; in Table 7, over the categories.
    task_mean: in Table 7, the average over the seven tasks, as Table 16 prints it.
    categories: in Table 7, scores of sentence_pair, structured and question_answering.
  """

  table: int
  name: str
  label: str
  pre_training_millions: int
  fine_tuning_millions: int
  scores: Mapping[str, tuple[float, ...]]
  mean: float | None = None
  task_mean: float | None = None
  categories: Mapping[str, float] = dataclasses.field(default_factory=dict)

  @property
  def title(self) -> str:
    """`Table 4, E_out = 768`."""
    return f'Table {self.table}, {self.label}'


@dataclasses.dataclass(frozen=True)
class WordSimilarityRow:
  """A row of Table 8: correlation (× 100) of dot products of word vectors with human judgements, and MLM accuracy.

  Attributes:
    name: name of the model, as in `PaperRow`.
    label: what the paper calls it.
    inputs: correlation for the input embedding, by data set.
    outputs: the same for the output embedding; equal to `inputs` if embeddings are tied.
    mlm_accuracy: accuracy on held-out text, in percent.
  """

  name: str
  label: str
  inputs: Mapping[str, float]
  outputs: Mapping[str, float]
  mlm_accuracy: float


@dataclasses.dataclass(frozen=True)
class FineTuning:
  """Hyper-parameters of a task: learning rates (the best of these by dev), examples per batch, and epochs."""

  learning_rates: tuple[float, ...]
  batch_size: int
  epochs: int


def _rows(number: int) -> tuple[PaperRow, ...]:
  table, rows = _TABLES[number], []
  for row in table['rows']:
    scores = [tuple(score) if isinstance(score, list) else (score,) for score in row['scores']]
    by_task = dict(zip(table['columns'], scores, strict=True))
    categories = dict(zip(table.get('categories', ()), row.get('categories', ()), strict=True))
    pre_training, fine_tuning = row['millions']
    of_model = (number, row['name'], row['label'], pre_training, fine_tuning)
    rows.append(PaperRow(*of_model, by_task, row.get('mean'), row.get('task_mean'), categories))
  return tuple(rows)


def _word_similarity(row: Mapping[str, Any]) -> WordSimilarityRow:
  by_data_set = lambda values: dict(zip(_TABLES[8]['columns'], values, strict=True))
  inputs = by_data_set(row['inputs'])
  outputs = by_data_set(row['outputs']) if 'outputs' in row else inputs
  return WordSimilarityRow(row['name'], row['label'], inputs, outputs, row['mlm_accuracy'])


def _fine_tuning(number: int) -> dict[str, FineTuning]:
  tasks = _TABLES[number]['tasks'].items()
  return {task: FineTuning(tuple(of['learning_rates']), of['batch_size'], of['epochs']) for task, of in tasks}


def _curves(number: int) -> dict[str, dict[int, float]]:
  chart = _PAPER['figures'][str(number)]
  return {name: dict(zip(chart['layers'], curve, strict=True)) for name, curve in chart['curves'].items()}


# Ablations of where parameters are placed: rows of Tables 2 to 6, 12 and 13, by table.
TABLES: dict[int, tuple[PaperRow, ...]] = {number: _rows(number) for number in (2, 3, 4, 5, 6, 12, 13)}
# The leaderboard, with the scores of Table 16. `tasks.xtreme.leaderboard` says which averages do not follow from them.
TABLE_7 = _rows(7)
TABLE_8 = tuple(map(_word_similarity, _TABLES[8]['rows']))
TABLE_9 = _rows(9)
# By training set (SQuAD for XQuAD and MLQA).
TABLE_10, TABLE_15 = _fine_tuning(10), _fine_tuning(15)
# Read off the charts, which print no numbers: value by layer, by model, ± the error of reading.
FIGURE_1, FIGURE_2 = _curves(1), _curves(2)
FIGURE_1_READING, FIGURE_2_READING = (_PAPER['figures'][number]['reading'] for number in ('1', '2'))


# --- by name ----------------------------------------------------------------------------------------------------------


def row(table: int, name: str) -> PaperRow:
  """A row of `TABLES`, or of Table 7, by its number and the model's name.

  Raises:
    UsageError: no such row; the message lists the rows.
  """
  tables = {**TABLES, 7: TABLE_7}
  if table not in tables:
    raise UsageError(
      f'Table {table} has no rows of models',
      where=f'paper.table = {table!r}',
      fix=f'one of {", ".join(map(str, sorted(tables)))}',
    )
  found = {each.name: each for each in tables[table]}
  if name not in found:
    raise UsageError(f'Table {table} has no row {name!r}', where='paper.row', fix=f'one of {", ".join(found)}')
  return found[name]


# --- the row of a configuration ---------------------------------------------------------------------------------------

# Parts of `rembert.model.parameter_count` that the paper's figures exclude, by rule. Inferred from its tables: it
# only states that the head does not count in fine-tuning (A.1).
COUNTING_RULES = {
  'everything': (),  # Table 7
  'ablation': ('pooler', 'MLM transform', 'output bias'),  # Tables 2 to 6, 12 and 13
}


@dataclasses.dataclass(frozen=True)
class PaperFigures:
  """The row of the paper that a configuration reproduces, for comparing parameter counts; it does not affect the model.

  Attributes:
    table: the number of the row's table; None for a model that is not the paper's.
    row: the row's name in `rembert.paper`, the stem of the model's file.
    scale: the scale of its sizes (gin/scales); the paper's figures are for `full` only.
    kept_layers: number of layers, from the bottom, that fine-tuning keeps (Tables 5 and 13); None for all.
    counting: the paper's rule of counting, one of `COUNTING_RULES`.
  """

  table: Count | None = None
  row: str = ''
  scale: str = 'full'
  kept_layers: Count | None = None
  counting: Annotated[str, OneOf(tuple(COUNTING_RULES))] = 'everything'

  def __post_init__(self):
    check_fields(self, 'paper')
    if not self.scale:
      raise UsageError(
        'paper.scale must not be empty', where=f'paper.scale = {self.scale!r}', fix='--gin.paper.scale=full'
      )
    if self.table is not None:
      row(self.table, self.row)

  @property
  def printed(self) -> PaperRow | None:
    """The row in the paper; None for a model that is not the paper's."""
    return None if self.table is None else row(self.table, self.row)

  @property
  def uncounted_parts(self) -> tuple[str, ...]:
    """The parts that the paper's figures exclude, for `ParameterCounts.without`."""
    return COUNTING_RULES[self.counting]

  @property
  def millions(self) -> tuple[int, int]:
    """Parameters in pre-training and in fine-tuning as printed, for a model of the paper."""
    assert self.printed is not None
    return self.printed.pre_training_millions, self.printed.fine_tuning_millions

  def deviations(self, pre_training: int, fine_tuning: int) -> tuple[float, float]:
    """Relative difference of each count from the printed figure: count / printed − 1."""
    printed = [millions * 1_000_000 for millions in self.millions]
    return pre_training / printed[0] - 1, fine_tuning / printed[1] - 1
