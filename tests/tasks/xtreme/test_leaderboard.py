"""Averages as the paper's, and none over less than it says."""

import io
import json
import statistics

import pytest
import rich.console
from hypothesis import given
from hypothesis import strategies as st

from rembert.tracking.console import Console
from tasks.xtreme import LANGUAGES, leaderboard
from tasks.xtreme.leaderboard import (
  CATEGORIES,
  PAPER,
  TASKS,
  LeaderboardRow,
  TaskScore,
  leaderboard_row,
  summarise,
)

SCORE = st.floats(0, 100)
REMBERT = PAPER[0]


# --- the paper's rows ---------------------------------------------------------


def test_remberts_own_row_gives_its_averages():
  averages = {name: round(average.value, 2) for name, average in REMBERT.averages().items()}
  assert averages == {
    'sentence_pair': 84.15,
    'structured': 73.3,
    'question_answering': 68.62,
    'average': 75.36,
    'task_mean': 74.39,
  }
  assert not any(average.is_partial for average in REMBERT.averages().values())


def test_every_row_of_table_16_has_every_task_and_average():
  assert [row.name for row in PAPER] == ['RemBERT', 'XLM-R', 'VECO', 'FILTER', 'STiLTs']
  for row in PAPER:
    assert set(row.scores) == set(TASKS)
    assert set(row.stated) == set(row.averages())


def test_half_of_a_question_answering_score_is_none():
  scores = {'xnli': TaskScore(65.4), 'pawsx': TaskScore(81.9), 'xquad': TaskScore(64.5)}
  mbert = LeaderboardRow('mBERT', scores, {'udpos': 'not printed'})
  assert mbert.value('xquad') is None
  assert leaderboard.cell(mbert, 'xquad') == '–/64.5'
  assert mbert.reasons()['xquad'] == 'only F1 is known'
  assert mbert.reasons()['udpos'] == 'not printed'
  assert mbert.averages()['question_answering'].value is None
  assert mbert.averages()['sentence_pair'].value == pytest.approx((65.4 + 81.9) / 2)


# --- averages -----------------------------------------------------------------


@given(st.fixed_dictionaries({task: st.tuples(SCORE, SCORE) for task in TASKS}))
def test_averages_are_means_of_means(values):
  halves = ('xquad', 'mlqa', 'tydiqa')
  row = LeaderboardRow('x', {task: TaskScore(f1, em if task in halves else None) for task, (em, f1) in values.items()})
  worth = {task: (em + f1) / 2 if task in halves else f1 for task, (em, f1) in values.items()}
  categories = [statistics.mean(worth[task] for task in tasks) for tasks in CATEGORIES.values()]
  averages = row.averages()
  assert averages['average'].value == pytest.approx(statistics.mean(categories))
  assert averages['task_mean'].value == pytest.approx(statistics.mean(worth.values()))
  assert not averages['average'].is_partial


def test_an_average_over_fewer_tasks_says_so():
  row = LeaderboardRow(
    'x', {'xnli': TaskScore(70.0), 'pawsx': TaskScore(80.0), 'udpos': TaskScore(60.0)}, {'panx': 'no labels'}
  )
  averages = row.averages()
  assert (averages['sentence_pair'].value, averages['sentence_pair'].is_partial) == (75, False)
  assert (averages['structured'].value, averages['structured'].over) == (60, ('udpos',))
  assert averages['structured'].is_partial
  assert averages['question_answering'].value is None
  assert averages['average'].over == ('sentence_pair', 'structured')
  assert averages['average'].is_partial
  assert (averages['task_mean'].value, averages['task_mean'].is_partial) == (70, True)
  assert row.reasons()['panx'] == 'no labels'
  assert row.reasons()['mlqa'] == 'not evaluated'


def test_a_mean_over_fewer_languages_makes_all_above_it_partial():
  scores = dict(REMBERT.scores) | {'xnli': TaskScore(80.8, None, 5, 15)}
  averages = LeaderboardRow('x', scores).averages()
  assert averages['average'].value == pytest.approx(REMBERT.averages()['average'].value)
  assert [name for name, average in averages.items() if average.is_partial] == ['sentence_pair', 'average', 'task_mean']


def test_retrieval_is_in_no_average():
  with_retrieval = LeaderboardRow('x', dict(REMBERT.scores) | {'tatoeba': TaskScore(1.0), 'bucc2018': TaskScore(1.0)})
  assert with_retrieval.averages() == REMBERT.averages()


# --- from languages -----------------------------------------------------------


def test_a_row_is_made_of_the_scores_of_languages_averaged_over_runs():
  questions = {language: {'exact_match': 50.0, 'f1': 60.0, 'seconds': 3.0} for language in LANGUAGES['xquad']}
  runs = [{'de': {'accuracy': 69.0 + seed}, 'en': {'accuracy': 79.0 + seed}} for seed in (0, 2)]
  row = leaderboard_row('x', {'xnli': runs, 'xquad': [questions]}, {'mlqa': 'no data'})
  assert row.scores['xnli'] == TaskScore(75, None, 2, 15)
  assert row.scores['xnli'].is_partial
  assert row.scores['xquad'] == TaskScore(60, 50, 11, 11)
  assert not row.scores['xquad'].is_partial
  assert row.value('xquad') == 55
  assert row.reasons()['mlqa'] == 'no data'


