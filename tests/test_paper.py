"""The paper's figures: complete, of models that have files, and adding up where the paper's own do."""

import statistics
import subprocess
import sys

import gin
import pytest

from rembert import configuration, paper
from rembert.errors import UsageError
from rembert.jobs.config import FinetuneOptions
from rembert.model.config import RemBertConfig
from rembert.model.parameter_count import count_parameters
from rembert.paper import PaperFigures
from rembert.train.optimizer import OptimizerConfig
from rembert.train.trainer import TrainConfig

ROWS = [row for rows in paper.TABLES.values() for row in rows]
ROUNDING = 0.05 + 1e-9  # of an average that is printed with one digit


@pytest.fixture(autouse=True)
def clean_gin():
  yield
  gin.clear_config()


def mean_of(row: paper.PaperRow) -> float:
  """Over tasks; questions as (EM + F1) / 2."""
  return statistics.fmean(statistics.fmean(values) for values in row.scores.values())


def test_the_figures_need_nothing_heavy():
  code = 'import sys, rembert.paper; assert not {"jax", "numpy", "flax", "gin"} & set(sys.modules)'
  assert subprocess.run([sys.executable, '-c', code], check=False, timeout=60).returncode == 0


def test_every_table_has_its_rows_in_the_order_of_print():
  assert {table: [row.name for row in rows] for table, rows in paper.TABLES.items()} == {
    2: ['coupled768', 'in768_out768'],
    3: ['in768_out128', 'in128_out768'],
    4: ['in128_out128', 'in128_out768', 'in128_out3072'],
    5: ['in128_out768', 'layers23to12'],
    6: ['coupled768', 'in128_out768', 'hidden1024', 'layers23'],
    12: ['coupled768', 'coupled128'],
    13: [
      *('english_coupled768', 'english_in128_out128', 'english_in128_out768', 'english_in128_out3072'),
      *('english_layers15to12', 'english_layers24to12'),
    ],
  }


@pytest.mark.parametrize('row', ROWS, ids=lambda row: f'{row.table}-{row.name}')
def test_every_row_is_a_model_with_a_file_and_knows_its_table(row, root):
  assert (root / 'gin' / 'models' / f'{row.name}.gin').is_file()
  assert paper.row(row.table, row.name) is row
  assert row.title.startswith(f'Table {row.table}, ')


@pytest.mark.parametrize('row', ROWS, ids=lambda row: f'{row.table}-{row.name}')
def test_tasks_of_questions_have_two_scores_and_others_one(row):
  questions = {'xquad', 'mlqa', 'tydiqa', 'squad'}
  for task, values in row.scores.items():
    assert len(values) == (2 if task in questions else 1)
    if task in questions:
      assert values[0] < values[1], 'exact match is never above F1'
  assert tuple(row.scores) == {12: ('xnli',), 13: paper.ENGLISH_TASKS}.get(row.table, paper.ABLATION_TASKS)


def test_all_averages_of_tables_2_to_6_and_9_follow_from_their_rows():
  rows = [row for row in (*ROWS, *paper.TABLE_9) if row.table not in (12, 13)]
  assert len(rows) == 16
  for row in rows:
    assert mean_of(row) == pytest.approx(row.mean, abs=ROUNDING), row


def test_of_the_leaderboards_averages_one_over_tasks_does_not_follow_from_its_row():
  def off(row):
    return abs(mean_of(row) - row.task_mean) > ROUNDING

  assert [row.label for row in paper.TABLE_7 if off(row)] == ['FILTER']  # 74.9 is printed, its scores give 74.4
  for row in paper.TABLE_7:
    assert statistics.fmean(row.categories.values()) == pytest.approx(row.mean, abs=ROUNDING)


def test_a_model_has_the_same_figures_wherever_it_stands():
  by_name = {}
  for row in ROWS:
    first = by_name.setdefault(row.name, row)
    assert (row.pre_training_millions, row.fine_tuning_millions) == (
      first.pre_training_millions,
      first.fine_tuning_millions,
    )
    assert row.scores['mnli' if row.table == 13 else 'xnli'] == first.scores['mnli' if row.table == 13 else 'xnli']


def test_output_width_helps_in_every_task_and_in_the_masks_themselves():
  narrow, middle, wide = paper.TABLES[4]
  for task in paper.ABLATION_TASKS:
    assert narrow.worth(task) < middle.worth(task) < wide.worth(task)
  by_name = {row.name: row.mlm_accuracy for row in paper.TABLE_8}
  assert by_name['in128_out128'] < by_name['in128_out768'] < by_name['in128_out3072']


def test_word_vectors_of_both_sides_drift_apart_as_the_output_grows():
  gaps = [
    statistics.fmean(row.inputs[name] - row.outputs[name] for name in paper.WORD_SIMILARITY)
    for row in paper.TABLE_8[2:]
  ]
  assert gaps == sorted(gaps)
  assert paper.TABLE_8[0].inputs == paper.TABLE_8[0].outputs


def test_charts_end_near_the_table_they_share_a_model_with():
  for name, by_layers in paper.FIGURE_1.items():
    assert by_layers[12] == pytest.approx(paper.row(4, name).scores['xnli'][0], abs=paper.FIGURE_1_READING)
    assert list(by_layers) == [8, 9, 10, 11, 12]
  assert all(len(values) == 12 for values in paper.FIGURE_2.values())
  assert list(paper.FIGURE_1) == list(paper.FIGURE_2) == [row.name for row in paper.TABLES[4]]


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


@pytest.mark.parametrize(
  ('vocab_size', 'output_embedding_size', 'pre_training', 'fine_tuning'),
  [
    (250_300, 1664, '991.091', '574.592'),
    (250_000, 1664, '990.515', '574.515'),
    (250_300, 1536, '959.053', '574.592'),
    (250_000, 1536, '958.515', '574.515'),
  ],
)
def test_no_rembert_reaches_995_million_by_the_rule_of_the_ablations(
  vocab_size, output_embedding_size, pre_training, fine_tuning
):
  config = RemBertConfig(vocab_size=vocab_size, output_embedding_size=output_embedding_size)
  counts = count_parameters(config).without(PaperFigures(counting='ablation').uncounted_parts)
  assert f'{counts.pre_training / 1e6:.3f}' == pre_training
  assert f'{counts.fine_tuning / 1e6:.3f}' == fine_tuning


def test_deviations_are_shares_of_what_is_printed():
  figures = PaperFigures(table=12, row='coupled128')  # 100M and 100M
  assert figures.deviations(102_000_000, 80_000_000) == pytest.approx((0.02, -0.2))
  assert figures.millions == (100, 100)


@pytest.mark.parametrize('figures', [PaperFigures(), PaperFigures(table=12, row='coupled128', scale='mini')])
def test_what_is_not_the_papers_model_or_not_of_its_size_has_no_figures(figures):
  assert figures.millions == figures.deviations(90_000_000, 45_000_000) == (None, None)


@pytest.mark.parametrize(
  ('fields', 'where'),
  [
    ({'kept_layers': 0}, 'paper.kept_layers'),
    ({'kept_layers': True}, 'paper.kept_layers'),
    ({'counting': 'generous'}, 'paper.counting'),
    ({'scale': ''}, 'paper.scale'),
    ({'table': 4, 'row': 'coupled768'}, 'paper.row'),
    ({'table': 1}, 'paper.table'),
  ],
)
def test_figures_that_cannot_be_are_refused_with_their_field(fields, where):
  with pytest.raises(UsageError) as error:
    PaperFigures(**fields)
  assert error.value.where.startswith(where)
