"""The paper's tables: its figures, ours, and what is marked."""

import pathlib

import made_up_sweep
import pytest

from rembert import paper
from rembert.report import reading
from rembert.report.page import MISSING, Cell
from rembert.report.reading import Learned, Model
from rembert.report.runs import Run
from rembert.report.sections import tables


def text(cell):
  return cell.text if isinstance(cell, Cell) else cell


def model(name, table, by_task):
  """Scores by task, each a list over seeds of the mean over languages; five languages ± around it."""
  learned = []
  for task, means in by_task.items():
    for seed, mean in enumerate(means):
      entries = {
        language: {'scores': {'accuracy': mean + shift}, 'baseline': None}
        for language, shift in zip('abcdefgh', (-4, -3, -2, -1, 1, 2, 3, 4), strict=True)
      }
      run = Run('x', pathlib.Path('x'), results={'task': task, 'tasks': {task: entries}})
      learned.append(Learned(0, seed, task, (task,), run=run))
  return Model(name, ((table, name),), learned=tuple(learned))


@pytest.fixture(scope='module')
def sweep(tmp_path_factory):
  folder = tmp_path_factory.mktemp('tables') / 'sweep'
  models = ['coupled768', 'in768_out768', 'in128_out128', 'in128_out768', 'layers23to12']
  return reading.read([made_up_sweep.write_sweep(folder, models)])


def test_a_table_has_the_papers_figures_and_ours(sweep):
  section = tables.section(sweep)
  of_caption = {block.caption: block for block in section.blocks if not isinstance(block, str)}
  table = of_caption[tables.TITLES[2]]
  assert list(table.columns) == [
    'model',
    'from',
    'PT',
    'FT',
    'XNLI',
    'NER',
    'PAWS-X',
    'XQuAD',
    'MLQA',
    'TyDi QA',
    'Avg',
  ]
  coupled, decoupled = table.groups
  assert (coupled.title, decoupled.title) == ('coupled', 'decoupled')
  ours, printed = coupled.rows
  assert [text(cell) for cell in printed] == [
    *('paper', '177M', '177M', '70.7', '69.2', '85.3', '46.2/63.2', '37.3/53.1', '40.7/56.7', '62.3')
  ]
  assert text(ours[0]) == 'ours'
  assert '±' in text(ours[4])
  assert text(ours[7]).count('±') == 2


def test_tables_without_a_model_are_not_there_and_missing_rows_are_dashes(sweep):
  captions = [block.caption for block in tables.section(sweep).blocks if not isinstance(block, str)]
  assert tables.TITLES[4] in captions
  assert tables.TITLES[13] not in captions
  table = next(block for block in tables.section(sweep).blocks if getattr(block, 'caption', '') == tables.TITLES[4])
  ours = table.groups[2].rows[0]  # 3072 out is not in the sweep
  assert {text(cell) for cell in ours[1:]} == {MISSING}
  assert 'E_out = 3072: not part of this.' in table.notes


def test_the_row_that_drops_layers_is_fine_tuned_without_them(sweep):
  (row,) = [row for row in tables.measured(sweep[0].models, 5, paper.TABLES[5]) if row.printed.name == 'layers23to12']
  whole = made_up_sweep.SHAPES['layers23to12'][3]
  assert row.model.runs[0].kept_layers == 4 < whole
  chosen = {id(each.run) for each in row.model.learned if each.variant.endswith('=4')}
  assert chosen
  expected = tables.task_scores(row.model, 'RemBertConfig.num_hidden_layers=4')
  assert row.scores['xnli'].values() == expected['xnli'].values()


def test_ours_are_means_over_languages_and_the_deviation_is_over_seeds():
  rows = tables.measured([model('coupled768', 12, {'xnli': [70.0, 72.0, 74.0]})], 12, paper.TABLES[12])
  (spread,) = rows[0].scores['xnli'].means()
  assert (spread.mean, spread.deviation, spread.runs) == (72.0, 2.0, 3)


@pytest.mark.parametrize(('shift', 'mark'), [(3.0, '▲'), (-3.0, '▼'), (0.0, '')])
def test_what_is_better_in_every_language_is_marked(shift, mark):
  models = [
    model('coupled768', 12, {'xnli': [70.0, 70.5, 71.0]}),
    model('coupled128', 12, {'xnli': [70.0 + shift, 70.5 + shift, 71.0 + shift]}),
  ]
  table, differences = tables._blocks(12, tables.measured(models, 12, paper.TABLES[12]))
  cell = table.groups[1].rows[0][3]
  assert cell.mark == mark
  line = differences.groups[0].rows[0]
  assert line[1] == f'{shift:+.2f}'
  assert line[-1] == ('0.250' if shift else '1.000')


def test_a_single_seed_has_no_deviation_and_no_p_over_seeds():
  models = [model('coupled768', 12, {'xnli': [70.0]}), model('coupled128', 12, {'xnli': [60.0]})]
  table, differences = tables._blocks(12, tables.measured(models, 12, paper.TABLES[12]))
  assert '±' not in text(table.groups[0].rows[0][3])
  assert differences.groups[0].rows[0][-1] == MISSING


def test_the_average_needs_every_task_in_a_seed():
  everything = {task: [60.0, 62.0] for task in paper.ABLATION_TASKS}
  some = everything | {'tydiqa': [60.0]}
  whole, partial = model('coupled768', 2, everything), model('in768_out768', 2, some)
  first, second = tables.measured([whole, partial], 2, paper.TABLES[2])
  assert len(first.task_means()) == 2
  assert len(second.task_means()) == 1
  assert tables.measured([model('coupled768', 2, {'xnli': [1.0]})], 2, paper.TABLES[2])[0].task_means() == {}
