"""Scores of the best learning rate, over the seeds and languages that are there."""

import pathlib

import pytest

from rembert.report.reading import Learned, Model
from rembert.report.runs import Run
from rembert.report.scores import dev_score, task_scores, variants, worth


def learned(task, languages, *, seed=0, rate=None, dev=None, variant='', judged=None, results=None):
  entry = lambda value: value if isinstance(value, dict) else {'scores': {'f1': value}, 'baseline': {'f1': 1.0}}
  content = {'task': task, 'tasks': {task: {language: entry(value) for language, value in languages.items()}}}
  content['dev'] = None if dev is None else {'f1': dev}
  run = Run('x', pathlib.Path('x'), results=content if results is None else results)
  return Learned(0, seed, task, judged or (task,), variant, rate, run)


def test_seeds_are_side_by_side():
  model = Model(
    'm', learned=(learned('panx', {'en': 70.0, 'de': 50.0}), learned('panx', {'en': 72.0, 'de': 54.0}, seed=1))
  )
  scores = task_scores(model)['panx']
  assert scores.values() == {(0, 0): {'en': 70.0, 'de': 50.0}, (0, 1): {'en': 72.0, 'de': 54.0}}
  assert scores.baseline == {'en': {'f1': 1.0}, 'de': {'f1': 1.0}}
  summary = scores.summary()
  assert (summary.mean.mean, summary.gap.mean, summary.mean.runs) == (61.5, 19.0, 2)
  assert scores.learning_rate is None


def test_the_learning_rate_that_did_best_on_dev_is_taken_and_not_the_best_on_test():
  runs = [
    learned('panx', {'en': 90.0}, rate=1e-5, dev=60.0),
    learned('panx', {'en': 50.0}, rate=2e-5, dev=61.0),
    learned('panx', {'en': 52.0}, rate=2e-5, dev=62.0, seed=1),
    learned('panx', {'en': 99.0}, rate=3e-5),  # nothing was chosen on dev: never the best
  ]
  scores = task_scores(Model('m', learned=tuple(runs)))['panx']
  assert (scores.learning_rate, scores.planned) == (2e-5, 2)
  assert scores.values() == {(0, 0): {'en': 50.0}, (0, 1): {'en': 52.0}}


def test_languages_that_not_every_seed_has_yet_are_left_out_and_named():
  model = Model('m', learned=(learned('panx', {'en': 70.0, 'de': 50.0}), learned('panx', {'en': 72.0}, seed=1)))
  scores = task_scores(model)['panx']
  assert (scores.languages, scores.left_out) == (['en'], ('de',))


def test_variants_are_apart():
  model = Model('m', learned=(learned('panx', {'en': 70.0}), learned('panx', {'en': 30.0}, variant='a.b=1')))
  assert variants(model) == ['', 'a.b=1']
  assert task_scores(model)['panx'].values() == {(0, 0): {'en': 70.0}}
  assert task_scores(model, 'a.b=1')['panx'].values() == {(0, 0): {'en': 30.0}}


def test_questions_are_worth_the_mean_of_both_scores():
  assert worth('xquad', {'f1': 60.0, 'exact_match': 40.0, 'seconds': 3.0}) == 50.0
  assert worth('squad', {'f1': 60.0, 'exact_match': 40.0}) == 50.0
  assert worth('pawsx', {'accuracy': 80.0}) == 80.0
  assert worth('something new', {'score': 7.0}) == 7.0


def test_retrieval_counts_over_the_languages_with_labels():
  results = {
    'task': 'tatoeba',
    'languages': {'de': {'accuracy': 40.0, 'chance': 0.1}, 'fr': {'chance': 0.1}},
    'mean_over': ['de'],
  }
  scores = task_scores(Model('m', learned=(learned('tatoeba', {}, results=results),)))['tatoeba']
  assert scores.values() == {(0, 0): {'de': 40.0}}


@pytest.mark.parametrize(
  'results',
  [
    {},
    {'tasks': None},
    {'tasks': {'panx': None}},
    {'tasks': {'panx': {'en': None}}},
    {'tasks': {'panx': {'en': {'scores': None}}}},
    {'tasks': {'panx': {'en': {'scores': {'f1': '<b>'}}}}},
    {'tasks': {'panx': {'en': {'scores': {'f1': float('nan')}}}}},
    {'task': 'panx', 'languages': [1], 'mean_over': 'en'},
  ],
)
def test_results_without_scores_are_no_scores(results):
  assert task_scores(Model('m', learned=(learned('panx', {}, results=results),))) == {}


def test_what_has_no_dev_score_has_none():
  assert dev_score(learned('panx', {'en': 1.0})) is None
  assert dev_score(learned('panx', {'en': 1.0}, dev=3)) == 3.0
  assert dev_score(Learned(0, 0, 'panx', ('panx',))) is None
