"""Two files, line by line; and what is said when they do not fit together."""

import pytest

from rembert.analysis.aligned_lines import read_aligned
from rembert.errors import UsageError


def write(path, text):
  path.write_text(text, encoding='utf-8')
  return path


def test_pairs_are_those_of_the_same_line_and_blank_ones_are_left_out(tmp_path):
  source = write(tmp_path / 'a.en', 'one\n\ntwo\nthree\u2028still three\nfour\n')
  target = write(tmp_path / 'a.de', 'eins\nnichts\nzwei\ndrei\n  \n')
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
def test_what_does_not_fit_is_told_with_the_file(tmp_path, source, target, what, where):
  for name, text in (('a.en', source), ('a.de', target)):
    if text is not None:
      write(tmp_path / name, text)
  with pytest.raises(UsageError, match=what) as caught:
    read_aligned(tmp_path / 'a.en', tmp_path / 'a.de')
  assert where in caught.value.where
