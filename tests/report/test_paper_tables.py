"""The paper's tables: what is marked, and what is missing (numbers: test_golden.py)."""

import pathlib

import pytest

from rembert import paper
from rembert.report.html import MISSING
from rembert.report.load import FINE_TUNING, Model, Run, Source
from rembert.report.paper_tables import measure, table_blocks
from rembert.report.scores import Results


def model(name, table, by_task):
  """Scores by task, each a list over seeds of the mean over eight languages; all metrics of a task are equal."""
  runs = []
  for task, means in by_task.items():
    for seed, mean in enumerate(means):
      scores = lambda shift, mean=mean: dict.fromkeys(('accuracy', 'f1', 'exact_match'), mean + shift)
      shifts = zip('abcdefgh', (-4, -3, -2, -1, 1, 2, 3, 4), strict=True)
      entries = {language: {'scores': scores(shift), 'baseline': None} for language, shift in shifts}
      results = {'task': task, 'tasks': {task: entries}}
      runs.append(Run('x', pathlib.Path('x'), FINE_TUNING, seed=seed, task=task, evaluated=(task,), results=results))
  return Model(name, ((table, name),), tuple(runs))


def rows_of(table, *models):
  return measure(Results([Source('folder', 'sweep', models)]), table)


def test_rows_without_a_model_are_dashes(sweep):
  table, _ = table_blocks(4, measure(sweep, 4))
  assert set(table.frame.loc['E_out = 3072', 'ours']) == {MISSING}  # it is not in the sweep
  assert 'E_out = 3072: not among these models.' in table.notes


@pytest.mark.parametrize(('shift', 'mark'), [(3.0, '▲'), (-3.0, '▼'), (0.0, '')])
def test_what_is_better_in_every_language_is_marked(shift, mark):
  scores = [70.0, 70.5, 71.0]
  rows = rows_of(
    12,
    model('coupled768', 12, {'xnli': scores}),
    model('coupled128', 12, {'xnli': [score + shift for score in scores]}),
  )
  table, differences = table_blocks(12, rows)
  assert table.frame.loc[('E = 128', 'ours'), 'XNLI'] == f'{70.5 + shift:.1f} ± 0.5{mark}'
  line = differences.frame.loc['E = 128', 'XNLI']
  assert line['difference'] == f'{shift:+.2f}'
  assert line['p, seeds'] == ('0.250' if shift else '1.000')


def test_a_single_seed_has_no_deviation_and_no_p_over_seeds():
  models = [model('coupled768', 12, {'xnli': [70.0]}), model('coupled128', 12, {'xnli': [60.0]})]
  table, differences = table_blocks(12, rows_of(12, *models))
  assert '±' not in table.frame.loc[('E = 768', 'ours'), 'XNLI']
  assert differences.frame['p, seeds'].to_list() == [MISSING]


def test_the_average_needs_every_task_in_a_seed():
  everything = {task: [60.0, 62.0] for task in paper.row(2, 'coupled768').scores}
  rows = rows_of(2, model('coupled768', 2, everything), model('in768_out768', 2, everything | {'tydiqa': [60.0]}))
  first, second = (row.task_means() for row in rows)
  assert first.mean(axis='columns').to_list() == [60.0, 62.0]
  assert len(second) == 1
  assert rows_of(2, model('coupled768', 2, {'xnli': [1.0]}))[0].task_means().empty
