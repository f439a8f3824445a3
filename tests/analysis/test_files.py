"""Files as people have them, in each of their forms; and what is said of those that cannot be read, with the line."""

import json

import pytest

from rembert.analysis.files import Target, read_aligned, read_points, read_spans, read_word_pairs
from rembert.errors import UsageError


@pytest.fixture
def written(tmp_path):
  """Function (name, text) → the file."""

  def write(name, text):
    (tmp_path / name).write_text(text, encoding='utf-8')
    return tmp_path / name

  return write


# --- translations -----------------------------------------------------------


def test_pairs_are_those_of_the_same_line_and_blank_ones_are_left_out(written):
  source = written('a.en', 'one\n\ntwo\nthree\u2028still three\nfour\n')
  target = written('a.de', 'eins\nnichts\nzwei\ndrei\n  \n')
  lines = read_aligned(source, target)
  assert lines.source == ('one', 'two', 'three\u2028still three')
  assert lines.target == ('eins', 'zwei', 'drei')
  assert lines.blank == 2
  assert read_aligned(source, target, 2).source == ('one', 'two')


@pytest.mark.parametrize(
  ('source', 'target', 'what', 'where'),
  [
    ('a\nb\n', 'a\nb\nc\n', '2 lines and 3 translations', 'a.de:3 has no partner'),
    ('\n \n', 'a\nb\n', 'there is no pair', 'a.en'),
    (None, 'a\n', 'there is no such file', 'a.en'),
  ],
)
def test_files_that_do_not_fit_together_are_told(tmp_path, written, source, target, what, where):
  for name, text in (('a.en', source), ('a.de', target)):
    if text is not None:
      written(name, text)
  with pytest.raises(UsageError, match=what) as caught:
    read_aligned(tmp_path / 'a.en', tmp_path / 'a.de')
  assert where in caught.value.where


# --- word pairs -------------------------------------------------------------


def as_tuples(pairs):
  return [(pair.first, pair.second, pair.score) for pair in pairs]


@pytest.mark.parametrize(
  'text',
  [
    'tiger cat 7.35\nbook  paper\t7.46\n',
    'tiger\tcat\t7.35\nbook\tpaper\t7.46\n',
    'Word 1,Word 2,Human (mean)\ntiger,cat,7.35\nbook,paper,7.46\n',
    'tiger;cat;7.35\r\nbook;paper;7.46\r\n',
    '# judged by hand\n\ntiger cat 7.35 extra\nbook paper 7.46 extra\n',
    'tiger-n cat-n 7.35\nbook-n paper-n 7.46\n',
  ],
  ids=['spaces', 'tabs', 'a header', 'semicolons', 'comments', 'parts of speech'],
)
def test_each_form_gives_the_same_pairs(written, text):
  assert as_tuples(read_word_pairs(written('words.txt', text))) == [('tiger', 'cat', 7.35), ('book', 'paper', 7.46)]


def test_simlex_columns_are_chosen_by_number_or_name(written):
  text = 'word1\tword2\tPOS\tSimLex999\told\tnew\tA\t1.58\n'
  text = 'word1\tword2\tPOS\tSimLex999\nold\tnew\tA\t1.58\nsmart\tintelligent\tA\t9.2\n'
  expected = [('old', 'new', 1.58), ('smart', 'intelligent', 9.2)]
  assert as_tuples(read_word_pairs(written('words.txt', text), (1, 2, 4))) == expected
  assert as_tuples(read_word_pairs(written('words.txt', text), ('word1', 'word2', 'SimLex999'))) == expected


def test_a_word_that_only_looks_like_a_tagged_one_is_left_alone(written):
  assert as_tuples(read_word_pairs(written('words.txt', 'vitamin-a fruit 6\nsun-n moon 5\n')))[0][0] == 'vitamin-a'


@pytest.mark.parametrize(
  ('text', 'columns', 'what', 'line'),
  [
    ('a b 1\nc d\n', (1, 2, 3), 'a line of 2 columns', ':2'),
    ('a b 1\nc d many\n', (1, 2, 3), "'many' is no score", ':2'),
    ('a b N 1\nc d N 2\n', (1, 2, 3), "'N' is no score", ':2'),
    ('x y z\n', (1, 2, 3), 'a header, and no word pair', ':1'),
    ('x y z\na b 1\n', ('x', 'y', 'score'), "no column 'score'", ':1'),
    ('\n', (1, 2, 3), 'no word pair', ''),
    ('a b nan\nc d 1\ne f inf\n', (1, 2, 3), "'inf' is no score", ':3'),
  ],
)
def test_a_line_that_is_no_word_pair_is_told(written, text, columns, what, line):
  with pytest.raises(UsageError, match=what) as caught:
    read_word_pairs(written('words.txt', text), columns)
  assert caught.value.where.endswith(f'words.txt{line}')


