"""XTREME: tables of tasks and every score, by the numbers that they are made of."""

from rembert.report.scores import of
from rembert.report.xtreme import xtreme


def test_a_task_has_its_languages_mean_gap_and_baseline(sweep, tables):
  frame = tables(xtreme(sweep))['XNLI: 5 language(s)'].frame
  assert frame.index[0] == 'en'
  assert list(frame.index[-2:]) == ['mean', 'transfer gap']
  assert frame.loc['mean', 'baseline'] == '33.3'
  runs = sweep.by_seed(sweep.models[0], 'xnli')
  gaps = runs['en'] - runs.drop(columns='en').mean(axis='columns')
  assert frame.loc['transfer gap', 'coupled768'] == f'{gaps.mean():.1f} ± {gaps.std():.1f}'


def test_the_best_model_of_each_language_is_marked_and_none_of_the_gaps(sweep, tables):
  table = tables(xtreme(sweep))['XNLI: 5 language(s)']
  means = of(sweep.worths, task='xnli', variant='').groupby(['language', 'model'])['value'].mean().unstack()
  for language, best in means.idxmax(axis='columns').items():
    assert [model for model in means if table.look(language, model) == 'best'] == [best]
  assert not any(table.look('transfer gap', model) for model in means)
  assert table.look('en', 'baseline') == 'paper'


def test_the_leaderboards_row_stands_beside_the_papers(sweep, tables):
  table = tables(xtreme(sweep))["The leaderboard's row: Tables 7 and 16"]
  assert list(table.frame.index[-2:]) == ['RemBERT (paper)', 'XLM-R (paper)']
  assert table.frame.loc['RemBERT (paper)', ['Avg', 'Avg_task']].to_list() == ['75.4', '74.4']
  assert table.frame.iloc[0, 0].endswith('*')  # five languages of fifteen
  assert [table.look(row, 'Avg') for row in table.frame.index[-3:]] == ['', 'paper', 'paper']
