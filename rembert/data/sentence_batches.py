"""Packs sentences for a trained model into sequences of few lengths.

This gives little padding, and few shapes to compile.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rembert.errors import UsageError

SHORTEST_ROW = 64  # a power of two
BATCH_SIZE = 16  # sequences of that length per batch, by default
_POSITIONS_A_SENTENCE = 4  # limits the number of sentences in a sequence


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
