"""Windows over contexts: as BERT's loops have them, nothing left out, and the answer where it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabularies import NORMALIZATIONS, small_vocabulary, written

from rembert.errors import UsageError
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.pieces import PiecesOfText
from tasks.xtreme.questions import Answer, Question
from tasks.xtreme.task import IGNORED
from tasks.xtreme.windows import answer_pieces, most_context, window_starts, windows

CONTEXT = 'Lake Merrow is 112 metres deep. It was surveyed in 1874 by the brothers Rask, who rowed across it in winter.'


def ask(context: str = CONTEXT, *texts: str, question: str = 'How deep is the lake?') -> Question:
  return Question(
    'q', question, context, tuple(Answer(text, context.index(text)) for text in texts), 'file.json:data[0]'
  )


def rows(question: Question, *, max_length: int = 384, normalization: str = 'rembert', **config: int):
  return windows([question], small_vocabulary(normalization), max_length=max_length, config=XtremeConfig(**config))


# --- where windows begin, by BERT's loops -----------------------------------------------------------------------------


def _starts_by_loop(length: int, room: int, stride: int) -> list[int]:
  starts, start = [], 0
  while True:
    starts.append(start)
    shown = min(length - start, room)
    if start + shown == length:
      return starts
    start += min(shown, stride)


@given(st.integers(0, 400), st.integers(1, 60), st.integers(1, 80))
def test_windows_begin_where_berts_loop_has_them(length, room, stride):
  assert window_starts(length, room, stride) == _starts_by_loop(length, room, stride)


def _most_context_by_loop(starts: list[int], length: int, room: int) -> list[int]:
  chosen = []
  for piece in range(length):
    best, best_score = None, None
    for window, start in enumerate(starts):
      last = min(start + room, length) - 1
      if start <= piece <= last:
        score = min(piece - start, last - piece) + 0.01 * (last - start + 1)
        if best_score is None or score > best_score:
          best, best_score = window, score
    chosen.append(best)
  return chosen


@settings(deadline=None)
@given(st.integers(1, 150), st.integers(1, 40), st.integers(1, 60))
def test_each_piece_has_most_context_where_berts_loop_finds_it(length, room, stride):
  starts = window_starts(length, room, stride)
  assert most_context(starts, length, room).tolist() == _most_context_by_loop(starts, length, room)


@settings(deadline=None)
@given(
  st.text('abc üß½🌊北 ', max_size=120),
  st.text('wo? ', max_size=30),
  st.integers(12, 60),
  st.integers(1, 60),
  st.integers(1, 8),
)
def test_windows_show_every_piece_and_each_in_one_with_most_context(context, question, max_length, stride, longest):
  found = rows(ask(context, question=question), max_length=max_length, doc_stride=stride, max_query_length=longest)
  pieces = small_vocabulary('rembert')
  ids = pieces.ids(context)
  asked = pieces.ids(question)[:longest]
  times_shown, times_most = np.zeros(len(ids), int), np.zeros(len(ids), int)
  for row in found:
    shown = slice(row.first, row.first + len(row.begin))
    times_shown[shown] += 1
    times_most[shown] += row.has_most_context
    assert row.input_ids.tolist() == [312, *asked, 313, *ids[shown], 313]
    assert row.token_type_ids.tolist() == [0] * (len(asked) + 2) + [1] * (len(row.begin) + 1)
    assert row.offset == len(asked) + 2
    assert len(row.input_ids) <= max_length
  assert (times_shown >= 1).all()
  assert (times_most == 1).all()


# --- labels -----------------------------------------------------------------------------------------------------------


def test_the_answer_is_labelled_in_every_window_that_shows_all_of_it():
  question = ask(CONTEXT, '1874 by the brothers Rask')
  pieces = small_vocabulary('rembert')
  found = rows(question, max_length=60, doc_stride=5)
  held = 0
  for row in found:
    first, last = row.labels
    if first:
      held += 1
      assert pieces._processor.decode(row.input_ids[first : last + 1].tolist()) == '1874 by the brothers Rask'
    else:
      assert last == 0
      shown = CONTEXT[row.begin[0] : row.end[-1]]
      assert '1874 by the brothers Rask' not in shown
  assert 0 < held < len(found)


def test_the_first_of_several_answers_is_labelled():
  question = ask(CONTEXT, '1874', '112 metres')
  (row,) = rows(question)
  assert CONTEXT[row.begin[row.labels[0] - row.offset] :].lstrip().startswith('1874')


def test_questions_without_answers_are_not_learnt_from():
  for row in rows(ask(), max_length=40, doc_stride=10):
    assert row.labels.tolist() == [IGNORED, IGNORED]
    assert row.labels.dtype == row.input_ids.dtype == row.token_type_ids.dtype == np.int32


def test_white_space_around_an_answer_is_no_part_of_it():
  context = 'one two three four'
  with_spaces = Question('q', '?', context, (Answer(' two ', 3),), '')
  without = Question('q', '?', context, (Answer('two', 4),), '')
  assert [row.labels.tolist() for row in rows(with_spaces)] == [row.labels.tolist() for row in rows(without)]


@pytest.mark.parametrize('normalization', NORMALIZATIONS)
@settings(deadline=None)
@given(st.text('abc ü½ﬁﷺ🌊北ำ', min_size=1, max_size=40), st.data())
def test_an_answer_is_the_fewest_pieces_that_cover_it(normalization, text, data):
  pieces = small_vocabulary(normalization)
  context = pieces.with_places(text)
  visible = [at for at, character in enumerate(text) if not character.isspace()]
  if not visible:
    return
  begin = data.draw(st.sampled_from(visible))
  end = data.draw(st.sampled_from([at for at in visible if at >= begin])) + 1
  first, last = answer_pieces(context, begin, end, space=pieces.space)
  characters = [range(start, max(start + 1, stop)) for start, stop in zip(context.begin, context.end, strict=True)]
  touched = [piece for piece, own in enumerate(characters) if set(own) & set(range(begin, end))]
  if written(pieces, text)[0] == '▁' and context.begin[0] == context.end[0]:  # the sign before a text
    touched = [piece for piece in touched if piece > 0]
  assert (first, last) == (touched[0], touched[-1])


def test_all_bytes_of_a_character_are_in_the_answer():
  places = PiecesOfText(
    np.array([9, 5, 6, 7, 8, 9], np.int32), np.array([0, 2, 2, 2, 2, 3]), np.array([2, 2, 2, 2, 3, 4])
  )
  assert answer_pieces(places, 2, 3, space=9) == (1, 4)
  assert answer_pieces(places, 0, 3, space=9) == (0, 4)
  assert answer_pieces(places, 3, 4, space=9) == (5, 5)


def test_the_sign_before_a_text_is_in_no_answer():
  pieces = small_vocabulary('rembert')
  assert written(pieces, '🌊 rot')[0] == '▁'
  (row,) = rows(ask('🌊 rot', '🌊'))
  assert (row.labels - row.offset).tolist() == [1, 4]


# --- edges ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('context', ['', '  \n '])
def test_a_context_of_white_space_makes_one_window_that_is_empty(context):
  (row,) = rows(ask(context), normalization='rembert')
  assert row.input_ids[-2:].tolist() == [313, 313]
  assert row.begin.shape == row.end.shape == row.has_most_context.shape == (0,)


@pytest.mark.parametrize('context', ['\u200b\u200b', 'one two \u200b'])
def test_an_answer_that_is_normalised_away_is_where_the_text_ends_or_nowhere(context):
  (row,) = rows(Question('q', 'Why?', context, (Answer('\u200b', len(context) - 1),), ''), normalization='nmt_nfkc')
  assert (row.labels == (row.offset + len(row.begin) - 1 if len(row.begin) else 0)).all()


def test_an_empty_question_leaves_only_the_context():
  (row,) = rows(ask('red', question=' '))
  assert row.input_ids.tolist() == [312, 313, *small_vocabulary('rembert').ids('red'), 313]


def test_no_room_for_the_context_is_an_error_that_says_so():
  asked = len(small_vocabulary('rembert').ids('How deep is the lake?'))
  assert rows(ask(), max_length=asked + 4)
  with pytest.raises(UsageError, match='no room for the context') as error:
    rows(ask(), max_length=asked + 3)
  assert error.value.where == 'file.json:data[0]'
  assert 'max_query_length' in error.value.fix[0]


def test_rows_of_all_questions_follow_in_order():
  questions = [ask(), ask('short'), ask('')]
  found = windows(questions, small_vocabulary('rembert'), max_length=40, config=XtremeConfig(doc_stride=8))
  examples = [row.example for row in found]
  assert examples == sorted(examples)
  assert set(examples) == {0, 1, 2}
  assert [row.first for row in found if row.example == 0] == list(range(0, 8 * examples.count(0), 8))
