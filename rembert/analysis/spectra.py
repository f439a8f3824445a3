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
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp

from rembert.analysis.context import (
  AnalysisContext,
  AnalysisResult,
  Table,
  format_number,
  model_facts,
  read_embeddings,
)
from rembert.analysis.files import read_counts
from rembert.checkpoint.load import Source
from rembert.data.token_store import TokenStore
from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds
from tasks.vocabulary import PieceCounter

_BLOCK_BYTES = 1 << 27
_QUANTILES = (5, 25, 50, 75, 95)
_ROWS_AT_ONCE = 1024
_CHARACTERS_OF_PIECE = 4  # about, for what `analyze.characters` is in rows of a store


def _blocks(table_VxW: np.ndarray) -> Iterator[np.ndarray]:
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


def spectrum(table_VxW: np.ndarray, *, pairs: int = 100_000, seed: int = 0) -> dict[str, Any]:
  """A table of `results`, but for the norms. `pairs` and `seed` are those of `mean_cosine`."""
  values, vectors = singular_vectors(table_VxW)
  mean = np.asarray(table_VxW).mean(0, dtype=np.float64)
  return {
    'width': table_VxW.shape[1],
    'singular_values': (values / values.sum()).tolist(),
    'effective_rank': effective_rank(values),
    'participation_ratio': participation_ratio(values),
    'isotropy': isotropy(table_VxW, vectors),
    'mean_cosine': mean_cosine(table_VxW, pairs=pairs, seed=seed),
    'common_share': float((mean**2).sum() * len(table_VxW) / (values**2).sum()),
  }


# --- frequency --------------------------------------------------------------------------------------------------------


def row_norms(table_VxW: np.ndarray) -> np.ndarray:
  """Length of each row, float64 [V]."""
  return np.concatenate([np.linalg.norm(block, axis=1) for block in _blocks(table_VxW)])


def norms(norms_V: np.ndarray) -> dict[str, Any] | None:
  """One of the `norms` of `results`; None if there are no rows."""
  if not len(norms_V):
    return None
  return {
    'pieces': len(norms_V),
    'mean': float(norms_V.mean()),
    'deviation': float(norms_V.std()),
    'quantiles': np.percentile(norms_V, _QUANTILES).tolist(),
  }


def norms_by_frequency(norms_V: np.ndarray, counts_V: np.ndarray) -> list[dict[str, Any]]:
  """Mean norms of tokens that do not occur, that occur once, and then by powers of two; empty classes are left out."""
  edges: Sequence[int] = [0, 1, *(2**power for power in range(1, int(counts_V.max(initial=1)).bit_length() + 1))]
  found = []
  for begin, end in itertools.pairwise(edges):
    chosen = (counts_V >= begin) & (counts_V < end)
    if chosen.any():
      norm = float(norms_V[chosen].mean())
      found.append({'begin': begin, 'end': end, 'pieces': int(chosen.sum()), 'norm': norm})
  return found


# --- the analysis -----------------------------------------------------------------------------------------------------


def run(context: AnalysisContext) -> AnalysisResult:
  """Both embeddings of a model, and how often a text uses their rows; see the head of this file."""
  analyze, source = context.config.analyze, context.source()
  with context.task('reading tables'):
    tables = read_embeddings(source)
  counts = _counts(context, source)
  # Below are special tokens, which are in every sequence and in no text, and reserved ones, which are nowhere.
  first = SpecialIds().first_piece
  reserved = np.setdiff1d(np.arange(min(first, source.config.vocab_size)), dataclasses.astuple(SpecialIds()))
  found: dict[str, dict[str, Any] | None] = dict.fromkeys(tables)
  given = {name: table for name, table in tables.items() if table is not None}
  with context.task('singular values') as progress:
    for done, (name, table) in enumerate(given.items()):
      progress(done / len(given), name)
      of_table = spectrum(table, seed=analyze.seed) | {'norms': None, 'norms_by_frequency': None}
      if counts is not None:
        of_all = row_norms(table)
        lengths, times = of_all[first:], counts[first:]
        groups = {'used': lengths[times > 0], 'unused': lengths[times == 0], 'reserved': of_all[reserved]}
        of_table['norms'] = {which: norms(some) for which, some in groups.items()}
        of_table['norms_by_frequency'] = norms_by_frequency(lengths, times)
      found[name] = of_table
  return AnalysisResult(
    {'tables': found, 'counted': None if counts is None else int(counts[first:].sum())},
    {**model_facts(source), 'counted_in': analyze.counts or analyze.store or analyze.text},
    [_table({name: of_table for name, of_table in found.items() if of_table})],
    [] if 'output' in given else ['there is no output embedding in the checkpoint'],
  )


