"""BERT's masking, drawn anew at every step: which tokens to predict, and what the model sees in their place.

Predicted are pieces, whole words, or spans of several. Rows are ragged in words and spans, so these stand in one line,
row by row: C candidates, W words, U units to choose. Masked rows with their segments and languages are a batch.
"""

import abc
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Annotated

import numpy as np

from rembert.data import counter_rng
from rembert.data.packing import segments_and_positions
from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds
from rembert.validation import Count, Fraction, Range, check_fields

# A run without a space that is longer is no word, but Chinese, Japanese or Thai, an address, or characters spelt in
# bytes. Even in the small vocabulary of the smoke run (5,000 pieces) such runs hold 0.5 % of the pieces of English and
# 1.3 % of German, but 78 % of Thai and 98 % of Japanese.
LONGEST_WORD = 8

_NEVER = np.uint64(2**64 - 1)  # sorts behind every number that is drawn


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
  """Masked language modelling as in BERT (google-research/bert, create_pretraining_data.py).

  Attributes:
    rate: share of a row's tokens to predict, [CLS] and [SEP] counted in the row's length but never chosen.
    mask_share: share of the chosen tokens shown as [MASK].
    random_share: share shown as a random piece; the rest is shown as it is. All of them are predicted.
    whole_word: choose words rather than pieces: all pieces of a word or none. Each piece is still shown as [MASK], as
      another or as itself on its own, as in BERT's and ALBERT's whole-word masking. See `chosen_spans`.
    ngram: longest span of neighbours that are chosen together, words with `whole_word`, else pieces; spans of 1, 2, …
      are drawn in proportion to 1, 1/2, …. ALBERT has 3 with whole words.

  Held-out rows are masked in the same way. Whole words are harder to guess than pieces: losses compare within one
  manner of masking only.
  """

  rate: Annotated[float, Range(above=0, most=1)] = 0.15
  mask_share: Fraction = 0.8
  random_share: Fraction = 0.1
  whole_word: bool = False
  ngram: Count = 1

  def __post_init__(self):
    check_fields(self, 'masking')
    if self.mask_share + self.random_share > 1 + 1e-9:
      raise UsageError(
        'the shares shown as [MASK] and as a random piece are more than the chosen tokens',
        where=f'masking.mask_share = {self.mask_share!r}, masking.random_share = {self.random_share!r}',
        fix='together at most 1; 0.8 and 0.1 are BERT',
      )

  @property
  def manner(self) -> str:
    """How pieces are chosen, in words."""
    if self.ngram > 1:
      return f'in spans of 1 to {self.ngram} {"words" if self.whole_word else "pieces"}'
    return 'as whole words' if self.whole_word else 'one by one'

  def slots(self, sequence_length: int) -> int:
    """K, the fixed number of predictions per row: enough for a full row."""
    return max(1, math.ceil(sequence_length * self.rate))


