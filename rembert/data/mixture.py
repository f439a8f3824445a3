"""Language sampling: smoothed rates, and the language of each sequence as a function of (seed, step, row)."""

from collections.abc import Mapping, Sequence

import numpy as np

from rembert.errors import UsageError

# Every use of random numbers in the data pipeline has its own stream, so that they are independent.
MIXTURE_STREAM, MASK_STREAM, SHUFFLE_STREAM, EVALUATION_STREAM, LENGTH_STREAM, EPOCH_STREAM = range(6)


def random_stream(seed: int, stream: int, *counter: int) -> np.random.Generator:
  """A generator that is a pure function of its arguments: Philox with (seed, stream) as key and up to 3 counters."""
  words = (0, *counter, *(0,) * (3 - len(counter)))  # the lowest word counts the draws
  # As uint64: a tuple with a large number would be converted to float64, and adjacent seeds would coincide.
  key, words = np.array((seed % 2**64, stream), np.uint64), np.array(words, np.uint64)
  return np.random.Generator(np.random.Philox(key=key, counter=words))


def sampling_rates(
  sentences: Mapping[str, float], alpha: float, *, max_share: float | None = None, max_upsampling: float | None = None
) -> dict[str, float]:
  """p_l ∝ n_l ** alpha, summing to 1 (paper, A.7), within the given limits.

  With them p_l = min(limit_l, c · n_l ** alpha), where limit_l = min(max_share, max_upsampling · n_l / Σ n) and c is
  chosen so that the sum is 1: the excess over a limit is redistributed proportionally.

  Args:
    sentences: n_l of each language; languages without sentences are excluded.
    max_upsampling: a sentence is sampled at most this many times as often as the corpus average.

  Raises:
    UsageError: the limits sum to less than 1.
  """
  counts = {language: count for language, count in sorted(sentences.items()) if count > 0}
  numbers = np.array(list(counts.values()), np.float64)
  weights = numbers**alpha
  rates = weights / weights.sum()
  limits = np.full_like(rates, 1.0 if max_share is None else max_share)
  if max_upsampling is not None:
    limits = np.minimum(limits, max_upsampling * (numbers / numbers.sum()))
  if limits.sum() < 1 - _ROUNDING:
    given = {'data.max_share': max_share, 'data.max_upsampling': max_upsampling}
    given = {name: value for name, value in given.items() if value is not None}
    least = {'data.max_share': f'1/{len(counts)} = {1 / len(counts):.4g}', 'data.max_upsampling': '1'}
    together = ', more if both are set' if len(given) > 1 else ''
    raise UsageError(
      f'the limits are too strict: the sampling rates of {len(counts)} language(s) sum to less than 1',
      where=', '.join(f'{name} = {value}' for name, value in given.items()),
      fix=[f'{name} of at least {least[name]}{together}, or None' for name in given],
    )
  return dict(zip(counts, _limited(rates, limits).tolist(), strict=True))


_ROUNDING = 1e-12  # ten limits of 0.1 sum to a little less than 1


def _limited(rates: np.ndarray, limits: np.ndarray) -> np.ndarray:
  """min(limits, c · rates) with the sum of 1; the rates themselves, bit-exactly, if no limit is exceeded."""
  is_held, scale = np.zeros(rates.shape, bool), 1.0
  # The scale only grows, so there is at most one round per language.
  while (passing := ~is_held & (scale * rates > limits)).any():
    is_held |= passing
    if is_held.all():
      return limits
    scale = (1 - limits[is_held].sum()) / rates[~is_held].sum()
  return np.where(is_held, limits, scale * rates) if is_held.any() else rates


def languages_of_rows(seed: int, step: int, rows: int, rates: Sequence[float]) -> np.ndarray:
  """The language index of each sequence of a step, int32 [rows]; a pure function of the arguments."""
  uniform = random_stream(seed, MIXTURE_STREAM, step).random(rows)
  bounds = np.cumsum(rates)
  return np.minimum(np.searchsorted(bounds / bounds[-1], uniform, side='right'), len(rates) - 1).astype(np.int32)


_PROPORTION_BITS = 30  # times 2³² rows still fits into 64 bits


def row_proportions(rates: Sequence[float]) -> np.ndarray:
  """Rates as integers, int64, at least 1 each: the number of each language's sequences in a total of their sum."""
  return np.maximum(1, np.round(np.asarray(rates, np.float64) * 2**_PROPORTION_BITS)).astype(np.int64)


def interleaved(rows: np.ndarray, proportions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """The language of global row numbers, and the index of each row in its language, without counting from the start.

  Among the first k rows, language l gets ceil(r · p_l / (p_l + … + p_L)), where r is the number left by the languages
  before it. Row k belongs to the language whose count increases at k (closed form of Grain's mixtures).

  Args:
    rows: int64 [N], numbers below 2³².
    proportions: int64 [L], of `row_proportions`.

  Returns:
    Language, int32 [N], and number in the language from 0, int64 [N].
  """
  taken_Lx2xN = rows_by_language(np.stack((rows, rows + 1)), proportions)
  languages = np.argmax(taken_Lx2xN[:, 0] != taken_Lx2xN[:, 1], axis=0)  # the first whose count increases
  return languages.astype(np.int32), taken_Lx2xN[languages, 0, np.arange(len(rows))]


def rows_by_language(rows: np.ndarray | np.int64, proportions: np.ndarray) -> np.ndarray:
  """The number of each language's rows among the first k, int64 [L, …], for every k of `rows`, int64 […]."""
  left = rows.astype(np.int64)
  taken = np.empty((len(proportions), *left.shape), np.int64)
  remaining = int(proportions.sum())
  for language, share in enumerate(proportions.tolist()):
    left_after = left * (remaining - share) // remaining
    np.subtract(left, left_after, out=taken[language, ...])
    left, remaining = left_after, remaining - share
  return taken
