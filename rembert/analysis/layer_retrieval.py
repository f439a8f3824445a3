"""Translations found by mean hidden states, layer by layer (paper, sections 6.3 and A.9, Figure 2; Pires et al. 2019).

A sentence is the mean of a layer's output over its pieces, without [CLS], [SEP] and padding. The translation vector is
the mean, over all pairs, of target − source. A source sentence plus that vector is the query; the target nearest to it
by L2 distance, among all of them, is right if it is the translation.

`results` of `analysis.json`:

    layers          [0, 1, …, L]; 0 is the projected embeddings, which the paper's figure leaves out
    pairs           by name (`de-en`):
      pairs         how many source sentences ask
      candidates    among how many target sentences each looks
      accuracy      by layer, 0 to 100
      reverse       by layer, 0 to 100: the targets ask, the sources are looked through; null if not asked for
      chance        of a guess, 0 to 100
      cut           sentences of both sides that were longer than the model has positions
    mean            by layer, over the pairs: the unweighted mean of `accuracy`
"""

import dataclasses
from collections.abc import Callable

import numpy as np

_BLOCK_BYTES = 1 << 26  # of one block of distances; a few of this size are alive at a time
# Distances come from products first, whose rounding is far below this share of the squared lengths.
_DOUBT = 1e-10


@dataclasses.dataclass(frozen=True)
class LayerAccuracy:
  """Accuracy of retrieval by layer, 0 to 100.

  Attributes:
    forward: sources ask, targets are looked through.
    reverse: the other way round, with the same vector subtracted; None if not asked for.
  """

  forward: tuple[float, ...]
  reverse: tuple[float, ...] | None


def nearest(queries_NxH: np.ndarray, targets_MxH: np.ndarray) -> np.ndarray:
  """The target nearest to each query by L2 distance, [N] int64; of equally near ones that with the lowest index.

  Exact: what float64 gives for Σ (q − t)², row by row. Products of matrices find the few targets that can be nearest;
  those are then compared by the sum itself. Memory is that of a block of queries times the targets.
  """
  queries = np.ascontiguousarray(queries_NxH, np.float64)
  targets = np.ascontiguousarray(targets_MxH, np.float64)
  if not len(targets):
    raise ValueError('no targets to look through')
  # Around their centre vectors are shorter, and products are rounded less.
  centre = targets.mean(0)
  centred, centred_targets = queries - centre, targets - centre
  squares = np.einsum('mh,mh->m', centred_targets, centred_targets)
  doubt = _DOUBT * (np.einsum('nh,nh->n', centred, centred) + squares.max())
  found = np.empty(len(queries), np.int64)
  rows = max(1, _BLOCK_BYTES // (8 * len(targets)))
  for start in range(0, len(queries), rows):
    block = slice(start, start + rows)
    # Without the query's own square, which is the same for all targets.
    distance = squares - 2 * (centred[block] @ centred_targets.T)
    found[block] = distance.argmin(1)
    can_be = distance <= distance.min(1, keepdims=True) + doubt[block, None]
    for row in np.flatnonzero(can_be.sum(1) > 1):
      candidates = np.flatnonzero(can_be[row])
      found[start + row] = candidates[((queries[start + row] - targets[candidates]) ** 2).sum(-1).argmin()]
  return found


def translation_accuracy(source_NxH: np.ndarray, target_MxH: np.ndarray, gold_N: np.ndarray | None = None) -> float:
  """Share of the sources whose translation is the nearest target after the mean shift, 0 to 100.

  Args:
    source_NxH: sentence vectors.
    target_MxH: sentence vectors, all of which are candidates.
    gold_N: index of each source's translation; None where they stand in the same order.
  """
  gold = np.arange(len(source_NxH)) if gold_N is None else gold_N
  shift_H = _translation_vector(source_NxH, target_MxH[gold])
  return _percent(nearest(source_NxH.astype(np.float64) + shift_H, target_MxH) == gold)


def reverse_accuracy(source_NxH: np.ndarray, target_MxH: np.ndarray, gold_N: np.ndarray | None = None) -> float:
  """The same the other way round: each source's translation looks for it among all sources."""
  aligned = target_MxH if gold_N is None else target_MxH[gold_N]
  shift_H = _translation_vector(source_NxH, aligned)
  return _percent(nearest(aligned.astype(np.float64) - shift_H, source_NxH) == np.arange(len(source_NxH)))


def accuracy_by_layer(
  source_LxNxH: np.ndarray,
  target_LxMxH: np.ndarray,
  gold_N: np.ndarray | None = None,
  *,
  with_reverse: bool = False,
  on_progress: Callable[[float], None] = lambda fraction: None,
) -> LayerAccuracy:
  """`translation_accuracy` of each layer, and `reverse_accuracy` if asked for."""
  forward, reverse = [], []
  for layer, (source, target) in enumerate(zip(source_LxNxH, target_LxMxH, strict=True), 1):
    forward.append(translation_accuracy(source, target, gold_N))
    if with_reverse:
      reverse.append(reverse_accuracy(source, target, gold_N))
    on_progress(layer / len(source_LxNxH))
  return LayerAccuracy(tuple(forward), tuple(reverse) if with_reverse else None)


def _translation_vector(source_NxH: np.ndarray, aligned_NxH: np.ndarray) -> np.ndarray:
  return (aligned_NxH.astype(np.float64) - source_NxH.astype(np.float64)).mean(0)


def _percent(is_right_N: np.ndarray) -> float:
  return 100 * float(is_right_N.mean())
