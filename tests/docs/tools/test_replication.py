import statistics

import pytest

from docs.tools import replication
from docs.tools.rendering import with_tables
from rembert import paper

# Two models, two seeds; XQuAD is worth the mean of exact match and F1.
ROWS = """model,pre-training,fine-tuning,variant,task,language,measure,score,baseline
in768_out768,0,,,held-out text,all,loss,5.0,
in768_out768,1,,,held-out text,all,loss,5.5,
in768_out768,0,,,held-out text,de,loss,4.0,
in768_out768,0,,,held-out text,all,accuracy,12.0,
coupled768,0,,,held-out text,all,loss,4.75,
coupled768,1,,,held-out text,all,loss,5.0,
"""
SCORES = {
  'in768_out768': {0: {'de': 22.0, 'en': 60.0}, 1: {'de': 24.0, 'en': 62.0}},
  'coupled768': {0: {'de': 20.0, 'en': 57.0}, 1: {'de': 21.0, 'en': 58.0}},
}
for model, runs in SCORES.items():
  for seed, run in runs.items():
    for language, score in run.items():
      ROWS += f'{model},{seed},0,,udpos,{language},f1,{score},0.1\n'
      ROWS += f'{model},{seed},0,,udpos,{language},precision,99.0,0.1\n'
      ROWS += f'{model},{seed},0,,xquad,{language},exact_match,{score / 10},0\n'
      ROWS += f'{model},{seed},0,,xquad,{language},f1,{score / 5},0\n'


@pytest.fixture(scope='module')
def scores():
  return replication.read_scores('\ufeff' + ROWS)


def test_the_page_has_the_tables_of_the_scores_that_are_kept():
  text = replication.PAGE.read_text()
  kept = replication.read_scores(replication.SCORES.read_text())
  assert text == with_tables(text, replication.page_tables(kept))
  assert replication.PICTURE.stat().st_size > 10_000


def test_scores_are_read_with_what_they_are_worth(scores):
  assert scores.models == ('in768_out768', 'coupled768')
  assert scores.losses == {'in768_out768': {0: 5.0, 1: 5.5}, 'coupled768': {0: 4.75, 1: 5.0}}
  assert scores.tasks['coupled768']['udpos'][1, 0] == {'de': 21.0, 'en': 58.0}
  assert scores.tasks['coupled768']['xquad'][0, 0] == pytest.approx({'de': 3.0, 'en': 8.55})


def test_models_stand_there_with_size_loss_and_scores_of_each_seed(scores):
  first, second = replication.models_table(scores).splitlines()[2:]
  udpos, xquad = '42.0 (41.0 · 43.0)', '4.2/8.4 (6.2 · 6.5)'
  assert first == f'| `in768_out768` | 1.50M | 0.98M | 5.000 · 5.500 | {udpos} | — | — | {xquad} |'
  assert second.startswith('| `coupled768` | 0.99M | 0.98M | 4.750 · 5.000 | 39.0 (38.5 · 39.5) |')


def test_a_claim_is_a_difference_over_seeds_and_languages(scores):
  (claim, *_), found = replication.CLAIMS, replication.comparisons(scores)
  comparison, p = found[claim, 'udpos']
  differences = [2.0, 3.0, 3.0, 4.0]
  assert comparison.difference == pytest.approx(statistics.fmean(differences))
  assert (comparison.languages, comparison.seeds) == (2, 2)
  assert p == pytest.approx(1.0)  # 0.5, of two ways to flip two signs, and two of them asked
  row = replication.claims_table(scores).splitlines()[2]
  assert row.endswith('| +0.4 | +0.250 · +0.500 | +3.00 (1) | — | — | +0.45 (1) |')
  assert set(found) == {(claim, 'udpos'), (claim, 'xquad')}


def test_claims_are_between_rows_of_the_papers_tables():
  for claim in replication.CLAIMS:
    rows = {row.name for row in paper.TABLES[claim.table]}
    assert {claim.better, claim.worse} <= rows


def test_the_picture_is_drawn(scores):
  assert replication.picture(scores).startswith(b'\x89PNG')
