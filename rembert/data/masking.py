"""BERT's masking, drawn anew at every step: which tokens to predict, and what the model sees in their place."""

import dataclasses
import math

import numpy as np

from rembert.data.mixture import random_stream


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
  """Masked language modelling as in BERT (google-research/bert, create_pretraining_data.py).

  Attributes:
    rate: share of a row's tokens to predict, [CLS] and [SEP] counted in the row's length but never chosen.
    mask_share: share of the chosen tokens shown as [MASK].
    random_share: share shown as a random piece; the rest is shown as it is. All of them are predicted.
  """

  rate: float = 0.15
  mask_share: float = 0.8
  random_share: float = 0.1

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


def mask_row(
  ids_S: np.ndarray,
  random: np.random.Generator,
  *,
  special: SpecialIds,
  vocab_size: int,
  config: MaskingConfig,
  slots: int,
) -> dict[str, np.ndarray]:
  """Masks one row.

  Args:
    ids_S: int32, packed and padded.
    random: the row's own generator.
    special: ids that are never chosen.
    vocab_size: random replacements are drawn uniformly from [`special.first_piece`, `vocab_size`).
    config: shares.
    slots: K.

  Returns:
    `input_ids` [S]; `masked_positions` [K] in ascending order, `targets` [K] and `weights` [K] (float32), of which the
    slots beyond the row's number of predictions have position 0 and weight 0.
  """
  length = np.count_nonzero(ids_S != special.pad)
  candidates = np.flatnonzero((ids_S != special.pad) & (ids_S != special.cls) & (ids_S != special.sep))
  count = min(slots, len(candidates), max(1, round(length * config.rate)))
  chosen = np.sort(random.permutation(candidates)[:count])

  kind = random.random(count)
  replacements = random.integers(special.first_piece, vocab_size, count)
  shown = np.where(
    kind < config.mask_share,
    special.mask,
    np.where(kind < config.mask_share + config.random_share, replacements, ids_S[chosen]),
  )
  input_ids_S = ids_S.copy()
  input_ids_S[chosen] = shown

  row = {
    'input_ids': input_ids_S,
    'masked_positions': np.zeros(slots, np.int32),
    'targets': np.zeros(slots, np.int32),
    'weights': np.zeros(slots, np.float32),
  }
  row['masked_positions'][:count] = chosen
  row['targets'][:count] = ids_S[chosen]
  row['weights'][:count] = 1
  return row


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
) -> dict[str, np.ndarray]:
  """Masks rows `first_row`… of a step. Row r's masks depend on (seed, step, r) alone, not on who reads it with whom."""
  slots = config.slots(ids_BxS.shape[1])
  rows = [
    mask_row(
      ids_S,
      random_stream(seed, stream, step, first_row + r),
      special=special,
      vocab_size=vocab_size,
      config=config,
      slots=slots,
    )
    for r, ids_S in enumerate(ids_BxS)
  ]
  return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
