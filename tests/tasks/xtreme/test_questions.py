"""SQuAD's JSON: what is read, what is matched, and where it says that something is wrong."""

import copy
import json
import pathlib

import pytest

from rembert.errors import UsageError
from tasks.xtreme.questions import Answer, Question, read_judged_questions, read_questions

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
    Question('a', 'Wie viele?', CONTEXT, (Answer('vier', 23),), f'{first}[0]'),
    Question('b', 'Wie viele?', CONTEXT, (Answer('96', 42), Answer('96 Stufen', 42)), f'{first}[1]'),
    Question('c', 'Wie viele?', 'y x', (Answer('x', 2),), f'{second}[0]'),
  ]


def test_answers_are_not_looked_at_unless_they_are_needed(write):
  file = write(squad(entry('a', ('fünf', 3)), {'id': 'b', 'question': 'Wo?'}))
  assert [question.answers for question in read(file, needs_answers=False)] == [(), ()]


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
    (lambda paragraph: paragraph.pop('context'), "'context' is no text", ''),
    (lambda paragraph: paragraph.update(qas={}), "'qas' is no list", '.qas'),
    (lambda paragraph: paragraph['qas'].append(3), 'no object', '.qas[2]'),
    (_without('id'), "'id' is no text", '.qas[1]'),
    (_with('id', 7), "'id' is no text", '.qas[1]'),
    (_without('question'), "'question' is no text", '.qas[1]'),
    (_with('question', 'Wo \ud83d?'), 'half a character', '.qas[1]'),
    (_with('answers', 'vier'), "'answers' is no list", '.qas[1].answers'),
    (_with('answers', ['vier']), 'no object', '.qas[1].answers[0]'),
    (_with('answers', [{'text': 'vier'}]), "'answer_start' is no whole", '.qas[1].answers[0]'),
    (_with('answers', [{'text': ' ', 'answer_start': 3}]), 'answer that is empty', '.qas[1].answers[0]'),
    (_with('answers', [{'text': 5, 'answer_start': 3}]), "'text' is no text", '.qas[1].answers[0]'),
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
  ('content', 'where'), [({}, 'data'), ({'data': ['x']}, 'data[0]'), ({'data': [{}]}, 'data[0].paragraphs')]
)
def test_a_list_that_is_missing_is_named(write, content, where):
  file = write(content)
  with pytest.raises(UsageError, match='not the form of SQuAD') as error:
    read(file)
  assert error.value.where == f'{file}:{where}'


@pytest.mark.parametrize('content', ['[]', '7', '"data"'])
def test_a_file_of_something_else_is_refused(write, content):
  with pytest.raises(UsageError, match='not the form of SQuAD'):
    read(write(content))


def test_broken_json_is_named_with_its_line(write):
  file = write('{"data": [\n\n  {]')
  with pytest.raises(UsageError, match='not JSON') as error:
    read(file)
  assert error.value.where == f'{file}:3'


def test_a_file_without_questions_is_refused(write):
  with pytest.raises(UsageError, match='without questions'):
    read(write({'data': []}))


# --- judged files -----------------------------------------------------------------------------------------------------

GOLD = squad(entry('a', ('vier', 23)), entry('b', ('96', 42), ('96 Stufen', 42)))
ASKED = squad(entry('b', BLANK), entry('a', BLANK))


def test_gold_answers_are_matched_by_id(write):
  questions = read_judged_questions(write(ASKED), write(GOLD, 'gold.json'))
  assert [(question.id, [answer.text for answer in question.answers]) for question in questions] == [
    ('b', ['96', '96 Stufen']),
    ('a', ['vier']),
  ]
  assert all('file.json' in question.where for question in questions)


def test_blank_answers_without_gold_ones_are_refused(write, tmp_path):
  with pytest.raises(UsageError, match='gold answers of a test file are missing') as error:
    read_judged_questions(write(ASKED), tmp_path / 'test-de.json')
  assert str(tmp_path / 'test-de.json') in error.value.fix[0]


def test_a_test_file_that_was_never_blanked_is_its_own_gold(write, tmp_path):
  questions = read_judged_questions(write(GOLD), tmp_path / 'test-de.json')
  assert [len(question.answers) for question in questions] == [1, 2]


def test_a_file_blanked_in_part_is_refused(write, tmp_path):
  with pytest.raises(UsageError, match='without an answer'):
    read_judged_questions(write(squad(entry('a', ('vier', 23)), entry('b', BLANK))), tmp_path / 'test-de.json')


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
    (_add('c'), "'c', which nobody asks", 'gold.json', 2),
    (_add('a'), "two questions have the id 'a'", 'gold.json', 2),
    (_blank_first, 'without an answer', 'gold.json', 0),
  ],
)
def test_gold_answers_that_do_not_fit_are_named_with_their_place(write, change, what, file, place):
  gold = copy.deepcopy(GOLD)
  change(gold['data'][0]['paragraphs'][0]['qas'])
  with pytest.raises(UsageError, match=what) as error:
    read_judged_questions(write(ASKED), write(gold, 'gold.json'))
  assert f'{file}:data[0].paragraphs[0].qas[{place}]' in error.value.where


def test_gold_answers_of_another_text_are_refused(write):
  asked = squad(entry('b', BLANK), entry('a', BLANK), context='x' + CONTEXT)
  with pytest.raises(UsageError, match='is not at') as error:
    read_judged_questions(write(asked), write(GOLD, 'gold.json'))
  assert 'file.json' in error.value.where


def test_the_same_id_twice_in_a_test_file_is_refused(write):
  asked = squad(entry('b', BLANK), entry('b', BLANK))
  with pytest.raises(UsageError, match="two questions have the id 'b'"):
    read_judged_questions(write(asked), write(GOLD, 'gold.json'))
