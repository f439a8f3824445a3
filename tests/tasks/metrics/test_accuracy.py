import pytest

from tasks.metrics.accuracy import accuracy


def test_accuracy_is_percent_of_equal_places():
  assert accuracy(['a', 'b', 'a', 'c'], ['a', 'a', 'a', 'c']) == 75.0


def test_accuracy_of_nothing_or_of_unlike_lengths_is_an_error():
  with pytest.raises(ValueError, match='nothing'):
    accuracy([], [])
  with pytest.raises(ValueError, match='1 predictions for 2'):
    accuracy(['a', 'b'], ['a'])
