"""Rows of other models, as they are printed: the paper's Tables 7 and 16, and the comparison in mT5's README.

The paper's averages are kept as it states them, in `stated`. Not all follow from the rows: see `inconsistencies`.
"""

from rembert import paper
from rembert.report.xtreme_scores import Row, TaskScore


def _row(printed: paper.LeaderboardRow) -> Row:
  """Of Table 16, with the averages that it and Table 7 state."""
  scores = {task: TaskScore(score, *exact_match) for task, (*exact_match, score) in printed.scores.items()}
  stated = {**printed.categories, 'task_mean': printed.task_mean, 'average': printed.mean}
  return Row(printed.label, scores, {}, printed.pre_training_millions, printed.fine_tuning_millions, stated)


_TABLE_7 = {printed.name: _row(printed) for printed in paper.TABLE_7}
REMBERT, XLM_R, VECO, FILTER, STILTS = map(_TABLE_7.__getitem__, ('rembert', 'xlm_r', 'veco', 'filter', 'stilts'))

# VECO and FILTER learn from translations too, STiLTs from other tasks' data: the fair comparison is with XLM-R.
FAIR = (REMBERT, XLM_R)
PAPER = (REMBERT, XLM_R, VECO, FILTER, STILTS)

_F1_TASKS = ('xnli', 'pawsx', 'panx', 'xquad', 'mlqa', 'tydiqa')
# In the order of `_F1_TASKS`; F1 alone of questions. – is not there.
_F1_ROWS = """
mBERT 65.4 81.9 62.2 64.5 61.4 59.7
XLM 69.1 80.9 61.2 59.8 48.5 43.6
InfoXLM 81.4 – – – 73.6 –
X-STILTs 80.4 87.7 64.7 77.2 72.3 76.0
XLM-R 79.2 86.4 65.4 76.6 71.6 65.1
VECO 79.9 88.7 65.7 77.3 71.7 67.6
RemBERT 80.8 87.5 70.1 79.6 73.1 77.0
mT5-Small 67.5 82.4 50.5 58.1 54.6 36.4
mT5-Base 75.4 86.4 55.7 67.0 64.6 59.1
mT5-Large 81.1 88.9 58.5 77.8 71.2 68.4
mT5-XL 82.9 89.6 65.5 79.5 73.5 77.8
mT5-XXL 85.0 90.0 69.2 82.5 76.0 82.0
"""


def _f1_row(line: str) -> Row:
  name, *values = line.split()
  found = zip(_F1_TASKS, values, strict=True)
  return Row(name, {task: TaskScore(float(value)) for task, value in found if value != '–'}, {'udpos': 'not printed'})


# mT5's README; its VECO is without translations.
MT5_README = tuple(_f1_row(line) for line in _F1_ROWS.strip().split('\n'))


def inconsistencies(row: Row, tolerance: float = 0.1) -> dict[str, tuple[float, float]]:
  """Averages that a row states and that its own scores do not give: name to (stated, computed).

  Args:
    row: with `stated`.
    tolerance: what rounding to one digit can explain: half a digit in the scores, and half in the mean.
  """
  computed = {name: average.value for name, average in row.averages().items()}
  return {
    name: (stated, computed[name])
    for name, stated in row.stated.items()
    if computed[name] is not None and abs(stated - computed[name]) > tolerance + 1e-9
  }
