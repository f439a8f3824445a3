"""SQuAD v1.1's exact match and F1, by cases whose scores were worked out by hand."""

import pytest

from rembert.errors import UsageError
from tasks.metrics.squad import squad

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
def test_a_question_scores_as_the_official_script_has_it(case):
  gold, prediction, exact_match, f1 = CASES[case]
  scores = squad([gold], [prediction])
  assert scores == pytest.approx({'exact_match': 100 * exact_match, 'f1': 100 * f1}, abs=TOLERANCE)


def test_scores_are_means_over_questions():
  gold, predictions, exact_matches, f1s = zip(*CASES.values(), strict=True)
  scores = squad(gold, predictions)
  assert scores['exact_match'] == pytest.approx(100 * sum(exact_matches) / len(CASES), abs=TOLERANCE)
  assert scores['f1'] == pytest.approx(100 * sum(f1s) / len(CASES), abs=TOLERANCE)
  assert type(scores['f1']) is type(scores['exact_match']) is float


def test_no_questions_have_no_score():
  with pytest.raises(UsageError, match='no questions'):
    squad([], [])


def test_every_question_needs_a_prediction_and_an_answer():
  with pytest.raises(ValueError, match='1 predictions for 2 questions'):
    squad([['a'], ['b']], ['a'])
  with pytest.raises(ValueError, match='without gold answers'):
    squad([['a'], []], ['a', 'b'])
