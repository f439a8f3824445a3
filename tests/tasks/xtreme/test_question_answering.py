"""SQuAD, XQuAD, MLQA and TyDiQA: files, rows, answers, files of predictions, scores."""

import json
import shutil

import numpy as np
import pytest
from computed_rows import any_vocabulary, computed_rows
from small_vocabularies import NORMALIZATIONS, vocabulary_file

from rembert.errors import UsageError
from tasks.xtreme import benchmark
from tasks.xtreme.benchmark import XtremeTask
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.questions import Answer, Question

TASKS = SQUAD, XQUAD, MLQA, TYDIQA = tuple(benchmark.TASKS[name] for name in ('squad', 'xquad', 'mlqa', 'tydiqa'))


@pytest.fixture
def folder(root) -> XtremeFolder:
  return XtremeFolder(root / 'tests' / 'data' / 'xtreme')


@pytest.fixture
def real_folder(shared_data) -> XtremeFolder:
  if not (shared_data / 'xtreme').is_dir():
    pytest.skip(f'no XTREME data at {shared_data}')
  return XtremeFolder(shared_data / 'xtreme')


def files_of(task: XtremeTask, folder: XtremeFolder) -> list[tuple[str, str]]:
  there = lambda split, language: folder.has(*task.files[split].format(language=language).split('/'))
  return [(split, language) for split in task.files for language in task.languages if there(split, language)]


# --- the tasks --------------------------------------------------------------------------------------------------------


def test_languages_are_xtremes():
  assert SQUAD.languages == ('en',)
  assert XQUAD.languages == tuple('en es de el ru tr ar vi th zh hi'.split())  # noqa: SIM905 - evaluate.py's order
  assert MLQA.languages == tuple('en es de ar hi vi zh'.split())  # noqa: SIM905
  assert TYDIQA.languages == tuple('en ar bn fi id ko ru sw te'.split())  # noqa: SIM905


@pytest.mark.parametrize('task', TASKS, ids=lambda task: task.name)
def test_models_are_chosen_by_f1(task):
  assert task.scores == ('f1', 'exact_match')
  assert (task.head, task.labels, task.suffix) == ('qa', (), 'json')


@pytest.mark.parametrize(
  ('task', 'split', 'language', 'questions'),
  [
    (SQUAD, 'train', 'en', 10),
    (SQUAD, 'dev', 'en', 4),
    (XQUAD, 'test', 'de', 4),
    (XQUAD, 'test', 'zh', 4),
    (MLQA, 'test', 'zh', 4),
    (MLQA, 'dev', 'en', 2),
    (TYDIQA, 'train', 'en', 10),
    (TYDIQA, 'test', 'ko', 4),
    (TYDIQA, 'test', 'ru', 4),
  ],
)
def test_a_split_is_read_with_its_answers(folder, task, split, language, questions):
  examples = task.examples(folder, split, language, needs_labels=True)
  assert len(examples) == questions
  for question in examples:
    for answer in question.answers:
      assert question.context[answer.start :].startswith(answer.text)
  unlabelled = task.examples(folder, split, language, needs_labels=False)
  assert [question.id for question in unlabelled] == [question.id for question in examples]
  assert {question.answers for question in unlabelled} == {()}


@pytest.mark.parametrize(
  ('task', 'split', 'what'),
  [
    (SQUAD, 'test', "SQuAD's test set is not public"),
    (XQUAD, 'train', 'XQuAD has no training set'),
    (XQUAD, 'dev', 'XQuAD has no development set'),
    (MLQA, 'train', 'MLQA has no training set'),
    (TYDIQA, 'dev', 'TyDiQA has no development set'),
  ],
)
def test_a_split_that_there_is_not_says_what_to_do(folder, task, split, what):
  with pytest.raises(UsageError, match=what) as error:
    task.examples(folder, split, 'en', needs_labels=True)
  assert error.value.fix


def test_a_language_that_xtreme_does_not_judge_is_refused(folder):
  with pytest.raises(UsageError, match="mlqa is not in 'fr'"):
    MLQA.examples(folder, 'test', 'fr', needs_labels=False)


def test_a_file_that_is_not_there_is_named(folder):
  with pytest.raises(UsageError, match='missing') as error:
    XQUAD.examples(folder, 'test', 'hi', needs_labels=False)
  assert error.value.where.endswith('xquad/xquad.hi.json')


def test_without_gold_answers_a_test_set_can_be_answered_but_not_scored(folder, tmp_path):
  shutil.copytree(folder.root / 'xquad', tmp_path / 'xquad')
  bare = XtremeFolder(tmp_path)
  with pytest.raises(UsageError, match='gold answers of a test file are missing'):
    XQUAD.examples(bare, 'test', 'de', needs_labels=True)
  questions = XQUAD.examples(bare, 'test', 'de', needs_labels=None)
  with pytest.raises(UsageError, match='no score without gold labels') as error:
    XQUAD.score(targets(questions), dict.fromkeys(range(4), 'x'), (), 'de')
  assert 'xquad.de.json' in error.value.where


# --- there and back ---------------------------------------------------------------------------------------------------


def targets(questions) -> list[dict]:
  """One row of each question, as far as scores, files and baselines look at it."""
  return [
    {
      'example': np.int32(number),
      'id': question.id.encode(),
      'context': question.context.encode(),
      'answers': [answer.text.encode() for answer in question.answers],
      'where': question.where.encode(),
    }
    for number, question in enumerate(questions)
  ]


