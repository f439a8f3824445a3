"""Rows from TF Text equal those of plain Python with the SentencePiece library, whatever the texts hold."""

import numpy as np
import pytest
import xtreme_reference as reference
from computed_rows import any_vocabulary, ask, computed_rows, pair, sentence
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from small_vocabularies import NORMALIZATIONS, small_vocabulary, vocabulary_file, written

from rembert.errors import UsageError
from tasks.xtreme.benchmark import TASKS

XNLI, PANX, SQUAD = TASKS['xnli'], TASKS['panx'], TASKS['squad']
UNKNOWN, CLS, SEP = 2, 312, 313
FEATURES = ('input_ids', 'token_type_ids', 'labels')

# Words that are hard on a tokenizer: empty, white space, what SentencePiece writes spaces with, unknown characters.
ODD_WORDS = (
  *('', ' ', '\N{NO-BREAK SPACE}', '\N{IDEOGRAPHIC SPACE}', '\x1c', '\x85', '▁', '▁▁', '\N{ZERO WIDTH SPACE}'),
  *('𒀀', 'x' * 500, '图' * 90, 'e\u0301', 'ﬁ½Ａ㈱', 'שָׁלוֹם', '👩‍🚀🇩🇪'),
)
# No two digits: `000` is segmented in either of two equally likely ways, see tests/tasks/test_seqio_vocabulary.py.
ANY_TEXT = st.text(st.characters(exclude_categories=('Cs', 'Nd'), exclude_characters='\0'), max_size=40)
TEXTS = (
  ANY_TEXT | st.text('aé ü½ﬁＡｶﾞﷺกำक़가北㎏🌊🇩🇪e\u0301\u200b\u00ad\u3000\n▁,.', max_size=40) | st.sampled_from(ODD_WORDS)
)

slowly = settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
normalizations = st.sampled_from(NORMALIZATIONS)


def assert_same(found, expected):
  """Rows that equal those of the reference."""
  assert len(found) == len(expected)
  for row, other in zip(found, expected, strict=True):
    for name, value in other.items():
      ours = getattr(row, name) if name in FEATURES else row.example[name]
      np.testing.assert_array_equal(ours, value, strict=isinstance(value, np.ndarray))


def skip_ties(texts, normalization='rembert'):
  """Leaves texts to test_seqio_vocabulary.py that can be segmented in two equally likely ways, and only those."""
  processor = small_vocabulary(normalization)._processor
  likelihood = lambda ids: sum(map(processor.get_score, ids))
  texts = list(texts)
  for text, ids in zip(texts, any_vocabulary(vocabulary_file(normalization)).tf_tokenizer.tokenize(texts), strict=True):
    ids, others = ids.numpy().tolist(), processor.encode(text)
    if ids != others:
      assert likelihood(ids) == pytest.approx(likelihood(others), rel=1e-5)
      reject()


@pytest.fixture(scope='module')
def vocabulary():
  return any_vocabulary(vocabulary_file('rembert'))


@pytest.fixture(scope='module')
def pieces():
  return small_vocabulary('rembert')


# --- pairs of texts ---------------------------------------------------------------------------------------------------


def pair_rows(vocabulary, *pairs, max_length=128):
  return computed_rows(XNLI, [pair(*each) for each in pairs], vocabulary, max_length=max_length)


@slowly
@given(
  st.lists(st.tuples(TEXTS, TEXTS, st.sampled_from((None, *XNLI.labels))), min_size=1, max_size=8), st.integers(5, 40)
)
def test_pairs_equal_the_reference_at_any_length(vocabulary, pieces, pairs, max_length):
  skip_ties(text for each in pairs for text in each[:2])
  examples = [pair(*each) for each in pairs]
  found = computed_rows(XNLI, examples, vocabulary, max_length=max_length)
  assert_same(found, reference.pair_rows(examples, XNLI.labels, pieces, max_length=max_length))


def test_a_row_too_short_for_a_pair_is_an_error(vocabulary):
  with pytest.raises(UsageError, match='no room for a pair') as error:
    pair_rows(vocabulary, ('a', 'b', None), max_length=4)
  assert error.value.fix == ['at least 5']


# --- words with tags --------------------------------------------------------------------------------------------------


def word_rows(vocabulary, *sentences, max_length=128):
  return computed_rows(PANX, sentences, vocabulary, max_length=max_length)


@slowly
@given(st.lists(st.lists(TEXTS, max_size=12), min_size=1, max_size=6), st.integers(3, 40), st.data())
def test_words_equal_the_reference_at_any_length(vocabulary, pieces, sentences, max_length, data):
  skip_ties(['', *(word for words in sentences for word in words)])
  tags = st.sampled_from(PANX.labels)
  examples = [
    sentence(*words, tags=data.draw(st.none() | st.tuples(*[tags] * len(words)).map(tuple))) for words in sentences
  ]
  found = computed_rows(PANX, examples, vocabulary, max_length=max_length)
  assert_same(found, reference.word_rows(examples, PANX.labels, pieces, max_length=max_length))
  shown = [word.decode() for row in found for word in row.example['words']]
  assert shown == [word for words in sentences for word in words]