def _table(found: dict[str, dict[str, Any]]) -> Table:
  line = lambda label, cell: (label, *(cell(of_table) for of_table in found.values()))
  of_width = lambda name: lambda of: f'{of[name]:.1f} ({of[name] / of["width"]:.0%})'
  rows = [
    line('width', lambda of: f'{of["width"]:,}'),
    line('effective rank', of_width('effective_rank')),
    line('participation ratio', of_width('participation_ratio')),
    line('isotropy', lambda of: format_number(of['isotropy'], 3)),
    line('mean cosine', lambda of: format_number(of['mean_cosine'], 3)),
    line('share of the mean vector', lambda of: f'{of["common_share"]:.1%}'),
  ]
  if all(of_table['norms'] for of_table in found.values()):
    norm = lambda some: f'{some["mean"]:.3f} ± {some["deviation"]:.3f} ({some["pieces"]:,})' if some else '–'
    for which in ('used', 'unused', 'reserved'):
      rows.append(line(f'norm, {which} pieces', lambda of, which=which: norm(of['norms'][which])))
  return Table('Embedding tables', ('', *found), rows)


def _counts(context: AnalysisContext, source: Source) -> np.ndarray | None:
  """How often each token occurs in what the configuration names, int64 [V]; None if it names nothing."""
  analyze, size = context.config.analyze, source.config.vocab_size
  named = [name for name in ('text', 'store', 'counts') if getattr(analyze, name)]
  if len(named) > 1:
    fields = ', '.join(f'analyze.{name}' for name in named)
    raise UsageError('pieces are counted in one place', where=fields, fix='leave one of them')
  if analyze.counts:
    return read_counts(analyze.counts, size)
  if analyze.store:
    return _counts_of_store(context, TokenStore(analyze.store), size)
  if not analyze.text:
    return None
  counter = PieceCounter(context.vocabulary(source))
  for _, texts in context.texts('counting pieces'):
    counter.add_texts(texts)
  return np.pad(counter.counts, (0, size - len(counter.counts)))


def _counts_of_store(context: AnalysisContext, store: TokenStore, size: int) -> np.ndarray:
  if store.vocab_size > size:
    raise UsageError(
      f'the store has {store.vocab_size:,} pieces, and the model {size:,}',
      where=str(store.folder),
      fix='the store that the model was trained on',
    )
  counts = np.zeros(size, np.int64)
  most = -(-context.config.analyze.characters // (_CHARACTERS_OF_PIECE * store.sequence_length))
  with context.task('counting pieces') as progress:
    for done, language in enumerate(store.languages):
      progress(done / len(store.languages), language)
      rows = store.rows(language, 'train')
      chosen = np.unique(np.linspace(0, rows - 1, min(rows, most)).astype(np.int64)) if rows else np.empty(0, np.int64)
      for start in range(0, len(chosen), _ROWS_AT_ONCE):
        ids = store.read(language, 'train', chosen[start : start + _ROWS_AT_ONCE])
        counts += np.bincount(ids.ravel(), minlength=size)
  return counts
