"""Exact match and F1 of MLQA, after its official script (`mlqa_evaluation_v1.py`): SQuAD's, but with a language.

Punctuation is that of Unicode; articles are those of the language; Chinese text is cut into characters. What looks
odd is the script's own: Arabic loses every ال, in the middle of a word too, with a space in its place; Vietnamese loses
words that are no articles; characters of Chinese are U+4E00 to U+9FA5, and what lies beside them is split at spaces.
"""

import collections
import re
import string
import unicodedata
from collections.abc import Sequence

from rembert.errors import UsageError
from tasks.metrics.squad import check

_ARTICLES = {
  'en': ('a', 'an', 'the'),
  'es': ('un', 'una', 'unos', 'unas', 'el', 'la', 'los', 'las'),
  'vi': ('của', 'là', 'cái', 'chiếc', 'những'),
  'de': ('ein', 'eine', 'einen', 'einem', 'eines', 'einer', 'der', 'die', 'das', 'den', 'dem', 'des'),
  'hi': (),
  'ar': (),
  'zh': (),
}
_ARABIC_ARTICLE = 'ال'
_CHINESE_CHARACTER = re.compile('([\u4e00-\u9fa5])')
_WORDS = {
  language: re.compile(rf'\b(?:{"|".join(articles)})\b') for language, articles in _ARTICLES.items() if articles
}


def mlqa(answers: Sequence[Sequence[str]], predictions: Sequence[str], language: str) -> dict[str, float]:
  """Means over questions, 0 to 100, of the best among the answers of each.

  Args:
    answers: gold answers of each question, at least one.
    predictions: of each question.
    language: of the answers: en, es, de, ar, hi, vi or zh.

  Returns:
    `f1` and `exact_match`.

  Raises:
    UsageError: no questions, or another language.
    ValueError: not as many predictions as questions, or a question without answers.
  """
  check(answers, predictions)
  f1 = exact = 0.0
  for gold, prediction in zip(answers, predictions, strict=True):
    predicted = words(prediction, language)
    wanted = [words(answer, language) for answer in gold]
    f1 += max(_f1(predicted, answer) for answer in wanted)
    exact += max(predicted == answer for answer in wanted)
  return {'f1': 100 * f1 / len(answers), 'exact_match': 100 * exact / len(answers)}


def words(answer: str, language: str) -> list[str]:
  """What of an answer is compared: lower case, no punctuation, no articles; in Chinese its characters."""
  if language not in _ARTICLES:
    raise UsageError(f'MLQA is not in {language!r}', where='xtreme.languages', fix=f'one of {", ".join(_ARTICLES)}')
  text = ''.join(character for character in answer.lower() if not _is_punctuation(character))
  if language in _WORDS:
    text = _WORDS[language].sub(' ', text)
  elif language == 'ar':
    text = text.replace(_ARABIC_ARTICLE, ' ')
  elif language == 'zh':
    text = _CHINESE_CHARACTER.sub(r' \1 ', text)
  return text.split()


def _is_punctuation(character: str) -> bool:
  # ASCII's signs among the symbols ($ + < = > ^ ` | ~) count, as in SQuAD; those of the rest of Unicode do not.
  return unicodedata.category(character).startswith('P') or character in string.punctuation


def _f1(predicted: list[str], wanted: list[str]) -> float:
  """Of two bags of words; 0 where they share none, even if both are empty."""
  shared = (collections.Counter(predicted) & collections.Counter(wanted)).total()
  return 2 * shared / (len(predicted) + len(wanted)) if shared else 0.0