def test_a_word_without_tokens_becomes_unknown(vocabulary):
  for word in ('', ' ', '\t', '\N{NO-BREAK SPACE}', '\N{IDEOGRAPHIC SPACE}', '▁'):
    (row,) = word_rows(vocabulary, sentence(word))
    assert row.input_ids.tolist() == [CLS, UNKNOWN, SEP]


def test_a_row_too_short_for_a_word_is_an_error(vocabulary):
  with pytest.raises(UsageError, match='no room for a word'):
    word_rows(vocabulary, sentence('a'), max_length=2)


# --- questions on contexts --------------------------------------------------------------------------------------------

CONTEXT = 'Lake Merrow is 112 metres deep. It was surveyed in 1874 by the brothers Rask, who rowed across it in winter.'


def question_rows(*questions, normalization='rembert', max_length=384, **options):
  vocabulary = any_vocabulary(vocabulary_file(normalization))
  return computed_rows(SQUAD, questions, vocabulary, max_length=max_length, **options)


@st.composite
def questions_on(draw, contexts):
  """Questions with the answers that their context may hold, white space at their ends too, or without any."""
  context = draw(contexts)
  visible = [at for at, character in enumerate(context) if not character.isspace()]
  if not visible or draw(st.booleans()):
    return ask(context, question=draw(TEXTS))
  begin = draw(st.sampled_from(visible))
  end = draw(st.sampled_from([at for at in visible if at >= begin])) + 1
  end += draw(st.booleans()) and context[end : end + 1].isspace()
  begin -= draw(st.booleans()) and begin > 0 and context[begin - 1].isspace()
  return ask(context, (context[begin:end], begin), question=draw(TEXTS))


CONTEXTS = TEXTS | st.text('abc üß½🌊北 ', max_size=120) | st.just(CONTEXT)


@slowly
@given(
  normalizations,
  st.lists(questions_on(CONTEXTS), min_size=1, max_size=5),
  st.integers(12, 60),
  st.integers(1, 60),
  st.integers(1, 8),
  st.booleans(),
)
def test_windows_equal_the_reference(normalization, questions, max_length, stride, longest, are_on_one_context):
  skip_ties(
    (text for each in questions for text in (each.features['context'], each.features['question'])), normalization
  )
  if are_on_one_context:  # which is tokenized once
    questions = [questions[0], *questions, questions[0]]
  options = {'doc_stride': stride, 'max_query_length': longest}
  found = question_rows(*questions, normalization=normalization, max_length=max_length, **options)
  pieces = small_vocabulary(normalization)
  assert_same(found, reference.windows(questions, pieces, max_length=max_length, **options))


def test_the_first_of_several_answers_is_labelled():
  (row,) = question_rows(ask(CONTEXT, '1874', '112 metres'))
  begin = row.example['begin'][row.labels[0] - row.example['offset']]
  assert CONTEXT[begin:].lstrip().startswith('1874')


@slowly
@given(normalizations, st.text('abc ü½ﬁﷺ🌊北ำ', min_size=1, max_size=40), st.data())
def test_an_answer_is_the_fewest_tokens_that_cover_it(normalization, text, data):
  visible = [at for at, character in enumerate(text) if not character.isspace()]
  skip_ties([text], normalization)
  if not visible:
    return
  begin = data.draw(st.sampled_from(visible))
  end = data.draw(st.sampled_from([at for at in visible if at >= begin])) + 1
  question = ask(text, (text[begin:end], begin), question='')
  (row,) = question_rows(question, normalization=normalization)
  begins, ends = row.example['begin'], row.example['end']
  touched = [token for token, own in enumerate(map(range, begins, ends)) if set(own) & set(range(begin, end))]
  context = small_vocabulary(normalization).with_places(text)
  if written(small_vocabulary(normalization), text)[0] == '▁' and context.begin[0] == context.end[0]:
    touched = [token for token in touched if token > 0]  # the sign before a text
  assert (row.labels - row.example['offset']).tolist() == [touched[0], touched[-1]]


@pytest.mark.parametrize('context', ['\u200b\u200b', 'one two \u200b'])
def test_an_answer_that_is_normalised_away_is_where_the_text_ends_or_nowhere(context):
  question = ask(context, ('\u200b', len(context) - 1))
  (row,) = question_rows(question, normalization='nmt_nfkc')
  shown = len(row.example['begin'])
  assert (row.labels == (row.example['offset'] + shown - 1 if shown else 0)).all()


def test_no_room_for_the_context_is_an_error_that_names_the_question(pieces):
  question = 'How deep is the lake?'
  asked = len(pieces.ids(question))
  assert question_rows(ask(CONTEXT, question=question), max_length=asked + 4)
  with pytest.raises(Exception, match=r'no room next to the question.*\n*.*file.json:data\[0\]'):
    question_rows(ask(CONTEXT, question=question), max_length=asked + 3)
