"""Documents into rows of fixed length: `[CLS] … [SEP] [CLS] … [SEP]`, each document a segment of its own."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rembert.data.masking import SpecialIds
from rembert.data.mixture import LENGTH_STREAM, random_stream
from rembert.errors import UsageError

# A gap at the end of a row that is too short to hold this many tokens stays padding: scraps teach little.
SHORTEST_SEGMENT = 8


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

  @classmethod
  def of(cls, segments: Iterable[Sequence[int]], length: int, pad: int) -> 'Row':
    """These segments side by side, each whole as it is, and padding up to `length`."""
    row = cls(np.full(length, pad, np.int32), np.zeros(length, np.int32), np.zeros(length, np.int32))
    at = 0
    for number, ids in enumerate(segments, start=1):
      end = at + len(ids)
      row.ids[at:end] = ids
      row.segments[at:end] = number
      row.positions[at:end] = np.arange(len(ids))
      at = end
    return row


@dataclasses.dataclass(frozen=True)
class Place:
  """Where in a stream of documents a row begins: so many tokens of document number `document` are already used."""

  document: int = 0
  offset: int = 0


@dataclasses.dataclass(frozen=True)
class PackingConfig:
  """How documents fill rows.

  Attributes:
    one_document_a_row: begin every row with a new document or the rest of one, and leave what it does not fill empty,
      as BERT's data was made; by default rows are filled up with the documents that follow.
    short_rows: share of rows that end early, at a length drawn uniformly: BERT's `short_seq_prob`, 0.1 there, so that
      short inputs are not strange to the model. What a short row leaves goes on in the next.
  """

  one_document_a_row: bool = False
  short_rows: float = 0.0

  def __post_init__(self):
    if not isinstance(self.one_document_a_row, bool):
      raise UsageError(
        'True or False', where=f'packing.one_document_a_row = {self.one_document_a_row!r}', fix='correct the binding'
      )
    if not 0 <= self.short_rows <= 1:
      raise UsageError('a share lies in [0, 1]', where=f'packing.short_rows = {self.short_rows!r}', fix='0.1 is BERT')

  def capacity(self, sequence_length: int, start: Place) -> int:
    """Tokens of the row that begins at a place, [CLS] and [SEP] included: a function of the place alone."""
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
) -> Iterator[tuple[Row, Place]]:
  """Packs documents in order; a document that does not fit goes on in the next row, with [CLS] and [SEP] again.

  Args:
    documents: ids of each document, beginning with number `start.document`.
    start: where to begin; packing from a place that was yielded gives the very rows that followed it.

  Yields:
    A row, and the place at which the next one begins. The last row may be short.
  """
  segments: list[np.ndarray] = []
  room = config.capacity(sequence_length, start)

  def row() -> Row:
    whole = ([special.cls, *segment, special.sep] for segment in segments)
    return Row.of(whole, sequence_length, special.pad)

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
