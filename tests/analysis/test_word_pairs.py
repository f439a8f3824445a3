"""The forms that sets of judged word pairs come in."""

import pytest

from rembert.analysis.word_pairs import read_word_pairs
from rembert.errors import UsageError


@pytest.fixture
def written(tmp_path):
  def write(text):
    (tmp_path / 'words.txt').write_text(text, encoding='utf-8')
    return tmp_path / 'words.txt'

  return write


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
  assert as_tuples(read_word_pairs(written(text))) == [('tiger', 'cat', 7.35), ('book', 'paper', 7.46)]


def test_simlex_columns_are_chosen_by_number_or_name(written):
  text = 'word1\tword2\tPOS\tSimLex999\told\tnew\tA\t1.58\n'
  text = 'word1\tword2\tPOS\tSimLex999\nold\tnew\tA\t1.58\nsmart\tintelligent\tA\t9.2\n'
  expected = [('old', 'new', 1.58), ('smart', 'intelligent', 9.2)]
  assert as_tuples(read_word_pairs(written(text), (1, 2, 4))) == expected
  assert as_tuples(read_word_pairs(written(text), ('word1', 'word2', 'SimLex999'))) == expected


def test_a_word_that_only_looks_like_a_tagged_one_is_left_alone(written):
  assert as_tuples(read_word_pairs(written('vitamin-a fruit 6\nsun-n moon 5\n')))[0][0] == 'vitamin-a'


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
def test_what_is_wrong_is_told_with_its_line(written, text, columns, what, line):
  with pytest.raises(UsageError, match=what) as caught:
    read_word_pairs(written(text), columns)
  assert caught.value.where.endswith(f'words.txt{line}')
