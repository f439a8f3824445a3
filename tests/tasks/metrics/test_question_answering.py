"""Exact match and F1: SQuAD v1.1's by cases whose scores were worked out by hand, MLQA's language by language."""

import functools
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembert.errors import UsageError
from tasks.metrics.question_answering import mlqa, squad, words

# --- SQuAD ------------------------------------------------------------------------------------------------------------


TOLERANCE = 1e-9

# gold answers, prediction, exact match, F1
CASES = {
  'the same': (['Maren Voss'], 'Maren Voss', 1, 1),
  'case does not count': (['Maren Voss'], 'maren VOSS', 1, 1),
  'articles do not count': (['the clock tower'], 'A clock tower', 1, 1),
  'articles within a word do': (['theatre'], 'atre', 0, 0),
  'an article before punctuation is one': (['the, tower'], 'tower', 1, 1),
  'ASCII punctuation does not count': (['U.S. (1,200)'], 'us 1200', 1, 1),
  'punctuation joins words': (['red-brown'], 'red brown', 0, 0),
  'other punctuation counts': (['«Grete»'], 'Grete', 0, 0),
  'white space is one space': (['four\u00a0 bells'], ' four\nbells ', 1, 1),
  'some of the words': (['four bells'], 'four old bells', 0, 2 * (2 / 3 * 1) / (2 / 3 + 1)),
  'words as often as they stand': (['ding dong ding'], 'ding ding ding', 0, 2 / 3),
  'the best of several answers': (['four', 'four bells', 'bells of bronze'], 'bells of', 0, 0.8),
  'no words in common': (['four'], 'five', 0, 0),
  'an empty prediction': (['four'], '', 0, 0),
  'a prediction of articles only': (['four'], 'the', 0, 0),
  'nothing meets nothing: the words are none in common': (['the'], '', 1, 0),
  'Chinese is one word': (['北京大学'], '北京', 0, 0),
  'accents count': (['café'], 'cafe', 0, 0),
}


@pytest.mark.parametrize('case', CASES)
def test_a_question_scores_as_the_script_of_squad_has_it(case):
  gold, prediction, exact_match, f1 = CASES[case]
  scores = squad([gold], [prediction])
  assert scores == pytest.approx({'exact_match': 100 * exact_match, 'f1': 100 * f1}, abs=TOLERANCE)


def test_scores_of_squad_are_means_over_questions():
  gold, predictions, exact_matches, f1s = zip(*CASES.values(), strict=True)
  scores = squad(gold, predictions)
  assert scores['exact_match'] == pytest.approx(100 * sum(exact_matches) / len(CASES), abs=TOLERANCE)
  assert scores['f1'] == pytest.approx(100 * sum(f1s) / len(CASES), abs=TOLERANCE)
  assert type(scores['f1']) is type(scores['exact_match']) is float


@pytest.mark.parametrize('scores', [squad, functools.partial(mlqa, language='en')], ids=['squad', 'mlqa'])
def test_every_question_needs_a_prediction_and_an_answer(scores):
  with pytest.raises(UsageError, match='no questions'):
    scores([], [])
  with pytest.raises(ValueError, match='1 predictions for 2 questions'):
    scores([['a'], ['b']], ['a'])
  with pytest.raises(ValueError, match='without gold answers'):
    scores([['a'], []], ['a', 'b'])


# --- MLQA -------------------------------------------------------------------------------------------------------------


LANGUAGES = ('en', 'es', 'de', 'ar', 'hi', 'vi', 'zh')
each_language = pytest.mark.parametrize('language', LANGUAGES)


@pytest.mark.parametrize(
  ('language', 'answer', 'left'),
  [
    ('en', 'The town of a Brennick, an “old” one', ['town', 'of', 'brennick', 'old', 'one']),
    ('en', 'theatre', ['theatre']),
    ('es', '¿Los telares de la villa?', ['telares', 'de', 'villa']),
    ('es', 'UNAS cintas, unos días', ['cintas', 'días']),
    ('de', 'Der Webstuhl des Meisters und eines Gesellen', ['webstuhl', 'meisters', 'und', 'gesellen']),
    ('de', '»Den« Dem einen/einem, Straße', ['eineneinem', 'straße']),  # what punctuation parted is one word
    ('vi', 'Những chiếc thuyền của làng là cái cũ', ['thuyền', 'làng', 'cũ']),
    ('hi', 'दिल्ली, भारत की राजधानी।', ['दिल्ली', 'भारत', 'की', 'राजधानी']),
    ('ar', 'الكتاب، في البيت؟', ['كتاب', 'في', 'بيت']),
    ('ar', 'بالقلم', ['ب', 'قلم']),  # within a word too
    ('zh', '约于1780年，在北京', ['约', '于', '1780', '年', '在', '北', '京']),
    ('zh', '黄杨木（Buxus sempervirens）', ['黄', '杨', '木', 'buxus', 'sempervirens']),
    ('zh', '𠀀〇字龦', ['𠀀〇', '字', '龦']),  # beyond U+4E00 to U+9FA5
  ],
)
def test_words_are_what_an_answer_has_without_articles_and_punctuation(language, answer, left):
  assert words(answer, language) == left


@each_language
def test_punctuation_is_unicodes_and_asciis(language):
  assert words(f'x{string.punctuation}،؟।。、「」《》“”„«»…—·¿¡y', language) == ['xy']
  assert words('x €£°№y', language) == ['x', '€£°№y']


@each_language
def test_articles_are_those_of_the_language_only(language):
  articles = {'en': 'the', 'es': 'las', 'de': 'dem', 'vi': 'của', 'ar': 'ال'}
  for other, article in articles.items():
    assert words(f'x {article} y', language) == (['x', 'y'] if other == language else ['x', article, 'y'])


@pytest.mark.parametrize(
  ('gold', 'prediction', 'exact_match', 'f1'),
  [
    (['nine metres'], 'the nine metres.', 100, 100),
    (['nine metres'], 'nine of metres', 0, 80),
    (['ding dong ding'], 'ding ding ding', 0, 200 / 3),
    (['nine', 'nine metres of ribbon', 'metres'], 'nine metres', 0, 200 / 3),
    (['nine'], '', 0, 0),
    (['the'], '', 100, 0),
  ],
)
def test_a_question_scores_as_the_script_of_mlqa_has_it(gold, prediction, exact_match, f1):
  assert mlqa([gold], [prediction], 'en') == pytest.approx({'exact_match': exact_match, 'f1': f1}, abs=TOLERANCE)


def test_scores_of_mlqa_are_means_over_questions():
  scores = mlqa([['nine metres'], ['ash'], ['oak']], ['nine metres', 'oak', 'oak tree'], 'en')
  assert scores == pytest.approx({'exact_match': 100 / 3, 'f1': (100 + 0 + 200 / 3) / 3}, abs=TOLERANCE)


@each_language
@given(answer=st.text(max_size=20))
def test_an_answer_meets_itself(language, answer):
  assert mlqa([['x', answer]], [answer], language) == {
    'exact_match': 100,
    'f1': 100 if words(answer, language) else 0,
  }


def test_another_language_has_no_rules():
  with pytest.raises(UsageError, match="MLQA does not have 'fr'"):
    mlqa([['x']], ['x'], 'fr')
