"""SQuAD, XQuAD, MLQA and TyDiQA: files, answers from logits, files of predictions, scores."""

import copy
import json
import pathlib
import shutil

import numpy as np
import pytest
from computed_rows import any_vocabulary, ask, computed_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabularies import NORMALIZATIONS, small_vocabulary, vocabulary_file

from rembert.errors import UsageError
from tasks.xtreme import benchmark
from tasks.xtreme.benchmark import XtremeTask
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.files import XtremeFolder, read_questions, read_task_questions

TASKS = SQUAD, XQUAD, MLQA, TYDIQA = tuple(benchmark.TASKS[name] for name in ('squad', 'xquad', 'mlqa', 'tydiqa'))


@pytest.fixture
def folder(root) -> XtremeFolder:
  return XtremeFolder(root / 'tests' / 'data' / 'xtreme')


def files_of(task: XtremeTask, folder: XtremeFolder) -> list[tuple[str, str]]:
  there = lambda split, language: folder.has(task.files[split].format(language=language))
  return [(split, language) for split in task.files for language in task.languages if there(split, language)]


# --- the tasks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('task', 'split', 'language', 'questions'),
  [
    (SQUAD, 'train', 'en', 10),
    (SQUAD, 'dev', 'en', 4),
    (XQUAD, 'test', 'zh', 4),
    (MLQA, 'dev', 'en', 2),
    (TYDIQA, 'test', 'ko', 4),
  ],
)
def test_a_split_is_read_with_its_answers(folder, task, split, language, questions):
  examples = task.examples(folder, split, language, needs_labels=True)
  assert len(examples) == questions
  for question in examples:
    for answer in question.label:
      assert question.features['context'][answer.start :].startswith(answer.text)
  unlabelled = task.examples(folder, split, language, needs_labels=False)
  assert unlabelled == [question._replace(label=None) for question in examples]


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
def test_a_missing_split_is_an_error_with_a_fix(folder, task, split, what):
  with pytest.raises(UsageError, match=what) as error:
    task.examples(folder, split, 'en', needs_labels=True)
  assert error.value.fix


def test_a_language_that_xtreme_does_not_evaluate_is_refused(folder):
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
    XQUAD.score(targets(questions), dict.fromkeys(range(4), 'x'), 'de')
  assert 'xquad.de.json' in error.value.where


# --- there and back ---------------------------------------------------------------------------------------------------


def targets(questions) -> list[dict]:
  """One row of each question, as far as scores, files and baselines look at it."""
  return [
    {
      'example': np.int32(number),
      'id': question.features['id'].encode(),
      'context': question.features['context'].encode(),
      'answers': [text.encode() for text, _ in question.label or ()],
      'where': question.where.encode(),
    }
    for number, question in enumerate(questions)
  ]


@pytest.mark.parametrize('task', TASKS, ids=lambda task: task.name)
def test_perfect_logits_give_the_gold_answers(folder, task):
  vocabulary = any_vocabulary(vocabulary_file('rembert'))
  for split, language in files_of(task, folder):
    questions = task.examples(folder, split, language, needs_labels=True)
    rows = [row.example for row in computed_rows(task, questions, vocabulary, max_length=384)]
    scores = [flat_logits(row) for row in rows]
    for row, logits in zip(rows, scores, strict=True):
      logits[row['labels'], [0, 1]] = 1
    answers = task.predict(rows, scores, XtremeConfig(max_answer_length=100))
    gold = {number: question.label[0].text for number, question in enumerate(questions)}
    # Inside a token no answer can end: the vocabulary may have "2006," or "年的" as one.
    for number, text in gold.items():
      assert text in answers[number]
      assert len(answers[number]) <= len(text) + 2
    assert task.score(rows, gold, language) == {'f1': 100, 'exact_match': 100}


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
  predictions = {number: f'die {question.label[0][0]}' for number, question in enumerate(questions)}
  assert MLQA.score(targets(questions), predictions, 'de')['exact_match'] == 100
  assert MLQA.score(targets(questions), predictions, 'en')['exact_match'] == 0


