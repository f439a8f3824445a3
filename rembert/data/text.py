"""Lines of text to rows of ids for a trained model: special pieces, masks, cutting."""

from collections.abc import Sequence

import sentencepiece
from etils import epath

from rembert.data.masking import SpecialIds

MASK = '[MASK]'


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
