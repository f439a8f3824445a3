"""XTREME's rows in plain Python with the SentencePiece library: what `tasks.xtreme.preprocessors` is held to.

Nothing here is shared with the preprocessors: texts are tokenized by another library, lengths, words and windows are
counted by loops, and places are counted in Python's characters.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import sentencepiece
from etils import epath

from rembert.tokenizer import SpecialIds
from tasks.tables.files import Example

IGNORED = -1  # the label of a position, or of a span, that is not predicted


# A row by the names of `tasks.rows` and of the preprocessors, not yet padded, with the index of its `example`.
Row = dict[str, Any]


# --- tokens ----------------------------------------------------------------------------------------------------------


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


# --- pairs of texts --------------------------------------------------------------------------------------------------


def pair_rows(examples: Sequence[Example], labels: Sequence[str], pieces: Pieces, *, max_length: int) -> list[Row]:
  """One row a pair, `[CLS] first [SEP] second [SEP]`; one that is too long loses pieces at the ends of its texts."""
  rows = []
  special = pieces.special
  for index, example in enumerate(examples):
    first, second = (pieces.ids(example.features[name]) for name in ('first', 'second'))
    kept_first, kept_second = kept_pieces(len(first), len(second), max_length - 3)
    ids = [special.cls, *first[:kept_first], special.sep, *second[:kept_second], special.sep]
    label = IGNORED if example.label is None else labels.index(example.label)
    rows.append(
      {
        'example': index,
        'input_ids': np.array(ids, np.int32),
        'token_type_ids': np.repeat(np.array([0, 1], np.int32), (kept_first + 2, kept_second + 1)),
        'labels': np.array(label, np.int32),
      }
    )
  return rows


def kept_pieces(first: int, second: int, room: int) -> tuple[int, int]:
  """How many of the `first` and `second` pieces of two texts stay, as BERT's `_truncate_seq_pair` counts it."""
  while first + second > room:
    if first > second:
      first -= 1
    else:
      second -= 1
  return first, second


# --- words with tags -------------------------------------------------------------------------------------------------


def word_rows(examples: Sequence[Example], labels: Sequence[str], pieces: Pieces, *, max_length: int) -> list[Row]:
  """`[CLS] words [SEP]`; as many words as fit make a row, and the rest of the sentence the next."""
  room = max_length - 2
  encoded: dict[str, list[int]] = {}  # words are repeated often
  rows = []
  for index, sentence in enumerate(examples):
    of_sentence = sentence.features['words']
    for word in of_sentence:
      if word not in encoded:
        encoded[word] = word_pieces(word, pieces)[:room]
    indices = [labels.index(tag) for tag in sentence.label] if sentence.label else [IGNORED] * len(of_sentence)
    lengths = [len(encoded[word]) for word in of_sentence]
    for begin, end in spans_that_fit(lengths, room):
      words = [encoded[word] for word in of_sentence[begin:end]]
      rows.append(_row(index, words, indices[begin:end], pieces))
  return rows


def word_pieces(word: str, pieces: Pieces) -> list[int]:
  """Ids of a word by itself, at least one."""
  return (pieces.ids(word) if word.strip() else []) or [pieces.special.unknown]


