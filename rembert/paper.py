"""The paper's figures as data: every number that something here is compared with, under its table and row.

"Rethinking Embedding Coupling in Pre-trained Language Models" (arXiv 2010.12821). Scores are percentages. Those of
questions are (exact match, F1), all others one number: accuracy for pairs of sentences, F1 for words. Scores of
Tables 2 to 6 are on dev sets, means of three fine-tuning runs and of languages. Parameters are in millions, as printed.

All of it is copied, nothing computed: averages are those that are printed. tests/test_paper.py says which of them
follow from their rows.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated

from rembert.errors import UsageError
from rembert.validation import Count, OneOf, check_fields

# In the order of print.
ABLATION_TASKS = ('xnli', 'panx', 'pawsx', 'xquad', 'mlqa', 'tydiqa')  # Tables 2 to 6
LEADERBOARD_TASKS = ('xnli', 'udpos', 'panx', 'pawsx', 'xquad', 'mlqa', 'tydiqa')  # Table 16
ENGLISH_TASKS = ('mnli', 'squad')  # Table 13


@dataclasses.dataclass(frozen=True)
class PaperRow:
  """A row of a table of models.

  Attributes:
    table: its number.
    name: of the model, the stem of its file in gin/models, and of gin/experiments/table{N} where there is one.
    label: what the paper calls the row.
    pre_training_millions: parameters in pre-training; None if they are not printed.
    fine_tuning_millions: parameters in fine-tuning, without a task's own head.
    scores: task to (accuracy or F1,), or to (exact match, F1) of questions.
    mean: the average that the paper prints; None if it prints none.
  """

  table: int
  name: str
  label: str
  pre_training_millions: int | None
  fine_tuning_millions: int | None
  scores: Mapping[str, tuple[float, ...]]
  mean: float | None = None

  @property
  def title(self) -> str:
    """`Table 4, E_out = 768`."""
    return f'Table {self.table}, {self.label}'

  def worth(self, task: str) -> float:
    """What a task counts in an average: questions the mean of exact match and F1."""
    return sum(self.scores[task]) / len(self.scores[task])


@dataclasses.dataclass(frozen=True)
class LeaderboardRow(PaperRow):
  """A model of Tables 7 and 16, on XTREME's test sets.

  Attributes:
    mean: over the categories, as printed in both tables.
    task_mean: over the seven tasks, as printed (Table 16).
    categories: sentence_pair, structured and question_answering, as printed (Table 7).
    languages: of its pre-training.
    learns_from_other_tasks: whether another task's data came between pre-training and fine-tuning.
    learns_from_translations: whether translations were learned from.
  """

  task_mean: float = 0.0
  categories: Mapping[str, float] = dataclasses.field(default_factory=dict)
  languages: int = 0
  learns_from_other_tasks: bool = False
  learns_from_translations: bool = False


def _scores(tasks: tuple[str, ...], text: str) -> dict[str, tuple[float, ...]]:
  """`70.7 46.2/63.2` by task."""
  return {task: tuple(map(float, one.split('/'))) for task, one in zip(tasks, text.split(), strict=True)}


# --- Tables 2 to 6: what decides is where parameters go ---------------------------------------------------------------

# Millions in pre-training and fine-tuning, scores in the order of `ABLATION_TASKS`, and the mean. A model that stands
# in several tables has the same figures in all.
_ABLATIONS = {
  'coupled768': ((177, 177), '70.7 69.2 85.3 46.2/63.2 37.3/53.1 40.7/56.7', 62.3),
  'in768_out768': ((269, 177), '71.3 68.9 85.0 46.9/63.8 37.3/53.1 42.8/58.1', 62.7),
  'in768_out128': ((192, 177), '70.0 68.3 84.3 42.0/60.8 34.7/50.9 35.2/52.2', 60.1),
  'in128_out128': ((115, 100), '68.1 65.2 83.3 38.6/54.8 30.9/45.2 32.2/44.2', 56.6),
  'in128_out768': ((192, 100), '70.4 67.6 84.9 43.9/60.0 34.6/49.5 37.8/51.0', 60.2),
  'in128_out3072': ((469, 100), '71.1 68.1 85.1 45.3/63.3 37.2/53.1 39.4/54.7', 61.8),
  'layers23to12': ((193, 100), '71.2 67.3 85.0 38.8/55.5 31.4/46.6 31.3/45.5', 58.0),
  'hidden1024': ((260, 168), '72.8 69.2 85.6 50.2/67.2 40.7/56.4 44.8/60.0', 64.5),
  'layers23': ((270, 178), '73.6 71.0 86.7 51.7/68.8 42.4/58.2 48.2/62.9', 66.2),
}


def _ablation(table: int, name: str, label: str) -> PaperRow:
  millions, scores, mean = _ABLATIONS[name]
  return PaperRow(table, name, label, *millions, _scores(ABLATION_TASKS, scores), mean)


def _english(name: str, label: str, pre_training: int, fine_tuning: int, scores: str) -> PaperRow:
  return PaperRow(13, name, label, pre_training, fine_tuning, _scores(ENGLISH_TASKS, scores))


TABLES: dict[int, tuple[PaperRow, ...]] = {
  2: (_ablation(2, 'coupled768', 'coupled'), _ablation(2, 'in768_out768', 'decoupled')),
  3: (_ablation(3, 'in768_out128', 'E_in = 768, E_out = 128'), _ablation(3, 'in128_out768', 'E_in = 128, E_out = 768')),
  4: (
    _ablation(4, 'in128_out128', 'E_out = 128'),
    _ablation(4, 'in128_out768', 'E_out = 768'),
    _ablation(4, 'in128_out3072', 'E_out = 3072'),
  ),
  5: (_ablation(5, 'in128_out768', 'E_out = 768'), _ablation(5, 'layers23to12', '11 additional layers')),
  6: (
    _ablation(6, 'coupled768', 'baseline'),
    _ablation(6, 'in128_out768', 'E_in = 128, E_out = 768'),
    _ablation(6, 'hidden1024', 'reinvested in H'),
    _ablation(6, 'layers23', 'reinvested in L'),
  ),
  # Against one narrow table for input and output, as ALBERT has it. The paper writes E = H = 128, but H stays 768.
  12: (
    PaperRow(12, 'coupled768', 'E = 768', 177, 177, {'xnli': (70.7,)}),
    PaperRow(12, 'coupled128', 'E = 128', 100, 100, {'xnli': (68.1,)}),
  ),
  13: (
    _english('english_coupled768', 'BERT base', 110, 110, '79.8 78.4/86.2'),
    _english('english_in128_out128', 'E_out = 128', 93, 89, '75.9 75.5/84.2'),
    _english('english_in128_out768', 'E_out = 768', 112, 89, '77.5 77.5/85.5'),
    _english('english_in128_out3072', 'E_out = 3072', 181, 89, '79.5 78.4/86.2'),
    _english('english_layers15to12', '15 layers', 114, 89, '80.1 78.7/86.3'),
    _english('english_layers24to12', '24 layers', 178, 89, '79.0 77.8/85.5'),
  ),
}

# The upper half of Table 12: English models of ALBERT's authors (Lan et al. 2020), which no file here stands for.
TABLE_12_ALBERT = (
  PaperRow(12, 'albert768', 'ALBERT, E = 768', 110, 110, {'mnli': (84.5,)}),
  PaperRow(12, 'albert128', 'ALBERT, E = 128', 89, 89, {'mnli': (83.7,)}),
)


# --- Tables 7 and 16: the leaderboard ---------------------------------------------------------------------------------


def _leaderboard(
  name: str, label: str, parameters: tuple[int, int], languages: int, scores: str, categories: str, means: str, **data
) -> LeaderboardRow:
  """Of Table 16 the scores and the means, over tasks and over categories; of Table 7 the categories."""
  task_mean, mean = map(float, means.split())
  by_category = dict(
    zip(('sentence_pair', 'structured', 'question_answering'), map(float, categories.split()), strict=True)
  )
  by_task = _scores(LEADERBOARD_TASKS, scores)
  return LeaderboardRow(7, name, label, *parameters, by_task, mean, task_mean, by_category, languages, **data)


# Some averages of FILTER and XLM-R do not follow from their scores: `tasks.xtreme.leaderboard`.
TABLE_7: tuple[LeaderboardRow, ...] = (
  _leaderboard(
    *('stilts', 'STiLTs', (559, 559), 100, '80.0 74.9 64.0 87.9 63.3/78.7 53.7/72.4 59.5/76.0'),
    *('83.9 69.4 67.2', '72.7 73.5'),
    learns_from_other_tasks=True,
  ),
  _leaderboard(
    *('filter', 'FILTER', (559, 559), 100, '83.9 76.2 67.7 91.4 68.0/82.4 57.7/76.2 50.9/68.3'),
    *('87.5 71.9 68.5', '74.9 76.0'),
    learns_from_translations=True,
  ),
  _leaderboard(
    *('veco', 'VECO', (662, 662), 50, '83.0 75.1 65.7 91.1 66.3/79.9 54.9/73.1 58.9/75.0'),
    *('87.0 70.4 68.0', '74.1 75.1'),
    learns_from_translations=True,
  ),
  _leaderboard(
    *('xlm_r', 'XLM-R', (559, 559), 100, '79.2 73.8 65.4 86.4 60.8/76.6 53.2/71.6 45.0/65.1'),
    *('82.8 69.0 62.3', '70.1 71.4'),
  ),
  _leaderboard(
    *('rembert', 'RemBERT', (995, 575), 110, '80.8 76.5 70.1 87.5 64.0/79.6 55.0/73.1 63.0/77.0'),
    *('84.2 73.3 68.6', '74.4 75.4'),
  ),
)


# --- Tables 8 and 9: what the embeddings and the layers know ----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class WordSimilarityRow:
  """A row of Table 8: correlation, times 100, of dot products of word vectors with what people say; and MLM accuracy.

  Attributes:
    name: of the model, as in `PaperRow`.
    label: what the paper calls it.
    inputs: of the input embedding, by data set (`WORD_SIMILARITY`).
    outputs: of the output embedding; those of `inputs` where one table is both.
    mlm_accuracy: share of the held-out masked pieces that are predicted, in percent.
  """

  name: str
  label: str
  inputs: Mapping[str, float]
  outputs: Mapping[str, float]
  mlm_accuracy: float


WORD_SIMILARITY = ('men', 'mturk771', 'rare_word', 'simlex999', 'verb143')


def _word_similarity(name: str, label: str, inputs: str, outputs: str | None, mlm_accuracy: float) -> WordSimilarityRow:
  by_data_set = lambda text: dict(zip(WORD_SIMILARITY, map(float, text.split()), strict=True))
  return WordSimilarityRow(name, label, by_data_set(inputs), by_data_set(outputs or inputs), mlm_accuracy)


TABLE_8: tuple[WordSimilarityRow, ...] = (
  _word_similarity('coupled768', 'coupled', '40.8 37.5 25.0 20.1 56.0', None, 61.1),
  _word_similarity('in768_out768', 'decoupled', '39.2 37.5 24.0 17.6 59.4', '27.7 24.3 12.2 16.1 43.9', 61.6),
  _word_similarity('in128_out128', 'E_out = 128', '40.7 37.7 23.6 17.5 48.9', '36.6 32.8 16.4 17.3 46.4', 59.0),
  _word_similarity('in128_out768', 'E_out = 768', '38.6 35.2 22.6 19.7 50.6', '27.8 23.9 11.5 15.6 45.5', 60.7),
  _word_similarity('in128_out3072', 'E_out = 3072', '40.1 36.2 22.6 18.9 43.3', '10.8 8.8 -1.2 13.0 19.5', 62.3),
)

EDGE_PROBING = (
  *('pos', 'constituents', 'dependencies', 'entities', 'srl', 'coref_ontonotes', 'coref_winograd'),
  *('spr1', 'spr2', 'relations'),
)
# Learned mixtures of the layers of a frozen model (Tenney et al. 2019), English.
TABLE_9: tuple[PaperRow, ...] = tuple(
  PaperRow(9, name, label, *_ABLATIONS[name][0], _scores(EDGE_PROBING, scores), mean)
  for name, label, scores, mean in (
    ('in128_out128', 'E_out = 128', '96.7 87.9 94.3 93.7 91.7 95.0 67.2 83.0 82.7 77.0', 86.9),
    ('in128_out768', 'E_out = 768', '96.7 87.9 94.4 94.0 91.8 95.0 67.0 83.1 82.8 78.6', 87.1),
    ('in128_out3072', 'E_out = 3072', '96.8 88.0 94.5 94.2 92.0 95.3 67.6 84.1 82.6 78.9', 87.4),
  )
)


# --- Figures 1 and 2: read off the charts, which print no numbers -----------------------------------------------------

# XNLI accuracy by the layers, from the bottom, that fine-tuning keeps of twelve; ± 0.5. That of 128 out and all twelve
# is 68.3 in the chart and 68.1 in Table 4.
FIGURE_1: dict[str, dict[int, float]] = {
  'in128_out128': {8: 68.1, 9: 68.6, 10: 68.2, 11: 68.5, 12: 68.3},
  'in128_out768': {8: 68.2, 9: 69.0, 10: 70.0, 11: 70.5, 12: 70.4},
  'in128_out3072': {8: 69.6, 9: 70.2, 10: 70.3, 11: 70.6, 12: 71.1},
}
FIGURE_1_READING = 0.5

# Share, in percent, of English sentences whose nearest German one is their translation, after layers 1 to 12; ± 2.
FIGURE_2: dict[str, tuple[float, ...]] = {
  'in128_out128': (33, 36, 54, 61, 65, 72, 74, 74, 69, 64, 60, 44),
  'in128_out768': (35, 38, 53, 58, 67, 72, 75, 76, 74, 71, 68, 50),
  'in128_out3072': (32, 37, 47, 57, 70, 73, 77, 77, 78, 75, 76, 64),
}
FIGURE_2_READING = 2.0


# --- Tables 10 and 15: fine-tuning ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class FineTuning:
  """Hyper-parameters of a task.

  Attributes:
    learning_rates: the best of these by dev.
    batch_size: in examples.
    epochs: times that each is seen.
  """

  learning_rates: tuple[float, ...]
  batch_size: int
  epochs: int


# All models but RemBERT; by what is learned (SQuAD for XQuAD and MLQA). TyDi QA has no line of its own in either table.
TABLE_10: dict[str, FineTuning] = {
  'pawsx': FineTuning((3e-5, 4e-5, 5e-5), 32, 3),
  'xnli': FineTuning((1e-5, 2e-5, 3e-5), 32, 3),
  'squad': FineTuning((2e-5, 3e-5, 4e-5), 32, 3),
  'panx': FineTuning((1e-5, 2e-5, 3e-5, 4e-5, 5e-5), 32, 3),
}
# RemBERT on the leaderboard.
TABLE_15: dict[str, FineTuning] = {
  'pawsx': FineTuning((8e-6,), 128, 3),
  'xnli': FineTuning((1e-5,), 128, 3),
  'squad': FineTuning((9e-6,), 128, 3),
  'udpos': FineTuning((3e-5,), 128, 3),
  'panx': FineTuning((8e-6,), 64, 3),
}


# --- by name ----------------------------------------------------------------------------------------------------------


def row(table: int, name: str) -> PaperRow:
  """A row of `TABLES`, or of Table 7, by its number and the model's name.

  Raises:
    UsageError: there is none; it lists what there is.
  """
  tables = {**TABLES, 7: TABLE_7}
  if table not in tables:
    raise UsageError(
      f'of Table {table} there are no rows of models',
      where=f'paper.table = {table!r}',
      fix=f'one of {", ".join(map(str, sorted(tables)))}',
    )
  found = {each.name: each for each in tables[table]}
  if name not in found:
    raise UsageError(f'Table {table} has no row {name!r}', where='paper.row', fix=f'one of {", ".join(found)}')
  return found[name]


# --- the row that a configuration stands for --------------------------------------------------------------------------

# Which parts of `rembert.model.parameter_count` the paper's figures leave out, by rule. Found by fitting its tables: it
# states no rule but that the head does not count in fine-tuning (A.1).
COUNTING_RULES = {
  'everything': (),  # Table 7
  'ablation': ('pooler', 'MLM transform', 'output bias'),  # Tables 2 to 6, 12 and 13
}


@dataclasses.dataclass(frozen=True)
class PaperFigures:
  """Which row of the paper a configuration stands for, whose figures are shown beside exact counts.

  It says nothing to the model.

  Attributes:
    table: the number of the row's table; None for a model that is not the paper's.
    row: the row's name in `rembert.paper`, the stem of the model's file.
    scale: of which sizes the model is (gin/scales). Figures are printed for `full` alone.
    kept_layers: how many layers, from the bottom, fine-tuning keeps (Tables 5 and 13); None for all.
    counting: by which of `COUNTING_RULES` the paper counted.
  """

  table: Count | None = None
  row: str = ''
  scale: str = 'full'
  kept_layers: Count | None = None
  counting: Annotated[str, OneOf(tuple(COUNTING_RULES))] = 'everything'

  def __post_init__(self):
    check_fields(self, 'paper')
    if not self.scale:
      raise UsageError('a scale has a name', where=f'paper.scale = {self.scale!r}', fix="'full', or that of your own")
    if self.table is not None:
      row(self.table, self.row)

  @property
  def printed(self) -> PaperRow | None:
    """What the paper prints of the row; None for a model that is not the paper's."""
    return None if self.table is None else row(self.table, self.row)

  @property
  def uncounted_parts(self) -> tuple[str, ...]:
    """The parts that its figures leave out, for `ParameterCounts.without`."""
    return COUNTING_RULES[self.counting]

  @property
  def millions(self) -> tuple[int | None, int | None]:
    """Parameters in pre-training and in fine-tuning as printed; None where they are not, or are of another scale."""
    printed = self.printed
    if printed is None or self.scale != 'full':
      return None, None
    return printed.pre_training_millions, printed.fine_tuning_millions

  def deviations(self, pre_training: int, fine_tuning: int) -> tuple[float | None, float | None]:
    """By how much counts exceed what is printed, as a share of it."""
    share = lambda count, millions: None if millions is None else count / (millions * 1_000_000) - 1
    return share(pre_training, self.millions[0]), share(fine_tuning, self.millions[1])
