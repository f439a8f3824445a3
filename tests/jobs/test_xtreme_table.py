"""The table: every score beside the paper's, and a word on all that is missing."""

import io
import json

import pytest
import rich.console

from rembert.jobs import xtreme_table
from rembert.jobs.xtreme_results import FAIR, PAPER, REMBERT, LeaderboardRow, TaskScore, leaderboard_row, summarise
from rembert.tracking.console import Console

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


@pytest.fixture
def shown():
  """Function (show, *arguments) → what it prints into 80 columns."""

  def run(show, *arguments):
    console = Console(console=rich.console.Console(file=io.StringIO(), width=80, highlight=False))
    show(console, *arguments)
    return console.rich.file.getvalue()

  return run


def cells(text, name):
  """The cells of the row that begins with a name."""
  (line,) = [line for line in text.splitlines() if line.startswith(f' {name}')]
  return line.replace(name, '', 1).split()


def test_scores_stand_beside_the_papers(shown):
  text = shown(xtreme_table.show, PARTIAL)
  assert cells(text, 'XNLI ') == ['70.0*', '80.8', '79.2']
  assert cells(text, 'XQuAD') == ['40.0/60.0', '64.0/79.6', '60.8/76.6']
  assert cells(text, 'TyDi QA ') == ['–', '63.0/77.0', '45.0/65.1']
  assert cells(text, '= pairs') == ['75.0*', '84.2', '82.8']
  assert cells(text, '= structured') == ['–', '73.3', '69.0']
  assert cells(text, '= questions') == ['50.0*', '68.6', '62.3']
  assert cells(text, '(Tatoeba)') == ['41.3', '–', '–']
  assert cells(text, 'Avg ') == ['62.5*', '75.4', '71.4']
  assert cells(text, 'Avg_task ') == ['66.7*', '74.4', '70.1']


def test_what_is_missing_is_told_with_its_reason(shown):
  lines = shown(xtreme_table.show, PARTIAL).splitlines()
  assert 'MLQA is missing: no gold labels' in lines
  assert 'POS is missing: not judged' in lines
  assert '* XNLI: 3 of 15 languages, not comparable' in lines
  assert '* pairs: over tasks of which parts are missing, not comparable' in lines
  assert '* questions: over 1 of 3 tasks, not comparable' in lines
  assert '* Avg: over 2 of 3 categories, not comparable' in lines
  assert '* Avg_task: over 3 of 7 tasks, not comparable' in lines
  assert 'XLM-R: structured is printed as 69.0, and the printed scores give 69.60' in lines


def test_of_a_whole_row_nothing_is_to_be_told(shown):
  whole = LeaderboardRow('mine', REMBERT.scores)
  assert xtreme_table.remarks(whole) == []
  text = shown(xtreme_table.show, whole, ())
  assert '*' not in text
  assert 'missing' not in text
  assert cells(text, 'Avg ') == ['75.4']


def test_rows_without_a_score_have_a_dash(shown):
  text = shown(xtreme_table.show, LeaderboardRow('mT5-XXL', {'tydiqa': TaskScore(82.0)}), FAIR)
  assert cells(text, 'TyDi QA ') == ['–/82.0', '63.0/77.0', '45.0/65.1']
  assert 'TyDi QA is missing: F1 alone is known' in text


def test_markdown_has_all_rows_of_the_paper():
  lines = xtreme_table.markdown(PARTIAL).splitlines()
  assert lines[0] == '|  | mine | RemBERT | XLM-R | VECO | FILTER | STiLTs |'
  assert lines[1] == '| --- |' + ' ---: |' * (1 + len(PAPER))
  assert '| NER | – | 70.1 | 65.4 | 65.7 | 67.7 | 64.0 |' in lines
  assert '- MLQA is missing: no gold labels' in lines
  assert all(line.count('|') == 8 for line in lines if line.startswith('|'))
  assert '| a/b |' in xtreme_table.markdown(LeaderboardRow('a|b', {}), ()).splitlines()[0]


def test_json_says_what_averages_are_over(tmp_path):
  xtreme_table.write(PARTIAL, tmp_path)
  found = json.loads((tmp_path / 'xtreme.json').read_text())
  assert found['scores']['xquad']['value'] == 50
  assert found['averages']['average'] == {
    'value': pytest.approx(62.51, abs=1e-9),
    'over': ['sentence_pair', 'question_answering'],
    'is_partial': True,
  }
  assert found['missing'] == {
    'udpos': 'not judged',
    'panx': 'not judged',
    'mlqa': 'no gold labels',
    'tydiqa': 'not judged',
  }
  assert (tmp_path / 'xtreme.md').read_text() == xtreme_table.markdown(PARTIAL)


def test_a_row_of_nothing_is_a_table_of_dashes(shown):
  text = shown(xtreme_table.show, leaderboard_row('mine', {}), ())
  assert cells(text, 'Avg ') == ['–']
  assert text.count('is missing') == 7


# --- one task -----------------------------------------------------------------


def test_a_task_by_language_ends_with_mean_english_and_gap(shown):
  summary = summarise([{'sw': 50.0, 'en': 80.0, 'de': 70.0}, {'sw': 54.0, 'en': 82.0, 'de': 70.0}])
  text = shown(xtreme_table.show_task, 'xnli', summary)
  assert text.startswith('XNLI, 3 languages')
  assert 'mean ± sd, 2 seeds' in text
  assert cells(text, 'de ') == ['70.0', '±', '0.0']
  assert cells(text, 'sw ') == ['52.0', '±', '2.8']
  assert cells(text, 'mean ') == ['67.7', '±', '1.4']
  assert cells(text, 'English  ') == ['81.0', '±', '1.4']
  assert cells(text, 'English less the others') == ['20.0', '±', '0.0']
  assert text.index('en ') < text.index('de ') < text.index('sw ')


def test_a_single_seed_has_no_deviation(shown):
  text = shown(xtreme_table.show_task, 'panx', summarise([{'en': 80.0, 'de': 70.0}]))
  assert '±' not in text
  assert text.startswith('NER, 2 languages')
  assert '| English less the others | 10.0 |' in xtreme_table.task_markdown(
    'panx', summarise([{'en': 80.0, 'de': 70.0}])
  )