def spans_that_fit(lengths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
  """Begin and end of stretches of neighbours, each as long as `room` allows; no length may be more than that."""
  begin = filled = 0
  for index, length in enumerate(lengths):
    if filled + length > room:
      yield begin, index
      begin, filled = index, 0
    filled += length
  if begin < len(lengths):
    yield begin, len(lengths)


def _row(example: int, words: Sequence[Sequence[int]], labels: Sequence[int], pieces: Pieces) -> Row:
  ids = [pieces.special.cls, *(piece for word in words for piece in word), pieces.special.sep]
  first_pieces = np.cumsum([1, *(len(word) for word in words)], dtype=np.int32)[:-1]
  row_labels = np.full(len(ids), IGNORED, np.int32)
  row_labels[first_pieces] = labels
  return {
    'example': example,
    'input_ids': np.array(ids, np.int32),
    'token_type_ids': np.zeros(len(ids), np.int32),
    'labels': row_labels,
    'first_tokens': first_pieces,
  }


# --- windows over contexts -------------------------------------------------------------------------------------------


def windows(
  questions: Sequence[Example], pieces: Pieces, *, max_length: int, doc_stride: int = 128, max_query_length: int = 64
) -> list[Row]:
  """All windows of each question, in order. Labels are of the first answer, (0, 0) in windows that it is not all in.

  Where a question has no answers its labels are `IGNORED`. A context without pieces makes one window that is empty.
  """
  rows = []
  for example, question in enumerate(questions):
    context = pieces.with_places(question.features['context'])
    asked = pieces.ids(question.features['question'])[:max_query_length]
    room = max_length - 3 - len(asked)  # [CLS], [SEP], [SEP]
    assert room >= 1, question.where
    rows += _windows_of(example, question, asked, context, pieces, room, doc_stride)
  return rows


def window_starts(length: int, room: int, stride: int) -> list[int]:
  """Where windows begin, by the loop of BERT's run_squad.py."""
  starts, start = [], 0
  while True:
    starts.append(start)
    shown = min(length - start, room)
    if start + shown == length:
      return starts
    start += min(shown, stride)


def most_context(starts: Sequence[int], length: int, room: int) -> np.ndarray:
  """Which window shows most around each piece, by the loop of BERT's run_squad.py; [length] int."""
  chosen = np.zeros(length, int)
  for piece in range(length):
    best_score = None
    for window, start in enumerate(starts):
      last = min(start + room, length) - 1
      if start <= piece <= last:
        score = min(piece - start, last - piece) + 0.01 * (last - start + 1)
        if best_score is None or score > best_score:
          chosen[piece], best_score = window, score
  return chosen


def answer_pieces(context: PiecesOfText, begin: int, end: int, *, space: int) -> tuple[int, int]:
  """First and last of the pieces that stand, wholly or in part, for characters `begin` to `end` of a text.

  No fewer pieces cover them. Those without a character belong to the next one: the answer
  🌊, taken to four bytes, is all four. The lone `▁` (its id is `space`) that is put before a text belongs to none.
  """
  first = int(np.searchsorted(context.end, begin, side='right'))  # ends never fall
  last = int(np.searchsorted(context.end, end, side='left'))
  lowest = int(context.ids[0] == space)
  while first > lowest and context.begin[first - 1] == begin == context.end[first - 1]:
    first -= 1
  behind = len(context.ids) - 1  # what was normalised away at the end has no pieces
  return min(first, behind), min(last, behind)


def _windows_of(example, question, asked, context, pieces: Pieces, room: int, stride: int) -> list[Row]:
  special = pieces.special
  length = len(context.ids)
  starts = window_starts(length, room, stride)
  shown_most = most_context(starts, length, room)
  answer = _answer_span(question, context, pieces.space)
  # An answer that ends within a character takes all of it.
  ends = np.minimum(np.maximum(context.end, context.begin + 1), len(question.features['context'])).astype(np.int32)
  offset = len(asked) + 2
  rows = []
  for window, start in enumerate(starts):
    shown = slice(start, min(start + room, length))
    ids = [special.cls, *asked, special.sep, *context.ids[shown], special.sep]
    types = np.zeros(len(ids), np.int32)
    types[offset:] = 1
    if answer is None:
      labels = (IGNORED, IGNORED)
    elif shown.start <= answer[0] and answer[1] < shown.stop:
      labels = (offset + answer[0] - start, offset + answer[1] - start)
    else:
      labels = (0, 0)
    rows.append(
      {
        'example': example,
        'input_ids': np.array(ids, np.int32),
        'token_type_ids': types,
        'labels': np.array(labels, np.int32),
        'offset': offset,
        'first': start,
        'begin': context.begin[shown],
        'end': ends[shown],
        'has_most_context': shown_most[shown] == window,
      }
    )
  return rows


def _answer_span(question: Example, context: PiecesOfText, space: int) -> tuple[int, int] | None:
  if not question.label:
    return None
  if not len(context.ids):  # all of it was normalised away: no window shows the answer
    return -1, -1
  text, start = question.label[0]
  begin = start + len(text) - len(text.lstrip())
  return answer_pieces(context, begin, begin + len(text.strip()), space=space)