# --- the baseline -----------------------------------------------------------------------------------------------------


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
  assert SQUAD.baseline(TRAIN, targets([ask(context)])) == {0: answer}


# --- files of the form of SQuAD ---------------------------------------------------------------------------------------


CONTEXT = 'Der Turm in Halden hat vier Glocken 🔔 und 96 Stufen.'


def squad(*entries: dict, context: str = CONTEXT) -> dict:
  return {'version': '1.1', 'data': [{'title': 'x', 'paragraphs': [{'context': context, 'qas': list(entries)}]}]}


def entry(id_: str, *answers: tuple[str, int], question: str = 'Wie viele?') -> dict:
  return {'id': id_, 'question': question, 'answers': [{'text': text, 'answer_start': at} for text, at in answers]}


BLANK = ('', 0)


@pytest.fixture
def write(tmp_path):
  def _write(content: object, name: str = 'file.json') -> pathlib.Path:
    file = tmp_path / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file

  return _write


def read(file, *, needs_answers=True, unique_ids=True):
  return read_questions(file, needs_answers=needs_answers, unique_ids=unique_ids)


def test_questions_of_all_paragraphs_are_read_in_order(write):
  content = squad(entry('a', ('vier', 23)), entry('b', ('96', 42), ('96 Stufen', 42)))
  content['data'] += squad(entry('c', ('x', 2)), context='y x')['data']
  file = write(content)
  first, second = (f'{file}:data[{article}].paragraphs[0].qas' for article in (0, 1))
  assert read(file) == [
    ask(CONTEXT, ('vier', 23), question='Wie viele?', name='a', where=f'{first}[0]'),
    ask(CONTEXT, ('96', 42), ('96 Stufen', 42), question='Wie viele?', name='b', where=f'{first}[1]'),
    ask('y x', ('x', 2), question='Wie viele?', name='c', where=f'{second}[0]'),
  ]


def test_answers_are_not_looked_at_unless_they_are_needed(write):
  file = write(squad(entry('a', ('fünf', 3)), {'id': 'b', 'question': 'Wo?'}))
  assert [question.label for question in read(file, needs_answers=False)] == [None, None]


@pytest.mark.parametrize(('text', 'at'), [('vier', 22), ('fünf', 23), ('Stufen.', 44), ('vier', -30), ('vier', 4000)])
def test_an_answer_that_is_not_where_it_says_is_named_with_its_place(write, text, at):
  file = write(squad(entry('a', ('vier', 23)), entry('b', ('96', 42), (text, at))))
  with pytest.raises(UsageError, match='is not at') as error:
    read(file)
  assert error.value.where == f'{file}:data[0].paragraphs[0].qas[1].answers[1]'


@pytest.mark.parametrize('answers', [[], None, [{'text': '', 'answer_start': 0}]])
def test_a_question_without_an_answer_cannot_be_learnt_from(write, answers):
  file = write(squad(entry('a', ('vier', 23)), {**entry('b'), 'answers': answers}))
  with pytest.raises(UsageError, match='without an answer') as error:
    read(file)
  assert error.value.where == f'{file}:data[0].paragraphs[0].qas[1]'


def test_ids_may_repeat_where_nothing_is_matched_by_them(write):
  file = write(squad(entry('a', ('vier', 23)), entry('a', ('96', 42))))
  assert len(read(file, unique_ids=False)) == 2
  with pytest.raises(UsageError, match="two questions have the id 'a'") as error:
    read(file)
  assert 'qas[1]' in error.value.where
  assert 'qas[0]' in error.value.where


def _without(key):
  return lambda paragraph: paragraph['qas'][1].pop(key)


def _with(key, value):
  return lambda paragraph: paragraph['qas'][1].update({key: value})


