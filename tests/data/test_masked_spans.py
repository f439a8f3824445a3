"""Whole words and spans, against the procedure written out one row and one word at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.data import counter_rng
from rembert.data.counter_rng import row_states, uniform
from rembert.data.masking import LONGEST_WORD, chosen_spans, chosen_tokens

SIGMAS = 5
OTHER, START, INSIDE = 0, 1, 2  # a token that cannot be chosen; one that begins a word; one that goes on with it


def number_of(state, purpose, position):
  return counter_rng.bits(np.array([state]), counter_rng.offsets(np.array([purpose + position])))[0]


def words_of(kinds_S, budget):
  """Segments of words, each a list of positions."""
  segments = []
  for position, kind in enumerate(kinds_S):
    if kind == OTHER:
      continue
    if position == 0 or kinds_S[position - 1] == OTHER:
      segments.append([[position]])
    elif kind == START:
      segments[-1].append([position])
    else:
      segments[-1][-1].append(position)
  return [
    [part for word in words for part in ([[p] for p in word] if len(word) > min(LONGEST_WORD, budget) else [word])]
    for words in segments
  ]


def drawn_length(state, position, longest):
  weights = [1 / n for n in range(1, longest + 1)]
  draw = uniform(number_of(state, counter_rng.SPAN_LENGTH, position)) * sum(weights)
  for n in range(1, longest):
    draw -= weights[n - 1]
    if draw < 0:
      return n
  return longest


def plainly_chosen(state, kinds_S, budget, longest):
  units = []
  for words in words_of(kinds_S, budget):
    lengths = [drawn_length(state, word[0], longest) for word in words]
    start = 0
    while start < len(words):
      span = words[start : start + lengths.pop(0)]
      start += len(span)
      positions = [position for word in span for position in word]
      units += [positions] if len(positions) <= budget else span
  chosen = []
  for unit in sorted(units, key=lambda unit: number_of(state, counter_rng.CHOICE, unit[0])):
    if len(chosen) + len(unit) <= budget:
      chosen += unit
  return np.isin(np.arange(len(kinds_S)), chosen)


def spans(kinds_BxS, budget_B, longest, *, step=0, first_row=0):
  kinds_BxS = np.asarray(kinds_BxS)
  states_B = row_states(5, 1, step, first_row, len(kinds_BxS))
  return chosen_spans(states_B, kinds_BxS != OTHER, kinds_BxS == START, np.asarray(budget_B), longest=longest)


@st.composite
def rows(draw):
  """Kinds [B, S], and a budget for each row, up to as many as there are candidates."""
  length = draw(st.integers(1, 48))
  # Runs of one kind, so that there are long words, and long segments.
  run = st.tuples(st.sampled_from([OTHER, START, INSIDE, INSIDE]), st.integers(1, 14))
  kinds = []
  for runs in draw(st.lists(st.lists(run, max_size=12), min_size=1, max_size=5)):
    row = [kind for kind, count in runs for _ in range(count)][:length]
    kinds.append(row + [OTHER] * (length - len(row)))
  budgets = [draw(st.integers(0, sum(kind != OTHER for kind in row))) for row in kinds]
  return np.array(kinds), np.array(budgets)


@given(rows=rows(), longest=st.integers(1, 5), step=st.integers(0, 1000))
@settings(deadline=None, max_examples=150)
def test_whole_words_and_spans_are_those_of_the_plain_procedure(rows, longest, step):
  kinds_BxS, budget_B = rows
  is_chosen_BxS = spans(kinds_BxS, budget_B, longest, step=step)
  for state, kinds_S, budget, is_chosen_S in zip(
    row_states(5, 1, step, 0, len(kinds_BxS)), kinds_BxS, budget_B, is_chosen_BxS, strict=True
  ):
    np.testing.assert_array_equal(is_chosen_S, plainly_chosen(state, kinds_S, budget, longest))


@given(rows=rows(), step=st.integers(0, 1000))
@settings(deadline=None, max_examples=50)
def test_spans_of_one_piece_are_the_plain_choice(rows, step):
  kinds_BxS, budget_B = rows
  kinds_BxS = np.where(kinds_BxS == INSIDE, START, kinds_BxS)
  plain = chosen_tokens(row_states(5, 1, step, 0, len(kinds_BxS)), kinds_BxS != OTHER, budget_B)
  np.testing.assert_array_equal(spans(kinds_BxS, budget_B, 1, step=step), plain)
  assert plain.sum(axis=1).tolist() == budget_B.tolist()


@given(rows=rows(), longest=st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_a_word_is_chosen_whole_or_not_at_all(rows, longest):
  kinds_BxS, budget_B = rows
  for kinds_S, budget, is_chosen_S in zip(kinds_BxS, budget_B, spans(kinds_BxS, budget_B, longest), strict=True):
    assert is_chosen_S.sum() <= budget
    for word in (word for words in words_of(kinds_S, budget) for word in words):
      assert len(set(is_chosen_S[word])) == 1


def row_of(text):
  """`#` cannot be chosen, `a` begins a word, `-` goes on."""
  return [{'#': OTHER, 'a': START, '-': INSIDE}[character] for character in text]


def test_the_segments_end_is_a_words_end():
  # Two documents; the second goes on inside a word that began in an earlier row.
  kinds = np.array([row_of('#a--##--#')] * 2000)
  is_chosen = spans(kinds, np.full(2000, 3), 1)
  assert {tuple(np.flatnonzero(row)) for row in is_chosen} == {(1, 2, 3), (6, 7)}


def test_text_without_spaces_is_taken_piece_by_piece():
  longest = row_of('#a' + '-' * (LONGEST_WORD - 1) + '#')
  longer = row_of('#a' + '-' * LONGEST_WORD)
  chosen = spans(np.array([longest, longer] * 500), np.full(1000, LONGEST_WORD), 1)
  assert {row.sum() for row in chosen[::2]} == {LONGEST_WORD}
  by_position = chosen[1::2].mean(axis=0)
  share = LONGEST_WORD / (LONGEST_WORD + 1)
  assert np.abs(by_position[1:] - share).max() < SIGMAS * np.sqrt(share * (1 - share) / 500)


def test_a_word_that_exceeds_the_rows_budget_is_taken_piece_by_piece_there():
  kinds = np.array([row_of('a---a---')] * 1000)
  small, large = spans(kinds, np.full(1000, 3), 1), spans(kinds, np.full(1000, 4), 1)
  assert np.all(small.sum(axis=1) == 3)
  assert np.abs(small.mean(axis=0) - 3 / 8).max() < SIGMAS * np.sqrt(3 / 8 * 5 / 8 / 1000)
  assert {tuple(np.flatnonzero(row)) for row in large} == {(0, 1, 2, 3), (4, 5, 6, 7)}


def test_a_word_that_does_not_fit_any_more_is_passed_over_for_one_that_does():
  chosen = spans(np.array([row_of('a--a--a')] * 500), np.full(500, 4), 1)
  assert {tuple(np.flatnonzero(row)) for row in chosen} == {(0, 1, 2, 6), (3, 4, 5, 6)}


@pytest.mark.parametrize('longest', [2, 3, 5])
def test_spans_are_as_long_as_one_over_n_has_it(longest):
  # One span a row, where the budget is just the longest: what is chosen first is a span of some length.
  rows, length = 4000, 60
  kinds = np.full((rows, length), START)
  states = row_states(5, 1, 0, 0, rows)
  cuts = np.zeros(longest)
  chosen = chosen_spans(states, kinds != OTHER, kinds == START, np.full(rows, longest), longest=longest)
  for state, is_chosen in zip(states[:300], chosen, strict=False):
    np.testing.assert_array_equal(is_chosen, plainly_chosen(state, kinds[0], longest, longest))
  # All lengths of the first ten spans, which the row's end does not cut short.
  for j in range(10):
    draws = uniform(counter_rng.bits(states, counter_rng.offsets(np.array([counter_rng.SPAN_LENGTH + j]))))
    bounds = np.cumsum(1 / np.arange(1, longest + 1))
    cuts += np.bincount(np.searchsorted(bounds / bounds[-1], draws), minlength=longest)
  share = 1 / np.arange(1, longest + 1) / np.sum(1 / np.arange(1, longest + 1))
  deviation = np.sqrt(share * (1 - share) / cuts.sum())
  assert np.all(np.abs(cuts / cuts.sum() - share) < SIGMAS * deviation)


def test_chosen_tokens_have_chosen_neighbours_more_often_in_spans():
  kinds, budget = np.full((1000, 64), START), np.full(1000, 9)
  neighbours = [np.mean(np.diff(np.flatnonzero(spans(kinds, budget, longest))) == 1) for longest in (1, 2, 3, 5)]
  assert neighbours == sorted(neighbours)
  assert neighbours[0] < 0.16
  assert neighbours[2] > 0.35


@pytest.mark.parametrize('longest', [1, 3])
def test_words_at_all_places_are_chosen_alike(longest):
  # Budgets large enough that what is left over at the end hardly matters; the ends of a segment are its only edges.
  kinds = np.array([row_of('a-' * 64)] * 4000)
  by_word = spans(kinds, np.full(4000, 38), longest).mean(axis=0)[::2]
  assert np.abs(by_word - by_word.mean()).max() < (SIGMAS + 1) * np.sqrt(0.3 * 0.7 / 4000)
