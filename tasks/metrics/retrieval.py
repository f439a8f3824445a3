"""Retrieval of translations by embeddings: nearest neighbours, margin-based mining of pairs, and their scores.

Tatoeba requires the nearest neighbour (cosine). BUCC 2018 requires the pairs of translations in two sets of sentences,
most of which have none. XTREME mines them as LASER does (Artetxe & Schwenk 2019, "Margin-based parallel corpus
mining"): the score of a pair is its cosine, divided by the mean cosine of both sentences with their four nearest
neighbours.

N source sentences · M target sentences · H size of an embedding · K neighbours
"""

from collections.abc import Callable, Set
from typing import NamedTuple

import numpy as np

NEIGHBOURS = 4  # XTREME's `neighborhood`
_BLOCK_BYTES = 1 << 26  # of one block of similarities; a few of this size are in memory at a time
_SOURCES_AT_ONCE = 1024


class Neighbours(NamedTuple):
  """The K most similar vectors of the other side, best first; the lower index first on ties.

  [rows, K] each: `indices` int64, `similarity` float32 cosines.
  """

  indices: np.ndarray
  similarity: np.ndarray


class Candidates(NamedTuple):
  """Pairs by decreasing score, each source and target in at most one: int64, int64 and float64, [pairs] each."""

  source: np.ndarray
  target: np.ndarray
  score: np.ndarray


def unit_length(embeddings: np.ndarray) -> np.ndarray:
  """Normalises rows to length 1, float32; zero vectors stay zero, with similarity 0 to all."""
  embeddings = np.asarray(embeddings, np.float32)
  length = np.linalg.norm(embeddings, axis=-1, keepdims=True)
  return embeddings / np.where(length > 0, length, 1)