@pytest.mark.parametrize(
  ('damage', 'what', 'where'),
  [
    (lambda paragraph: paragraph.pop('context'), "'context' is not text", ''),
    (lambda paragraph: paragraph.update(qas={}), "'qas' is not a list", '.qas'),
    (lambda paragraph: paragraph['qas'].append(3), 'no object', '.qas[2]'),
    (_without('id'), "'id' is not text", '.qas[1]'),
    (_without('question'), "'question' is not text", '.qas[1]'),
    (_with('question', 'Wo \ud83d?'), 'half a character', '.qas[1]'),
    (_with('answers', 'vier'), "'answers' is not a list", '.qas[1].answers'),
    (_with('answers', [{'text': 'vier'}]), "'answer_start' is not a whole", '.qas[1].answers[0]'),
    (_with('answers', [{'text': ' ', 'answer_start': 3}]), 'answer that is empty', '.qas[1].answers[0]'),
  ],
)
def test_what_is_not_squad_is_named_with_its_place(write, damage, what, where):
  content = squad(entry('a', ('vier', 23)), entry('b', ('96', 42)))
  damage(content['data'][0]['paragraphs'][0])
  file = write(content)
  with pytest.raises(UsageError, match=what) as error:
    read(file)
  assert error.value.where == f'{file}:data[0].paragraphs[0]{where}'


@pytest.mark.parametrize(
  ('content', 'what', 'where'),
  [
    ('[]', 'not the form of SQuAD', ''),
    ({'data': [{}]}, 'not the form of SQuAD', ':data[0].paragraphs'),
    ('{"data": [\n\n  {]', 'invalid JSON', ':3'),
    ({'data': []}, 'without questions', ''),
  ],
)
def test_another_file_is_refused(write, content, what, where):
  file = write(content)
  with pytest.raises(UsageError, match=what) as error:
    read(file)
  assert error.value.where == f'{file}{where}'


# --- labelled files ---------------------------------------------------------------------------------------------------

GOLD = squad(entry('a', ('vier', 23)), entry('b', ('96', 42), ('96 Stufen', 42)))
ASKED = squad(entry('b', BLANK), entry('a', BLANK))


def read_labelled(file, gold):
  return read_task_questions(file, 'test', gold, (), True)


def test_gold_answers_are_matched_by_id(write):
  questions = read_labelled(write(ASKED), write(GOLD, 'gold.json'))
  assert [(question.features['id'], [answer.text for answer in question.label]) for question in questions] == [
    ('b', ['96', '96 Stufen']),
    ('a', ['vier']),
  ]
  assert all('file.json' in question.where for question in questions)


def test_a_test_file_that_was_never_blanked_is_its_own_gold(write, tmp_path):
  questions = read_labelled(write(GOLD), tmp_path / 'test-de.json')
  assert [len(question.label) for question in questions] == [1, 2]


def _drop_first(entries):
  entries.pop(0)


def _add(id_):
  return lambda entries: entries.append(entry(id_, ('vier', 23)))


def _blank_first(entries):
  entries[0]['answers'] = []


@pytest.mark.parametrize(
  ('change', 'what', 'file', 'place'),
  [
    (_drop_first, "no gold answer for the question 'a'", 'file.json', 1),
    (_add('c'), "'c', which is not a question of the file", 'gold.json', 2),
    (_add('a'), "two questions have the id 'a'", 'gold.json', 2),
    (_blank_first, 'without an answer', 'gold.json', 0),
  ],
)
def test_gold_answers_that_do_not_fit_are_named_with_their_place(write, change, what, file, place):
  gold = copy.deepcopy(GOLD)
  change(gold['data'][0]['paragraphs'][0]['qas'])
  with pytest.raises(UsageError, match=what) as error:
    read_labelled(write(ASKED), write(gold, 'gold.json'))
  assert f'{file}:data[0].paragraphs[0].qas[{place}]' in error.value.where


