"""Embeddings for another vocabulary: tokens of both keep their rows, new ones get the mean of their old subwords.

This is fast vocabulary transfer (Gee et al., 2022, "Fast Vocabulary Transfer for Language Model Compression", EMNLP
Industry Track, arXiv:2402.09977), here for the input embedding, the output embedding and the output bias.
"""

import dataclasses
import functools

import numpy as np
import sentencepiece
from etils import epath

from rembert.tokenizer import load_vocabulary, parse_model

_SPACE = '\N{LOWER ONE EIGHTH BLOCK}'  # in tokens, at the beginning of a word


@dataclasses.dataclass(frozen=True)
class VocabularyTransfer:
  """Which old rows each new row is the mean of.

  Attributes:
    subwords: old ids by new id: one for a token that both vocabularies have; () for a row to be initialised randomly,
      of a token that the old vocabulary has only [UNK] for, of a special one, or beyond the vocabulary.
    copied: tokens that both vocabularies have.
    averaged: tokens whose rows are means.
    initialised: tokens whose rows are initialised randomly.
  """

  subwords: tuple[tuple[int, ...], ...]
  copied: int
  averaged: int
  initialised: int

  @functools.cached_property
  def is_new(self) -> np.ndarray:
    """Bool, [V]: which rows are initialised randomly."""
    return np.array([not ids for ids in self.subwords])

  def rows(self, old: np.ndarray) -> np.ndarray:
    """The new tensor, float32 [V, …], of the old one; rows that `is_new` are 0. Means are summed in float64."""
    new = np.zeros((len(self.subwords), *old.shape[1:]), np.float32)
    for row, ids in enumerate(self.subwords):
      if ids:
        new[row] = old[ids[0]] if len(ids) == 1 else old[list(ids)].mean(axis=0, dtype=np.float64)
    return new


def plan_transfer(old: epath.PathLike, new: epath.PathLike, rows: int) -> VocabularyTransfer:
  """The transfer from one SentencePiece model to another, whose embeddings have `rows`."""
  before, after = load_vocabulary(old), load_vocabulary(new)
  continued = _without_word_start(before)
  ids = {before.id_to_piece(index): index for index in range(before.get_piece_size())}
  subwords: list[tuple[int, ...]] = []
  copied = 0
  for index in range(after.get_piece_size()):
    token = after.id_to_piece(index)
    is_text = not (after.is_control(index) or after.is_unknown(index) or after.is_unused(index) or after.is_byte(index))
    if token in ids:
      subwords.append((ids[token],))
      copied += 1
    elif is_text:
      parts = continued.encode(token.replace(_SPACE, ' '))
      subwords.append(tuple(part for part in parts if part != before.unk_id()))
    else:
      subwords.append(())
  initialised = subwords.count(())
  averaged = len(subwords) - copied - initialised
  subwords += [()] * (rows - len(subwords))
  return VocabularyTransfer(tuple(subwords), copied, averaged, initialised)


def _without_word_start(processor: sentencepiece.SentencePieceProcessor) -> sentencepiece.SentencePieceProcessor:
  """A processor that puts no space before a text and keeps the one that is there: 'ing' and ' ing' stay different."""
  proto = parse_model(processor.serialized_model_proto())
  proto.normalizer_spec.add_dummy_prefix = False
  proto.normalizer_spec.remove_extra_whitespaces = False
  proto.ClearField('self_test_data')  # expects the other settings
  changed = sentencepiece.SentencePieceProcessor()
  changed.LoadFromSerializedProto(proto.SerializeToString())
  return changed
