"""Labelled spans of words, as files have them, become spans of tokens."""

import json

import pytest

from rembert.analysis.spans import SpanExample, Target, encode_spans, read_spans, spans_per_target
from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds

SPECIAL = SpecialIds()
# Words of one, two and three tokens.
TOKENS = {'the': [400], 'dog': [401, 402], 'barks': [403, 404, 405], '.': [406]}
ONE, TWO = {'span1': [0, 1], 'label': 'x'}, {'span1': [0, 1], 'span2': [0, 1], 'label': ['a', 'b']}


@pytest.fixture
def read(tmp_path):
  """Reads a file of these lines."""

  def read_lines(*lines):
    (tmp_path / 'spans.json').write_text(''.join(f'{json.dumps(line)}\n' for line in lines), encoding='utf-8')
    return read_spans(tmp_path / 'spans.json')

  return read_lines


def test_lines_in_the_form_of_jiant_are_read(read):
  target = {'span1': [0, 2], 'span2': [2, 3], 'label': 'nsubj', 'info': {}}
  lines = [{'text': 'the dog barks .', 'targets': [target], 'info': 1}, {'text': '.', 'targets': []}]
  found = read(*lines, {'text': 'dog', 'targets': [TWO]})
  assert [example.words for example in found] == [('the', 'dog', 'barks', '.'), ('dog',)]
  assert found[0].targets == (Target((0, 2), (2, 3), ('nsubj',)),)
  assert found[1].targets == (Target((0, 1), (0, 1), ('a', 'b')),)
  assert spans_per_target(found, 'spans.json') == 2
  with pytest.raises(UsageError, match='targets of one span and of two'):
    spans_per_target([*found, *read({'text': 'a', 'targets': [ONE]})], 'spans.json')


@pytest.mark.parametrize(
  ('line', 'what'),
  [
    ({'targets': []}, "'text' is missing"),
    ([], 'not a sentence with labelled spans'),
    ({'text': 'a b', 'targets': None}, 'not a sentence with labelled spans'),
    ({'text': 'a b', 'targets': [{'label': 'x'}]}, "'span1' is missing"),
    ({'text': 'a b', 'targets': [ONE | {'span1': None}]}, 'None is not a span'),
    ({'text': 'a b', 'targets': [ONE | {'span1': [1, 3]}]}, r'\[1, 3\] is not a span of 2 words'),
    ({'text': 'a b', 'targets': [ONE | {'span2': [1, 1]}]}, 'is not a span'),
    ({'text': 'a b', 'targets': [ONE | {'label': 3}]}, 'the label 3 is not text'),
    ({'text': 'a b', 'targets': []}, 'the file has no targets'),
  ],
)
def test_a_malformed_line_is_an_error(read, line, what):
  with pytest.raises(UsageError, match=what) as caught:
    read({'text': 'a', 'targets': []}, line)
  assert caught.value.where.endswith('.json' if what == 'the file has no targets' else ':2')


def test_spans_of_words_are_spans_of_pieces_among_those_that_are_needed():
  example = SpanExample(
    ('the', 'dog', 'barks', '.'), (Target((1, 2), (3, 4), ('x',)), Target((2, 4), (1, 2), ('y', 'z')))
  )
  encoded = encode_spans(example, TOKENS.__getitem__, longest=48, special=SPECIAL)
  assert encoded.input_ids.tolist() == [SPECIAL.cls, 400, 401, 402, 403, 404, 405, 406, SPECIAL.sep]
  assert encoded.needed.tolist() == [2, 3, 4, 5, 6, 7]  # neither [CLS] nor `the`
  pieces = lambda span: encoded.input_ids[encoded.needed[slice(*span)]].tolist()
  assert [[pieces(span) for span in target] for target in encoded.spans] == [
    [[401, 402], [406]],
    [[403, 404, 405, 406], [401, 402]],
  ]
  assert encoded.labels == (('x',), ('y', 'z'))
  assert encoded.dropped == 0


def test_targets_that_do_not_fit_are_dropped_and_counted():
  example = SpanExample(('the', 'dog', 'barks'), (Target((0, 1), None, ('x',)), Target((2, 3), None, ('y',))))
  encoded = encode_spans(example, TOKENS.__getitem__, longest=7, special=SPECIAL)
  assert encoded.input_ids.tolist() == [SPECIAL.cls, 400, 401, 402, 403, 404, SPECIAL.sep]
  assert (encoded.labels, encoded.dropped) == ((('x',),), 1)
  assert encoded.spans[0, 1].tolist() == [0, 0]
  fits = encode_spans(example, TOKENS.__getitem__, longest=8, special=SPECIAL)
  assert fits.dropped == 0
