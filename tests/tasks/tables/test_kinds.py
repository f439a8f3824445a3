"""Examples, baselines and scores of every kind of table, and what is wrong with a file, by line."""

import json

import numpy as np
import pytest
from computed_rows import any_vocabulary, ask, computed_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabularies import vocabulary_file

from rembert.errors import UsageError
from tasks.tables import DatasetConfig
from tasks.tables.kinds import KINDS
from tasks.xtreme import XtremeConfig
from tasks.xtreme.benchmark import TASKS


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


# --- answers from logits ----------------------------------------------------------------------------------------------

SQUAD = TASKS['squad']
WORDS = ['Lake', 'Merrow', 'is', '112', 'metres', 'deep', 'surveyed', 'by', 'the', 'brothers', 'Rask', 'in', '1874']
TEXTS = st.lists(st.sampled_from([*WORDS, 'ﬁndet', '3½', '北京大学。', '🌊', 'ﷺ']), min_size=1, max_size=40).map(
  ' '.join
)


def rows_of(*questions, config=XtremeConfig(), max_length: int = 384):  # noqa: B008
  """Windows of questions, and logits of 0 for each."""
  vocabulary = any_vocabulary(vocabulary_file('rembert'))
  options = {'doc_stride': config.doc_stride, 'max_query_length': config.max_query_length}
  rows = [row.example for row in computed_rows(SQUAD, questions, vocabulary, max_length=max_length, **options)]
  return rows, [np.zeros((len(row['input_ids']), 2), np.float32) for row in rows]


def best(rows, outputs, config=XtremeConfig()):  # noqa: B008
  """The answer of each question, in their order."""
  return [answer for _, answer in sorted(SQUAD.predict(rows, outputs, config).items())]


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


@settings(deadline=None, max_examples=20)
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
  config, question = XtremeConfig(doc_stride=stride, n_best=n_best, max_answer_length=longest), ask(text)
  rows, outputs = rows_of(question, max_length=max_length, config=config)
  random = np.random.default_rng(seed)
  outputs = [random.normal(size=logits.shape).astype(np.float32) for logits in outputs]
  if has_ties:
    outputs = [np.rint(logits) for logits in outputs]
  (answer,) = best(rows, outputs, config)
  assert answer == _answer_by_loops(question, rows, outputs, config)
  assert answer
  assert answer in text


@pytest.mark.parametrize('context', ['', ' \n'])
def test_white_space_has_the_empty_answer(context):
  assert best(*rows_of(ask(context))) == ['']


def test_a_space_alone_is_no_answer():
  (row,), (logits,) = rows_of(ask('a 🌊'))
  (space,) = np.flatnonzero((row['begin'] == 1) & (row['end'] == 2))  # a ▁ of its own, before bytes
  logits[row['offset'] + space] = 9
  logits[row['offset'] + space + 1, 1] = 1
  assert best([row], [logits]) == ['🌊']


def test_logits_are_numbers_or_minus_infinity_and_fit_the_rows_but_for_padding():
  (row,), (logits,) = rows_of(ask('one two three four five six'))
  logits[row['offset'] + 2] = 3
  padded = np.concatenate([logits, np.full((40, 2), 99, np.float32)])
  assert best([row], [padded]) == best([row], [logits])
  for wrong in (logits[:-1], logits[:, :1]):
    with pytest.raises(ValueError, match='logits of'):
      best([row], [wrong])
  with pytest.raises(ValueError, match='zip'):
    best([row], [])
  logits[row['offset']] = -np.inf
  assert best([row], [logits]) != ['']
  logits[row['offset']] = np.nan
  with pytest.raises(ValueError, match='not numbers'):
    best([row], [logits])


def test_answers_come_in_the_order_of_the_questions():
  rows, outputs = rows_of(ask('one'), ask(''), ask('two'), max_length=64)
  for row, logits in zip(rows, outputs, strict=True):  # the last pieces are likeliest
    logits[row['offset'] : row['offset'] + len(row['begin'])] = np.arange(len(row['begin']))[:, None]
  first, second, third = best(rows[::-1], outputs[::-1], XtremeConfig(max_answer_length=20))
  assert second == ''
  assert first
  assert 'one'.endswith(first)
  assert third
  assert 'two'.endswith(third)
