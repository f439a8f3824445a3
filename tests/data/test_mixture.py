"""Sampling rates by the paper's formula, and draws that are a pure function of (seed, step)."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rembert.data.mixture import (
  EVALUATION_STREAM,
  MASK_STREAM,
  MIXTURE_STREAM,
  SHUFFLE_STREAM,
  interleaved,
  languages_of_rows,
  random_stream,
  row_proportions,
  sampling_rates,
)
from rembert.errors import UsageError

TOLERANCE = 1e-12
SIGMAS = 5  # of a share; the seeds are fixed

counts = st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 10**9), min_size=1).filter(
  lambda counts: any(counts.values())
)


@given(sentences=counts, alpha=st.floats(0, 1))
def test_rates_are_the_papers_smoothed_shares(sentences, alpha):
  rates = sampling_rates(sentences, alpha)
  # A.7: p = n / Σ n; then p ** α, renormalised.
  total = sum(sentences.values())
  smoothed = {language: (n / total) ** alpha for language, n in sentences.items() if n > 0}
  assert rates == pytest.approx({language: p / sum(smoothed.values()) for language, p in smoothed.items()}, rel=1e-9)
  assert sum(rates.values()) == pytest.approx(1, abs=TOLERANCE)
  assert list(rates) == sorted(rates)


# --- limits ----------------------------------------------------------------------------------------------------------

limits = st.fixed_dictionaries(
  {'max_share': st.none() | st.floats(0.01, 1), 'max_upsampling': st.none() | st.floats(1, 50)}
)


def limit_of(count, total, max_share, max_upsampling):
  """The most that a language may get, by the formula of the docstring."""
  return min(1 if max_share is None else max_share, 1 if max_upsampling is None else max_upsampling * count / total)


@given(sentences=counts, alpha=st.floats(0, 1), limits=limits)
def test_limited_rates_are_a_scaled_part_of_the_smoothed_ones_and_sum_to_one(sentences, alpha, limits):
  total = sum(sentences.values())
  most = {language: limit_of(count, total, **limits) for language, count in sentences.items() if count > 0}
  if sum(most.values()) < 1 - 1e-9:
    with pytest.raises(UsageError, match='sum to less than 1'):
      sampling_rates(sentences, alpha, **limits)
    return
  assume(sum(most.values()) >= 1)
  rates, free = sampling_rates(sentences, alpha, **limits), sampling_rates(sentences, alpha)
  assert list(rates) == list(free)
  assert sum(rates.values()) == pytest.approx(1, abs=1e-9)
  assert all(rate <= most[language] * (1 + TOLERANCE) for language, rate in rates.items())
  # Who is below the limit has one factor in common, and a language that is at it would pass it by that factor.
  below = [language for language, rate in rates.items() if rate < most[language] * (1 - 1e-9)]
  if below:
    scale = rates[below[0]] / free[below[0]]
    assert [rates[language] for language in below] == pytest.approx([scale * free[language] for language in below])
    assert all(scale * free[language] >= most[language] * (1 - 1e-9) for language in free.keys() - below)
  # The larger corpus never gets less.
  ordered = sorted(rates, key=sentences.get)
  assert all(rates[a] <= rates[b] * (1 + 1e-9) for a, b in itertools.pairwise(ordered))


@given(sentences=counts, alpha=st.floats(0, 1))
def test_limits_that_no_rate_exceeds_change_no_bit(sentences, alpha):
  assert sampling_rates(sentences, alpha, max_share=1.0, max_upsampling=1e300) == sampling_rates(sentences, alpha)


def test_the_smallest_possible_share_is_accepted_and_a_smaller_one_is_an_error():
  languages = {f'{n:02}': n + 1 for n in range(10)}
  assert sampling_rates(languages, 0.5, max_share=0.1) == pytest.approx(dict.fromkeys(languages, 0.1), abs=TOLERANCE)
  with pytest.raises(UsageError, match=r'10 language\(s\)') as caught:
    sampling_rates(languages, 0.5, max_share=0.09)
  assert caught.value.where == 'data.max_share = 0.09'
  assert '1/10 = 0.1' in caught.value.fix[0]
  with pytest.raises(UsageError) as caught:
    sampling_rates({'en': 99, 'sw': 1}, 0.5, max_share=0.6, max_upsampling=2)
  assert caught.value.where == 'data.max_share = 0.6, data.max_upsampling = 2'


# --- draws -----------------------------------------------------------------------------------------------------------


def test_draws_converge_to_the_rates_and_neither_steps_nor_seeds_repeat_each_other():
  rates = [0.5, 0.3, 0.15, 0.05]
  drawn = np.concatenate([languages_of_rows(0, step, 500, rates) for step in range(100)])
  shares = np.bincount(drawn, minlength=4) / drawn.size
  for share, rate in zip(shares, rates, strict=True):
    assert abs(share - rate) < SIGMAS * np.sqrt(rate * (1 - rate) / drawn.size)
  seeds = (*range(8), -1, -2, 2**63, 2**63 + 1)
  assert len({languages_of_rows(seed, step, 64, rates).tobytes() for seed in seeds for step in range(10)}) == 120
  # Rates that do not quite sum to one draw no language beyond the last.
  assert languages_of_rows(0, 0, 10_000, [0.3, 0.3, 0.3999999]).max() == 2
  assert languages_of_rows(-1, 2**40, 1, rates).dtype == np.int32


def test_streams_are_independent():
  streams = (MIXTURE_STREAM, MASK_STREAM, SHUFFLE_STREAM, EVALUATION_STREAM)
  draws = np.stack([random_stream(0, stream, 5).random(10_000) for stream in streams])
  correlations = np.corrcoef(draws) - np.eye(4)
  assert np.abs(correlations).max() < SIGMAS / np.sqrt(10_000)


def test_neighbouring_counters_share_no_draws():
  # The counter's lowest word belongs to the draws: however many one takes, they never run into the next counter's.
  long = random_stream(0, MASK_STREAM, 0, 0).integers(0, 2**63, 4096)
  others = [random_stream(0, MASK_STREAM, *counter).integers(0, 2**63, 4096) for counter in ((0, 1), (1, 0), (1, 1))]
  assert len(set(np.concatenate([long, *others]).tolist())) == 4 * 4096


# --- exact proportions ------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=12), st.integers(0, 2**31))
def test_interleaving_counts_every_language_without_counting_from_the_start(weights, start):
  rates = np.array(weights) / sum(weights)
  proportions = row_proportions(rates)
  rows = np.arange(start, start + 50)
  languages, ordinals = interleaved(rows, proportions)
  assert np.all((languages >= 0) & (languages < len(rates)))
  # A caller that asks for a row alone gets the same.
  for row in (0, 17, 49):
    alone = interleaved(rows[row : row + 1], proportions)
    assert (alone[0][0], alone[1][0]) == (languages[row], ordinals[row])
  # The numbers in a language go up by one with each of its rows, and are its share of all rows before.
  for language in np.unique(languages):
    of_language = ordinals[languages == language]
    assert np.array_equal(of_language, np.arange(of_language[0], of_language[0] + len(of_language)))
  share = proportions[languages] / proportions.sum()
  assert np.all(np.abs(ordinals - rows * share) <= len(rates) + 1)
