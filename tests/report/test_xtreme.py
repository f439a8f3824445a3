"""XTREME: which numbers of the tables are marked (what they are: test_golden.py)."""

from rembert.report.scores import of
from rembert.report.xtreme import xtreme


def test_the_best_model_of_each_language_is_marked_and_none_of_the_gaps_and_the_papers_rows(sweep, tables):
  found = tables(xtreme(sweep))
  table = found['XNLI: 5 language(s)']
  means = of(sweep.worths, task='xnli', variant='').groupby(['language', 'model'])['value'].mean().unstack()
  for language, best in means.idxmax(axis='columns').items():
    assert [model for model in means if table.look(language, model) == 'best'] == [best]
  assert not any(table.look('transfer gap', model) for model in means)
  assert table.look('en', 'baseline') == 'paper'
  leaderboard = found["The leaderboard's row: Tables 7 and 16"]
  assert [leaderboard.look(row, 'Avg') for row in leaderboard.frame.index[-3:]] == ['', 'paper', 'paper']
