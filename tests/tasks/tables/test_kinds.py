"""Examples, baselines and scores of every kind of table, and what is wrong with a file, by line."""

import json

import numpy as np
import pytest

from rembert.errors import UsageError
from tasks.tables.config import DatasetConfig
from tasks.tables.kinds import KINDS


def kind_of(name, labels=(), **columns):
  return KINDS[name](DatasetConfig(kind=name, test='a file', **columns), labels)


def read(kind, file, content, *, needs_labels=True):
  file.write_text(content, encoding='utf-8')
  return list(kind.read(str(file), needs_labels=needs_labels))


def targets(count, **features):
  return [
    {'example': np.int32(number), 'where': b'FILE:1', **{name: values[number] for name, values in features.items()}}
    for number in range(count)
  ]


# --- reading ----------------------------------------------------------------------------------------------------------


def test_labels_that_are_numbers_are_one_label_in_every_format(tmp_path):
  kind = kind_of('classification')
  rows = [{'text': None, 'label': 1}, {'text': 2.5, 'label': 1.0}, {'text': 'a', 'label': ' 1 '}]
  in_json = read(kind, tmp_path / 'a.jsonl', '\n'.join(map(json.dumps, rows)))
  assert [(example.features['first'], example.label) for example in in_json] == [('', '1'), ('2.5', '1'), ('a', '1')]
  [in_csv] = read(kind, tmp_path / 'a.csv', 'label,text\n1,\n')
  assert (in_csv.features, in_csv.label) == ({'first': ''}, '1')


def test_tags_of_conll_columns_may_have_spaces_and_comments_and_ranges_are_skipped(tmp_path):
  text = '# text = x\n1\tIm\tin\tIN ORT\n2-3\tzum\t_\t_\n2\tJuli 2024\tJuli\tB-DATE\n\n\n-DOCSTART-\t-X-\tO\tO\n\n'
  kind = kind_of('tagging', text='2')
  columns = text.replace('2-3\tzum\t_\t_\n', '')
  [sentence] = read(kind, tmp_path / 'a.conll', columns)
  assert (sentence.features['words'], sentence.label) == (['Im', 'Juli 2024'], ['IN ORT', 'B-DATE'])
  assert sentence.where == f'{tmp_path / "a.conll"}:2'
  ten = '\t'.join(['_'] * 6)
  in_conllu = f'1-2\tzum\t_\t_\t{ten}\n1\tzu\tzu\tADP\t{ten}\n2\tdem\tder\tDET\t{ten}\n'
  [sentence] = read(kind_of('tagging', text='2', label='4'), tmp_path / 'b.conllu', in_conllu)
  assert (sentence.features['words'], sentence.label) == (['zu', 'dem'], ['ADP', 'DET'])
  [sentence] = read(kind_of('tagging'), tmp_path / 'c.txt', '# O\nEU B-ORG\n')
  assert sentence.features['words'] == ['#', 'EU']


def test_words_without_tags_are_read_where_none_are_needed(tmp_path):
  sentences = read(kind_of('tagging'), tmp_path / 'a.conll', 'a\nb\n\nc\n', needs_labels=False)
  assert [(each.features['words'], each.label) for each in sentences] == [(['a', 'b'], None), (['c'], None)]


@pytest.mark.parametrize(
  'answers',
  ['北京', ['北京'], [{'text': '北京', 'answer_start': 1}], {'text': ['北京'], 'answer_start': [1]}, {'text': '北京'}],
  ids=str,
)
def test_answers_come_in_many_forms(tmp_path, answers):
  row = {'question': '哪里?', 'context': '在北京', 'answers': answers}
  [example] = read(kind_of('question_answering'), tmp_path / 'a.jsonl', json.dumps(row))
  assert example.label == [('北京', 1)]


@pytest.mark.parametrize('label', ['1', 'b', ' hayır '])
def test_the_right_choice_is_a_position_a_column_or_its_text(tmp_path, label):
  kind = kind_of('multiple_choice', choices=('a', 'b'))
  [example] = read(kind, tmp_path / 'a.csv', f'text,a,b,label\nSoru,evet,hayır,{label}\n')
  assert (example.features['choices'], example.label) == (['evet', 'hayır'], 1)


