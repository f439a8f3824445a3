"""Which tokens of a batch are to be predicted: pieces, whole words, or spans of several.

Rows are ragged in words and spans, so these stand in one line, row by row: C candidates, W words, U units to choose.
"""

import numpy as np

from rembert.data import counter_random

# A run without a space that is longer is no word, but Chinese, Japanese or Thai, an address, or characters spelt in
# bytes. Even in the small vocabulary of the smoke run (5,000 pieces) such runs hold 0.5 % of the pieces of English and
# 1.3 % of German, but 78 % of Thai and 98 % of Japanese.
LONGEST_WORD = 8

_NEVER = np.uint64(2**64 - 1)  # sorts behind every number that is drawn


def chosen_tokens(states_B: np.ndarray, is_candidate_BxS: np.ndarray, budget_B: np.ndarray) -> np.ndarray:
  """Chooses among the candidates, each as likely as any other of its row.

  Args:
    states_B: of each row's random numbers (`counter_random.row_states`).
    is_candidate_BxS: bool.
    budget_B: how many to choose; at most as many as there are candidates.

  Returns:
    Whether a token is chosen, bool [B, S].
  """
  most = int(budget_B.max(initial=0))
  if most == 0:
    return np.zeros_like(is_candidate_BxS)
  # Those with the smallest random numbers: the largest of these is where to cut.
  order_BxS, _ = counter_random.distinct_bits(states_B, counter_random.CHOICE, is_candidate_BxS.shape[1])
  np.copyto(order_BxS, _NEVER, where=~is_candidate_BxS)
  smallest_BxM = np.partition(order_BxS, most - 1, axis=1)[:, :most]
  if budget_B.min() < most:  # else the partition has already put the right one last
    smallest_BxM.sort(axis=1)
  largest_B = smallest_BxM[np.arange(len(budget_B)), np.maximum(budget_B, 1) - 1]
  return (order_BxS <= largest_B[:, None]) & (budget_B > 0)[:, None]


def chosen_spans(
  states_B: np.ndarray,
  is_candidate_BxS: np.ndarray,
  begins_BxS: np.ndarray,
  budget_B: np.ndarray,
  *,
  longest: int = 1,
) -> np.ndarray:
  """Chooses spans of 1 to `longest` words; all tokens of a span or none.

  A word is a piece with which one begins, and the candidates after it up to the next; [CLS], [SEP] and the ends of a
  row part words, too. So a punctuation mark belongs to the word that it is written to. BERT splits it off; ALBERT also
  takes every piece with a letter outside a–z for a word of its own, which here would leave few whole words.

  Where words are not spaced (Chinese, Japanese, Thai), all up to the next space or segment's end would be one word. A
  run of more than `LONGEST_WORD` pieces, or of more than its row may predict, counts as pieces instead: these are the
  words that the vocabulary found. Shorter runs of such languages do remain whole. In this way no token is out of reach.

  Each segment is cut into spans first, from its beginning, lengths drawn with p(n) ∝ 1/n; then spans are visited in
  random order and chosen, except where one would exceed what is left of the budget. (ALBERT draws a word and a length,
  and lets go of what meets a span already chosen: long ones come out rarer than drawn.) A span that exceeds the row's
  whole budget is taken word by word.

  Args:
    states_B: of each row's random numbers (`counter_random.row_states`).
    is_candidate_BxS: bool.
    begins_BxS: whether a token begins a word, bool; all of them for spans of pieces.
    budget_B: the most tokens to choose. If no span fits into what is left, the rest is unused; a row with a candidate
      and a budget has at least one chosen.
    longest: n.

  Returns:
    Whether a token is chosen, bool [B, S].
  """
  rows, sequence_length = is_candidate_BxS.shape
  is_chosen_BxS = np.zeros((rows, sequence_length), bool)
  candidate_C = np.flatnonzero(is_candidate_BxS)  # where in the line of all tokens
  if not len(candidate_C):
    return is_chosen_BxS
  row_C = candidate_C // sequence_length
  budget_C = budget_B[row_C]

  begins_segment_BxS = is_candidate_BxS.copy()
  begins_segment_BxS[:, 1:] &= ~is_candidate_BxS[:, :-1]
  begins_segment_C = begins_segment_BxS.reshape(-1)[candidate_C]
  begins_word_C = begins_BxS.reshape(-1)[candidate_C] | begins_segment_C
  begins_word_C |= _length_of_own(begins_word_C) > np.minimum(budget_C, LONGEST_WORD)
  begins_C = begins_word_C
  if longest > 1:
    begins_C = _begins_span(states_B, row_C, candidate_C % sequence_length, begins_segment_C, begins_word_C, longest)
    begins_C = begins_C | (begins_word_C & (_length_of_own(begins_C) > budget_C))

  first_U = np.flatnonzero(begins_C)
  length_U = np.diff(first_U, append=len(begins_C))
  length_BxS = np.zeros((rows, sequence_length), np.int32)  # of the unit that begins here
  length_BxS.reshape(-1)[candidate_C[first_U]] = length_U
  order_BxS, column_bits = counter_random.distinct_bits(states_B, counter_random.CHOICE, sequence_length)
  np.copyto(order_BxS, _NEVER, where=length_BxS == 0)
  most = int(np.count_nonzero(length_BxS, axis=1).max())
  order_BxM = np.sort(order_BxS, axis=1)[:, :most]
  # What sorts last stands for no unit. It points at a column as good as any, and is of length 0.
  column_BxM = (order_BxM & np.uint64(column_bits)).astype(np.int64)
  is_unit_BxM = order_BxM != _NEVER
  column_BxM *= is_unit_BxM
  length_BxM = np.take_along_axis(length_BxS, column_BxM, axis=1) * is_unit_BxM
  row_N, rank_N = np.nonzero(_taken(length_BxM, budget_B))

  is_first_of_chosen = np.zeros(rows * sequence_length, bool)
  is_first_of_chosen[row_N * sequence_length + column_BxM[row_N, rank_N]] = True
  is_chosen_BxS.reshape(-1)[candidate_C] = np.repeat(is_first_of_chosen[candidate_C[first_U]], length_U)
  return is_chosen_BxS


