"""Sums and targets by language, compared with a loop over every masked position."""

import collections

import numpy as np
import pytest

from rembert.analysis.masked_accuracy import masked_accuracy
from rembert.train.losses import LossSums

LANGUAGES = ('sw', 'de', 'th')
VOCAB = 20


def random_batches(seed=0):
  """Two batches of 5 rows and 4 slots; German has none, and the last row of the last batch only fills it."""
  random = np.random.default_rng(seed)
  batches = []
  for number in range(2):
    weights = (random.random((5, 4)) < 0.7).astype(np.float32)
    weights[:, 0] = 1
    if number == 1:
      weights[4] = 0
    language = random.choice([0, 2], 5).astype(np.int32)
    targets = random.integers(0, VOCAB, (5, 4)).astype(np.int32)
    batches.append({'weights': weights, 'language': language, 'targets': targets})
  return batches


def test_rows_and_positions_count_once_and_the_most_frequent_target_is_a_baseline():
  """What the logits amount to: tests/jobs/test_analyze.py."""
  batches = random_batches()
  targets = {number: collections.Counter() for number in range(3)}
  rows = collections.Counter()
  for batch in batches:
    for row, slot in np.argwhere(batch['weights'] > 0):
      targets[int(batch['language'][row])][int(batch['targets'][row, slot])] += 1
      rows[int(batch['language'][row])] += slot == 0
  weight = np.array([targets[number].total() for number in range(3)], float)
  found, whole = masked_accuracy(LossSums(2 * weight, weight / 4, weight), batches, LANGUAGES, VOCAB)
  assert list(found) == ['sw', 'th']
  for name, number in (('sw', 0), ('th', 2), ('all', None)):
    counts, score = (targets[number], found[name]) if name != 'all' else (targets[0] + targets[2], whole)
    assert (score['rows'], score['positions']) == (rows[number] if name != 'all' else 9, counts.total())
    assert (score['accuracy'], score['loss']) == pytest.approx((25, 2))
    assert score['most_frequent'] == pytest.approx(100 * counts.most_common(1)[0][1] / counts.total())


def test_sums_of_other_batches_are_refused():
  with pytest.raises(ValueError, match='different batches'):
    masked_accuracy(LossSums(*(np.ones(3) for _ in range(3))), random_batches(), LANGUAGES, VOCAB)
