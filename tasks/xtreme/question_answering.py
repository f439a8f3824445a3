"""What the four tasks of question answering have in common: columns of questions, files of answers, and scores."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rembert.errors import UsageError
from tasks.metrics.mlqa import mlqa
from tasks.metrics.squad import squad
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.gold_labels import no_score
from tasks.xtreme.questions import Question, read_judged_questions, read_questions
from tasks.xtreme.spans import best_answers

# Scripts that put no space between words: Thai to Tibetan, Burmese, Khmer, kana and Han with their extensions.
_WITHOUT_SPACES = re.compile(
  '[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]'
)


def read_questions_of(
  path: epath.Path, labels: Sequence[str], *, split: str, gold_file: epath.Path, needs_labels: bool
) -> list[Question]:
  """Reads a file, with the answers that are needed to train or to score; those of a test file are in `gold_file`.

  Questions are told apart by their ids, which may repeat in a training file.

  Raises:
    UsageError: see `tasks.xtreme.questions`.
  """
  del labels
  if split == 'test' and needs_labels:
    return read_judged_questions(path, gold_file)
  return read_questions(path, needs_answers=needs_labels, unique_ids=split != 'train')


def question_columns(examples: Sequence[Question], labels: Sequence[str]) -> dict[str, Any]:
  """Columns `id`, `question`, `context`, `answers` and `starts`, of which a question has as many as gold answers."""
  del labels
  return {
    **{name: [getattr(question, name) for question in examples] for name in ('id', 'question', 'context')},
    'answers': [[answer.text for answer in question.answers] for question in examples],
    'starts': [[answer.start for answer in question.answers] for question in examples],
  }


def predict_answers(
  targets: Sequence[Mapping[str, Any]], scores: Sequence[np.ndarray], labels: Sequence[str], config: XtremeConfig
) -> dict[int, str]:
  """The most likely part of the context for each question; scores are [S, 2]."""
  del labels
  return best_answers(targets, scores, n_best=config.n_best, max_answer_length=config.max_answer_length)


def score_answers(
  targets: Sequence[Mapping[str, Any]], predictions: Mapping[int, str], labels: Sequence[str], language: str
) -> dict[str, float]:
  """F1 and exact match of SQuAD, with English articles in every language as XTREME has it; UsageError without answers.

  The best among a question's gold answers counts; scores are means over questions, 0 to 100.
  """
  del labels, language
  gold = _gold(targets)
  return squad(list(gold.values()), [predictions[example] for example in gold])


def score_mlqa(
  targets: Sequence[Mapping[str, Any]], predictions: Mapping[int, str], labels: Sequence[str], language: str
) -> dict[str, float]:
  """The same by MLQA's rules for the language."""
  del labels
  gold = _gold(targets)
  return mlqa(list(gold.values()), [predictions[example] for example in gold], language)


def _gold(targets: Sequence[Mapping[str, Any]]) -> dict[int, list[str]]:
  """Gold answers of each question."""
  gold = {int(target['example']): [answer.decode() for answer in target['answers']] for target in targets}
  for target in targets:
    if not len(target['answers']):
      raise no_score(target)
  return gold


def first_words(
  train: Sequence[Question], targets: Sequence[Mapping[str, Any]], labels: Sequence[str]
) -> dict[int, str]:
  """The first words of each context, as many as the answers of `train` have on average (of each the first).

  In a script that puts no spaces between words, characters are counted in place of words.
  """
  del labels
  answers = [question.answers[0].text for question in train]
  words = max(1, round(float(np.mean([len(answer.split()) for answer in answers]))))
  characters = max(1, round(float(np.mean([len(answer.strip()) for answer in answers]))))
  return {
    int(target['example']): _beginning(target['context'].decode().strip(), words, characters) for target in targets
  }


def _beginning(context: str, words: int, characters: int) -> str:
  if 2 * len(_WITHOUT_SPACES.findall(context)) > sum(character.isalnum() for character in context):
    return context[:characters].strip()
  return ''.join(re.findall(r'\s*\S+', context)[:words])


def answers_text(predictions: Mapping[int, str], targets: Sequence[Mapping[str, Any]], count: int) -> str:
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
