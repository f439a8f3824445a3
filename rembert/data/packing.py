"""Packs documents into sequences of one length for training, and sentences into those of few lengths for inference.

A sequence is `[CLS] … [SEP] [CLS] … [SEP]`; each document or sentence is a segment of it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rembert.data.mixture import LENGTH_STREAM, random_stream
from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds
from rembert.validation import Fraction, check_fields

# A gap at the end of a sequence that is too short for this many tokens stays padding.
SHORTEST_SEGMENT = 8

SHORTEST_ROW = 64  # of packed sentences; a power of two
BATCH_SIZE = 16  # sequences of that length per batch, by default
_POSITIONS_A_SENTENCE = 4  # limits the number of sentences in a sequence


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


# --- sentences for a trained model: little padding, and few shapes to compile -----------------------------------------


class SentenceBatch(NamedTuple):
  """Packed sequences, int32 [B, S] each, with padding.

  Attributes:
    sentences: indices of the sentences in each sequence, in order, at most `most_sentences(S)`; the last may be empty.
    input_ids: ids of tokens.
    segment_ids: 1 for the first sentence, 2 for the next …; 0 for padding.
    position_ids: 0, 1, 2 … from the start of each sentence.
  """

  sentences: list[list[int]]
  input_ids: np.ndarray
  segment_ids: np.ndarray
  position_ids: np.ndarray


def most_sentences(row_length: int) -> int:
  """Maximum number of sentences in a sequence."""
  return max(1, row_length // _POSITIONS_A_SENTENCE)


def packed_sentences(
  sentences: Sequence[Sequence[int]], *, pad: int, batch_size: int, longest: int
) -> Iterator[SentenceBatch]:
  """Packs each sentence exactly once, without truncation.

  Sequences have 64 positions, doubled until their first sentence fits. The longest come first, so that maximum memory
  is known at once, and all batches have nearly the same number of positions. Later sentences, which are shorter, go
  where they leave the least room (best fit decreasing).

  Args:
    sentences: ids of each sentence, at most `longest`, the positions of the model.
    pad: id of [PAD].
    batch_size: sequences of 64 positions per batch; fewer if they are longer.

  Raises:
    UsageError: a sentence is too long.
  """
  if any(len(ids) > longest for ids in sentences):
    raise UsageError("a sentence exceeds the model's positions", where='packed_sentences', fix='truncate it')
  rows_a_batch = lambda row_length: max(1, batch_size * min(SHORTEST_ROW, longest) // row_length)
  for row_length, rows in _rows(sentences, longest, rows_a_batch).items():
    for start in range(0, len(rows), rows_a_batch(row_length)):
      chosen = rows[start : start + rows_a_batch(row_length)]
      yield _batch(sentences, chosen, row_length, pad)


def _rows(
  sentences: Sequence[Sequence[int]], longest: int, rows_a_batch: Callable[[int], int]
) -> dict[int, list[list[int]]]:
  """Assigns sentences to sequences, by sequence length, the longest first, in full batches."""
  rows: dict[int, list[list[int]]] = {}
  with_room: list[list[tuple[int, list[int]]]] = [[] for _ in range(longest + 1)]  # by the remaining room of a sequence
  for sentence in sorted(range(len(sentences)), key=lambda index: len(sentences[index]), reverse=True):
    length = len(sentences[sentence])
    left = next((left for left in range(length, longest + 1) if with_room[left]), None)
    if left is None:
      left = row_length = min(longest, max(SHORTEST_ROW, 1 << (length - 1).bit_length()))
      added: list[list[int]] = [[] for _ in range(rows_a_batch(row_length))]
      rows.setdefault(row_length, []).extend(added)
      with_room[left] += [(row_length, row) for row in reversed(added)]
    row_length, row = with_room[left].pop()
    row.append(sentence)
    if len(row) < most_sentences(row_length):
      with_room[left - length].append((row_length, row))
  return rows


def _batch(sentences: Sequence[Sequence[int]], rows: list[list[int]], row_length: int, pad: int) -> SentenceBatch:
  ids, segments, positions = (np.full((len(rows), row_length), value, np.int32) for value in (pad, 0, 0))
  for row, of_row in enumerate(rows):
    end = 0
    for number, sentence in enumerate(of_row, start=1):
      begin, end = end, end + len(sentences[sentence])
      ids[row, begin:end] = sentences[sentence]
      segments[row, begin:end] = number
      positions[row, begin:end] = np.arange(end - begin)
  return SentenceBatch(rows, ids, segments, positions)
