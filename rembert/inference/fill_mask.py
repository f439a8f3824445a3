"""Mask filling: the most probable tokens for each mask of a text."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rembert.errors import UsageError
from rembert.tokenizer import MASK, TextEncoder

if TYPE_CHECKING:
  from rembert.inference.model import LoadedModel


class FilledMask(NamedTuple):
  """One candidate for a mask: its token, id and probability."""

  piece: str
  id: int
  probability: float


def fill_masks(model: 'LoadedModel', encoder: TextEncoder, text: str, top_k: int = 5) -> list[list[FilledMask]]:
  """The `top_k` most probable tokens for each `[MASK]` of a text, in order.

  Probabilities are over the whole vocabulary, as in Hugging Face's pipeline.

  Raises:
    UsageError: the text has no mask, or exceeds the model's positions.
  """
  ids = np.asarray([encoder.encode(text)])
  masks = np.flatnonzero(ids[0] == encoder.special.mask)
  if not masks.size:
    raise UsageError(f'no {MASK} in the text', where=repr(text), fix=f'write {MASK} where a token is to be predicted')
  logits_BxSxV = model(ids).logits
  assert logits_BxSxV is not None  # the head is `mlm`
  logits_MxV = np.asarray(logits_BxSxV[0, masks], np.float64)
  probabilities_MxV = np.exp(logits_MxV - logits_MxV.max(-1, keepdims=True))
  probabilities_MxV /= probabilities_MxV.sum(-1, keepdims=True)
  best_MxK = np.argsort(-logits_MxV, axis=-1, kind='stable')[:, :top_k]
  return [
    [FilledMask(encoder.piece(piece), int(piece), float(row[piece])) for piece in best]
    for row, best in zip(probabilities_MxV, best_MxK, strict=True)
  ]