def mask_rows(
  ids_BxS: np.ndarray,
  *,
  seed: int,
  stream: int,
  step: int,
  first_row: int,
  special: SpecialIds,
  vocab_size: int,
  config: MaskingConfig,
  begins_word_V: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
  """Masks rows `first_row`… of a step, all at once.

  Row r's masks depend on its ids and (seed, stream, step, r) alone, not on who reads it with whom.

  A row of n tokens, padding not counted, has max(1, round(n · `rate`)) predictions, but no more than K and no more than
  there are candidates: everything but [PAD], [CLS] and [SEP]. A row without candidates has none. Whole words and spans
  can leave some of that unused, when none of them fits into what is left.

  Args:
    ids_BxS: int32, packed and padded.
    stream: what the masks are for (`rembert.data.mixture`).
    step: of training; or number of the batch in evaluation.
    first_row: number of the first row in the global batch.
    vocab_size: random replacements are drawn uniformly from [`special.first_piece`, `vocab_size`).
    begins_word_V: whether a piece begins a word, bool; needed with `config.whole_word`.

  Returns:
    `input_ids` [B, S] int32; `masked_positions` [B, K] int32 in ascending order, `targets` [B, K] int32 and `weights`
    [B, K] float32, of which the slots beyond a row's number of predictions have position, target and weight 0.

  Raises:
    ValueError: no piece to replace a token with, or whole words and no `begins_word_V`.
  """
  if vocab_size <= special.first_piece:
    raise ValueError(f'no ordinary piece among {vocab_size}: the first is {special.first_piece}')
  if config.whole_word and begins_word_V is None:
    raise ValueError('whole words need to know which pieces begin one: begins_word_V')
  rows, sequence_length = ids_BxS.shape
  slots = config.slots(sequence_length)
  states_B = counter_rng.row_states(seed, stream, step, first_row, rows)

  is_token_BxS = ids_BxS != special.pad
  is_candidate_BxS = is_token_BxS & (ids_BxS != special.cls) & (ids_BxS != special.sep)
  lengths_B = np.count_nonzero(is_token_BxS, axis=1)
  budget_B = np.clip(np.rint(lengths_B * config.rate), 1, slots).astype(np.int64)  # rint rounds as round does
  budget_B = np.minimum(budget_B, np.count_nonzero(is_candidate_BxS, axis=1))
  if config.whole_word or config.ngram > 1:
    begins_BxS = begins_word_V[ids_BxS] if config.whole_word else is_candidate_BxS
    is_chosen_BxS = chosen_spans(states_B, is_candidate_BxS, begins_BxS, budget_B, longest=config.ngram)
  else:
    is_chosen_BxS = chosen_tokens(states_B, is_candidate_BxS, budget_B)

  # From here on the N chosen tokens of all rows stand in one line, row by row and in ascending order.
  chosen_N = np.flatnonzero(is_chosen_BxS)
  row_N, position_N = np.divmod(chosen_N, sequence_length)
  targets_N = ids_BxS.reshape(-1)[chosen_N]
  shown_N = _shown(states_B[row_N], position_N, targets_N, special, vocab_size, config)
  input_ids_BxS = ids_BxS.copy()
  input_ids_BxS.reshape(-1)[chosen_N] = shown_N

  counts_B = np.bincount(row_N, minlength=rows)
  slot_N = np.arange(len(chosen_N)) + (np.arange(rows) * slots - np.cumsum(counts_B) + counts_B)[row_N]
  masked = {
    'input_ids': input_ids_BxS,
    'masked_positions': np.zeros((rows, slots), np.int32),
    'targets': np.zeros((rows, slots), np.int32),
    'weights': np.zeros((rows, slots), np.float32),
  }
  for name, values in ('masked_positions', position_N), ('targets', targets_N), ('weights', 1):
    masked[name].reshape(-1)[slot_N] = values
  return masked


def _shown(
  states_N: np.ndarray,
  position_N: np.ndarray,
  targets_N: np.ndarray,
  special: SpecialIds,
  vocab_size: int,
  config: MaskingConfig,
) -> np.ndarray:
  """What the model sees instead of each chosen token, drawn for each on its own."""
  purposes = np.array([[counter_rng.KIND], [counter_rng.REPLACEMENT]], np.uint64)
  offsets_2xN = counter_rng.offsets(position_N.astype(np.uint64) + purposes)
  kind_N, replacement_N = counter_rng.uniform(counter_rng.bits(states_N, offsets_2xN))
  pieces = vocab_size - special.first_piece
  replacement_N = special.first_piece + (replacement_N * pieces).astype(np.int32)
  is_replaced_N = kind_N < config.mask_share + config.random_share
  return np.where(kind_N < config.mask_share, special.mask, np.where(is_replaced_N, replacement_N, targets_N))


def chosen_tokens(states_B: np.ndarray, is_candidate_BxS: np.ndarray, budget_B: np.ndarray) -> np.ndarray:
  """Chooses `budget_B` of each row's candidates, of which there are at least as many; each is as likely as any other.

  `states_B` are those of the rows' random numbers (`counter_rng.row_states`). Returns what is chosen, bool [B, S].
  """
  most = int(budget_B.max(initial=0))
  if most == 0:
    return np.zeros_like(is_candidate_BxS)
  # Those with the smallest random numbers: the largest of these is where to cut.
  order_BxS, _ = counter_rng.distinct_bits(states_B, counter_rng.CHOICE, is_candidate_BxS.shape[1])
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
    begins_BxS: whether a token begins a word, bool; all of them for spans of pieces.
    budget_B: the most tokens to choose. If no span fits into what is left, the rest is unused; a row with a candidate
      and a budget has at least one chosen.

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
  order_BxS, column_bits = counter_rng.distinct_bits(states_B, counter_rng.CHOICE, sequence_length)
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
  offsets_W = counter_rng.offsets(position_C[first_W].astype(np.uint64) + np.uint64(counter_rng.SPAN_LENGTH))
  uniform_W = counter_rng.uniform(counter_rng.bits(states_B[row_C[first_W]], offsets_W))
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


# --- batches ----------------------------------------------------------------------------------------------------------

Batch = dict[str, np.ndarray]


def batch_shapes(rows: int, sequence_length: int, slots: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
  """Shape and type of every array of a batch: S = `sequence_length` positions, K = `slots` predictions a row."""
  positions, predictions = (rows, sequence_length), (rows, slots)
  shapes = dict.fromkeys(('input_ids', 'segment_ids', 'position_ids'), (positions, np.dtype(np.int32)))
  shapes |= dict.fromkeys(('masked_positions', 'targets'), (predictions, np.dtype(np.int32)))
  return shapes | {'weights': (predictions, np.dtype(np.float32)), 'language': ((rows,), np.dtype(np.int32))}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSource(abc.ABC):
  """Where training gets its batches: from text as it streams by, or from a store that is read by index.

  Attributes:
    rates: sampling rate of each language; its order numbers the languages.
    batch_size: rows of the global batch.
    vocab_size: upper bound of random replacements.
    seed: of everything random here.
    masking: shares and spans.
    begins_word_V: whether a piece begins a word, bool; needed where `masking` asks for whole words.
    evaluation_rows: held-out rows per language.
    process: index of this process, and how many there are.
  """

  rates: Mapping[str, float]
  batch_size: int
  vocab_size: int
  seed: int
  masking: MaskingConfig = MaskingConfig()
  begins_word_V: np.ndarray | None = None
  evaluation_rows: int = 32
  process: tuple[int, int] = (0, 1)

  @property
  def languages(self) -> tuple[str, ...]:
    """Codes in the order that `language` in a batch counts."""
    return tuple(self.rates)

  @property
  @abc.abstractmethod
  def special(self) -> SpecialIds:
    """Ids of special pieces."""

  @abc.abstractmethod
  def batches(self, step: int = 0, state: dict | None = None) -> Iterator[tuple[Batch, dict]]:
    """This process's rows of the batches of steps `step`, `step` + 1, …, each with the state to resume after it."""

  @abc.abstractmethod
  def evaluation_batches(self) -> Iterator[Batch]:
    """This process's rows of a fixed set of held-out batches; the last is padded with rows of weight 0."""

  @property
  def own_rows(self) -> slice:
    """This process's rows of a global batch."""
    index, count = self.process
    share = self.batch_size // count
    return slice(index * share, (index + 1) * share)

  def masked(self, ids_NxS: np.ndarray, languages: np.ndarray, *, stream: int, step: int) -> Batch:
    """This process's packed rows of a step, int32 [N, S], with their languages [N], as a batch."""
    masked = mask_rows(
      ids_NxS,
      seed=self.seed,
      stream=stream,
      step=step,
      first_row=self.own_rows.start,
      special=self.special,
      vocab_size=self.vocab_size,
      config=self.masking,
      begins_word_V=self.begins_word_V,
    )
    segments, positions = segments_and_positions(ids_NxS, self.special)
    return {**masked, 'segment_ids': segments, 'position_ids': positions, 'language': languages}