def test_gold_answers_of_another_text_are_refused(write):
  asked = squad(entry('b', BLANK), entry('a', BLANK), context='x' + CONTEXT)
  with pytest.raises(UsageError, match='is not at') as error:
    read_labelled(write(asked), write(GOLD, 'gold.json'))
  assert 'file.json' in error.value.where


# --- answers from logits ----------------------------------------------------------------------------------------------


WORDS = ['Lake', 'Merrow', 'is', '112', 'metres', 'deep', 'surveyed', 'by', 'the', 'brothers', 'Rask', 'in', '1874']
TEXTS = st.lists(st.sampled_from([*WORDS, 'ﬁndet', '3½', '北京大学。', '🌊', 'ﷺ']), min_size=1, max_size=40).map(
  ' '.join
)


def rows_of(*questions, max_length: int = 384, normalization: str = 'rembert', config=XtremeConfig()):  # noqa: B008
  vocabulary = any_vocabulary(vocabulary_file(normalization))
  options = {'doc_stride': config.doc_stride, 'max_query_length': config.max_query_length}
  rows = computed_rows(SQUAD, questions, vocabulary, max_length=max_length, **options)
  return [row.example for row in rows]


def best(rows, outputs, config=XtremeConfig()):  # noqa: B008
  """The answer of each question, in their order."""
  answers = SQUAD.predict(rows, outputs, config)
  return [answers[number] for number in sorted(answers)]


def flat_logits(row) -> np.ndarray:
  return np.zeros((len(row['input_ids']), 2), np.float32)


# --- against a loop over all pairs ------------------------------------------------------------------------------------


def _answer_by_loops(question, rows, outputs, config) -> str:
  """As run_squad.py has it, but for candidates: only positions of the context are."""

  def likeliest(row, logits):
    return sorted(range(len(row['begin'])), key=lambda piece: -logits[row['offset'] + piece])

  for n_best in (config.n_best, 10**9):
    found = []
    for row, logits in zip(rows, outputs, strict=True):
      starts = [piece for piece in likeliest(row, logits[:, 0]) if row['has_most_context'][piece]][:n_best]
      for first in starts:
        for last in likeliest(row, logits[:, 1])[:n_best]:
          if first <= last < first + config.max_answer_length:
            total = float(logits[row['offset'] + first, 0]) + float(logits[row['offset'] + last, 1])
            text = question.features['context'][row['begin'][first] : row['end'][last]].strip()
            found.append((-total, row['first'] + first, row['first'] + last, text))
    found = [answer for *_, answer in sorted(found) if answer]
    if found:
      return found[0]
  return ''


@settings(deadline=None, max_examples=30)
@given(
  TEXTS,
  st.integers(20, 60),
  st.integers(3, 30),
  st.sampled_from([1, 2, 20]),
  st.sampled_from([1, 5, 30]),
  st.integers(0, 2**32 - 1),
  st.booleans(),
)
def test_the_best_pair_of_all_windows_is_cut_out(text, max_length, stride, n_best, longest, seed, has_ties):
  config = XtremeConfig(doc_stride=stride, n_best=n_best, max_answer_length=longest)
  question = ask(text)
  rows = rows_of(question, max_length=max_length, config=config)
  random = np.random.default_rng(seed)
  outputs = [random.normal(size=(len(row['input_ids']), 2)).astype(np.float32) for row in rows]
  if has_ties:
    outputs = [np.rint(logits) for logits in outputs]
  (answer,) = best(rows, outputs, config)
  assert answer == _answer_by_loops(question, rows, outputs, config)
  assert answer
  assert answer in text


