"""Questions on a text in the JSON of SQuAD v1.1, and answers from the logits of windows over the text.

An answer is chosen as BERT's `run_squad.py` does with SQuAD v1.1: in each window the
`n_best` likeliest first and last positions are paired, and the pair with the greatest sum of logits over all windows is
the answer. A question always has one: v1.1 knows no unanswerable ones, so [CLS] is no candidate. Two things are
different: positions outside the context take no places among the `n_best`, and where no pair is possible all positions
are tried, where BERT answers `empty`. The text is cut from the context by the places of characters; nothing is put
together from tokens, whose normalised text may differ.
"""

import collections
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rembert.errors import UsageError
from rembert.files import parsed_json
from tasks.tables.files import Example

T = TypeVar('T')
FETCH = 'fetch the file again'
# Scripts that put no space between words: Thai to Tibetan, Burmese, Khmer, kana and Han with their extensions.
_WITHOUT_SPACES = re.compile(
  '[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]'
)


class Answer(NamedTuple):
  """A part of a context: `context[start : start + len(text)] == text`, with something in it that is not white space."""

  text: str
  start: int


def beginning(context: str, words: int, characters: int) -> str:
  """The first words of a text, in a script without spaces the first characters."""
  if 2 * len(_WITHOUT_SPACES.findall(context)) > sum(character.isalnum() for character in context):
    return context[:characters].strip()
  return ''.join(re.findall(r'\s*\S+', context)[:words])


# --- SQuAD's JSON -----------------------------------------------------------------------------------------------------


def parse_questions(
  content: bytes, file: str, *, needs_answers: bool = True, unique_ids: bool = False
) -> tuple[dict[str, Any], list[Example]]:
  """The JSON object of a file of SQuAD v1.1, and its questions.

  An example has `id`, `question` and `context`, of which the last two may be empty. Its label are the gold answers, of
  which any is right; None where they were not asked for.

  Args:
    content: of the file.
    file: its name, for errors.
    needs_answers: every question must have answers, each at the place that it states. Otherwise answers are ignored.
    unique_ids: no two questions may have the same id.

  Raises:
    UsageError: the file has another form; with the place in it, `FILE:data[3].paragraphs[0].qas[2]`.
  """
  published = parsed_json(content, file)
  questions, first = [], {}
  for question, answers in entries(published, file):
    if needs_answers:
      question = answered(question, _answers(answers, question.where))
    name = question.features['id']
    if unique_ids and name in first:
      raise UsageError(f'two questions have the id {name!r}', where=f'{question.where}, {first[name]}', fix=FETCH)
    first[name] = question.where
    questions.append(question)
  return published, questions


def entries(published: Any, file: str) -> Iterator[tuple[Example, Any]]:
  """Every question of a file, without answers, and what the file has in their place."""
  for article, in_article in _items(_typed(published, dict, 'no object', file), 'data', f'{file}:'):
    for paragraph, in_paragraph in _items(article, 'paragraphs', f'{in_article}.'):
      context = _text(paragraph, 'context', in_paragraph)
      for entry, where in _items(paragraph, 'qas', f'{in_paragraph}.'):
        features = {'id': _text(entry, 'id', where), 'question': _text(entry, 'question', where), 'context': context}
        yield Example(where, features, None), entry.get('answers')


def _typed(value: Any, kind: type[T], what: str, where: str) -> T:
  if not isinstance(value, kind) or isinstance(value, bool):
    raise UsageError(f'not the form of SQuAD v1.1: {what}', where=where, fix=FETCH)
  return value


def _items(parent: dict, key: str, prefix: str) -> Iterator[tuple[dict, str]]:
  """Objects of the list `parent[key]`, each with its place."""
  for index, item in enumerate(_typed(parent.get(key), list, f'{key!r} is not a list', f'{prefix}{key}')):
    place = f'{prefix}{key}[{index}]'
    yield _typed(item, dict, 'no object', place), place


def _text(parent: dict, key: str, where: str) -> str:
  text = _typed(parent.get(key), str, f'{key!r} is not text', where)
  try:
    text.encode()
  except UnicodeEncodeError:  # JSON may say \ud83c, half of a character, which no vocabulary and no file can take
    raise UsageError(f'{key!r} has half a character, a lone surrogate', where=where, fix=FETCH) from None
  return text


def _answers(value: Any, where: str) -> list[Answer]:
  if is_blank(value):
    raise UsageError('a question without an answer', where=where, fix='SQuAD v1.1, where every question has one')
  answers = []
  for entry, place in _items({'answers': value}, 'answers', f'{where}.'):
    start = _typed(entry.get('answer_start'), int, "'answer_start' is not a whole number", place)
    text = _text(entry, 'text', place)
    if not text.strip():
      raise UsageError('an answer that is empty', where=place, fix=FETCH)
    answers.append(Answer(text, start))
  return answers


