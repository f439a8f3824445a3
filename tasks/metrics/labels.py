"""Scores of labels and numbers: accuracy, F1 by label, correlations, and F1 over chunks of a sequence of tags.

XTREME's `evaluate.py` gets the last from seqeval.

A chunk is a stretch of words with one type; it is right if type, first and last word are. Counts are summed over the
whole corpus before anything is divided (micro average). seqeval reads a tag as a prefix, which is its first letter, and
a type, which is what stands behind its last hyphen: `B-LOC` begins or continues a `LOC`. Tags that are no IOB follow
the same two rules, and this is how XTREME scores parts of speech: a tag without a hyphen is its own type, so that equal
neighbours are one chunk (`NOUN NOUN`), unless the tag begins with S, which is always a chunk by itself (`SYM SYM` are
two). Accuracy per word would be another number.

The rules here are seqeval 0.0.12's, of 2019, which XTREME's evaluation was written for. seqeval 1.2.2, its last
release (2020), cuts the first letter off a tag without a hyphen, so that SCONJ and CCONJ are one type, and gives other
scores for UDPOS. Neither is a dependency: both are published as source only, and pip builds them with the newest
setuptools_scm, which fails. `make parity` builds 0.0.12 with an older one and compares; tests/golden has what it
computed.
"""

import collections
import operator
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

_OUTSIDE = 'O'


class Chunk(NamedTuple):
  """Type, and the first and the last place of a stretch of tags."""

  type: str
  first: int
  last: int


def accuracy(gold: Sequence[Any], predicted: Sequence[Any]) -> float:
  """Percent of the places where both are equal, 0 to 100; ValueError if the two differ in length, or are empty."""
  if not gold:
    raise ValueError('accuracy of nothing')
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
  """Pearson's and Spearman's coefficients × 100, `pearson` and `spearman`; 0 where one of the two is constant."""
  from scipy import stats

  if len(set(gold)) < 2 or len(set(predicted)) < 2:
    return {'pearson': 0.0, 'spearman': 0.0}
  functions = {'pearson': stats.pearsonr, 'spearman': stats.spearmanr}
  return {name: 100 * float(function(gold, predicted).statistic) for name, function in functions.items()}


def chunks(sentences: Sequence[Sequence[str]]) -> set[Chunk]:
  """Chunks of a corpus of tags, each of at least one letter.

  Places count on through the sentences, with one between any two; no chunk crosses it.
  """
  return set(_chunks(sentences))


def chunk_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
  """`f1`, `precision` and `recall`, 0 to 100; 0 where there is nothing to divide by.

  Raises:
    ValueError: not the same number of sentences, or of tags in one.
  """
  for left, right in zip(gold, predicted, strict=True):
    if len(left) != len(right):
      raise ValueError(f'{len(right)} tags are predicted for {len(left)} words')
  gold_chunks, predicted_chunks = chunks(gold), chunks(predicted)
  right = len(gold_chunks & predicted_chunks)
  precision = right / len(predicted_chunks) if predicted_chunks else 0.0
  recall = right / len(gold_chunks) if gold_chunks else 0.0
  f1 = 2 * precision * recall / (precision + recall) if right else 0.0
  return {'f1': 100 * f1, 'precision': 100 * precision, 'recall': 100 * recall}


def _chunks(sentences: Sequence[Sequence[str]]) -> Iterator[Chunk]:
  first = place = 0
  prefix, kind = _OUTSIDE, ''
  for sentence in sentences:
    for tag in (*sentence, _OUTSIDE):
      next_prefix, next_kind = tag[0], tag.rsplit('-', 1)[-1]
      is_other_kind = kind != next_kind
      if _ends(prefix, next_prefix, is_other_kind):
        yield Chunk(kind, first, place - 1)
      if _begins(prefix, next_prefix, is_other_kind):
        first = place
      prefix, kind, place = next_prefix, next_kind, place + 1


def _ends(prefix: str, next_prefix: str, is_other_kind: bool) -> bool:
  """Whether a chunk ends between two tags: E and S close theirs whatever follows, a new type closes any."""
  return (
    prefix in ('E', 'S')
    or (prefix in ('B', 'I') and next_prefix in ('B', 'S', 'O'))
    or (prefix not in ('O', '.') and is_other_kind)
  )


def _begins(prefix: str, next_prefix: str, is_other_kind: bool) -> bool:
  """Whether a chunk begins between two tags: also with I or E, if no chunk is open that they could continue."""
  return (
    next_prefix in ('B', 'S')
    or (prefix in ('E', 'S', 'O') and next_prefix in ('E', 'I'))
    or (next_prefix not in ('O', '.') and is_other_kind)
  )
