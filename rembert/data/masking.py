"""BERT's masking, drawn anew at every step: which tokens to predict, and what the model sees in their place."""

import dataclasses
import math
from typing import Annotated

import numpy as np

from rembert.data import counter_random
from rembert.data.chosen_tokens import chosen_spans, chosen_tokens
from rembert.errors import UsageError
from rembert.validation import Count, Fraction, Range, check_fields


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


@dataclasses.dataclass(frozen=True)
class SpecialIds:
  """Ids that mean something to the model, and where ordinary pieces begin; by default the released vocabulary's."""

  pad: int = 0
  unknown: int = 2
  cls: int = 312
  sep: int = 313
  mask: int = 314

  @property
  def first_piece(self) -> int:
    """Every id below is special or unused; random replacements are drawn from here on."""
    return self.mask + 1


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
    seed: of the run.
    stream: what the masks are for (`rembert.data.mixture`).
    step: of training; or number of the batch in evaluation.
    first_row: number of the first row in the global batch.
    special: ids that are never chosen.
    vocab_size: random replacements are drawn uniformly from [`special.first_piece`, `vocab_size`).
    config: shares and spans.
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
  states_B = counter_random.row_states(seed, stream, step, first_row, rows)

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
  purposes = np.array([[counter_random.KIND], [counter_random.REPLACEMENT]], np.uint64)
  offsets_2xN = counter_random.offsets(position_N.astype(np.uint64) + purposes)
  kind_N, replacement_N = counter_random.uniform(counter_random.bits(states_N, offsets_2xN))
  pieces = vocab_size - special.first_piece
  replacement_N = special.first_piece + (replacement_N * pieces).astype(np.int32)
  is_replaced_N = kind_N < config.mask_share + config.random_share
  return np.where(kind_N < config.mask_share, special.mask, np.where(is_replaced_N, replacement_N, targets_N))
