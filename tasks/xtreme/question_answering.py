"""Questions on a text, in the JSON of SQuAD v1.1: SQuAD, XQuAD, MLQA and TyDiQA.

XTREME's preprocessing (`utils_preprocess.py`) blanks the answers of XQuAD, of MLQA's test files and of TyDiQA's dev
files: one answer at 0 whose text is empty. The gold ones are in `labels/TASK/test-LL.json`, in the same form.

An answer is chosen from the logits of windows as BERT's `run_squad.py` does with SQuAD v1.1: in each window the
`n_best` likeliest first and last positions are paired, and the pair with the greatest sum of logits over all windows is
the answer. A question always has one: v1.1 knows no unanswerable ones, so [CLS] is no candidate. Two things are
different: positions outside the context take no places among the `n_best`, and where no pair is possible all positions
are tried, where BERT answers `empty`. The text is cut from the context by the places of characters; nothing is put
together from tokens, whose normalised text may differ.
"""

import collections
import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from etils import epath

from rembert.errors import UsageError
from rembert.files import parsed_json
from tasks.metrics.question_answering import mlqa, squad
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.files import MissingLabelsError, read_file, read_json
from tasks.xtreme.task import Targets, XtremeTask, no_score

T = TypeVar('T')
_FETCH = 'fetch the file again'
# Scripts that put no space between words: Thai to Tibetan, Burmese, Khmer, kana and Han with their extensions.
_WITHOUT_SPACES = re.compile(
  '[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]'
)


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


class QuestionAnswering(XtremeTask):
  """A task whose examples are questions; their ids distinguish them, which may repeat in a training file."""

  head = 'qa'
  scores = ('f1', 'exact_match')
  suffix = 'json'

  def read(self, path: epath.Path, split: str, gold_file: epath.Path, needs_labels: bool) -> list[Question]:
    """Questions of a file, with the answers that are needed to train or to score."""
    if split == 'test' and needs_labels:
      return read_labelled_questions(path, gold_file)
    return read_questions(path, needs_answers=needs_labels, unique_ids=split != 'train')

  def columns(self, examples: Sequence[Question]) -> dict[str, Any]:
    """Columns `id`, `question`, `context`, `answers` and `starts`, of which a question has as many as gold answers."""
    return {
      **{name: [getattr(question, name) for question in examples] for name in ('id', 'question', 'context')},
      'answers': [[answer.text for answer in question.answers] for question in examples],
      'starts': [[answer.start for answer in question.answers] for question in examples],
    }

  def predict(self, targets: Targets, scores: Sequence[np.ndarray], config: XtremeConfig) -> dict[int, str]:
    """The most likely part of the context for each question; scores are [S, 2]."""
    limits = {'n_best': config.n_best, 'max_answer_length': config.max_answer_length}
    return {example: answer for example, (answer, _) in answers_with_probabilities(targets, scores, **limits).items()}

  def score(self, targets: Targets, predictions: Mapping[int, str], language: str) -> dict[str, float]:
    """`f1` and `exact_match`, 0 to 100: MLQA's for the language, SQuAD's with English articles for all other tasks."""
    gold = {int(target['example']): [answer.decode() for answer in target['answers']] for target in targets}
    for target in targets:
      if not len(target['answers']):
        raise no_score(target)
    answers = [predictions[example] for example in gold]
    return mlqa([*gold.values()], answers, language) if self.name == 'mlqa' else squad([*gold.values()], answers)

  def baseline(self, train: Sequence[Question], targets: Targets) -> dict[int, str]:
    """The first words of each context, as many as the answers of `train` have on average (of each the first).

    In a script that puts no spaces between words, characters are counted in place of words.
    """
    answers = [question.answers[0].text for question in train]
    words = max(1, round(float(np.mean([len(answer.split()) for answer in answers]))))
    characters = max(1, round(float(np.mean([len(answer.strip()) for answer in answers]))))
    return {
      int(target['example']): beginning(target['context'].decode().strip(), words, characters) for target in targets
    }

  def file_text(self, predictions: Mapping[int, str], targets: Targets, count: int) -> str:
    """One JSON object, `{id: answer}`, in the order of the questions."""
    ids = {int(target['example']): target['id'].decode() for target in targets}
    answers = {ids[example]: predictions[example] for example in range(count)}
    if len(answers) < count:
      raise UsageError(
        'questions with the same id cannot be told apart in a file of predictions',
        where=targets[0]['where'].decode(),
        fix='ids of their own',
      )
    return json.dumps(answers, ensure_ascii=False, indent=1) + '\n'


def beginning(context: str, words: int, characters: int) -> str:
  """The first words of a text, in a script without spaces the first characters."""
  if 2 * len(_WITHOUT_SPACES.findall(context)) > sum(character.isalnum() for character in context):
    return context[:characters].strip()
  return ''.join(re.findall(r'\s*\S+', context)[:words])


# --- files ------------------------------------------------------------------------------------------------------------


