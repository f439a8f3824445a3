"""The file of every score has what the tables are the means of."""

import statistics

import made_up_sweep
import pytest

from rembert.report import reading
from rembert.report.scores import score_names, task_scores
from rembert.report.sections import scores_by_run
from rembert.report.sections.models import all_models


@pytest.fixture(scope='module')
def sources(tmp_path_factory):
  folder = tmp_path_factory.mktemp('scores') / 'sweep'
  return reading.read([made_up_sweep.write_sweep(folder, ['in128_out128', 'layers23to12'], seeds=2)])


@pytest.fixture(scope='module')
def rows(sources):
  [data] = scores_by_run.section(sources).blocks
  return [dict(zip(data.columns, row, strict=True)) for row in data.rows]


def test_means_of_the_file_are_those_of_the_tables(sources, rows):
  for model in all_models(sources):
    for task, scores in task_scores(model).items():
      names = score_names(task, next(iter(next(iter(scores.by_seed.values())).values())))
      for name, mean in zip(names, scores.means(), strict=True):
        key = (model.name, task, '', name)
        values = [float(r['score']) for r in rows if (r['model'], r['task'], r['variant'], r['measure']) == key]
        assert len(values) == len(scores.by_seed) * len(scores.languages)
        assert statistics.fmean(values) == pytest.approx(mean.mean, abs=1e-4)


def test_each_score_stands_there_once_with_its_seeds(rows):
  keys = [tuple(row[name] for name in scores_by_run.COLUMNS[:7]) for row in rows]
  assert len(set(keys)) == len(keys) > 0
  assert {row['fine-tuning'] for row in rows if row['task'] != 'held-out text'} == {'0', '1'}


def test_the_last_evaluation_of_pre_training_is_among_them(sources, rows):
  for model in all_models(sources):
    [pretrained] = model.pretrained
    own = [row for row in rows if (row['model'], row['task']) == (model.name, 'held-out text')]
    found = {(row['language'], row['measure']): float(row['score']) for row in own}
    assert found['all', 'loss'] == pytest.approx(pretrained.run.last('eval/loss'), abs=1e-4)
    assert found['all', 'accuracy'] == pytest.approx(100 * pretrained.run.last('eval/accuracy'), abs=1e-4)
    languages = {language for language, _ in found} - {'all'}
    assert languages == set(pretrained.run.parts_of('eval/loss'))
    assert {row['pre-training'] for row in own} == {str(pretrained.seed)}


def test_layers_that_were_dropped_are_told_apart(rows):
  dropped = {row['variant'] for row in rows if row['model'] == 'layers23to12'} - {''}
  assert dropped == {'RemBertConfig.num_hidden_layers=4'}


def test_there_is_nothing_where_nothing_was_judged():
  assert scores_by_run.section([]).blocks == []