# --- languages and seeds ------------------------------------------------------


def test_the_gap_is_english_less_the_mean_of_the_others():
  summary = summarise([{'en': 80.0, 'de': 70.0, 'sw': 50.0}])
  assert {name: found.mean for name, found in summary.items()} == {
    **{'en': 80, 'de': 70, 'sw': 50},
    **{'mean': pytest.approx(200 / 3), 'transfer gap': 20},
  }
  assert summary['transfer gap'].deviation is None


@given(st.lists(st.fixed_dictionaries({'en': SCORE, 'de': SCORE, 'th': SCORE}), min_size=2, max_size=6))
def test_over_seeds_there_are_mean_and_deviation(runs):
  summary = summarise(runs)
  means = [sum(run.values()) / 3 for run in runs]
  gaps = [run['en'] - (run['de'] + run['th']) / 2 for run in runs]
  for name, values in {'mean': means, 'transfer gap': gaps, 'th': [run['th'] for run in runs]}.items():
    found = summary[name]
    mean = sum(values) / len(values)
    deviation = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    assert found.mean == pytest.approx(mean, abs=1e-6)
    assert found.deviation == pytest.approx(deviation, abs=1e-6)
    assert found.runs == len(runs)


def test_without_english_or_without_others_there_is_no_gap():
  assert list(summarise([{'de': 1.0}])) == ['de', 'mean']
  assert list(summarise([{'en': 1.0}])) == ['en', 'mean']


# --- tables: every score next to the paper's, and a word on all that is missing

PARTIAL = LeaderboardRow(
  'mine',
  {
    'xnli': TaskScore(70.04, None, 3, 15),
    'pawsx': TaskScore(80.0, None, 7, 7),
    'xquad': TaskScore(60.0, 40.0, 11, 11),
    'tatoeba': TaskScore(41.26, None, 36, 36),
  },
  {'mlqa': 'no gold labels'},
)


def shown(*arguments):
  """What `show_row` prints into 80 columns."""
  console = Console(console=rich.console.Console(file=io.StringIO(), width=80, highlight=False))
  leaderboard.show_row(console, *arguments)
  return console.rich.file.getvalue()


def cells(text, name):
  """The cells of the row that begins with a name."""
  (line,) = [line for line in text.splitlines() if line.startswith(f' {name}')]
  return line.replace(name, '', 1).split()


def test_scores_are_next_to_the_papers_and_missing_ones_reported_with_the_reason():
  text = shown(PARTIAL)
  assert cells(text, 'XNLI ') == ['70.0*', '80.8', '79.2']
  assert cells(text, 'XQuAD') == ['40.0/60.0', '64.0/79.6', '60.8/76.6']
  assert cells(text, 'TyDi QA ') == ['–', '63.0/77.0', '45.0/65.1']
  assert cells(text, '= pairs') == ['75.0*', '84.2', '82.8']
  assert cells(text, '= structured') == ['–', '73.3', '69.0']
  assert cells(text, '= questions') == ['50.0*', '68.6', '62.3']
  assert cells(text, '(Tatoeba)') == ['41.3', '–', '–']
  assert cells(text, 'Avg ') == ['62.5*', '75.4', '71.4']
  assert cells(text, 'Avg_task ') == ['66.7*', '74.4', '70.1']
  lines = text.splitlines()
  assert 'MLQA is missing: no gold labels' in lines
  assert 'POS is missing: not evaluated' in lines
  assert '* XNLI: 3 of 15 languages, not comparable' in lines
  assert '* pairs: over tasks of which parts are missing, not comparable' in lines
  assert '* questions: over 1 of 3 tasks, not comparable' in lines
  assert '* Avg: over 2 of 3 categories, not comparable' in lines
  assert '* Avg_task: over 3 of 7 tasks, not comparable' in lines


def test_of_a_whole_row_nothing_is_to_be_told():
  whole = LeaderboardRow('mine', REMBERT.scores)
  assert leaderboard.remarks(whole) == []
  text = shown(whole, ())
  assert '*' not in text
  assert 'missing' not in text
  assert cells(text, 'Avg ') == ['75.4']


def test_the_file_says_what_averages_are_over(tmp_path):
  leaderboard.write_row(PARTIAL, tmp_path)
  found = json.loads((tmp_path / 'xtreme.json').read_text())
  assert found['scores']['xquad']['value'] == 50
  assert found['averages']['average'] == {
    'value': pytest.approx(62.51, abs=1e-9),
    'over': ['sentence_pair', 'question_answering'],
    'is_partial': True,
  }
  assert found['missing'] == {
    **dict.fromkeys(('udpos', 'panx', 'tydiqa'), 'not evaluated'),
    'mlqa': 'no gold labels',
  }
