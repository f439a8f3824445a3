"""Batches from a token store: row r of step n is a pure function of (seed, n, r), for any reader.

The language of every row, its index in that language and its masks are computed from these numbers. Nothing is counted
from the start: step 1,000,000 costs as much as step 0, resuming is exact, and hosts need no agreement.
"""

import dataclasses
import functools
import itertools
import sys
import zlib
from collections.abc import Generator, Iterator

import grain
import numpy as np

from rembert.data.batches import Batch, BatchSource, Sampling
from rembert.data.mixture import EVALUATION_STREAM, MASK_STREAM, interleaved, row_proportions, rows_by_language
from rembert.data.token_store import TokenStore
from rembert.tokenizer import SpecialIds

_ROUNDS = 4  # of the block cipher that permutes row indices; Grain's default
# Smaller permutations are stored as a table, since the cipher is slow for far fewer rows than its blocks.
_LARGEST_TABLE = 1 << 16
_HANDED_OVER = 256  # rows per call of a thread


@functools.lru_cache(maxsize=512)
def _permutation(count: int, seed: int) -> np.ndarray:
  return np.random.Generator(np.random.Philox(seed)).permutation(count).astype(np.int32)


def _proportions(rates: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
  """The sampled languages, int32, and their proportions (`row_proportions`)."""
  sampled = np.flatnonzero(rates).astype(np.int32)
  return sampled, row_proportions([rates[language] for language in sampled])


def _by_language(languages: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
  """Each distinct number, with its positions, in ascending order."""
  order = np.argsort(languages, kind='stable')
  of_language = languages[order]
  begins = np.flatnonzero(np.diff(of_language, prepend=of_language[:1] - 1)).tolist()
  for begin, end in itertools.pairwise([*begins, len(order)]):
    yield int(of_language[begin]), order[begin:end]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredBatches(BatchSource):
  """A `BatchSource` on a token store.

  Languages are interleaved in exact proportion: among the first n rows, each language's count differs from its share by
  less than the number of languages. Each epoch of a language has every row once, in its own order. `read_threads`
  prepare batches ahead.
  """

  store: TokenStore
  read_threads: int = 1

  @property
  def special(self) -> SpecialIds:
    """See `BatchSource`."""
    return self.store.special

  def rows_of(self, step: int, steps: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Language, int32, and index in its split, int64, of this process's rows of one or several steps."""
    own = np.arange(self.own_rows.start, self.own_rows.stop)
    drawn = [
      self._drawn((np.array(list(same))[:, None] * self.batch_size + own).ravel(), sampling)
      for sampling, same in itertools.groupby(range(step, step + steps), self.sampling)
    ]
    languages, ordinals = (np.concatenate(column) for column in zip(*drawn, strict=True))
    indices = np.empty(len(languages), np.int64)
    for language, chosen in _by_language(languages):
      indices[chosen] = self._shuffled(language, ordinals[chosen])
    return languages, indices

  def _drawn(self, numbers: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Language and number in the language of global rows, all of steps with the same sampling."""
    sampled, proportions = _proportions(sampling.rates)
    indices, ordinals = interleaved(numbers - sampling.begin * self.batch_size, proportions)
    languages = sampled[indices]
    return languages, ordinals + self._rows_before[sampling.begin][languages]

  @functools.cached_property
  def _rows_before(self) -> dict[int, np.ndarray]:
    """Rows of each language, int64 [L], that this source gives before the step at which a sampling begins."""
    before, rows = {0: np.zeros(len(self.rates), np.int64)}, np.zeros(len(self.rates), np.int64)
    for sampling in self.schedule:
      before[sampling.begin] = rows.copy()
      sampled, proportions = _proportions(sampling.rates)
      rows[sampled] += rows_by_language(np.int64((sampling.end - sampling.begin) * self.batch_size), proportions)
    return before

  def batch(self, step: int) -> Batch:
    """This process's rows of one step."""
    [batch] = self._several(step, 1)
    return batch

  def _several(self, step: int, steps: int) -> list[Batch]:
    """This process's rows of several steps, read together."""
    languages, indices = self.rows_of(step, steps)
    ids = self._read('train', languages, indices)
    of_steps = zip(np.split(ids, steps), np.split(languages, steps), strict=True)
    return [
      self.masked(*of_step, stream=MASK_STREAM, step=number) for number, of_step in enumerate(of_steps, start=step)
    ]

  def batches(self, step: int = 0, state: dict | None = None) -> Generator[tuple[Batch, dict], None, None]:
    """See `BatchSource`; the state is only the step."""
    del state
    # Grain's threads prepare some ahead and hand them over in order; small batches several at a time, since the
    # handing over of one takes as long as reading ten rows.
    several = max(1, _HANDED_OVER // (self.own_rows.stop - self.own_rows.start))
    prepared = grain.MapDataset.range(step, sys.maxsize - several, several).map(lambda at: self._several(at, several))
    options = grain.ReadOptions(num_threads=self.read_threads, prefetch_buffer_size=max(2, 2 * self.read_threads))
    for batches in prepared.to_iter_dataset(options):
      for batch in batches:
        yield batch, {}

  def evaluation_batches(self) -> Iterator[Batch]:
    """See `BatchSource`: the first held-out rows of every language."""
    rows = [
      (number, index)
      for number, language in enumerate(self.rates)
      for index in range(min(self.evaluation_rows, self.store.rows(language, 'validation')))
    ]
    for step, start in enumerate(range(0, len(rows), self.batch_size)):
      some = rows[start : start + self.batch_size]
      # Padding rows are number −1 of the first language.
      some += [(0, -1)] * (self.batch_size - len(some))
      languages, indices = (np.array(column) for column in zip(*some[self.own_rows], strict=True))
      languages = languages.astype(np.int32)
      ids = self._read('validation', languages, indices)
      yield self.masked(ids, languages, stream=EVALUATION_STREAM, step=step)

  def _shuffled(self, language: int, ordinals: np.ndarray) -> np.ndarray:
    """Row indices for ascending `ordinals` of a language: each epoch is a separate permutation."""
    name = self.languages[language]
    count = self.store.rows(name, 'train')
    rows = np.empty(len(ordinals), np.int64)
    first, last = int(ordinals[0]) // count, int(ordinals[-1]) // count  # epochs; `ordinals` ascend
    begin = 0
    for epoch in range(first, last + 1):
      end = len(ordinals) if epoch == last else int(np.searchsorted(ordinals, (epoch + 1) * count))
      places = ordinals[begin:end] - epoch * count
      seed = zlib.crc32(f'{self.seed} {name} {epoch}'.encode())
      if count <= _LARGEST_TABLE:
        rows[begin:end] = _permutation(count, seed)[places]
      else:
        shuffle = functools.partial(grain.experimental.index_shuffle, max_index=count - 1, seed=seed, rounds=_ROUNDS)
        rows[begin:end] = [shuffle(index=place) for place in places.tolist()]
      begin = end
    return rows

  def _read(self, split: str, languages: np.ndarray, indices: np.ndarray) -> np.ndarray:
    ids = np.full((len(languages), self.store.sequence_length), self.special.pad, np.int32)
    for language, chosen in _by_language(np.where(indices >= 0, languages, -1)):
      if language >= 0:
        ids[chosen] = self.store.read(self.languages[language], split, indices[chosen])
    return ids
