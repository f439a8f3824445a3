"""Texts to pieces of a vocabulary, with the place of each in the text as it was before it was normalised."""

import dataclasses

import numpy as np
import sentencepiece
from etils import epath

from rembert.data.masking import SpecialIds


@dataclasses.dataclass(frozen=True)
class PiecesOfText:
  """Pieces of one text.

  Attributes:
    ids: [n] int32.
    begin: [n] int32, index of the first character of the text that a piece stands for.
    end: [n] int32, index behind the last; `begin == end` where a piece stands for none of its own, as the second byte
      of a character that was taken to bytes.
  """

  ids: np.ndarray
  begin: np.ndarray
  end: np.ndarray


class Pieces:
  """A SentencePiece vocabulary of RemBERT."""

  def __init__(self, vocabulary: epath.PathLike):
    self._processor = sentencepiece.SentencePieceProcessor()
    self._processor.LoadFromSerializedProto(epath.Path(vocabulary).read_bytes())
    self.special = SpecialIds()

  def __len__(self) -> int:
    return self._processor.get_piece_size()

  def ids(self, text: str) -> list[int]:
    """Ids of a text, without special pieces."""
    return self._processor.encode(text)

  def with_places(self, text: str) -> PiecesOfText:
    """Ids of a text and what each stands for, in characters of `text` itself."""
    raise NotImplementedError
