"""Chunks and their F1: what seqeval 0.0.12 computed, kept as a file, and the rules one by one.

The file is made by `make golden`; `make parity` compares live.
"""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval_cases import GOLDEN_FILE, IOB, PARTS_OF_SPEECH, TOLERANCE
from sklearn import metrics as sklearn_metrics

from tasks.metrics.labels import Chunk, accuracy, chunk_scores, chunks, correlations, macro_f1

CASES = json.loads(GOLDEN_FILE.read_text())


def test_the_file_holds_cases_of_every_kind():
  tags = {tag for case in CASES for sentence in case['gold'] for tag in sentence}
  assert len(CASES) > 200
  assert tags >= {*IOB, *PARTS_OF_SPEECH}
  assert any(0 < case['f1'] < 1 and case['precision'] != case['recall'] for case in CASES)


def test_scores_are_those_of_seqeval():
  for case in CASES:
    scores = chunk_scores(case['gold'], case['predicted'])
    assert set(scores) == {'f1', 'precision', 'recall'}
    for name, score in scores.items():
      assert score == pytest.approx(100 * case[name], rel=0, abs=100 * TOLERANCE), case


@pytest.mark.parametrize(
  ('tags', 'expected'),
  [
    ('B-PER I-PER O B-LOC', {('PER', 0, 1), ('LOC', 3, 3)}),
    ('B-PER B-PER', {('PER', 0, 0), ('PER', 1, 1)}),
    ('I-PER I-PER', {('PER', 0, 1)}),
    ('B-PER I-LOC', {('PER', 0, 0), ('LOC', 1, 1)}),
    ('O O', set()),
    ('NOUN NOUN VERB', {('NOUN', 0, 1), ('VERB', 2, 2)}),
    ('PRON PROPN', {('PRON', 0, 0), ('PROPN', 1, 1)}),
    ('SYM SYM', {('SYM', 0, 0), ('SYM', 1, 1)}),
    ('SCONJ CCONJ', {('SCONJ', 0, 0), ('CCONJ', 1, 1)}),
    ('INTJ INTJ', {('INTJ', 0, 1)}),
  ],
)
def test_chunks_of_a_sentence(tags, expected):
  assert chunks([tags.split()]) == {Chunk(*chunk) for chunk in expected}


def test_no_chunk_continues_into_the_next_sentence():
  assert chunks([['B-PER'], ['I-PER']]) == {Chunk('PER', 0, 0), Chunk('PER', 2, 2)}
  assert chunks([['NOUN'], [], ['NOUN']]) == {Chunk('NOUN', 0, 0), Chunk('NOUN', 3, 3)}


def test_predictions_of_another_shape_are_an_error():
  with pytest.raises(ValueError, match='2 tags are predicted for 1 words'):
    chunk_scores([['O']], [['O', 'O']])
  with pytest.raises(ValueError, match='argument 2'):
    chunk_scores([['O'], ['O']], [['O']])


# --- accuracy ---------------------------------------------------------------------------------------------------------


def test_accuracy_is_percent_of_equal_places():
  assert accuracy(['a', 'b', 'a', 'c'], ['a', 'a', 'a', 'c']) == 75.0


def test_accuracy_of_nothing_or_of_unlike_lengths_is_an_error():
  with pytest.raises(ValueError, match='no labels'):
    accuracy([], [])
  with pytest.raises(ValueError, match='1 predictions for 2'):
    accuracy(['a', 'b'], ['a'])


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.sampled_from('abc')] * 2), min_size=1, max_size=40))
def test_accuracy_is_that_of_t5_to_the_last_bit(pairs):
  from t5.evaluation import metrics

  gold, predicted = map(list, zip(*pairs, strict=True))
  assert accuracy(gold, predicted) == metrics.accuracy(gold, predicted)['accuracy']


# --- labels and numbers -----------------------------------------------------------------------------------------------


def test_macro_f1_is_scikit_learns():
  random = np.random.default_rng(0)
  gold, predicted = random.integers(0, 5, 60).tolist(), random.integers(0, 4, 60).tolist()
  assert macro_f1(gold, predicted) == pytest.approx(100 * sklearn_metrics.f1_score(gold, predicted, average='macro'))


def test_correlations_are_numpys_and_those_of_ranks_and_of_a_constant_zero():
  gold, predicted = [1.0, 2.0, 3.0, 5.0], [0.1, 0.7, 0.5, 9.0]
  pearson, spearman = np.corrcoef(gold, predicted)[0, 1], np.corrcoef([1, 2, 3, 4], [1, 3, 2, 4])[0, 1]
  assert correlations(gold, predicted) == pytest.approx({'pearson': 100 * pearson, 'spearman': 100 * spearman})
  assert correlations(gold, [2.0] * 4) == {'pearson': 0.0, 'spearman': 0.0}
