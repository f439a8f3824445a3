"""Packs documents into sequences of fixed length, `[CLS] … [SEP] [CLS] … [SEP]`, each document a segment."""

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from rembert.data.mixture import LENGTH_STREAM, random_stream
from rembert.tokenizer import SpecialIds
from rembert.validation import Fraction, check_fields

# A gap at the end of a sequence that is too short for this many tokens stays padding.
SHORTEST_SEGMENT = 8


@dataclasses.dataclass(frozen=True)
class Place:
  """Where in a stream of documents a sequence begins: the document, and the number of its tokens already used."""

  document: int = 0
  offset: int = 0


@dataclasses.dataclass(frozen=True)
class PackingConfig:
  """Packing of documents into sequences.

  Attributes:
    one_document_a_row: begin every sequence with a new document or the rest of one, and pad it (as BERT's data was
      made); by default sequences are filled with the following documents.
    short_rows: fraction of sequences that are truncated to a uniform random length, as BERT's `short_seq_prob` (0.1
      there), so that the model sees short inputs. The rest of the document continues in the next sequence.
  """

  one_document_a_row: bool = False
  short_rows: Fraction = 0.0

  def __post_init__(self):
    check_fields(self, 'packing')

  def capacity(self, sequence_length: int, start: Place) -> int:
    """Number of tokens of the sequence that begins at a place, with [CLS] and [SEP]; depends only on the place."""
    if not self.short_rows:
      return sequence_length
    random = random_stream(0, LENGTH_STREAM, start.document, start.offset)
    if random.random() >= self.short_rows:
      return sequence_length
    return int(random.integers(min(SHORTEST_SEGMENT + 2, sequence_length), sequence_length + 1))


def pack(
  documents: Iterable[np.ndarray],
  sequence_length: int,
  special: SpecialIds,
  *,
  start: Place = Place(),
  config: PackingConfig = PackingConfig(),
) -> Iterator[tuple[np.ndarray, Place]]:
  """Packs documents in order; a document that does not fit continues in the next sequence, with [CLS] and [SEP] again.

  Args:
    documents: ids of each document, starting with number `start.document`.
    start: where to begin; packing from a yielded place gives the sequences that followed it.

  Yields:
    Ids of a sequence, int32 [S], and the place where the next one begins. The last may be short.
  """
  segments: list[np.ndarray] = []
  room = config.capacity(sequence_length, start)

  def row() -> np.ndarray:
    ids, at = np.full(sequence_length, special.pad, np.int32), 0
    for segment in segments:
      end = at + 1 + len(segment)
      ids[at], ids[at + 1 : end], ids[end] = special.cls, segment, special.sep
      at = end + 1
    return ids

  offset = start.offset
  number = start.document - 1
  for number, document in enumerate(documents, start=start.document):
    while offset < len(document):
      piece = document[offset : offset + room - 2]
      segments.append(piece)
      offset += len(piece)
      room -= len(piece) + 2
      if room < SHORTEST_SEGMENT + 2 or config.one_document_a_row:
        place = Place(number, offset) if offset < len(document) else Place(number + 1)
        yield row(), place
        segments, room = [], config.capacity(sequence_length, place)
    offset = 0
  if segments:
    yield row(), Place(number + 1)


def segments_and_positions(ids_NxS: np.ndarray, special: SpecialIds) -> tuple[np.ndarray, np.ndarray]:
  """Returns segment ids and positions of packed sequences, int32 [N, S] each.

  Segments are 1 for the first document of a sequence, 2 for the next …, and 0 for padding. Positions are 0, 1, 2 … from
  the start of each segment.
  """
  is_token = ids_NxS != special.pad
  starts = ids_NxS == special.cls
  segments = np.cumsum(starts, axis=1, dtype=np.int32) * is_token
  columns = np.arange(ids_NxS.shape[1], dtype=np.int32)
  positions = columns - np.maximum.accumulate(np.where(starts, columns, 0), axis=1)
  return segments, (positions * is_token).astype(np.int32)
