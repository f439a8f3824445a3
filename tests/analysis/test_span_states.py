"""Labelled spans of words become spans of tokens."""

from rembert.analysis.files import SpanExample, Target
from rembert.analysis.span_states import encode_spans
from rembert.tokenizer import SpecialIds

SPECIAL = SpecialIds()
# Words of one, two and three tokens.
TOKENS = {'the': [400], 'dog': [401, 402], 'barks': [403, 404, 405], '.': [406]}


def test_spans_of_words_are_spans_of_pieces_among_those_that_are_needed():
  example = SpanExample(
    ('the', 'dog', 'barks', '.'), (Target((1, 2), (3, 4), ('x',)), Target((2, 4), (1, 2), ('y', 'z'))), ''
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
  example = SpanExample(('the', 'dog', 'barks'), (Target((0, 1), None, ('x',)), Target((2, 3), None, ('y',))), '')
  encoded = encode_spans(example, TOKENS.__getitem__, longest=7, special=SPECIAL)
  assert encoded.input_ids.tolist() == [SPECIAL.cls, 400, 401, 402, 403, 404, SPECIAL.sep]
  assert (encoded.labels, encoded.dropped) == ((('x',),), 1)
  assert encoded.spans[0, 1].tolist() == [0, 0]
  fits = encode_spans(example, TOKENS.__getitem__, longest=8, special=SPECIAL)
  assert fits.dropped == 0
