"""Exact match and F1 of answers, for SQuAD v1.1 and, by language, for MLQA.

SQuAD's are t5's implementation of the official script (`evaluate-v1.1.py`). Answers are compared in lower case, without
ASCII punctuation, without a, an and the, and with single spaces. F1 is over bags of words, and 0 if no word is shared.
So an empty answer (or one of articles only) that matches another exactly has an exact match of 1 and an F1 of 0, as in
the script; SQuAD v2.0 gives 1 for both. Words are not segmented otherwise: a Chinese answer is one word, right or
wrong.

MLQA's follow its script (`mlqa_evaluation_v1.py`). Punctuation is Unicode's; articles are those of the language;
Chinese text is split into characters. Peculiarities are the script's: Arabic loses every ال, even inside a word,
replaced by a space; Vietnamese loses words that are not articles; Chinese characters are U+4E00 to U+9FA5, and other
characters are split at spaces.
"""

import collections
import re
import string
import unicodedata
from collections.abc import Sequence

from rembert.errors import UsageError

_ARTICLES = {
  'en': ('a', 'an', 'the'),
  'es': ('un', 'una', 'unos', 'unas', 'el', 'la', 'los', 'las'),
  'vi': ('của', 'là', 'cái', 'chiếc', 'những'),
  'de': ('ein', 'eine', 'einen', 'einem', 'eines', 'einer', 'der', 'die', 'das', 'den', 'dem', 'des'),
  'hi': (),
  'ar': (),
  'zh': (),
}
LANGUAGES = tuple(_ARTICLES)  # of `mlqa`
_ARABIC_ARTICLE = 'ال'
_CHINESE_CHARACTER = re.compile('([\u4e00-\u9fa5])')
_WORDS = {
  language: re.compile(rf'\b(?:{"|".join(articles)})\b') for language, articles in _ARTICLES.items() if articles
}


def squad(answers: Sequence[Sequence[str]], predictions: Sequence[str]) -> dict[str, float]:
  """`f1` and `exact_match`, 0 to 100: the maximum over gold answers, averaged over questions.

  Raises:
    UsageError: no questions.
    ValueError: the numbers of predictions and questions differ, or a question has no answers.
  """
  _check(answers, predictions)
  from tasks.tensorflow_import import tensorflow  # noqa: F401 - before t5 imports it directly

  # isort: split
  from t5.evaluation import metrics

  scores = metrics.squad([list(gold) for gold in answers], list(predictions))
  return {'f1': float(scores['f1']), 'exact_match': float(scores['em'])}


def mlqa(answers: Sequence[Sequence[str]], predictions: Sequence[str], language: str) -> dict[str, float]:
  """As `squad`, with MLQA's rules for a language: en, es, de, ar, hi, vi or zh; UsageError for another."""
  _check(answers, predictions)
  f1 = exact = 0.0
  for gold, prediction in zip(answers, predictions, strict=True):
    predicted = words(prediction, language)
    wanted = [words(answer, language) for answer in gold]
    f1 += max(_f1(predicted, answer) for answer in wanted)
    exact += max(predicted == answer for answer in wanted)
  return {'f1': 100 * f1 / len(answers), 'exact_match': 100 * exact / len(answers)}


def words(answer: str, language: str) -> list[str]:
  """Words of an answer for comparison: lower case, no punctuation, no articles; Chinese characters separately."""
  if language not in _ARTICLES:
    raise UsageError(f'MLQA does not have {language!r}', where='xtreme.languages', fix=f'one of {", ".join(_ARTICLES)}')
  text = ''.join(character for character in answer.lower() if not _is_punctuation(character))
  if language in _WORDS:
    text = _WORDS[language].sub(' ', text)
  elif language == 'ar':
    text = text.replace(_ARABIC_ARTICLE, ' ')
  elif language == 'zh':
    text = _CHINESE_CHARACTER.sub(r' \1 ', text)
  return text.split()


def _is_punctuation(character: str) -> bool:
  # ASCII symbols ($ + < = > ^ ` | ~) count as punctuation, as in SQuAD; other symbols of Unicode do not.
  return unicodedata.category(character).startswith('P') or character in string.punctuation


def _f1(predicted: list[str], wanted: list[str]) -> float:
  """F1 of two bags of words; 0 if they share none, even if both are empty."""
  shared = (collections.Counter(predicted) & collections.Counter(wanted)).total()
  return 2 * shared / (len(predicted) + len(wanted)) if shared else 0.0


def _check(answers: Sequence[Sequence[str]], predictions: Sequence[str]) -> None:
  if not answers:
    raise UsageError('no questions to evaluate', where='the file of questions', fix='check that it contains questions')
  if len(answers) != len(predictions):
    raise ValueError(f'{len(predictions)} predictions for {len(answers)} questions')
  if not all(answers):
    raise ValueError('a question without gold answers')
