"""BERT's masking, sampled again at every step (dynamic masking): the tokens to predict, and their replacements."""

import dataclasses
import math
from typing import Annotated

import numpy as np

from rembert.data import counter_rng
from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds
from rembert.validation import Fraction, Range, check_fields

_NEVER = np.uint64(2**64 - 1)  # sorts after all random numbers


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
  """Masked language modelling as in BERT (google-research/bert, create_pretraining_data.py).

  Attributes:
    rate: fraction of a sequence's tokens to predict; [CLS] and [SEP] count in its length but are never chosen.
    mask_share: fraction of the chosen tokens replaced by [MASK].
    random_share: fraction replaced by a random token; the rest is unchanged. All of them are predicted.
  """

  rate: Annotated[float, Range(above=0, most=1)] = 0.15
  mask_share: Fraction = 0.8
  random_share: Fraction = 0.1

  def __post_init__(self):
    check_fields(self, 'masking')
    if self.mask_share + self.random_share > 1 + 1e-9:
      raise UsageError(
        'masking.mask_share and masking.random_share sum to more than 1',
        where=f'masking.mask_share = {self.mask_share!r}, masking.random_share = {self.random_share!r}',
        fix='BERT: 0.8 and 0.1',
      )

  def slots(self, sequence_length: int) -> int:
    """K, the fixed number of masked positions per sequence, enough for a full one."""
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
  slots: int | None = None,
) -> dict[str, np.ndarray]:
  """Masks the sequences of a step from `first_row` on, all at once.

  The masks of sequence r depend only on its ids and (seed, stream, step, r), not on the batch or host.

  A row of n tokens, padding not counted, has max(1, round(n · `rate`)) predictions, but no more than K and no more than
  there are candidates: everything but [PAD], [CLS] and [SEP]. A row without candidates has none.

  Args:
    ids_BxS: int32, packed and padded.
    stream: random stream (`rembert.data.mixture`).
    step: training step, or number of the batch in evaluation.
    first_row: index of the first sequence in the global batch.
    vocab_size: random replacements are sampled uniformly from [`special.first_piece`, `vocab_size`).
    slots: K, if it is not that of `config`, which may have a smaller rate for the moment.

  Returns:
    `input_ids` [B, S] int32; `masked_positions` [B, K] int32 in ascending order, `targets` [B, K] int32 and `weights`
    [B, K] float32, of which the slots beyond a row's number of predictions have position, target and weight 0.

  Raises:
    ValueError: there is no token for random replacements.
  """
  if vocab_size <= special.first_piece:
    raise ValueError(f'no ordinary token among {vocab_size}: the first is {special.first_piece}')
  rows, sequence_length = ids_BxS.shape
  slots = slots or config.slots(sequence_length)
  states_B = counter_rng.row_states(seed, stream, step, first_row, rows)

  is_token_BxS = ids_BxS != special.pad
  is_candidate_BxS = is_token_BxS & (ids_BxS != special.cls) & (ids_BxS != special.sep)
  lengths_B = np.count_nonzero(is_token_BxS, axis=1)
  budget_B = np.clip(np.rint(lengths_B * config.rate), 1, slots).astype(np.int64)  # rint rounds like round
  budget_B = np.minimum(budget_B, np.count_nonzero(is_candidate_BxS, axis=1))
  is_chosen_BxS = chosen_tokens(states_B, is_candidate_BxS, budget_B)

  # From here on the N chosen tokens of all sequences are in one array, by sequence and in ascending order.
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
  """The input of the model for each chosen token, sampled independently."""
  purposes = np.array([[counter_rng.KIND], [counter_rng.REPLACEMENT]], np.uint64)
  offsets_2xN = counter_rng.offsets(position_N.astype(np.uint64) + purposes)
  kind_N, replacement_N = counter_rng.uniform(counter_rng.bits(states_N, offsets_2xN))
  pieces = vocab_size - special.first_piece
  replacement_N = special.first_piece + (replacement_N * pieces).astype(np.int32)
  is_replaced_N = kind_N < config.mask_share + config.random_share
  return np.where(kind_N < config.mask_share, special.mask, np.where(is_replaced_N, replacement_N, targets_N))


def chosen_tokens(states_B: np.ndarray, is_candidate_BxS: np.ndarray, budget_B: np.ndarray) -> np.ndarray:
  """Chooses `budget_B` of each sequence's candidates uniformly; there are at least that many.

  `states_B` are those of the rows' random numbers (`counter_rng.row_states`). Returns the choice, bool [B, S].
  """
  most = int(budget_B.max(initial=0))
  if most == 0:
    return np.zeros_like(is_candidate_BxS)
  # Those with the smallest random numbers, up to a threshold.
  order_BxS = counter_rng.distinct_bits(states_B, counter_rng.CHOICE, is_candidate_BxS.shape[1])
  np.copyto(order_BxS, _NEVER, where=~is_candidate_BxS)
  smallest_BxM = np.partition(order_BxS, most - 1, axis=1)[:, :most]
  if budget_B.min() < most:  # else the partition has already put the threshold last
    smallest_BxM.sort(axis=1)
  largest_B = smallest_BxM[np.arange(len(budget_B)), np.maximum(budget_B, 1) - 1]
  return (order_BxS <= largest_B[:, None]) & (budget_B > 0)[:, None]