def _length_of_own(begins_C: np.ndarray) -> np.ndarray:
  """The length of the unit that each candidate belongs to."""
  length_U = np.diff(np.flatnonzero(begins_C), append=len(begins_C))
  return np.repeat(length_U, length_U)


def _begins_span(
  states_B: np.ndarray,
  row_C: np.ndarray,
  position_C: np.ndarray,
  begins_segment_C: np.ndarray,
  begins_word_C: np.ndarray,
  longest: int,
) -> np.ndarray:
  """Cuts each segment's words into spans; number j of a segment has the length drawn at the segment's word number j."""
  first_W = np.flatnonzero(begins_word_C)
  share_n = np.cumsum(1 / np.arange(1, longest + 1))
  offsets_W = counter_random.offsets(position_C[first_W].astype(np.uint64) + np.uint64(counter_random.SPAN_LENGTH))
  uniform_W = counter_random.uniform(counter_random.bits(states_B[row_C[first_W]], offsets_W))
  words_W = 1 + np.searchsorted(share_n[:-1] / share_n[-1], uniform_W, side='right')

  # Spans of one segment follow each other: where each begins is the sum of those before it.
  before_W = np.cumsum(words_W) - words_W
  segment_T = np.flatnonzero(begins_segment_C[first_W])  # its first word, among all words
  size_T = np.diff(segment_T, append=len(first_W))
  in_segment_W = before_W - np.repeat(before_W[segment_T], size_T)
  begins_at_W = (in_segment_W + np.repeat(segment_T, size_T))[in_segment_W < np.repeat(size_T, size_T)]
  begins_span_C = np.zeros_like(begins_word_C)
  begins_span_C[first_W[begins_at_W]] = True
  return begins_span_C


def _taken(length_BxM: np.ndarray, budget_B: np.ndarray) -> np.ndarray:
  """Which units are taken from left to right, one that exceeds what is left being passed over; bool [B, M].

  Not unit by unit: at once all up to the first that exceeds. What is then larger than the rest of the budget will never
  fit; without it, the next one does. So the rest shrinks with each round, and few rounds are needed.
  """
  taken_BxM = np.zeros(length_BxM.shape, bool)
  open_R, length_RxM, left_R = np.arange(len(budget_B)), length_BxM, budget_B  # rows that have not come to their end
  while len(open_R):
    fits_RxM = (length_RxM > 0) & (np.cumsum(length_RxM, axis=1) <= left_R[:, None])
    taken_BxM[open_R] |= fits_RxM
    left_R = left_R - np.sum(length_RxM, axis=1, where=fits_RxM)
    length_RxM = length_RxM * (~fits_RxM & (length_RxM <= left_R[:, None]))
    is_open_R = length_RxM.any(axis=1)
    open_R, length_RxM, left_R = open_R[is_open_R], length_RxM[is_open_R], left_R[is_open_R]
  return taken_BxM
