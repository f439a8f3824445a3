"""Questions on a text, in the JSON of SQuAD v1.1, and the gold answers of test files that come without.

XTREME's preprocessing (`utils_preprocess.py`) blanks the answers of XQuAD, of MLQA's test files and of TyDiQA's dev
files: one answer at 0 whose text is empty. The gold ones are in `labels/TASK/test-LL.json`, in the same form.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from etils import epath

from rembert.errors import UsageError
from tasks.xtreme.layout import MissingLabelsError, read_json

_FETCH = 'fetch the file again'


@dataclasses.dataclass(frozen=True)
class Answer:
  """A part of a context: `context[start : start + len(text)] == text`, with something in it that is not white space."""

  text: str
  start: int


@dataclasses.dataclass(frozen=True)
class Question:
  """A question and the text that answers it.

  Attributes:
    id: by which predictions are matched to gold answers. XTREME's training file of TyDiQA gives many the same.
    question: may be empty.
    context: where the answer stands; may be empty.
    answers: the gold ones, of which any is right; () where they were not asked for.
    where: file and place of the question in it, `FILE:data[3].paragraphs[0].qas[2]`.
  """

  id: str
  question: str
  context: str
  answers: tuple[Answer, ...]
  where: str


def read_questions(path: epath.Path, *, needs_answers: bool, unique_ids: bool) -> list[Question]:
  """Reads a file of SQuAD v1.1.

  Args:
    path: of the file.
    needs_answers: every question must have answers, and each must stand where it says. Otherwise none is looked at.
    unique_ids: no two questions may have the same id.

  Raises:
    UsageError: with file and place in it, whatever is not so, or not in the form of SQuAD.
  """
  questions, first = [], {}
  for question, answers in _entries(path):
    if needs_answers:
      question = _answered(question, _answers(answers, question.where))
    if unique_ids and question.id in first:
      raise UsageError(
        f'two questions have the id {question.id!r}', where=f'{question.where}, {first[question.id]}', fix=_FETCH
      )
    first[question.id] = question.where
    questions.append(question)
  if not questions:
    raise UsageError('a file without questions', where=str(path), fix=_FETCH)
  return questions


def read_judged_questions(path: epath.Path, labels: epath.Path) -> list[Question]:
  """Reads a test file with the gold answers of another, matched by id.

  Where there is no other file, the answers may stand in the test file itself, as before XTREME's preprocessing.

  Raises:
    UsageError: as `read_questions`; a question in one file that is not in the other; no gold answers at all.
  """
  if not labels.is_file():
    if all(_is_blank(answers) for _, answers in _entries(path)):
      raise MissingLabelsError(
        'the gold answers of a test file are missing',
        where=f'{path}: its answers are blank',
        fix=f'put them into {labels}, in the form of SQuAD',
      )
    return read_questions(path, needs_answers=True, unique_ids=True)
  questions = read_questions(path, needs_answers=False, unique_ids=True)
  gold = {question.id: question for question in read_questions(labels, needs_answers=True, unique_ids=True)}
  asked = {question.id for question in questions}
  for question in questions:
    if question.id not in gold:
      raise UsageError(
        f'no gold answer for the question {question.id!r}', where=question.where, fix=f'add it: {labels}'
      )
  for question in gold.values():
    if question.id not in asked:
      raise UsageError(
        f'a gold answer for {question.id!r}, which nobody asks', where=question.where, fix=f'labels that fit {path}'
      )
  return [_answered(question, gold[question.id].answers) for question in questions]


def _entries(path: epath.Path) -> list[tuple[Question, Any]]:
  """Every question of a file, without answers, and what the file has in their place."""
  entries = []
  for article, in_article in _items(_object(read_json(path), str(path)), 'data', f'{path}:'):
    for paragraph, in_paragraph in _items(article, 'paragraphs', f'{in_article}.'):
      context = _text(paragraph, 'context', in_paragraph)
      for entry, where in _items(paragraph, 'qas', f'{in_paragraph}.'):
        question = Question(_text(entry, 'id', where), _text(entry, 'question', where), context, (), where)
        entries.append((question, entry.get('answers')))
  return entries


def _items(parent: dict, key: str, prefix: str) -> list[tuple[dict, str]]:
  """Objects of the list `parent[key]`, each with its place."""
  where = f'{prefix}{key}'
  value = parent.get(key)
  if not isinstance(value, list):
    raise UsageError(f'not the form of SQuAD v1.1: {key!r} is no list', where=where, fix=_FETCH)
  places = [f'{where}[{index}]' for index in range(len(value))]
  return [(_object(item, place), place) for item, place in zip(value, places, strict=True)]


def _object(value: Any, where: str) -> dict:
  if not isinstance(value, dict):
    raise UsageError('not the form of SQuAD v1.1: no object', where=where, fix=_FETCH)
  return value


def _text(parent: dict, key: str, where: str) -> str:
  value = parent.get(key)
  if not isinstance(value, str):
    raise UsageError(f'not the form of SQuAD v1.1: {key!r} is no text', where=where, fix=_FETCH)
  try:
    value.encode()
  except UnicodeEncodeError:  # JSON may say \ud83c, half of a character, which no vocabulary and no file can take
    raise UsageError(f'{key!r} has half a character, a lone surrogate', where=where, fix=_FETCH) from None
  return value


def _answers(value: Any, where: str) -> tuple[Answer, ...]:
  if _is_blank(value):
    raise UsageError('a question without an answer', where=where, fix='SQuAD v1.1, where every question has one')
  answers = []
  for entry, place in _items({'answers': value}, 'answers', f'{where}.'):
    start = entry.get('answer_start')
    if isinstance(start, bool) or not isinstance(start, int):
      raise UsageError("not the form of SQuAD v1.1: 'answer_start' is no whole number", where=place, fix=_FETCH)
    text = _text(entry, 'text', place)
    if not text.strip():
      raise UsageError('an answer that is empty', where=place, fix=_FETCH)
    answers.append(Answer(text, start))
  return tuple(answers)


def _is_blank(answers: Any) -> bool:
  """Whether there are none, or only XTREME's empty one."""
  if not answers:
    return True
  return isinstance(answers, list) and all(isinstance(answer, dict) and answer.get('text') == '' for answer in answers)


def _answered(question: Question, answers: Sequence[Answer]) -> Question:
  for index, answer in enumerate(answers):
    stands = question.context[max(answer.start, 0) :][: len(answer.text)]
    if answer.start < 0 or stands != answer.text:
      raise UsageError(
        f'the answer {answer.text!r} is not at {answer.start:,} of the context, where {stands!r} stands',
        where=f'{question.where}.answers[{index}]',
        fix='answer_start counts characters (code points) of the context, from 0',
      )
  return dataclasses.replace(question, answers=tuple(answers))
