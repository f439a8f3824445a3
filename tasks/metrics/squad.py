"""Exact match and F1 of SQuAD v1.1, by t5's implementation of the official script (`evaluate-v1.1.py`).

Answers are compared in lower case, without ASCII punctuation, without a, an and the, and with single spaces. F1 is of
words as a bag, and 0 where no word is shared. So an empty answer (or one of articles only) that meets another exactly
has an exact match of 1 and an F1 of 0, here as in the script; SQuAD v2.0's gives 1 for both. Nothing else segments
words: a Chinese answer is one word, right or wrong.
"""

from collections.abc import Sequence

from rembert.errors import UsageError


def squad(answers: Sequence[Sequence[str]], predictions: Sequence[str]) -> dict[str, float]:
  """Means over questions, 0 to 100, of the best among the answers of each.

  Args:
    answers: gold answers of each question, at least one.
    predictions: of each question.

  Returns:
    `f1` and `exact_match`.

  Raises:
    UsageError: no questions.
    ValueError: not as many predictions as questions, or a question without answers.
  """
  check(answers, predictions)
  from tasks.tensorflow_import import tensorflow  # noqa: F401 - before t5 imports it in its own way

  # isort: split
  from t5.evaluation import metrics

  scores = metrics.squad([list(gold) for gold in answers], list(predictions))
  return {'f1': float(scores['f1']), 'exact_match': float(scores['em'])}


def check(answers: Sequence[Sequence[str]], predictions: Sequence[str]) -> None:
  """Raises where there is nothing to take means of, or not one prediction for each question."""
  if not answers:
    raise UsageError('no questions to judge', where='the file of questions', fix='check that it holds some')
  if len(answers) != len(predictions):
    raise ValueError(f'{len(predictions)} predictions for {len(answers)} questions')
  if not all(answers):
    raise ValueError('a question without gold answers')
