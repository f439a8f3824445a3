"""What the four tasks of question answering share: everything but the names of their files, and the metric."""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rembert.errors import UsageError
from tasks.metrics.squad import squad
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.pieces import Pieces
from tasks.xtreme.questions import Question, read_judged_questions, read_questions
from tasks.xtreme.spans import best_answers
from tasks.xtreme.windows import Window, windows

# Scripts that put no space between words: Thai to Tibetan, Burmese, Khmer, kana and Han with their extensions.
_WITHOUT_SPACES = re.compile(
  '[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]'
)


class Absent(NamedTuple):
  """Why a task has no such split, and what to do."""

  what: str
  fix: str


def _squad_in(answers: Sequence[Sequence[str]], predictions: Sequence[str], language: str) -> dict[str, float]:
  return squad(answers, predictions)  # English articles in every language, as XTREME has it


@dataclasses.dataclass(frozen=True)
class QuestionAnswering:
  """A task whose examples are `Question`s, whose rows are `Window`s, and whose predictions are texts. See `Task`.

  Attributes:
    name: folder of its data.
    languages: that XTREME judges it in.
    files: for each split, the file's path under the root of the data, with `{language}`.
    absent: the splits that there are not.
    metric: function (gold answers of each question, predictions, language) → exact match and F1, 0 to 100; by default
      SQuAD's, which XTREME takes for all tasks but MLQA.
  """

  name: str
  languages: tuple[str, ...]
  files: Mapping[str, str]
  absent: Mapping[str, Absent]
  metric: Callable[[Sequence[Sequence[str]], Sequence[str], str], dict[str, float]] = _squad_in
  head: str = 'qa'
  labels: tuple[str, ...] = ()
  scores: tuple[str, ...] = ('f1', 'exact_match')
  suffix: str = 'json'

  def examples(self, folder: XtremeFolder, split: str, language: str, *, needs_labels: bool) -> list[Question]:
    """Questions of `train`, `dev` or `test`, with the answers that they need to be learnt from or judged by."""
    path = folder.file(*self._file(split, language))
    if split == 'test' and needs_labels:
      return read_judged_questions(path, folder.labels_file(self.name, language, self.suffix))
    return read_questions(path, needs_answers=needs_labels, unique_ids=split != 'train')

  def rows(
    self, examples: Sequence[Question], pieces: Pieces, *, max_length: int, config: XtremeConfig
  ) -> list[Window]:
    """Windows over each context; labels [2], the first answer's place in the row, or (0, 0) where it is not in it."""
    return windows(examples, pieces, max_length=max_length, config=config)

  def predictions(
    self,
    examples: Sequence[Question],
    rows: Sequence[Window],
    outputs: Sequence[np.ndarray],
    *,
    config: XtremeConfig,
  ) -> list[str]:
    """The likeliest part of each context."""
    return best_answers(examples, rows, outputs, config)

  def score(self, examples: Sequence[Question], predictions: Sequence[str], language: str) -> dict[str, float]:
    """F1 and exact match, of the best among a question's gold answers, meant over questions."""
    for question in examples:
      if not question.answers:
        raise UsageError(
          'there is no gold answer to judge by', where=question.where, fix='read the questions with their answers'
        )
    gold = [[answer.text for answer in question.answers] for question in examples]
    scores = self.metric(gold, predictions, language)
    return {name: scores[name] for name in self.scores}

  def baseline(self, train: Sequence[Question], examples: Sequence[Question]) -> list[str]:
    """The first words of each context, as many as the answers of `train` have on average (of each the first).

    In a script that puts no spaces between words, characters are counted in place of words.
    """
    answers = [question.answers[0].text for question in train if question.answers]
    if not answers:
      raise UsageError('a baseline needs answers to learn the length of', where=f'{self.name}: questions to learn from')
    words = max(1, round(float(np.mean([len(answer.split()) for answer in answers]))))
    characters = max(1, round(float(np.mean([len(answer.strip()) for answer in answers]))))
    return [_beginning(question.context.strip(), words, characters) for question in examples]

  def file_text(self, examples: Sequence[Question], predictions: Sequence[str]) -> str:
    """One JSON object, `{id: answer}`, in the order of the questions."""
    answers = {question.id: answer for question, answer in zip(examples, predictions, strict=True)}
    if len(answers) < len(examples):
      raise UsageError(
        'questions with the same id cannot be told apart in a file of predictions',
        where=examples[0].where,
        fix='ids of their own',
      )
    return json.dumps(answers, ensure_ascii=False, indent=1) + '\n'

  def _file(self, split: str, language: str) -> list[str]:
    if split not in self.files:
      absent = self.absent[split]
      raise UsageError(absent.what, where=f'xtreme.split, task {self.name}', fix=absent.fix)
    if language not in self.languages:
      raise UsageError(
        f'{self.name} is not in {language!r}',
        where='xtreme.languages, xtreme.train_language',
        fix=f'one of {", ".join(self.languages)}',
      )
    return self.files[split].format(language=language).split('/')


def _beginning(context: str, words: int, characters: int) -> str:
  if 2 * len(_WITHOUT_SPACES.findall(context)) > sum(character.isalnum() for character in context):
    return context[:characters].strip()
  return ''.join(re.findall(r'\s*\S+', context)[:words])
