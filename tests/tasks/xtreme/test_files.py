"""Lines of files, what must not be in them, and labels that are known, unknown or the most frequent."""

import pytest

from rembert.errors import UsageError
from tasks.xtreme.files import most_frequent, text_lines

# --- lines ------------------------------------------------------------------------------------------------------------


def test_lines_end_at_line_feeds_with_or_without_a_carriage_return(write):
  path = write('a.tsv', 'eins\r\nzwei\N{LINE SEPARATOR}drei\x85\n\nvier'.encode())
  assert [line.text for line in text_lines(path)] == ['eins', 'zwei\N{LINE SEPARATOR}drei\x85', '', 'vier']
  assert [line.where for line in text_lines(path)] == [f'{path}:{number}' for number in (1, 2, 3, 4)]


@pytest.mark.parametrize(
  ('content', 'line', 'what'),
  [
    (b'', 1, 'empty'),
    (b'\xef\xbb\xbfeins\nzwei\n', 1, 'byte order mark'),
    (b'eins\nzwei\rdrei\n', 2, 'carriage return'),
    (b'eins\rzwei\rdrei\r', 1, 'carriage return'),
    ('eins\nzwölf\n'.encode('latin-1'), 2, 'not UTF-8'),
    ('eins\n'.encode('utf-16'), 1, 'not UTF-8'),
  ],
)
def test_what_cannot_be_meant_is_an_error_with_file_and_line(write, content, line, what):
  path = write('a.tsv', content)
  with pytest.raises(UsageError, match=what) as error:
    text_lines(path)
  assert error.value.where == f'{path}:{line}'
  assert error.value.fix


def test_carriage_returns_are_left_where_they_may_stand_in_quotes(write):
  assert [line.text for line in text_lines(write('a.tsv', b'"a\rb"\r\n'), allows_carriage_returns=True)] == ['"a\rb"']


# --- labels -----------------------------------------------------------------------------------------------------------


def test_of_equally_frequent_labels_the_first_in_their_order_is_taken():
  assert most_frequent(['b', 'a', 'c', 'b', 'c'], ('c', 'b', 'a')) == 'c'
  assert most_frequent(['b', 'a', 'b'], ('a', 'b')) == 'b'
