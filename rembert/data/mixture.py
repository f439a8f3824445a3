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
