"""Share of right answers, as XTREME's `evaluate.py` scores XNLI, PAWS-X and Tatoeba."""

from collections.abc import Sequence
from typing import Any


def accuracy(gold: Sequence[Any], predicted: Sequence[Any]) -> float:
  """Percent of the places where both are equal, 0 to 100.

  Raises:
    ValueError: the two differ in length, or are empty.
  """
  if not gold:
    raise ValueError('accuracy of nothing')
  return 100 * sum(left == right for left, right in zip(gold, predicted, strict=True)) / len(gold)
