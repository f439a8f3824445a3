"""Text for a trained model: ids of sentences, side by side in rows of few lengths.

There is little padding, and there are few shapes to compile.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rembert.errors import UsageError

SHORTEST_ROW = 64  # a power of two
BATCH_SIZE = 16  # rows of that length at a time, by default
_POSITIONS_A_SENTENCE = 4  # a row has no more sentences than it has room for with so many positions each


class SentenceBatch(NamedTuple):
  """Packed rows, int32 [B, S] each; what no sentence takes is padding.

  Attributes:
    sentences: which sentences each row holds, in order; at most `most_sentences(S)`. The last rows may be empty.
    input_ids: ids of tokens.
    segment_ids: 1 for a row's first sentence, 2 for the next …; 0 on padding.
    position_ids: 0, 1, 2 … from the start of each sentence.
  """

  sentences: list[list[int]]
  input_ids: np.ndarray
  segment_ids: np.ndarray
  position_ids: np.ndarray


def most_sentences(row_length: int) -> int:
  """How many sentences a row has at most."""
  return max(1, row_length // _POSITIONS_A_SENTENCE)


def packed_sentences(
  sentences: Sequence[Sequence[int]], *, pad: int, batch_size: int, longest: int
) -> Iterator[SentenceBatch]:
  """Batches of rows that hold every sentence once, whole.

  Rows have 64 positions, or twice as many until the sentence fits that began them. The longest come first, so that
  what takes the most memory is known at once, and all batches have the same number of positions, or nearly. Sentences
  that come later, which are shorter, go where they leave the least room (best fit decreasing).

  Args:
    sentences: ids, at most `longest` of each, the positions of the model.
    pad: id of [PAD].
    batch_size: rows of 64 positions in a batch; of longer rows fewer.

  Raises:
    UsageError: a sentence is too long.
  """
  if any(len(ids) > longest for ids in sentences):
    raise UsageError('a row is longer than the model has positions', where='packed_sentences', fix='cut it')
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
  with_room: list[list[tuple[int, list[int]]]] = [[] for _ in range(longest + 1)]  # by what is left of a row
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