# --- what was labelled is found again ---------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(NORMALIZATIONS), TEXTS, st.integers(50, 70), st.integers(3, 12), st.data())
def test_the_gold_span_gives_the_gold_answer(normalization, text, max_length, stride, data):
  config = XtremeConfig(doc_stride=stride, max_answer_length=10)
  places = small_vocabulary(normalization).with_places(text)
  boundaries = [(b, e) for b, e in zip(places.begin, places.end, strict=True) if b < e]
  first = data.draw(st.integers(0, len(boundaries) - 1))
  last = data.draw(st.integers(first, min(first + 2, len(boundaries) - 1)))
  gold = text[boundaries[first][0] : boundaries[last][1]]
  if not gold.strip():
    return
  question = ask(text, (gold, int(boundaries[first][0])))
  rows = rows_of(question, max_length=max_length, normalization=normalization, config=config)
  if any(row['labels'][1] - row['labels'][0] >= 10 for row in rows):  # a word of many bytes
    return
  outputs = []
  for row in rows:
    logits = flat_logits(row)
    logits[row['labels'][0], 0] = logits[row['labels'][1], 1] = 1
    outputs.append(logits)
  assert best(rows, outputs, config) == [gold.strip()]


# --- what is no answer ------------------------------------------------------------------------------------------------


def _row_and_logits(text: str = 'one two three four five six', **config: int):
  question, config = ask(text), XtremeConfig(**config)
  (row,) = rows_of(question, config=config)
  return question, config, row, flat_logits(row)


@pytest.mark.parametrize('context', ['', ' \n'])
def test_white_space_has_the_empty_answer(context):
  question = ask(context)
  (row,) = rows_of(question)
  assert best([row], [flat_logits(row)], XtremeConfig()) == ['']


def test_a_space_alone_is_no_answer():
  text = 'a 🌊'
  question = ask(text)
  (row,) = rows_of(question)
  (space,) = np.flatnonzero((row['begin'] == 1) & (row['end'] == 2))  # a ▁ of its own, before bytes
  logits = flat_logits(row)
  logits[row['offset'] + space] = 9
  logits[row['offset'] + space + 1, 1] = 1
  assert best([row], [logits], XtremeConfig()) == ['🌊']


# --- what the model hands over ----------------------------------------------------------------------------------------


def test_padding_behind_a_row_is_not_looked_at():
  _, config, row, logits = _row_and_logits()
  logits[row['offset'] + 2] = 3
  padded = np.concatenate([logits, np.full((40, 2), 99, np.float32)])
  assert best([row], [padded], config) == best([row], [logits], config)


def test_minus_infinity_is_a_logit_and_nan_is_not():
  _, config, row, logits = _row_and_logits()
  logits[row['offset']] = -np.inf
  assert best([row], [logits], config) != ['']
  logits[row['offset']] = np.nan
  with pytest.raises(ValueError, match='not numbers'):
    best([row], [logits], config)


def test_outputs_that_do_not_fit_the_rows_are_refused():
  _, config, row, logits = _row_and_logits()
  with pytest.raises(ValueError, match='logits of'):
    best([row], [logits[:-1]], config)
  with pytest.raises(ValueError, match='logits of'):
    best([row], [logits[:, :1]], config)
  with pytest.raises(ValueError, match='zip'):
    best([row], [], config)


def test_answers_come_in_the_order_of_the_questions():
  questions = [ask('one'), ask(''), ask('two')]
  rows = rows_of(*questions, max_length=64)
  outputs = [flat_logits(row) for row in rows]
  for row, logits in zip(rows, outputs, strict=True):
    logits[row['offset'] : row['offset'] + len(row['begin']), 1] = np.arange(len(row['begin']))
    logits[row['offset'] : row['offset'] + len(row['begin']), 0] = np.arange(len(row['begin']))
  answers = best(rows[::-1], outputs[::-1], XtremeConfig(max_answer_length=20))
  assert answers[1] == ''
  assert 'one'.endswith(answers[0]) and answers[0]  # noqa: PT018 - the last pieces are likeliest
  assert 'two'.endswith(answers[2]) and answers[2]  # noqa: PT018
