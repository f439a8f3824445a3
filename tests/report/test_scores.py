"""The tidy table has every score once; the selection takes the best learning rate and complete languages."""

import pathlib

import pytest

from rembert.report.load import FINE_TUNING, Model, Run, Source
from rembert.report.scores import Results


def finetuned(task, languages, *, seed=0, pretrain_seed=0, rate=None, dev=None, variant='', results=None):
  entry = lambda value: value if isinstance(value, dict) else {'scores': {'f1': value}, 'baseline': {'f1': 1.0}}
  content = {'task': task, 'tasks': {task: {language: entry(value) for language, value in languages.items()}}}
  content['dev'] = None if dev is None else {'f1': dev}
  content = content if results is None else results
  return planned(task, seed, pretrain_seed=pretrain_seed, variant=variant, learning_rate=rate, results=content)


def planned(task, seed, **fields):
  return Run('x', pathlib.Path('x'), FINE_TUNING, seed=seed, task=task, evaluated=(task,), **fields)


def results_of(*runs):
  return Results([Source('folder', 'XTREME', (Model('m', plan=runs),))])


def values(results, task='panx', variant=''):
  """Seeds to language to score."""
  return results.by_seed(results.models[0], task, variant).to_dict('index')


def test_seeds_are_rows_of_one_table():
  runs = [
    finetuned('panx', {'en': 70.0 + seed, 'de': 50.0}, seed=seed % 2, pretrain_seed=seed // 2) for seed in range(4)
  ]
  results = results_of(*runs)
  assert values(results) == {
    (0, 0): {'en': 70.0, 'de': 50.0},
    (0, 1): {'en': 71.0, 'de': 50.0},
    (1, 0): {'en': 72.0, 'de': 50.0},
    (1, 1): {'en': 73.0, 'de': 50.0},
  }
  assert set(results.worths['baseline']) == {1.0}
  (spread,) = results.by_metric(results.models[0], 'panx')
  assert (spread.mean, spread.runs) == (60.75, 4)
  assert results.progress['m', '', 'panx'].learning_rate == ''


def test_the_learning_rate_that_did_best_on_dev_is_taken_and_not_the_best_on_test():
  results = results_of(
    finetuned('panx', {'en': 90.0}, rate=1e-5, dev=60.0),
    finetuned('panx', {'en': 91.0}, rate=1e-5, dev=62.0, seed=1),
    finetuned('panx', {'en': 50.0}, rate=2e-5, dev=61.5),
    finetuned('panx', {'en': 52.0}, rate=2e-5, dev=61.0, seed=1),
    finetuned('panx', {'en': 99.0}, rate=3e-5),  # nothing was selected on dev: never the best
  )
  progress = results.progress['m', '', 'panx']
  assert (progress.learning_rate, progress.done, progress.planned) == ('2e-05', 2, 2)
  assert values(results) == {(0, 0): {'en': 50.0}, (0, 1): {'en': 52.0}}


def test_languages_that_not_every_seed_has_yet_are_left_out_and_named():
  results = results_of(
    finetuned('panx', {'en': 70.0, 'de': 50.0}),
    finetuned('panx', {'en': 72.0}, seed=1),
    planned('panx', 2),
  )
  progress = results.progress['m', '', 'panx']
  assert (progress.left_out, progress.done, progress.planned) == (('de',), 2, 3)
  assert values(results) == {(0, 0): {'en': 70.0}, (0, 1): {'en': 72.0}}


@pytest.mark.parametrize('task', ['xquad', 'squad'])
def test_questions_are_worth_the_mean_of_both_scores(task):
  scores = {'f1': 60.0, 'exact_match': 40.0, 'seconds': 3.0}
  results = results_of(finetuned(task, {'en': {'scores': scores}}))
  assert values(results, task) == {(0, 0): {'en': 50.0}}
  assert [each.mean for each in results.by_metric(results.models[0], task)] == [40.0, 60.0]


def test_results_without_scores_are_no_scores():
  entries = [None, {'panx': None}, {'panx': {'en': None}}, {'panx': {'en': {'scores': None}}}]
  entries += [{'panx': {'en': {'scores': {'f1': value}}}} for value in ('<b>', float('nan'), True)]
  for content in ({}, {'task': 'panx', 'languages': [1], 'mean_over': 'en'}, *({'tasks': each} for each in entries)):
    results = results_of(finetuned('panx', {}, results=content))
    assert (results.progress, results.worths.empty) == ({}, True)
