"""SQuAD, XQuAD, MLQA and TyDi QA: answers that stand where they say, and none in a test file."""

import json
import re

import pytest
from xtreme_archives import QUESTIONS, tar_of, zip_of

from rembert.errors import UsageError
from tasks.xtreme.conversion.questions import blanked_test_files
from tasks.xtreme.conversion.tydiqa import NAMES
from tasks.xtreme.statistics import LANGUAGES


def asked(content: str) -> list[tuple[str, str, list]]:
  """Ids, contexts and answers of a file."""
  return [
    (question['id'], paragraph['context'], [answer['text'] for answer in question['answers']])
    for article in json.loads(content)['data']
    for paragraph in article['paragraphs']
    for question in paragraph['qas']
  ]


MILL, SNOW = 'Die Mühle steht seit 1720 am Bach.', 'Im Mai fiel Schnee.'


def test_squad_stays_as_it_is(convert):
  files = convert('squad')
  assert set(files) == {'squad/train-v1.1.json', 'squad/dev-v1.1.json'}
  assert json.loads(files['squad/train-v1.1.json']) == QUESTIONS


def test_xquad_has_an_article_for_each_question_without_its_answer(convert):
  files = convert('xquad')
  assert len(files) == 2 * 11
  assert asked(files['xquad/xquad.th.json']) == [('q1', MILL, ['']), ('q2', MILL, ['']), ('q3', SNOW, [''])]
  assert len(json.loads(files['xquad/xquad.th.json'])['data']) == 3
  assert json.loads(files['labels/xquad/test-th.json']) == QUESTIONS


def test_mlqa_is_judged_where_question_and_context_are_in_one_language(convert):
  files = convert('mlqa')
  assert set(files) == {
    *(
      f'mlqa/MLQA_V1/{s}/{s}-context-{code}-question-{code}.json' for s in ('dev', 'test') for code in LANGUAGES['mlqa']
    ),
    *(f'labels/mlqa/test-{code}.json' for code in LANGUAGES['mlqa']),
  }
  assert asked(files['mlqa/MLQA_V1/test/test-context-hi-question-hi.json'])[0] == ('q1', MILL, [''])
  assert asked(files['mlqa/MLQA_V1/dev/dev-context-hi-question-hi.json'])[0] == ('q1', MILL, ['1720'])
  assert asked(files['labels/mlqa/test-hi.json'])[0] == ('q1', MILL, ['1720'])


def test_tydiqa_is_split_by_language_and_named_as_xtreme_names_it(convert):
  files = convert('tydiqa')
  assert set(files) == {
    *(f'tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.{code}.train.json' for code in LANGUAGES['tydiqa']),
    *(f'tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{code}.dev.json' for code in LANGUAGES['tydiqa']),
    *(f'labels/tydiqa/test-{code}.json' for code in LANGUAGES['tydiqa']),
  }
  assert sorted(NAMES.values()) == sorted(LANGUAGES['tydiqa'])
  assert asked(files['tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.ko.train.json']) == [('0', MILL, ['1720'])]
  assert asked(files['tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.ko.dev.json']) == [('korean-77-0', MILL, [''])]
  assert asked(files['labels/tydiqa/test-ko.json']) == [('korean-77-0', MILL, ['1720'])]


def changed(**answer) -> bytes:
  content = json.loads(json.dumps(QUESTIONS))
  content['data'][0]['paragraphs'][1]['qas'][0]['answers'][0] |= answer
  return json.dumps(content).encode()


@pytest.mark.parametrize(
  ('content', 'what'),
  [
    (changed(answer_start=2), "question q3: 'Mai' does not stand at character 2"),
    (b'{"data": [{}]}', 'not a file of SQuAD’s form: KeyError'),
    (b'[1]', 'not a file of SQuAD’s form: TypeError'),
    (b'{"data": [', 'not JSON'),
    (b'\xff\xfe{}', 'not JSON'),
  ],
)
def test_a_file_of_another_form_is_told(convert, content, what):
  with pytest.raises(UsageError, match=what) as error:
    convert('xquad', {'xquad.de.json': content})
  assert re.search(r'xquad\.de\.json(:1)?$', error.value.where)
  with pytest.raises(UsageError, match=what):
    convert('mlqa', {'MLQA_V1.zip': zip_of({'MLQA_V1/test/test-context-de-question-de.json': content})})
  with pytest.raises(UsageError, match=what):
    convert('tydiqa', {'tydiqa-goldp-v1.1-dev.tgz': tar_of({'tydiqa-goldp-dev-korean.json': content})})


def test_an_unknown_language_of_tydiqa_is_told(convert):
  with pytest.raises(UsageError, match="unknown language in the id 'q1'"):
    convert('tydiqa', {'tydiqa-goldp-v1.1-train.json': json.dumps(QUESTIONS).encode()})


@pytest.mark.parametrize(('task', 'name'), [('xquad', 'xquad/xquad.zh.json'), ('tydiqa', 'tydiqa.goldp.te.dev.json')])
def test_real_test_files_are_made_from_their_labels(shared_data, task, name):
  root = shared_data / 'xtreme'
  language = name.split('.')[-2 if task == 'xquad' else -3]
  path = name if task == 'xquad' else f'tydiqa/tydiqa-goldp-v1.1-dev/{name}'
  labels = json.loads((root / 'labels' / task / f'test-{language}.json').read_text('utf-8'))
  made, _ = blanked_test_files(labels, 'labels', path, task, language)
  assert json.loads(made.content) == json.loads((root / path).read_text('utf-8'))