def is_blank(answers: Any) -> bool:
  """Whether there are none, or only XTREME's empty one."""
  if not answers:
    return True
  return isinstance(answers, list) and all(isinstance(answer, dict) and answer.get('text') == '' for answer in answers)


def answered(question: Example, answers: Sequence[Answer]) -> Example:
  """A question with its answers; UsageError for one that is not in the context where it says."""
  for index, answer in enumerate(answers):
    there = question.features['context'][max(answer.start, 0) :][: len(answer.text)]
    if answer.start < 0 or there != answer.text:
      raise UsageError(
        f'the answer {answer.text!r} is not at {answer.start:,} of the context, where {there!r} stands',
        where=f'{question.where}.answers[{index}]',
        fix='answer_start counts characters (code points) of the context, from 0',
      )
  return question._replace(label=answers)


# --- answers from logits ----------------------------------------------------------------------------------------------


def answers_with_probabilities(
  targets: Sequence[Mapping[str, Any]], scores: Sequence[np.ndarray], *, n_best: int, max_answer_length: int
) -> dict[int, tuple[str, float]]:
  """The best answer to each question, by its number, without white space around it; '' only for white space.

  Its probability is among the spans that were looked at, in all windows.

  ValueError if rows and scores do not fit together, or if a logit is not a number.

  Args:
    targets: all windows of the questions, rows of `tasks.xtreme.preprocessors.question_rows`.
    scores: of each row float32 logits [S, 2], of the first position and of the last. Padding may follow.
    n_best: the most likely first, and last positions of a window that are paired.
    max_answer_length: tokens in an answer at most.
  """
  of_question = collections.defaultdict(list)
  for row, logits_Sx2 in zip(targets, scores, strict=True):
    if logits_Sx2.ndim != 2 or logits_Sx2.shape[1] != 2 or len(logits_Sx2) < len(row['input_ids']):
      raise ValueError(f'logits of {logits_Sx2.shape} for a row of {len(row["input_ids"])} ids')
    logits_Wx2 = logits_Sx2[row['offset'] : row['offset'] + len(row['begin'])]
    if np.isnan(logits_Wx2).any():
      raise ValueError(f'logits are not numbers: row of {row["where"].decode()}')
    of_question[int(row['example'])].append((row, logits_Wx2))
  return {question: _best_answer(windows, n_best, max_answer_length) for question, windows in of_question.items()}


def spans(
  logits_Wx2: np.ndarray, may_begin: np.ndarray, *, n_best: int, max_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Spans of a window that could be an answer: first and last index, int, and sum of logits, float64.

  Args:
    logits_Wx2: of the first and of the last position.
    may_begin: [W] bool, where a span may begin.
    n_best: of the first, and of the last positions, so many are looked at; the earlier where logits are equal.
    max_length: of a span.
  """
  length = len(logits_Wx2)
  by_start, by_end = np.argsort(-logits_Wx2, axis=0, kind='stable').T
  first_Kx1 = by_start[may_begin[by_start]][:n_best, None]
  is_last = np.zeros(length + 1, bool)  # one more, for what is behind the window
  is_last[by_end[:n_best]] = True
  last_KxL = np.minimum(first_Kx1 + np.arange(min(max_length, length)), length)
  start, steps = np.nonzero(is_last[last_KxL])
  first, last = first_Kx1[start, 0], last_KxL[start, steps]
  return first, last, logits_Wx2[first, 0].astype(np.float64) + logits_Wx2[last, 1]


def _best_answer(
  windows: Sequence[tuple[Mapping[str, Any], np.ndarray]], n_best: int, max_length: int
) -> tuple[str, float]:
  context = windows[0][0]['context'].decode()
  everything = max(len(logits) for _, logits in windows)
  for most in (n_best, everything):
    candidates = [np.zeros((5, 0))]
    for row, logits in windows:
      first, last, sums = spans(logits, row['has_most_context'], n_best=most, max_length=max_length)
      # Where windows overlap, the same span is at other positions of each: tokens are counted in the context.
      candidates.append(
        np.stack([sums, row['first'] + first, row['first'] + last, row['begin'][first], row['end'][last]])
      )
    sums, first, last, begin, end = np.concatenate(candidates, axis=1)
    for best in np.lexsort((last, first, -sums)):  # of equal ones the first in the text, then the shortest
      if text := context[int(begin[best]) : int(end[best])].strip():
        return text, float(np.exp(sums[best] - np.logaddexp.reduce(sums)))
  return '', 0.0
