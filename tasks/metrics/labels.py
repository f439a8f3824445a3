"""Scores of labels and numbers: accuracy, F1 by label, correlations, and chunk F1 of tag sequences.

XTREME's `evaluate.py` uses seqeval for chunk F1. A chunk is a span of words with one type; it is correct if type, first
and last word match. Counts are summed over the whole corpus before division (micro average). seqeval splits a tag into
a prefix, its first letter, and a type, the part after its last hyphen: `B-LOC` begins or continues a `LOC`. Tags that
are not IOB follow the same rules, and this is how XTREME scores parts of speech: a tag without a hyphen is its own
type, so that equal neighbours are one chunk (`NOUN NOUN`), unless the tag begins with S, which is always a separate
chunk (`SYM SYM` are two). Accuracy per word would be another number.

The rules here are those of seqeval 0.0.12 (2019), for which XTREME's evaluation was written. seqeval 1.2.2, the last
release (2020), drops the first letter of a tag without a hyphen, so that SCONJ and CCONJ are one type, and gives other
scores for UDPOS. Neither is a dependency: both are published as source only, and building them with the newest
setuptools_scm fails. `make parity` builds 0.0.12 with an older one and compares; tests/golden has its results.
"""

import collections
import operator
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

_OUTSIDE = 'O'


class Chunk(NamedTuple):
  """Type, first and last position of a span of tags."""

  type: str
  first: int
  last: int


def accuracy(gold: Sequence[Any], predicted: Sequence[Any]) -> float:
  """Percentage of equal labels, 0 to 100; ValueError if lengths differ or there are no labels."""
  if not gold:
    raise ValueError('no labels')
  if len(gold) != len(predicted):
    raise ValueError(f'{len(predicted)} predictions for {len(gold)} labels')
  return 100 * (sum(map(operator.eq, gold, predicted)) / len(gold))


def macro_f1(gold: Sequence[Any], predicted: Sequence[Any]) -> float:
  """Unweighted mean of the F1 of each label that occurs in either, 0 to 100; ValueError as `accuracy`."""
  accuracy(gold, predicted)
  right = collections.Counter(label for label, found in zip(gold, predicted, strict=True) if label == found)
  both = collections.Counter(gold) + collections.Counter(predicted)
  return 100 * statistics.fmean(2 * right[label] / count for label, count in both.items())


def correlations(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
  """Pearson's and Spearman's coefficients × 100, `pearson` and `spearman`; 0 if one of the two is constant."""
  from scipy import stats

  if len(set(gold)) < 2 or len(set(predicted)) < 2:
    return {'pearson': 0.0, 'spearman': 0.0}
  functions = {'pearson': stats.pearsonr, 'spearman': stats.spearmanr}
  return {name: 100 * float(function(gold, predicted).statistic) for name, function in functions.items()}


def chunks(sentences: Sequence[Sequence[str]]) -> set[Chunk]:
  """The chunks of a corpus of tags; tags have at least one letter.

  Positions are counted through all sentences, with a gap between sentences that no chunk crosses.
  """
  found: set[Chunk] = set()
  first = place = 0
  prefix, kind = _OUTSIDE, ''
  for sentence in sentences:
    for tag in (*sentence, _OUTSIDE):
      next_prefix, next_kind = tag[0], tag.rsplit('-', 1)[-1]
      is_other_kind = kind != next_kind
      if _ends(prefix, next_prefix, is_other_kind):
        found.add(Chunk(kind, first, place - 1))
      if _begins(prefix, next_prefix, is_other_kind):
        first = place
      prefix, kind, place = next_prefix, next_kind, place + 1
  return found


def _ends(prefix: str, next_prefix: str, is_other_kind: bool) -> bool:
  """Whether a chunk ends between two tags: after E and S, and before a new type."""
  return (
    prefix in ('E', 'S')
    or (prefix in ('B', 'I') and next_prefix in ('B', 'S', 'O'))
    or (prefix not in ('O', '.') and is_other_kind)
  )


def _begins(prefix: str, next_prefix: str, is_other_kind: bool) -> bool:
  """Whether a chunk begins between two tags: also with I or E, if there is no chunk to continue."""
  return (
    next_prefix in ('B', 'S')
    or (prefix in ('E', 'S', 'O') and next_prefix in ('E', 'I'))
    or (next_prefix not in ('O', '.') and is_other_kind)
  )


def chunk_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
  """`f1`, `precision` and `recall`, 0 to 100; 0 for 0 / 0. ValueError if numbers of sentences or of tags differ."""
  for left, right in zip(gold, predicted, strict=True):
    if len(left) != len(right):
      raise ValueError(f'{len(right)} tags are predicted for {len(left)} words')
  gold_chunks, predicted_chunks = chunks(gold), chunks(predicted)
  right = len(gold_chunks & predicted_chunks)
  precision = right / len(predicted_chunks) if predicted_chunks else 0.0
  recall = right / len(gold_chunks) if gold_chunks else 0.0
  f1 = 2 * precision * recall / (precision + recall) if right else 0.0
  return {'f1': 100 * f1, 'precision': 100 * precision, 'recall': 100 * recall}
