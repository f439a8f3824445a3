"""Lines of text to rows of ids for a trained model: special pieces, masks, padding, rows of like length together."""

from collections.abc import Iterator, Sequence

import numpy as np
import sentencepiece
from etils import epath

from rembert.data.masking import SpecialIds
from rembert.errors import UsageError

MASK = '[MASK]'
_STEP = 8  # of lengths up to 64 that batches have; see `_rounded_up`


class TextEncoder:
  """Text to ids with a SentencePiece vocabulary of RemBERT, as `[CLS] text [SEP]`.

  `[MASK]` in a text becomes the mask, with the space before it; the parts around it are words of their own. Hugging
  Face's tokenizer does the same.
  """

  def __init__(self, vocabulary: epath.PathLike):
    self._processor = sentencepiece.SentencePieceProcessor()
    self._processor.LoadFromSerializedProto(epath.Path(vocabulary).read_bytes())
    self.special = SpecialIds()

  def encode(self, text: str) -> list[int]:
    """Ids of one text with [CLS] and [SEP]."""
    parts = text.split(MASK)
    ids = [self.special.cls]
    for index, part in enumerate(parts):
      is_before_mask = index < len(parts) - 1
      ids += self._processor.encode(part.rstrip() if is_before_mask else part)
      ids += [self.special.mask] if is_before_mask else []
    return [*ids, self.special.sep]

  def piece(self, index: int) -> str:
    """The piece, as written in the vocabulary."""
    return self._processor.id_to_piece(int(index)) if index < self._processor.get_piece_size() else f'[{index}]'

  def __len__(self) -> int:
    return self._processor.get_piece_size()


def cut(ids: Sequence[int], longest: int) -> list[int]:
  """At most `longest` ids; [SEP] stays the last."""
  return list(ids) if len(ids) <= longest else [*ids[: longest - 1], ids[-1]]


def padded_rows(
  rows: Sequence[Sequence[int]], *, pad: int, batch_size: int, longest: int
) -> Iterator[tuple[list[int], np.ndarray, np.ndarray]]:
  """Batches of rows of like length: which rows they are, ids and mask, each [batch_size, S] int32.

  The longest rows come first, so that what needs the most memory is known at once, and the last batch, which is filled
  up with empty rows that no index stands for, is the shortest.

  Args:
    rows: ids, at most `longest` of each.
    pad: id of [PAD].
    batch_size: rows in a batch.
    longest: positions of the model.
  """
  if any(len(row) > longest for row in rows):
    raise UsageError('a row is longer than the model has positions', where='padded_rows', fix='cut it')
  by_length = sorted(range(len(rows)), key=lambda row: len(rows[row]), reverse=True)
  for start in range(0, len(rows), batch_size):
    chosen = by_length[start : start + batch_size]
    length = min(longest, _rounded_up(len(rows[chosen[0]])))
    ids = np.full((batch_size, length), pad, np.int32)
    mask = np.zeros((batch_size, length), np.int32)
    for place, row in enumerate(chosen):
      ids[place, : len(rows[row])] = rows[row]
      mask[place, : len(rows[row])] = 1
    yield chosen, ids, mask


def _rounded_up(length: int) -> int:
  """To one of four lengths between two powers of 2, but not finer than `_STEP`: 8, 16, …, 64, 80, 96, 112, 128, 160, …

  Few shapes are compiled, twenty up to 512, and most sentences, which are short, get little padding.
  """
  step = max(_STEP, 2 ** max(length - 1, 0).bit_length() // 8)
  return -(-length // step) * step
