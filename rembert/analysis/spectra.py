"""Embedding tables as clouds of points: how many directions they use, how even they are, and what unused pieces do.

The paper has no such table; it explains (section 6) what a wide output embedding does, and this looks at the tables.

- **Singular values**, normalised to sum 1. Effective rank is exp of their entropy (Roy & Vetterli 2007); the
  participation ratio is (Σ σ²)² / Σ σ⁴. Both are W for a table that uses its W directions alike, and 1 for a line.
- **Isotropy** is min Z(c) / max Z(c), Z(c) = Σ_pieces exp(c · row), c over the right singular vectors (Mu & Viswanath
  2018, equation 6). A singular vector has no sign, so both are tried. 1 is the same in all directions.
- **Mean cosine** of random pairs of rows: 0 where directions are random, near 1 where rows share one.
- **Norms** of pieces that a text uses, and of those that it does not: what training never pulled at.

`results` of `analysis.json`:

    tables                  by name (`input`, `output`); null for a table that the model has not:
      width                 W
      singular_values       normalised to sum 1, falling
      effective_rank, participation_ratio
      isotropy, mean_cosine
      common_share          of the squared length of the rows, what their mean vector has
      norms                 null without counts; else by `used`, `unused` and `reserved` (ids between the special
                            ones, in no text at all): {pieces, mean, deviation, quantiles}, the 5, 25, 50, 75 and
                            95 %; null for none
      norms_by_frequency    null without counts; else [{"begin", "end", "pieces", "norm"}]: how many pieces occur
                            begin ≤ n < end times, and the mean of their norms
    counted                 pieces of text that were counted, or null
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

_BLOCK_BYTES = 1 << 27
_QUANTILES = (5, 25, 50, 75, 95)


@dataclasses.dataclass(frozen=True)
class Spectrum:
  """The shape of a table; see the head of this file."""

  width: int
  singular_values: tuple[float, ...]
  effective_rank: float
  participation_ratio: float
  isotropy: float
  mean_cosine: float
  common_share: float


@dataclasses.dataclass(frozen=True)
class Norms:
  """Lengths of some rows: how many, mean, standard deviation, and the quantiles 5, 25, 50, 75 and 95 %."""

  pieces: int
  mean: float
  deviation: float
  quantiles: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class NormOfFrequency:
  """Pieces that occur `begin` ≤ n < `end` times, and the mean of their norms."""

  begin: int
  end: int
  pieces: int
  norm: float


def _blocks(table_VxW: np.ndarray):
  rows = max(table_VxW.shape[1], _BLOCK_BYTES // (8 * table_VxW.shape[1]))
  for start in range(0, len(table_VxW), rows):
    yield np.asarray(table_VxW[start : start + rows], np.float64)


def singular_vectors(table_VxW: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Singular values, falling, [min(V, W)], and the right singular vectors as rows, float64.

  By the R of a QR decomposition that is built up block by block: as accurate as a decomposition of the whole, which for
  250,000 pieces would need some copies of it.
  """
  triangle = np.zeros((0, table_VxW.shape[1]))
  for block in _blocks(table_VxW):
    triangle = np.linalg.qr(np.concatenate([triangle, block]), mode='r')
  _, values, vectors = np.linalg.svd(triangle, full_matrices=False)
  return values, vectors


def effective_rank(values_R: np.ndarray) -> float:
  """exp of the entropy of singular values as shares of their sum (Roy & Vetterli 2007)."""
  shares = values_R[values_R > 0] / values_R.sum()
  return float(np.exp(-(shares * np.log(shares)).sum()))


def participation_ratio(values_R: np.ndarray) -> float:
  """(Σ σ²)² / Σ σ⁴."""
  shares = values_R**2 / (values_R**2).sum()
  return float(1 / (shares**2).sum())


def isotropy(table_VxW: np.ndarray, directions_RxW: np.ndarray) -> float:
  """min Z / max Z over the directions and their opposites (Mu & Viswanath 2018), in logarithms until the end."""
  signed = np.concatenate([directions_RxW, -directions_RxW]).T
  log_z = logsumexp([logsumexp(block @ signed, axis=0) for block in _blocks(table_VxW)], axis=0)
  return float(np.exp(log_z.min() - log_z.max()))


def mean_cosine(table_VxW: np.ndarray, *, pairs: int = 100_000, seed: int = 0) -> float:
  """The mean cosine of random pairs of different rows; rows of length 0 are in no pair. NaN with fewer than two."""
  rows = np.flatnonzero(np.any(table_VxW != 0, axis=1))
  if len(rows) < 2:
    return float('nan')
  random = np.random.default_rng(seed)
  first = random.integers(len(rows), size=pairs)
  second = (first + random.integers(1, len(rows), size=pairs)) % len(rows)
  total, at_once = 0.0, max(1, _BLOCK_BYTES // (16 * table_VxW.shape[1]))
  for start in range(0, pairs, at_once):
    chosen = slice(start, start + at_once)
    one, other = (np.asarray(table_VxW[rows[side[chosen]]], np.float64) for side in (first, second))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    total += float((np.einsum('pw,pw->p', one, other) / lengths).sum())
  return total / pairs


def spectrum(table_VxW: np.ndarray, *, pairs: int = 100_000, seed: int = 0) -> Spectrum:
  """All that does not ask how frequent pieces are. `pairs` and `seed` are those of `mean_cosine`."""
  values, vectors = singular_vectors(table_VxW)
  mean = np.asarray(table_VxW).mean(0, dtype=np.float64)
  return Spectrum(
    width=table_VxW.shape[1],
    singular_values=tuple((values / values.sum()).tolist()),
    effective_rank=effective_rank(values),
    participation_ratio=participation_ratio(values),
    isotropy=isotropy(table_VxW, vectors),
    mean_cosine=mean_cosine(table_VxW, pairs=pairs, seed=seed),
    common_share=float((mean**2).sum() * len(table_VxW) / (values**2).sum()),
  )


# --- frequency --------------------------------------------------------------------------------------------------------


def row_norms(table_VxW: np.ndarray) -> np.ndarray:
  """Length of each row, float64 [V]."""
  return np.concatenate([np.linalg.norm(block, axis=1) for block in _blocks(table_VxW)])


def norms(norms_V: np.ndarray) -> Norms | None:
  """What is to be said of some lengths; None of none."""
  if not len(norms_V):
    return None
  quantiles = tuple(np.percentile(norms_V, _QUANTILES).tolist())
  return Norms(len(norms_V), float(norms_V.mean()), float(norms_V.std()), quantiles)


def norms_by_frequency(norms_V: np.ndarray, counts_V: np.ndarray) -> list[NormOfFrequency]:
  """Mean norms of pieces that do not occur, that occur once, and then by powers of two; empty classes are left out."""
  edges: Sequence[int] = [0, 1, *(2**power for power in range(1, int(counts_V.max(initial=1)).bit_length() + 1))]
  found = []
  for begin, end in itertools.pairwise(edges):
    chosen = (counts_V >= begin) & (counts_V < end)
    if chosen.any():
      found.append(NormOfFrequency(begin, end, int(chosen.sum()), float(norms_V[chosen].mean())))
  return found
