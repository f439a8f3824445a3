"""Rows for questions: [CLS] question [SEP] part of the context [SEP], as many parts as a long context takes.

As BERT's `run_squad.py`: windows of as many pieces as fit, each begun `doc_stride` pieces after the one before, until
one reaches the end. Unlike there, a context is cut into pieces as a whole and not word by word: SentencePiece says
where in the text each piece stands, and scripts without spaces have no words to go by.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from rembert.errors import UsageError
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.pieces import Pieces, PiecesOfText
from tasks.xtreme.questions import Question
from tasks.xtreme.task import IGNORED, Row

_SPECIAL = 3  # [CLS], [SEP], [SEP]


@dataclasses.dataclass(frozen=True)
class Window(Row):
  """A row, and what is needed to cut an answer from its context. W pieces of the context are in it.

  Attributes:
    offset: position in the row of the first of them; they fill W positions.
    first: index of that piece among those of the context.
    begin: [W] int32, the character of the context that an answer which begins with the piece begins with.
    end: [W] int32, the character behind an answer that ends with the piece. Of a character that is several pieces each
      stands for all of it.
    has_most_context: [W] bool, whether no other window shows more on both sides of the piece. One window has each.
  """

  offset: int
  first: int
  begin: np.ndarray
  end: np.ndarray
  has_most_context: np.ndarray


def windows(questions: Sequence[Question], pieces: Pieces, *, max_length: int, config: XtremeConfig) -> list[Window]:
  """All windows of each question, in order. Labels are of the first answer, (0, 0) in windows that it is not all in.

  Where a question has no answers its labels are `IGNORED`. A context without pieces makes one window that is empty.

  Raises:
    UsageError: beside a question there is no room for a piece of its context.
  """
  rows, contexts = [], {}
  for example, question in enumerate(questions):
    # Several questions in a row, or many, are on the same text.
    if (context := contexts.get(question.context)) is None:
      context = contexts[question.context] = pieces.with_places(question.context)
    asked = pieces.ids(question.question)[: config.max_query_length]
    room = max_length - _SPECIAL - len(asked)
    if room < 1:
      raise UsageError(
        f'{max_length} positions have no room for the context beside {len(asked)} pieces of the question and 3 others',
        where=question.where,
        fix=f'longer rows, or --gin.xtreme.max_query_length={max(max_length // 4, 1)}',
      )
    rows += _windows_of(example, question, asked, context, pieces, room, config.doc_stride)
  return rows


def window_starts(length: int, room: int, stride: int) -> list[int]:
  """Where windows of `room` pieces begin that together show all of `length`: every `stride`, until the end is seen.

  A stride beyond the room would leave pieces out: then each window begins where the one before ends.
  """
  step = min(stride, room)
  return list(range(0, max(length - room, 0) + step, step))


def most_context(starts: Sequence[int], length: int, room: int) -> np.ndarray:
  """Which window shows most around each piece, [length] int.

  BERT's measure: pieces to the nearer edge of the window, and a hundredth of the window's length, so that the longer
  wins where two are equal; then the earlier.
  """
  begin_Wx1 = np.array(starts)[:, None]
  end_Wx1 = np.minimum(begin_Wx1 + room, length)
  piece_1xN = np.arange(length)[None]
  nearer_edge_WxN = np.minimum(piece_1xN - begin_Wx1, end_Wx1 - 1 - piece_1xN)
  score_WxN = np.where(nearer_edge_WxN >= 0, nearer_edge_WxN + 0.01 * (end_Wx1 - begin_Wx1), -1)
  return score_WxN.argmax(axis=0)


def answer_pieces(context: PiecesOfText, begin: int, end: int, *, space: int) -> tuple[int, int]:
  """First and last of the pieces that stand, wholly or in part, for characters `begin` to `end` of a text.

  No fewer pieces cover them. Those that bear no character of their own belong to the one they stand before: the answer
  🌊, taken to four bytes, is all four. The lone `▁` (its id is `space`) that is put before a text belongs to none.
  """
  first = int(np.searchsorted(context.end, begin, side='right'))  # ends never fall
  last = int(np.searchsorted(context.end, end, side='left'))
  lowest = int(context.ids[0] == space)
  while first > lowest and context.begin[first - 1] == begin == context.end[first - 1]:
    first -= 1
  behind = len(context.ids) - 1  # what was normalised away at the end has no pieces
  return min(first, behind), min(last, behind)


def _windows_of(example, question, asked, context, pieces: Pieces, room: int, stride: int) -> list[Window]:
  special = pieces.special
  length = len(context.ids)
  starts = window_starts(length, room, stride)
  shown_most = most_context(starts, length, room)
  answer = _answer_span(question, context, pieces.space)
  # An answer that ends within a character takes all of it.
  ends = np.minimum(np.maximum(context.end, context.begin + 1), len(question.context)).astype(np.int32)
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
      Window(
        example=example,
        input_ids=np.array(ids, np.int32),
        token_type_ids=types,
        labels=np.array(labels, np.int32),
        offset=offset,
        first=start,
        begin=context.begin[shown],
        end=ends[shown],
        has_most_context=shown_most[shown] == window,
      )
    )
  return rows


def _answer_span(question: Question, context: PiecesOfText, space: int) -> tuple[int, int] | None:
  if not question.answers:
    return None
  if not len(context.ids):  # all of it was normalised away: no window shows the answer
    return -1, -1
  answer = question.answers[0]
  begin = answer.start + len(answer.text) - len(answer.text.lstrip())
  return answer_pieces(context, begin, begin + len(answer.text.strip()), space=space)