def read_questions(path: epath.Path, *, needs_answers: bool, unique_ids: bool) -> list[Question]:
  """Questions of a file of SQuAD v1.1, which has some; else as `parse_questions`."""
  _, questions = parse_questions(read_file(path), str(path), needs_answers=needs_answers, unique_ids=unique_ids)
  if not questions:
    raise UsageError('a file without questions', where=str(path), fix=_FETCH)
  return questions


def read_labelled_questions(path: epath.Path, labels: epath.Path) -> list[Question]:
  """Reads a test file with the gold answers of another, matched by id.

  If there is no other file, the answers may be in the test file itself, as before XTREME's preprocessing. UsageError as
  `parse_questions`, for a question in one file that is not in the other, or without any gold answers.
  """
  if not labels.is_file():
    if all(is_blank(answers) for _, answers in entries(read_json(path), str(path))):
      raise MissingLabelsError(
        'the gold answers of a test file are missing',
        where=f'{path}: its answers are blank',
        fix=f'put them into {labels}, in the form of SQuAD',
      )
    return read_questions(path, needs_answers=True, unique_ids=True)
  questions = read_questions(path, needs_answers=False, unique_ids=True)
  gold = {question.id: question for question in read_questions(labels, needs_answers=True, unique_ids=True)}
  asked = {question.id for question in questions}
  for question in (*questions, *gold.values()):
    if question.id not in gold:
      what, fix = f'no gold answer for the question {question.id!r}', f'add it: {labels}'
      raise UsageError(what, where=question.where, fix=fix)
    if question.id not in asked:
      what, fix = f'a gold answer for {question.id!r}, which is not a question of the file', f'labels that fit {path}'
      raise UsageError(what, where=question.where, fix=fix)
  return [_answered(question, gold[question.id].answers) for question in questions]


def parse_questions(
  content: bytes, file: str, *, needs_answers: bool = True, unique_ids: bool = False
) -> tuple[dict[str, Any], list[Question]]:
  """The JSON object of a file of SQuAD v1.1, and its questions.

  Args:
    content: of the file.
    file: its name, for errors.
    needs_answers: every question must have answers, each at the place that it states. Otherwise answers are ignored.
    unique_ids: no two questions may have the same id.

  Raises:
    UsageError: the file has another form; with the place in it.
  """
  published = parsed_json(content, file)
  questions, first = [], {}
  for question, answers in entries(published, file):
    if needs_answers:
      question = _answered(question, _answers(answers, question.where))
    if unique_ids and question.id in first:
      raise UsageError(
        f'two questions have the id {question.id!r}', where=f'{question.where}, {first[question.id]}', fix=_FETCH
      )
    first[question.id] = question.where
    questions.append(question)
  return published, questions


def entries(published: Any, file: str) -> Iterator[tuple[Question, Any]]:
  """Every question of a file, without answers, and what the file has in their place."""
  for article, in_article in _items(_typed(published, dict, 'no object', file), 'data', f'{file}:'):
    for paragraph, in_paragraph in _items(article, 'paragraphs', f'{in_article}.'):
      context = _text(paragraph, 'context', in_paragraph)
      for entry, where in _items(paragraph, 'qas', f'{in_paragraph}.'):
        question = Question(_text(entry, 'id', where), _text(entry, 'question', where), context, (), where)
        yield question, entry.get('answers')


def _typed(value: Any, kind: type[T], what: str, where: str) -> T:
  if not isinstance(value, kind) or isinstance(value, bool):
    raise UsageError(f'not the form of SQuAD v1.1: {what}', where=where, fix=_FETCH)
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
    raise UsageError(f'{key!r} has half a character, a lone surrogate', where=where, fix=_FETCH) from None
  return text


def _answers(value: Any, where: str) -> tuple[Answer, ...]:
  if is_blank(value):
    raise UsageError('a question without an answer', where=where, fix='SQuAD v1.1, where every question has one')
  answers = []
  for entry, place in _items({'answers': value}, 'answers', f'{where}.'):
    start = _typed(entry.get('answer_start'), int, "'answer_start' is not a whole number", place)
    text = _text(entry, 'text', place)
    if not text.strip():
      raise UsageError('an answer that is empty', where=place, fix=_FETCH)
    answers.append(Answer(text, start))
  return tuple(answers)


def is_blank(answers: Any) -> bool:
  """Whether there are none, or only XTREME's empty one."""
  if not answers:
    return True
  return isinstance(answers, list) and all(isinstance(answer, dict) and answer.get('text') == '' for answer in answers)


def _answered(question: Question, answers: tuple[Answer, ...]) -> Question:
  for index, answer in enumerate(answers):
    there = question.context[max(answer.start, 0) :][: len(answer.text)]
    if answer.start < 0 or there != answer.text:
      raise UsageError(
        f'the answer {answer.text!r} is not at {answer.start:,} of the context, where {there!r} stands',
        where=f'{question.where}.answers[{index}]',
        fix='answer_start counts characters (code points) of the context, from 0',
      )
  return dataclasses.replace(question, answers=answers)


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
