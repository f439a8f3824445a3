"""Documents into rows of fixed length: `[CLS] … [SEP] [CLS] … [SEP]`, each document a segment of its own."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from rembert.data.masking import SpecialIds

# A gap at the end of a row that is too short to hold this many tokens stays padding: scraps teach little.
_SHORTEST_SEGMENT = 8


class Row(NamedTuple):
  """One packed row, int32 [S] each.

  Attributes:
    ids: token ids; [PAD] at the end.
    segments: 1 for the first document of the row, 2 for the next …; 0 on padding.
    positions: 0, 1, 2 … from the start of each segment.
  """

  ids: np.ndarray
  segments: np.ndarray
  positions: np.ndarray


@dataclasses.dataclass(frozen=True)
class Place:
  """Where in a stream of documents a row begins: so many tokens of document number `document` are already used."""

  document: int = 0
  offset: int = 0


def pack(
  documents: Iterable[np.ndarray],
  sequence_length: int,
  special: SpecialIds,
  *,
  start: Place = Place(),
) -> Iterator[tuple[Row, Place]]:
  """Packs documents in order; a document that does not fit goes on in the next row, with [CLS] and [SEP] again.

  Args:
    documents: ids of each document, beginning with number `start.document`.
    sequence_length: S.
    special: ids of [CLS], [SEP], [PAD].
    start: where to begin; packing from a place that was yielded gives the very rows that followed it.

  Yields:
    A row, and the place at which the next one begins. The last row may be short.
  """
  segments: list[np.ndarray] = []
  room = sequence_length

  def row() -> Row:
    lengths = [len(segment) + 2 for segment in segments]
    ids = np.full(sequence_length, special.pad, np.int32)
    owner = np.zeros(sequence_length, np.int32)
    positions = np.zeros(sequence_length, np.int32)
    at = 0
    for number, (segment, length) in enumerate(zip(segments, lengths, strict=True), start=1):
      ids[at : at + length] = [special.cls, *segment, special.sep]
      owner[at : at + length] = number
      positions[at : at + length] = np.arange(length)
      at += length
    return Row(ids, owner, positions)

  offset = start.offset
  number = start.document - 1
  for number, document in enumerate(documents, start=start.document):
    while offset < len(document):
      piece = document[offset : offset + room - 2]
      segments.append(piece)
      offset += len(piece)
      room -= len(piece) + 2
      if room < _SHORTEST_SEGMENT + 2:
        yield row(), Place(number, offset) if offset < len(document) else Place(number + 1)
        segments, room = [], sequence_length
    offset = 0
  if segments:
    yield row(), Place(number + 1)