def answers_of_perfect_logits(task, questions, normalization, config) -> tuple[dict[int, str], set[int], list[dict]]:
  """What is answered where the model is sure of the labels; the questions whose answer can be given at all; the rows.

  It cannot where it has more tokens than `max_answer_length`, or than the window shows that has most context around its
  beginning.
  """
  vocabulary = any_vocabulary(vocabulary_file(normalization))
  rows = [row.example for row in computed_rows(task, questions, vocabulary, max_length=384)]
  scores, possible = [], set()
  for row in rows:
    logits = np.zeros((len(row['input_ids']), 2), np.float32)
    logits[row['labels'], [0, 1]] = 1
    scores.append(logits)
    first, last = row['labels']
    if first and last - first < config.max_answer_length and row['has_most_context'][first - row['offset']]:
      possible.add(int(row['example']))
  return task.predict(rows, scores, (), config), possible, rows


@pytest.mark.parametrize('normalization', NORMALIZATIONS)
@pytest.mark.parametrize('task', TASKS, ids=lambda task: task.name)
def test_perfect_logits_give_the_gold_answers(folder, task, normalization):
  for split, language in files_of(task, folder):
    questions = task.examples(folder, split, language, needs_labels=True)
    answers, _, rows = answers_of_perfect_logits(task, questions, normalization, XtremeConfig(max_answer_length=100))
    # Inside a token no answer can end: the vocabulary may have "2006," or "年的" as one.
    for number, question in enumerate(questions):
      gold = question.answers[0].text
      assert gold in answers[number]
      assert len(answers[number]) <= len(gold) + 2
    gold = {number: question.answers[0].text for number, question in enumerate(questions)}
    assert task.score(rows, gold, (), language) == {'f1': 100, 'exact_match': 100}


@pytest.mark.parametrize('normalization', ['rembert', 'nfkc'])
@pytest.mark.parametrize('task', TASKS, ids=lambda task: task.name)
def test_perfect_logits_give_the_gold_answers_of_real_questions(real_folder, task, normalization):
  """All but a few that begin or end inside a token; and those that are too long for tokens as small as these."""
  files = files_of(task, real_folder)
  if not files:
    pytest.skip(f'no {task.name} at {real_folder.root}')
  for split, language in files:
    questions = task.examples(real_folder, split, language, needs_labels=True)[::5]
    config = XtremeConfig(max_answer_length=100)
    answers, possible, _ = answers_of_perfect_logits(task, questions, normalization, config)
    assert len(possible) >= 0.8 * len(questions)
    pairs = [(answers[number], questions[number].answers[0].text.strip()) for number in possible]
    assert all(gold in answer for answer, gold in pairs)
    assert sum(gold != answer for answer, gold in pairs) <= 0.05 * len(questions)


# --- predictions ------------------------------------------------------------------------------------------------------


def test_predictions_are_written_as_ids_and_answers(folder):
  questions = XQUAD.examples(folder, 'test', 'zh', needs_labels=False)
  answers = ['1936年', '', 'x "y"', '艾达·索恩']
  text = XQUAD.file_text(dict(enumerate(answers)), targets(questions), 4)
  assert json.loads(text) == dict(zip(['7x01', '7x02', '7x03', '7x04'], answers, strict=True))
  assert '艾达·索恩' in text
  assert text.endswith('}\n')


def test_ids_that_repeat_cannot_be_written(folder):
  questions = TYDIQA.examples(folder, 'train', 'en', needs_labels=True)
  count = len(questions)
  with pytest.raises(UsageError, match='same id'):
    TYDIQA.file_text(dict.fromkeys(range(count), 'x'), targets(questions), count)


def test_each_language_of_mlqa_has_its_own_articles(folder):
  questions = MLQA.examples(folder, 'test', 'de', needs_labels=True)
  predictions = {number: f'die {question.answers[0].text}' for number, question in enumerate(questions)}
  assert MLQA.score(targets(questions), predictions, (), 'de')['exact_match'] == 100
  assert MLQA.score(targets(questions), predictions, (), 'en')['exact_match'] == 0


def test_the_best_of_several_gold_answers_counts(folder):
  questions = SQUAD.examples(folder, 'dev', 'en', needs_labels=True)
  predictions = {number: question.answers[-1].text for number, question in enumerate(questions)}
  assert SQUAD.score(targets(questions), predictions, (), 'en') == {'f1': 100, 'exact_match': 100}


# --- the baseline -----------------------------------------------------------------------------------------------------


def ask(context: str, *answers: str) -> Question:
  return Question('q', '?', context, tuple(Answer(answer, context.index(answer)) for answer in answers), 'file.json')


TRAIN = [ask('one two three four', 'two three', 'four'), ask('five six seven eight', 'five six seven eight')]


@pytest.mark.parametrize(
  ('context', 'answer'),
  [
    ('  The  tower of Halden was built.', 'The  tower of'),  # 3 words on average
    ('Turm', 'Turm'),
    ('', ''),
    ('萨恩岛自1936年起被列为自然保护区。', '萨恩岛自1936年起被列为自'),  # 14 characters
    ('หอคอยแห่งเมืองฮาลเดน', 'หอคอยแห่งเมือง'),
    ('은파산은 해발 812미터의 산이다.', '은파산은 해발 812미터의'),
  ],
)
def test_the_baseline_answers_with_the_beginning_of_the_context(context, answer):
  assert SQUAD.baseline(TRAIN, targets([ask(context)]), ()) == {0: answer}