def nearest_neighbours(
  source: np.ndarray,
  target: np.ndarray,
  neighbours: int,
  *,
  block_bytes: int = _BLOCK_BYTES,
  on_progress: Callable[[float], None] = lambda fraction: None,
) -> tuple[Neighbours, Neighbours]:
  """Nearest neighbours by cosine of every source among the targets, and of every target among the sources.

  The N × M similarities are computed once, for both directions, a block of at most `block_bytes` at a time. ValueError
  if a side is empty, or an embedding is not finite.

  Args:
    source: [N, H].
    target: [M, H].
    neighbours: K; all if a side has fewer.
    block_bytes: memory for a block of similarities.
    on_progress: called with the fraction that is done.
  """
  if not len(source) or not len(target):
    raise ValueError('one side has no embeddings')
  x_NxH, y_MxH = unit_length(source), unit_length(target)
  if not (np.isfinite(x_NxH).all() and np.isfinite(y_MxH).all()):
    raise ValueError('embeddings must be finite')
  nothing = lambda rows, k: Neighbours(np.full((rows, k), -1, np.int64), np.full((rows, k), -np.inf, np.float32))
  of_sources = nothing(len(x_NxH), min(neighbours, len(y_MxH)))
  of_targets = nothing(len(y_MxH), min(neighbours, len(x_NxH)))
  rows = max(1, min(_SOURCES_AT_ONCE, block_bytes // 4))
  columns = max(1, block_bytes // (4 * rows))
  for i in range(0, len(x_NxH), rows):
    for j in range(0, len(y_MxH), columns):
      block = x_NxH[i : i + rows] @ y_MxH[j : j + columns].T
      _keep_best(of_sources, block, i, j)
      _keep_best(of_targets, block.T, j, i)
    on_progress(min(1.0, (i + rows) / len(x_NxH)))
  return of_sources, of_targets


def _keep_best(best: Neighbours, block: np.ndarray, first_row: int, first_column: int) -> None:
  """Merges a block of similarities into `best`; blocks of a row must come in the order of columns."""
  index, similarity = (part[first_row : first_row + len(block)] for part in best)
  k = index.shape[1]
  worst = similarity[:, -1]
  if block.shape[1] > k and np.isneginf(worst).any():  # nothing to compare with yet: preselects K candidates
    worst = np.maximum(worst, np.partition(block, -k, axis=1)[:, -k])
    row, column = np.nonzero(block >= worst[:, None])
  else:  # equal values came later, and are not included
    row, column = np.nonzero(block > worst[:, None])
  if not row.size:
    return
  touched, place = np.unique(row, return_inverse=True)
  rows = np.concatenate([np.repeat(np.arange(touched.size), k), place])
  similarities = np.concatenate([similarity[touched].ravel(), block[row, column]])
  columns = np.concatenate([index[touched].ravel(), first_column + column])
  order = np.lexsort((columns, -similarities, rows))
  starts = np.searchsorted(rows[order], np.arange(touched.size))
  chosen = order[starts[:, None] + np.arange(k)]
  similarity[touched] = similarities[chosen]
  index[touched] = columns[chosen]


def nearest(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
  """Index of the key [M, H] with the largest cosine for each query [N, H], int64 [N]; the first on ties."""
  return nearest_neighbours(queries, keys, 1)[0].indices[:, 0]


# --- mining -----------------------------------------------------------------------------------------------------------


def mine(
  source: np.ndarray,
  target: np.ndarray,
  *,
  neighbours: int = NEIGHBOURS,
  block_bytes: int = _BLOCK_BYTES,
  on_progress: Callable[[float], None] = lambda fraction: None,
) -> Candidates:
  """Mines candidate pairs with scores, as XTREME does (`max` retrieval, `ratio` margin, above 0).

  Each sentence of either side proposes the one of its K nearest neighbours with the largest margin. Proposals of both
  sides are then accepted by decreasing score, unless one of their sentences is already in a pair. On ties, proposals of
  sources come first, in order, then those of targets.

  Arguments are those of `nearest_neighbours`; the sentences of a side are distinct.
  """
  forward, backward = nearest_neighbours(source, target, neighbours, block_bytes=block_bytes, on_progress=on_progress)
  mean_N, mean_M = (side.similarity.astype(np.float64).mean(1) for side in (forward, backward))
  proposed_N, score_N = _best_margin(forward, mean_N, mean_M)
  proposed_M, score_M = _best_margin(backward, mean_M, mean_N)
  sources = np.concatenate([np.arange(len(mean_N)), proposed_M])
  targets = np.concatenate([proposed_N, np.arange(len(mean_M))])
  scores = np.concatenate([score_N, score_M])
  is_taken_N, is_taken_M = np.zeros(len(mean_N), bool), np.zeros(len(mean_M), bool)
  chosen = []
  for pair in np.argsort(-scores, kind='stable').tolist():
    i, j = sources[pair], targets[pair]
    if is_taken_N[i] or is_taken_M[j]:
      continue
    is_taken_N[i] = is_taken_M[j] = True
    if scores[pair] > 0:
      chosen.append(pair)
  chosen = np.asarray(chosen, np.int64)
  return Candidates(sources[chosen], targets[chosen], scores[chosen])


def _best_margin(found: Neighbours, own_mean: np.ndarray, other_mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """The neighbour with the largest margin for each row, and that margin."""
  scale = (own_mean[:, None] + other_mean[found.indices]) / 2
  margin = np.divide(found.similarity, scale, out=np.zeros(scale.shape), where=scale != 0)
  best = margin.argmax(1)  # the more similar on ties
  rows = np.arange(len(best))
  return found.indices[rows, best], margin[rows, best]


def best_threshold(scores: np.ndarray, is_gold: np.ndarray, num_gold: int) -> float:
  """The score threshold for pairs with the best F1, half-way between the last accepted pair and the next.

  As `bucc_optimize` of LASER and XTREME, except that positions between equal scores, which no threshold can separate,
  are not considered, and that all pairs may be accepted. On ties the highest score wins. 0 if no candidate is correct,
  as there.

  Args:
    scores: [pairs], in any order.
    is_gold: [pairs] bool, whether a pair is correct.
    num_gold: total number of gold pairs.
  """
  order = np.argsort(-np.asarray(scores, np.float64), kind='stable')
  falling, right = np.asarray(scores, np.float64)[order], np.asarray(is_gold, bool)[order].cumsum()
  if not right.size or not right[-1]:
    return 0.0
  f1 = 2 * right / (np.arange(1, right.size + 1) + num_gold)
  f1[:-1][falling[:-1] == falling[1:]] = -1
  last = int(f1.argmax())
  following = falling[last + 1] if last + 1 < falling.size else falling[last]
  threshold = (falling[last] + following) / 2
  # Two adjacent floats have no number half-way between them.
  return float(threshold if threshold > following or last + 1 == falling.size else falling[last])


def score_pairs(predicted: Set, gold: Set) -> dict[str, float]:
  """`precision`, `recall` and `f1` of mined pairs, 0 to 100 (XTREME's `bucc_f1`); all 0 if none is correct."""
  right = len(predicted & gold)
  return {
    'precision': 100 * right / max(len(predicted), 1),
    'recall': 100 * right / max(len(gold), 1),
    'f1': 200 * right / max(len(predicted) + len(gold), 1),
  }
