"""The paper's figures: complete, of models that have files, and adding up where the paper's own do."""

import statistics
import subprocess
import sys

import pytest

from rembert import configuration, paper
from rembert.configuration import FinetuneOptions
from rembert.errors import UsageError
from rembert.paper import PaperFigures
from rembert.train.optimizer import OptimizerConfig
from rembert.train.trainer import TrainConfig

ROWS = [row for rows in paper.TABLES.values() for row in rows]
ROUNDING = 0.05 + 1e-9  # of an average that is printed with one digit


def mean_of(row: paper.PaperRow) -> float:
  """Over tasks; questions as (EM + F1) / 2."""
  return statistics.fmean(statistics.fmean(values) for values in row.scores.values())


def test_the_figures_need_nothing_heavy():
  code = 'import sys, rembert.paper; assert not {"jax", "numpy", "flax", "gin"} & set(sys.modules)'
  assert subprocess.run([sys.executable, '-c', code], check=False, timeout=60).returncode == 0


def test_every_row_is_a_model_with_a_file_and_has_the_scores_of_its_table(root):
  questions = {'xquad', 'mlqa', 'tydiqa', 'squad'}
  assert len(ROWS) == 21
  for row in ROWS:
    assert (root / 'gin' / 'models' / f'{row.name}.gin').is_file()
    assert paper.row(row.table, row.name) is row
    assert row.title.startswith(f'Table {row.table}, ')
    for task, values in row.scores.items():
      assert len(values) == (2 if task in questions else 1)
      assert list(values) == sorted(values), 'exact match is never above F1'


def test_averages_follow_from_their_rows_except_that_of_filter():
  rows = [row for row in (*ROWS, *paper.TABLE_9) if row.table not in (12, 13)]
  assert len(rows) == 16
  for row in rows:
    assert mean_of(row) == pytest.approx(row.mean, abs=ROUNDING), row
  off = [row.label for row in paper.TABLE_7 if mean_of(row) != pytest.approx(row.task_mean, abs=ROUNDING)]
  assert off == ['FILTER']  # 74.9 is printed, its scores give 74.4
  for row in paper.TABLE_7:
    assert statistics.fmean(row.categories.values()) == pytest.approx(row.mean, abs=ROUNDING)


def test_a_model_has_the_same_figures_in_all_tables():
  by_name, millions = {}, lambda row: (row.pre_training_millions, row.fine_tuning_millions)
  for row in ROWS:
    first = by_name.setdefault(row.name, row)
    assert millions(row) == millions(first)
    assert all(first.scores[task] == scores for task, scores in row.scores.items())


def test_the_charts_agree_with_table_4_and_one_table_is_both():
  assert paper.TABLE_8[0].inputs == paper.TABLE_8[0].outputs
  assert list(paper.FIGURE_1) == list(paper.FIGURE_2) == [row.name for row in paper.TABLES[4]]
  for name, by_layers in paper.FIGURE_1.items():
    assert by_layers[12] == pytest.approx(paper.row(4, name).scores['xnli'][0], abs=paper.FIGURE_1_READING)


@pytest.mark.parametrize('task', paper.TABLE_15)
def test_gin_files_of_fine_tuning_have_the_hyper_parameters_of_table_15(task):
  configuration.load([f'gin/finetune_{task}.gin'], [])
  found = paper.TABLE_15[task]
  assert (configuration.build(OptimizerConfig).learning_rate,) == found.learning_rates
  assert configuration.build(TrainConfig).batch_size == found.batch_size
  assert configuration.build(FinetuneOptions).epochs == found.epochs


def test_a_row_that_is_not_there_is_answered_with_those_that_are():
  with pytest.raises(UsageError, match="Table 4 has no row 'coupled768'") as error:
    paper.row(4, 'coupled768')
  assert error.value.fix == ['one of in128_out128, in128_out768, in128_out3072']
  with pytest.raises(UsageError, match='Table 1 ') as error:
    paper.row(1, 'coupled768')
  assert error.value.fix == ['one of 2, 3, 4, 5, 6, 7, 12, 13']


# --- the row that a configuration stands for --------------------------------------------------------------------------


def test_deviations_are_shares_of_what_is_printed():
  figures = PaperFigures(table=12, row='coupled128')  # 100M and 100M
  assert figures.deviations(102_000_000, 80_000_000) == pytest.approx((0.02, -0.2))
  assert figures.millions == (100, 100)


@pytest.mark.parametrize(
  ('fields', 'where'),
  [({'scale': ''}, 'paper.scale'), ({'table': 4, 'row': 'coupled768'}, 'paper.row'), ({'table': 1}, 'paper.table')],
)
def test_figures_that_cannot_be_are_refused_with_their_field(fields, where):
  with pytest.raises(UsageError) as error:
    PaperFigures(**fields)
  assert error.value.where.startswith(where)
