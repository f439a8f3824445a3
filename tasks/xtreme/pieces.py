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
    begin: [n] int32, index of the first character of the text that a piece stands for, wholly or in part.
    end: [n] int32, index behind the last that ends with the piece; the next piece begins there. `begin == end` where
      none does: the `▁` that is put before every text, a byte of a character that others follow, the 1 of a ½ that
      was normalised to 1⁄2.

  What is before the first piece and behind the last is white space, or was normalised away.
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

  @property
  def space(self) -> int:
    """Id of `▁` alone: a space before what no piece with a `▁` of its own begins."""
    return self._processor.piece_to_id('▁')

  def ids(self, text: str) -> list[int]:
    """Ids of a text, without special pieces."""
    return self._processor.encode(text)

  def with_places(self, text: str) -> PiecesOfText:
    """Ids of a text and what each stands for, in characters of `text` itself."""
    pieces = self._processor.encode(text, return_type='proto').pieces
    # SentencePiece counts the bytes of the text's UTF-8, and never ends a piece within a character.
    characters = _characters_before(text)
    return PiecesOfText(
      ids=np.array([piece.id for piece in pieces], np.int32),
      begin=characters[[piece.begin for piece in pieces]],
      end=characters[[piece.end for piece in pieces]],
    )


def _characters_before(text: str) -> np.ndarray:
  """How many characters begin before each byte of the text's UTF-8, [bytes + 1] int32."""
  encoded = np.frombuffer(text.encode(), np.uint8)
  is_first_byte = encoded & 0b1100_0000 != 0b1000_0000
  return np.concatenate([[0], np.cumsum(is_first_byte)]).astype(np.int32)
