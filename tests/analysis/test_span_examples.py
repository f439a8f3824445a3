"""Labelled spans of words become spans of pieces."""

import json

import pytest

from rembert.analysis.span_examples import SpanExample, Target, encode_spans, read_spans
from rembert.data.masking import SpecialIds
from rembert.errors import UsageError

SPECIAL = SpecialIds()
# Words of one, two and three pieces.
PIECES = {'the': [400], 'dog': [401, 402], 'barks': [403, 404, 405], '.': [406]}


def written(tmp_path, *lines):
  (tmp_path / 'spans.train.json').write_text(''.join(f'{json.dumps(line)}\n' for line in lines))
  return tmp_path / 'spans.train.json'


def test_lines_in_the_form_of_jiant_are_read(tmp_path):
  path = written(
    tmp_path,
    {
      'text': 'the dog barks .',
      'targets': [{'span1': [0, 2], 'span2': [2, 3], 'label': 'nsubj', 'info': {}}],
      'info': 1,
    },
    {'text': 'dog .', 'targets': []},
    {'text': 'dog', 'targets': [{'span1': [0, 1], 'span2': [0, 1], 'label': ['a', 'b']}]},
  )
  found = read_spans(path)
  assert found.name == 'spans'
  assert found.has_lists
  assert [example.words for example in found.examples] == [('the', 'dog', 'barks', '.'), ('dog',)]
  assert found.examples[0].targets == (Target((0, 2), (2, 3), ('nsubj',)),)
  assert found.examples[1].where.endswith(':3')


def test_spans_of_words_are_spans_of_pieces_among_those_that_are_needed():
  example = SpanExample(
    ('the', 'dog', 'barks', '.'), (Target((1, 2), (3, 4), ('x',)), Target((2, 4), (1, 2), ('y', 'z'))), ''
  )
  encoded = encode_spans(example, PIECES.__getitem__, longest=48, special=SPECIAL)
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
  example = SpanExample(('the', 'dog', 'barks'), (Target((0, 1), None, ('x',)), Target((2, 3), None, ('y',))), '')
  encoded = encode_spans(example, PIECES.__getitem__, longest=7, special=SPECIAL)
  assert encoded.input_ids.tolist() == [SPECIAL.cls, 400, 401, 402, 403, 404, SPECIAL.sep]
  assert (encoded.labels, encoded.dropped) == ((('x',),), 1)
  assert encoded.spans[0, 1].tolist() == [0, 0]
  fits = encode_spans(example, PIECES.__getitem__, longest=8, special=SPECIAL)
  assert fits.dropped == 0


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
def test_what_is_wrong_is_told_with_its_line(tmp_path, line, what):
  first = {'text': 'a', 'targets': []}
  with pytest.raises(UsageError, match=what) as caught:
    read_spans(written(tmp_path, first, line))
  assert 'no target in' in what or caught.value.where.endswith(':2')


def test_a_file_of_one_and_of_two_spans_is_refused(tmp_path):
  targets = [{'span1': [0, 1], 'label': 'x'}, {'span1': [0, 1], 'span2': [0, 1], 'label': 'x'}]
  with pytest.raises(UsageError, match='of one span and of two'):
    read_spans(written(tmp_path, {'text': 'a', 'targets': targets}))
