"""Share of right answers, by t5's implementation, as XTREME's `evaluate.py` scores XNLI and PAWS-X."""

from collections.abc import Sequence
from typing import Any


def accuracy(gold: Sequence[Any], predicted: Sequence[Any]) -> float:
  """Percent of the places where both are equal, 0 to 100.

  Raises:
    ValueError: the two differ in length, or are empty.
  """
  if not gold:
    raise ValueError('accuracy of nothing')
  if len(gold) != len(predicted):
    raise ValueError(f'{len(predicted)} predictions for {len(gold)} labels')
  from tasks.tensorflow_import import tensorflow  # noqa: F401 - before t5 imports it in its own way

  # isort: split
  from t5.evaluation import metrics

  return float(metrics.accuracy(gold, predicted)['accuracy'])
