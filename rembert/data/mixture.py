"""Which language a row comes from: smoothed sampling rates, and a draw that depends on (seed, step, row) alone."""

from collections.abc import Mapping, Sequence

import numpy as np

# Every random draw of the data path has a stream of its own, so that none disturbs another.
MIXTURE_STREAM, MASK_STREAM, SHUFFLE_STREAM, EVALUATION_STREAM = range(4)


def random_stream(seed: int, stream: int, *counter: int) -> np.random.Generator:
  """A generator that is a pure function of its arguments: Philox with (seed, stream) as key and up to 3 counters."""
  words = (0, *counter, *(0,) * (3 - len(counter)))  # the lowest word is left for the draws themselves
  # As uint64: a tuple with a large number in it would go through float64, and neighbouring seeds would be one.
  key, words = np.array((seed % 2**64, stream), np.uint64), np.array(words, np.uint64)
  return np.random.Generator(np.random.Philox(key=key, counter=words))


def sampling_rates(sentences: Mapping[str, float], alpha: float) -> dict[str, float]:
  """p_l ∝ n_l ** alpha, summing to 1 (paper, A.7). Languages without sentences are left out."""
  counts = {language: count for language, count in sorted(sentences.items()) if count > 0}
  weights = np.array(list(counts.values()), np.float64) ** alpha
  return dict(zip(counts, (weights / weights.sum()).tolist(), strict=True))


def languages_of_rows(seed: int, step: int, rows: int, rates: Sequence[float]) -> np.ndarray:
  """The language index of each of a step's rows, int32 [rows]; the same whoever asks, however often."""
  uniform = random_stream(seed, MIXTURE_STREAM, step).random(rows)
  bounds = np.cumsum(rates)
  return np.minimum(np.searchsorted(bounds / bounds[-1], uniform, side='right'), len(rates) - 1).astype(np.int32)


_PROPORTION_BITS = 30  # times 2³² rows still fits into 64 bits


def row_proportions(rates: Sequence[float]) -> np.ndarray:
  """Rates as whole numbers, int64, at least 1 each: of so many rows in all, so many are a language's."""
  return np.maximum(1, np.round(np.asarray(rates, np.float64) * 2**_PROPORTION_BITS)).astype(np.int64)


def interleaved(rows: np.ndarray, proportions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """The language of global row numbers, and which row of that language each is, without counting from the start.

  Of the first k rows, languages before the last take theirs one after the other: language l gets what a share of
  p_l / (p_l + … + p_L) of the rows that the languages before it left comes to, rounded up. A row belongs to the
  language whose number goes up at it (the closed form that Grain's mixtures use).

  Args:
    rows: int64 [N], numbers below 2³².
    proportions: int64 [L], of `row_proportions`.

  Returns:
    Language, int32 [N], and number in the language from 0, int64 [N].
  """
  languages, ordinals = np.full(len(rows), -1, np.int32), np.zeros(len(rows), np.int64)
  before, after = rows.astype(np.int64), rows.astype(np.int64) + 1
  remaining = int(proportions.sum())
  is_open = np.ones(len(rows), bool)
  for language, share in enumerate(proportions.tolist()):
    left_before, left_after = before * (remaining - share) // remaining, after * (remaining - share) // remaining
    is_its = is_open & (after - left_after != before - left_before)
    languages[is_its], ordinals[is_its] = language, (before - left_before)[is_its]
    is_open &= ~is_its
    before, after, remaining = left_before, left_after, remaining - share
  return languages, ordinals
