"""Files as people have them, in each of their forms; and the errors for those that cannot be read, with the line."""

import json

import pytest

from rembert.analysis.files import Target, read_aligned, read_spans, read_word_pairs
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
    ('a\nb\n', 'a\nb\nc\n', '2 lines and 3 translations', 'a.de:3 has no counterpart'),
    ('\n \n', 'a\nb\n', 'no pair of sentences found', 'a.en'),
    (None, 'a\n', 'no such file', 'a.en'),
  ],
)
def test_files_of_different_lengths_are_an_error(tmp_path, written, source, target, what, where):
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
  ['# by hand\ntiger\tcat\t7.35\n\nbook\tpaper\t-1\n', 'tiger cat 7.35\r\nbook   paper  -1 \r\n'],
  ids=['tabs', 'spaces'],
)
def test_word_pairs_are_separated_by_tabs_or_spaces(written, text):
  assert as_tuples(read_word_pairs(written('words.txt', text))) == [('tiger', 'cat', 7.35), ('book', 'paper', -1)]


@pytest.mark.parametrize('line', ['c d', 'c d many', 'c d N 2', 'c d nan', 'c,d,2'])
def test_a_line_that_is_no_word_pair_is_refused(written, line):
  with pytest.raises(UsageError, match='is not two words and a score') as caught:
    read_word_pairs(written('words.txt', f'a b 1\n{line}\n'))
  assert caught.value.where.endswith('words.txt:2')
  with pytest.raises(UsageError, match='no word pair'):
    read_word_pairs(written('words.txt', '\n# a b 1\n'))


# --- labelled spans ---------------------------------------------------------


ONE = {'span1': [0, 1], 'label': 'x'}


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
  assert [example.words for example in found.examples] == [('the', 'dog', 'barks', '.'), ('dog',)]
  assert found.examples[0].targets == (Target((0, 2), (2, 3), ('nsubj',)),)
  assert found.examples[1].where.endswith(':3')


@pytest.mark.parametrize(
  ('line', 'what'),
  [
    ({'targets': []}, '`text` is missing'),
    ({'text': 'a b', 'targets': None}, '`targets` must be a list'),
    ({'text': 'a b', 'targets': [{'label': 'x'}]}, 'lacks `span1` or `label`'),
    ({'text': 'a b', 'targets': [{'span1': None, 'label': 'x'}]}, 'lacks `span1` or `label`'),
    ({'text': 'a b', 'targets': [{'span1': [1, 3], 'label': 'x'}]}, r'span1 \[1, 3\] is not a span of 2 words'),
    ({'text': 'a b', 'targets': [{'span1': [1, 1], 'label': 'x'}]}, 'is not a span'),
    ({'text': 'a b', 'targets': [{'span1': [0, 1], 'label': 3}]}, '`label` must be a string'),
    ({'text': 'a b', 'targets': []}, 'the file has no targets'),
    ({'text': 'a', 'targets': [ONE, ONE | {'span2': [0, 1]}]}, 'targets of one span and of two'),
  ],
)
def test_a_malformed_line_is_an_error(written, line, what):
  first = {'text': 'a', 'targets': []}
  with pytest.raises(UsageError, match=what) as caught:
    read_spans(written('spans.train.json', json_lines(first, line)))
  of_the_file = ('the file has no targets', 'targets of one span and of two')
  assert caught.value.where.endswith('.json' if what in of_the_file else ':2')