# --- labelled spans ---------------------------------------------------------


def json_lines(*lines):
  return ''.join(f'{json.dumps(line)}\n' for line in lines)


def test_lines_in_the_form_of_jiant_are_read(written):
  text = json_lines(
    {
      'text': 'the dog barks .',
      'targets': [{'span1': [0, 2], 'span2': [2, 3], 'label': 'nsubj', 'info': {}}],
      'info': 1,
    },
    {'text': 'dog .', 'targets': []},
    {'text': 'dog', 'targets': [{'span1': [0, 1], 'span2': [0, 1], 'label': ['a', 'b']}]},
  )
  found = read_spans(written('spans.train.json', text))
  assert found.name == 'spans'
  assert found.has_lists
  assert [example.words for example in found.examples] == [('the', 'dog', 'barks', '.'), ('dog',)]
  assert found.examples[0].targets == (Target((0, 2), (2, 3), ('nsubj',)),)
  assert found.examples[1].where.endswith(':3')


@pytest.mark.parametrize(
  ('line', 'what'),
  [
    ({'targets': []}, 'no text'),
    ({'text': 'a b', 'targets': None}, 'targets are a list'),
    ({'text': 'a b', 'targets': [{'label': 'x'}]}, 'without span1 or label'),
    ({'text': 'a b', 'targets': [{'span1': None, 'label': 'x'}]}, 'without span1 or label'),
    ({'text': 'a b', 'targets': [{'span1': [1, 3], 'label': 'x'}]}, r'span1 \[1, 3\] is no span of 2 words'),
    ({'text': 'a b', 'targets': [{'span1': [1, 1], 'label': 'x'}]}, 'is no span'),
    ({'text': 'a b', 'targets': [{'span1': [0, 1], 'label': 3}]}, 'a label is a string'),
    ({'text': 'a b', 'targets': []}, 'no target in the file'),
  ],
)
def test_a_line_that_is_no_example_is_told(written, line, what):
  first = {'text': 'a', 'targets': []}
  with pytest.raises(UsageError, match=what) as caught:
    read_spans(written('spans.train.json', json_lines(first, line)))
  assert 'no target in' in what or caught.value.where.endswith(':2')


def test_a_file_of_one_and_of_two_spans_is_refused(written):
  targets = [{'span1': [0, 1], 'label': 'x'}, {'span1': [0, 1], 'span2': [0, 1], 'label': 'x'}]
  with pytest.raises(UsageError, match='of one span and of two'):
    read_spans(written('spans.train.json', json_lines({'text': 'a', 'targets': targets})))


# --- points -----------------------------------------------------------------


@pytest.mark.parametrize(
  ('name', 'text'),
  [
    ('p.csv', '128,68.1\n768,70.4\n768,70.6\n'),
    ('p.csv', '# runs; seeds\nE_out,XNLI\n128,68.1\n\n768,70.4\n768,70.6\n'),
    ('p.tsv', '128\t68.1\n768\t70.4\n768\t70.6\n'),
    ('p.json', '[[128, 68.1], [768, 70.4], [768, 70.6]]'),
    ('p.json', '[{"x": 128, "score": 68.1}, {"x": 768, "score": 70.4}, {"x": 768, "score": 70.6}]'),
  ],
)
def test_files_of_each_form_give_the_same_points(written, name, text):
  points = read_points(written(name, text))
  assert points.x.tolist() == [128, 768, 768]
  assert points.score.tolist() == [68.1, 70.4, 70.6]
  assert points.weight.tolist() == [1, 1, 1]


def test_a_deviation_becomes_a_weight(written):
  file = written('p.json', json.dumps([{'x': 1, 'score': 2, 'deviation': 0.5}]))
  assert read_points(file).weight.tolist() == [4]


@pytest.mark.parametrize(
  ('name', 'text', 'what', 'where'),
  [
    ('p.csv', '128,68\n768\n', 'is no point', 'p.csv:2'),
    ('p.csv', '128,68\n768,many\n', 'is no point', 'p.csv:2'),
    ('p.csv', '128,68\n-1,70\n', 'above 0', 'p.csv:2'),
    ('p.csv', '128,68\n768,70,0.1\n', 'with and without', 'p.csv:1'),
    ('p.csv', 'x,score\n', 'no points', 'p.csv'),
    ('p.json', '[[1,\n2', 'not JSON', 'p.json:2'),
    ('p.json', '{"x": 1}', 'not a list', 'p.json'),
    ('p.json', '[[1, 2], {"x": 3}]', 'is no point', 'row 2'),
  ],
)
def test_a_row_that_is_no_point_is_told(written, name, text, what, where):
  with pytest.raises(UsageError, match=what) as caught:
    read_points(written(name, text))
  assert where in caught.value.where
