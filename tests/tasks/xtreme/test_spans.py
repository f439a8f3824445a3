"""Answers from logits: BERT's choice, in the characters of the context."""

import numpy as np
import pytest
from computed_rows import any_vocabulary, computed_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabularies import NORMALIZATIONS, small_vocabulary, vocabulary_file

from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.questions import Answer, Question
from tasks.xtreme.spans import best_answers, spans

WORDS = ['Lake', 'Merrow', 'is', '112', 'metres', 'deep', 'surveyed', 'by', 'the', 'brothers', 'Rask', 'in', '1874']
TEXTS = st.lists(st.sampled_from([*WORDS, 'ﬁndet', '3½', '北京大学。', '🌊', 'ﷺ']), min_size=1, max_size=40).map(
  ' '.join
)


def ask(context: str, *answers: Answer) -> Question:
  return Question('q', 'How deep?', context, answers, 'file.json:data[0]')


def rows_of(*questions: Question, max_length: int = 384, normalization: str = 'rembert', config=XtremeConfig()):  # noqa: B008
  vocabulary = any_vocabulary(vocabulary_file(normalization))
  options = {'doc_stride': config.doc_stride, 'max_query_length': config.max_query_length}
  rows = computed_rows(TASKS['squad'], questions, vocabulary, max_length=max_length, **options)
  return [row.example for row in rows]


def best(rows, outputs, config=XtremeConfig()):  # noqa: B008
  """The answer of each question, in their order."""
  answers = best_answers(rows, outputs, n_best=config.n_best, max_answer_length=config.max_answer_length)
  return [answers[number] for number in sorted(answers)]


def flat_logits(row) -> np.ndarray:
  return np.zeros((len(row['input_ids']), 2), np.float32)


# --- against a loop over all pairs ------------------------------------------------------------------------------------


def _answer_by_loops(question, rows, outputs, config) -> str:
  """As run_squad.py has it, but for candidates: only positions of the context are."""

  def likeliest(row, logits):
    return sorted(range(len(row['begin'])), key=lambda piece: -logits[row['offset'] + piece])

  for n_best in (config.n_best, 10**9):
    found = []
    for row, logits in zip(rows, outputs, strict=True):
      starts = [piece for piece in likeliest(row, logits[:, 0]) if row['has_most_context'][piece]][:n_best]
      for first in starts:
        for last in likeliest(row, logits[:, 1])[:n_best]:
          if first <= last < first + config.max_answer_length:
            total = float(logits[row['offset'] + first, 0]) + float(logits[row['offset'] + last, 1])
            text = question.context[row['begin'][first] : row['end'][last]].strip()
            found.append((-total, row['first'] + first, row['first'] + last, text))
    found = [answer for *_, answer in sorted(found) if answer]
    if found:
      return found[0]
  return ''


@settings(deadline=None)
@given(
  TEXTS,
  st.integers(20, 60),
  st.integers(3, 30),
  st.sampled_from([1, 2, 20]),
  st.sampled_from([1, 5, 30]),
  st.integers(0, 2**32 - 1),
  st.booleans(),
)
def test_the_best_pair_of_all_windows_is_cut_out(text, max_length, stride, n_best, longest, seed, has_ties):
  config = XtremeConfig(doc_stride=stride, n_best=n_best, max_answer_length=longest)
  question = ask(text)
  rows = rows_of(question, max_length=max_length, config=config)
  random = np.random.default_rng(seed)
  outputs = [random.normal(size=(len(row['input_ids']), 2)).astype(np.float32) for row in rows]
  if has_ties:
    outputs = [np.rint(logits) for logits in outputs]
  (answer,) = best(rows, outputs, config)
  assert answer == _answer_by_loops(question, rows, outputs, config)
  assert answer
  assert answer in text


# --- what was labelled is found again ---------------------------------------------------------------------------------


@pytest.mark.parametrize('normalization', NORMALIZATIONS)
@settings(deadline=None)
@given(TEXTS, st.integers(50, 70), st.integers(3, 12), st.data())
def test_the_gold_span_gives_the_gold_answer(normalization, text, max_length, stride, data):
  config = XtremeConfig(doc_stride=stride, max_answer_length=10)
  places = small_vocabulary(normalization).with_places(text)
  boundaries = [(b, e) for b, e in zip(places.begin, places.end, strict=True) if b < e]
  first = data.draw(st.integers(0, len(boundaries) - 1))
  last = data.draw(st.integers(first, min(first + 2, len(boundaries) - 1)))
  gold = text[boundaries[first][0] : boundaries[last][1]]
  if not gold.strip():
    return
  question = ask(text, Answer(gold, int(boundaries[first][0])))
  rows = rows_of(question, max_length=max_length, normalization=normalization, config=config)
  if any(row['labels'][1] - row['labels'][0] >= 10 for row in rows):  # a word of many bytes
    return
  outputs = []
  for row in rows:
    logits = flat_logits(row)
    logits[row['labels'][0], 0] = logits[row['labels'][1], 1] = 1
    outputs.append(logits)
  assert best(rows, outputs, config) == [gold.strip()]


