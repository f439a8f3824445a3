"""The most likely pieces for the masks of a text."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rembert.errors import UsageError
from rembert.tokenizer import MASK, TextEncoder

if TYPE_CHECKING:
  from rembert.inference.model import LoadedModel


class FilledMask(NamedTuple):
  """One candidate for a mask: its piece, id and probability."""

  piece: str
  id: int
  probability: float


def fill_masks(model: 'LoadedModel', encoder: TextEncoder, text: str, top_k: int = 5) -> list[list[FilledMask]]:
  """The `top_k` best pieces for every `[MASK]` of a text, in their order.

  Probabilities are over the whole vocabulary, as in Hugging Face's pipeline.

  Raises:
    UsageError: the text has no mask, or is longer than the model.
  """
  ids = np.asarray([encoder.encode(text)])
  masks = np.flatnonzero(ids[0] == encoder.special.mask)
  if not masks.size:
    raise UsageError(f'no {MASK} in the text', where=repr(text), fix=f'put {MASK} where a piece is to be found')
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