@pytest.mark.parametrize(
  ('kind', 'name', 'content', 'line', 'words'),
  [
    ('classification', 'a.csv', 'review,label\nx,1\n', 2, ["no column 'text'", 'review, label', 'dataset.text']),
    ('classification', 'a.csv', 'text,stars\nx,1\n', 2, ["no column 'label'", 'text, stars', 'dataset.label']),
    ('classification', 'a.csv', 'text,label\n"x\ny",1\nz,\n', 4, ['without a label']),
    ('classification', 'a.jsonl', '{"text": ["x"], "label": 1}', 1, ["'text' has no text"]),
    ('classification', 'a.jsonl', '{"text": "\\ud83c", "label": 1}', 1, ['half a character']),
    ('regression', 'a.csv', 'text,label\nx,"3,5"\n', 2, ["not a number: '3,5'", 'with a point']),
    ('regression', 'a.csv', 'text,label\nx,nan\n', 2, ["not a number: 'nan'"]),
    ('tagging', 'a.tsv', 'a\tO\nb\n', 2, ['a line of 1 columns, and 2 before']),
    ('tagging', 'a.tsv', 'a\tO\nb\t\n', 2, ['an empty cell']),
    ('tagging', 'a.conll', 'a\n', 1, ['a word without a tag']),
    ('tagging', 'a.jsonl', '{"text": ["a", "b"], "label": ["O"]}', 1, ['1 tags for 2 words']),
    ('tagging', 'a.jsonl', '{"text": "a b", "label": ["O"]}', 1, ['no list of words']),
    ('question_answering', 'a.csv', 'question,context,answers\nq,c,d\n', 2, ["'d' is not in the context"]),
    ('question_answering', 'a.csv', 'question,context,answers\nq,c,\n', 2, ['without an answer']),
    ('multiple_choice', 'a.jsonl', '{"text": "", "choices": ["a"], "label": 0}', 1, ['not choices']),
    ('multiple_choice', 'a.jsonl', '{"text": "", "choices": ["a", "b"], "label": 2}', 1, ["choices: '2'", '0 to 1']),
  ],
)
def test_a_wrong_row_is_one_error_with_file_line_and_fix(tmp_path, kind, name, content, line, words):
  with pytest.raises(UsageError) as error:
    read(kind_of(kind), tmp_path / name, content)
  assert error.value.where == f'{tmp_path / name}:{line}'
  assert all(word in str(error.value) for word in words), str(error.value)
  assert error.value.fix


def test_a_config_without_a_kind_or_files_is_an_error():
  for fields in ({'train': 'a.csv'}, {'kind': 'tagging'}):
    with pytest.raises(UsageError, match='files of tables need a kind'):
      DatasetConfig(**fields)
  with pytest.raises(UsageError, match='a pair has two texts'):
    DatasetConfig(kind='pair_classification', train='a.csv')
  with pytest.raises(UsageError, match='files by language'):
    DatasetConfig(kind='tagging', train={'de': 3})
  assert DatasetConfig(kind='tagging', test='a', language='sw').files('test') == {'sw': 'a'}


# --- baselines and scores ---------------------------------------------------------------------------------------------


def test_baselines_predict_without_reading():
  two = targets(2)
  assert kind_of('classification', ('a', 'b')).baseline({'b': 3, 'a': 1}, 4, two) == {0: 'b', 1: 'b'}
  assert kind_of('regression').baseline({'sum': 3.0}, 4, two) == {0: 0.75, 1: 0.75}
  assert kind_of('multiple_choice').baseline({'0': 1, '2': 5}, 6, two) == {0: 2, 1: 2}
  words = targets(1, first_tokens=[np.array([1, 3])])
  assert kind_of('tagging', ('B-X', 'O')).baseline({'O': 9, 'B-X': 2}, 3, words) == {0: ('O', 'O')}
  asked = targets(2, context=['Bir iki üç dört'.encode(), '北京很大也很老'.encode()])
  found = kind_of('question_answering').baseline({'words': 4.0, 'characters': 6.0}, 2, asked)
  assert found == {0: 'Bir iki', 1: '北京很'}


def test_questions_are_scored_by_the_rules_of_their_language():
  kind = kind_of('question_answering')
  assert kind.score([['北京市']], ['北京'], 'zh')['f1'] == pytest.approx(80)  # characters
  assert kind.score([['北京市']], ['北京'], 'ja')['f1'] == 0
  assert kind.score([['the dog']], ['dog'], 'en')['exact_match'] == 100


def test_predictions_have_the_probabilities_of_all_labels():
  kind = kind_of('classification', ('no', 'yes'))
  [found] = kind.predict(targets(1), [np.array([0.0, np.log(3)], np.float32)]).values()
  assert found['prediction'] == 'yes'
  assert found['probabilities'] == {'no': pytest.approx(0.25), 'yes': pytest.approx(0.75)}
  kind = kind_of('tagging', ('B', 'O'))
  rows = targets(2, first_tokens=[np.array([1]), np.array([1, 2])])
  rows[1]['example'] = np.int32(0)  # a long sentence continues in a second row
  logits = np.array([[9, 9], [0, 20], [20, 0]], np.float32)
  [found] = kind.predict(rows, [logits, logits]).values()
  assert found == {'prediction': ['O', 'O', 'B'], 'probability': [pytest.approx(1)] * 3}


def test_a_file_that_lacks_a_label_is_not_scored():
  for name, features in {
    'classification': {'labels': [np.array([0]), np.array([-1])]},
    'regression': {'labels': [np.array([0.5]), np.array([np.nan])]},
    'question_answering': {'answers': [[b'x'], []]},
  }.items():
    with pytest.raises(UsageError, match='no scores without labels'):
      kind_of(name, ('a',)).gold(targets(2, **features))