# --- what is no answer ------------------------------------------------------------------------------------------------


def _row_and_logits(text: str = 'one two three four five six', **config: int):
  question, config = ask(text), XtremeConfig(**config)
  (row,) = rows_of(question, config=config)
  return question, config, row, flat_logits(row)


def test_positions_outside_the_context_are_no_candidates():
  question, config, row, logits = _row_and_logits(n_best=1)
  logits[: row['offset']] = logits[-1] = 100
  logits[row['offset'] + 1] = 1
  (answer,) = best([row], [logits], config)
  assert answer == question.context[row['begin'][1] : row['end'][1]].strip()


def test_an_answer_does_not_end_before_it_begins():
  question, config, row, logits = _row_and_logits()
  logits[row['offset'] + 3, 0] = logits[row['offset'] + 1, 1] = 5
  logits[row['offset'] + 4, 1] = 1
  (answer,) = best([row], [logits], config)
  assert answer == question.context[row['begin'][3] : row['end'][4]].strip()


def test_an_answer_has_no_more_pieces_than_allowed():
  question, config, row, logits = _row_and_logits(max_answer_length=3)
  logits[row['offset'], 0] = logits[row['offset'] + 3, 1] = 5
  logits[row['offset'] + 2, 1] = 1
  (answer,) = best([row], [logits], config)
  assert answer == question.context[row['begin'][0] : row['end'][2]].strip()


def test_where_the_likeliest_positions_do_not_go_together_others_are_tried():
  question, config, row, logits = _row_and_logits(n_best=1)
  logits[row['offset'] + 4, 0] = logits[row['offset'], 1] = 9
  logits[row['offset'] + 5, 1] = 1
  (answer,) = best([row], [logits], config)
  assert answer == question.context[row['begin'][4] : row['end'][5]].strip()


def test_of_equal_spans_the_first_and_shortest_is_the_answer():
  question, config, row, logits = _row_and_logits()
  (answer,) = best([row], [logits], config)
  assert answer == question.context[row['begin'][0] : row['end'][0]].strip()


@pytest.mark.parametrize('context', ['', ' \n'])
def test_white_space_has_the_empty_answer(context):
  question = ask(context)
  (row,) = rows_of(question)
  assert best([row], [flat_logits(row)], XtremeConfig()) == ['']


def test_a_space_alone_is_no_answer():
  text = 'a 🌊'
  question = ask(text)
  (row,) = rows_of(question)
  (space,) = np.flatnonzero((row['begin'] == 1) & (row['end'] == 2))  # a ▁ of its own, before bytes
  logits = flat_logits(row)
  logits[row['offset'] + space] = 9
  logits[row['offset'] + space + 1, 1] = 1
  assert best([row], [logits], XtremeConfig()) == ['🌊']


def test_spans_hold_first_last_and_sum():
  logits_Wx2 = np.array([[1, 0], [3, 1], [0, 2]], np.float32)
  first, last, sums = spans(logits_Wx2, np.array([True, True, False]), n_best=2, max_length=2)
  assert sorted(zip(first, last, sums, strict=True)) == [(0, 1, 2), (1, 1, 4), (1, 2, 5)]


# --- what the model hands over ----------------------------------------------------------------------------------------


def test_padding_behind_a_row_is_not_looked_at():
  _, config, row, logits = _row_and_logits()
  logits[row['offset'] + 2] = 3
  padded = np.concatenate([logits, np.full((40, 2), 99, np.float32)])
  assert best([row], [padded], config) == best([row], [logits], config)


def test_minus_infinity_is_a_logit_and_nan_is_not():
  _, config, row, logits = _row_and_logits()
  logits[row['offset']] = -np.inf
  assert best([row], [logits], config) != ['']
  logits[row['offset']] = np.nan
  with pytest.raises(ValueError, match='not numbers'):
    best([row], [logits], config)


def test_outputs_that_do_not_fit_the_rows_are_refused():
  _, config, row, logits = _row_and_logits()
  with pytest.raises(ValueError, match='logits of'):
    best([row], [logits[:-1]], config)
  with pytest.raises(ValueError, match='logits of'):
    best([row], [logits[:, :1]], config)
  with pytest.raises(ValueError, match='zip'):
    best([row], [], config)


def test_answers_come_in_the_order_of_the_questions():
  questions = [ask('one'), ask(''), ask('two')]
  rows = rows_of(*questions, max_length=64)
  outputs = [flat_logits(row) for row in rows]
  for row, logits in zip(rows, outputs, strict=True):
    logits[row['offset'] : row['offset'] + len(row['begin']), 1] = np.arange(len(row['begin']))
    logits[row['offset'] : row['offset'] + len(row['begin']), 0] = np.arange(len(row['begin']))
  answers = best(rows[::-1], outputs[::-1], XtremeConfig(max_answer_length=20))
  assert answers[1] == ''
  assert 'one'.endswith(answers[0]) and answers[0]  # noqa: PT018 - the last pieces are likeliest
  assert 'two'.endswith(answers[2]) and answers[2]  # noqa: PT018
