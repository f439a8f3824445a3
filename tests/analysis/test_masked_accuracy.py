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


def test_every_masked_position_counts_once():
  batches = random_batches()
  random = np.random.default_rng(1)
  positions = collections.defaultdict(list)  # language to (right, loss, target)
  rows = collections.Counter()
  for batch in batches:
    for row in range(5):
      rows[batch['language'][row]] += bool(batch['weights'][row].any())
      for slot in range(4):
        if batch['weights'][row, slot]:
          seen = (random.random() < 0.3, random.exponential(), int(batch['targets'][row, slot]))
          positions[int(batch['language'][row])].append(seen)
  columns = lambda index: np.array([sum(seen[index] for seen in positions[number]) for number in range(3)], float)
  sums = LossSums(loss=columns(1), correct=columns(0), weight=np.array([len(positions[n]) for n in range(3)], float))

  found, whole = masked_accuracy(sums, batches, LANGUAGES, VOCAB)
  assert list(found) == ['sw', 'th']
  for name, number in (('sw', 0), ('th', 2)):
    seen = positions[number]
    assert (found[name]['rows'], found[name]['positions']) == (rows[number], len(seen))
    assert found[name]['accuracy'] == pytest.approx(100 * sum(right for right, _, _ in seen) / len(seen))
    assert found[name]['loss'] == pytest.approx(sum(loss for _, loss, _ in seen) / len(seen))
    most = collections.Counter(target for _, _, target in seen).most_common(1)[0][1]
    assert found[name]['most_frequent'] == pytest.approx(100 * most / len(seen))
  every = [seen for number in (0, 2) for seen in positions[number]]
  assert whole['positions'] == len(every)
  assert whole['accuracy'] == pytest.approx(100 * sum(right for right, _, _ in every) / len(every))
  assert whole['rows'] == 9


def test_sums_of_other_batches_are_refused():
  with pytest.raises(ValueError, match='different batches'):
    masked_accuracy(LossSums(*(np.ones(3) for _ in range(3))), random_batches(), LANGUAGES, VOCAB)
