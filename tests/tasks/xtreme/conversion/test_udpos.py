"""Universal Dependencies: multiword tokens in one, the tag of the word nearest to the root, treebanks in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xtreme_archives import CONLLU, tar_of

from rembert.errors import UsageError
from tasks.xtreme.conversion.udpos import sentences_of


def conllu(*rows: tuple[str, str, str, int | str], enhanced: dict[str, str] | None = None) -> bytes:
  """Rows of (id, form, tag, head) as a sentence."""
  lines = []
  for number, form, tag, head in rows:
    lines.append('\t'.join([number, form, '_', tag, '_', '_', str(head), '_', (enhanced or {}).get(number, '_'), '_']))
  return '\n'.join([*lines, '', '']).encode()


def test_a_multiword_token_is_one_token():
  assert sentences_of(CONLLU.encode(), 'f', 'de') == [
    [('Im', 'ADP'), ('Haus', 'NOUN'), ('wohnt', 'VERB'), ('niemand', 'PRON'), ('.', 'PUNCT')],
    [('Ja', 'INTJ')],
  ]


def test_the_word_nearest_to_the_root_gives_the_tag():
  rows = [('1-2', 'dámelo', '_', '_'), ('1', 'da', 'PRON', 2), ('2', 'me', 'X', 0)]
  assert sentences_of(conllu(*rows), 'f', 'de') == [[('dámelo', 'X')]]


@pytest.mark.parametrize(
  ('language', 'tags', 'tag'),
  [
    ('pt', ('ADP', 'DET'), 'ADP'),
    ('pt', ('PRON', 'ADV'), 'PRON'),
    ('it', ('PRON', 'ADV'), 'ADV'),
    ('fr', ('ADP', 'ADJ'), 'ADJ'),
    ('es', ('NOUN', 'DET'), 'DET'),  # NOUN has no rank there
    ('de', ('SYM', 'X'), 'X'),
  ],
)
def test_of_words_equally_near_the_rank_of_the_tag_decides(language, tags, tag):
  rows = [('1-2', 'ab', '_', '_'), ('1', 'a', tags[0], 3), ('2', 'b', tags[1], 3), ('3', 'c', 'VERB', 0)]
  assert sentences_of(conllu(*rows), 'f', language) == [[('ab', tag), ('c', 'VERB')]]


def test_enhanced_dependencies_count():
  rows = [
    ('1-2', 'ab', '_', '_'),
    ('1', 'a', 'ADP', 3),
    ('2', 'b', 'DET', 3),
    ('3', 'c', 'VERB', 0),
    ('4', 'd', 'X', 3),
  ]
  assert sentences_of(conllu(*rows), 'f', 'de')[0][0] == ('ab', 'ADP')
  assert sentences_of(conllu(*rows, enhanced={'1': '3:case|4:conj'}), 'f', 'de')[0][0] == ('ab', 'DET')


def plain_height(number, heads):
  """Steps to the root of a tree."""
  return 0 if number == 0 else 1 + plain_height(heads[number], heads)


@given(st.data())
def test_in_a_tree_the_nearest_is_the_one_with_the_shortest_way(data):
  count = data.draw(st.integers(2, 8))
  heads = {n: data.draw(st.integers(0, n - 1)) for n in range(1, count + 1)}
  tags = {n: data.draw(st.sampled_from(['VERB', 'NOUN', 'ADP', 'SYM'])) for n in heads}
  first = data.draw(st.integers(1, count - 1))
  last = data.draw(st.integers(first + 1, count))
  rows = [(str(n), f'w{n}', tags[n], heads[n]) for n in heads]
  rows.insert(first - 1, (f'{first}-{last}', 'fused', '_', '_'))
  rank = ['VERB', 'NOUN', 'ADP', 'SYM']
  expected = min(range(first, last + 1), key=lambda n: (plain_height(n, heads), rank.index(tags[n])))
  (sentence,) = sentences_of(conllu(*rows), 'f', 'de')
  assert sentence == [
    *((f'w{n}', tags[n]) for n in range(1, first)),
    ('fused', tags[expected]),
    *((f'w{n}', tags[n]) for n in range(last + 1, count + 1)),
  ]


def test_zero_width_non_joiners_and_spaces_go():
  assert sentences_of(conllu(('1', 'می\u200cرود', 'VERB', 0), ('2', '1 000', 'NUM', 1)), 'f', 'fa') == [
    [('میرود', 'VERB'), ('1000', 'NUM')]
  ]


@pytest.mark.parametrize(
  ('forms', 'stays'),
  [(['_', '_', '_'], False), (['_', '_', 'c'], False), (['_', 'b', 'c'], True), (['a'], True), (['_'], False)],
)
def test_sentences_without_words_are_left_out(forms, stays):
  rows = [(str(n), form, 'X', n - 1) for n, form in enumerate(forms, 1)]
  assert bool(sentences_of(conllu(*rows), 'f', 'en')) == stays


def test_treebanks_come_in_the_order_of_their_names(convert):
  members = {
    'ud/UD_English-PUD/en_pud-ud-test.conllu': conllu(('1', 'pud', 'X', 0)),
    'ud/UD_English-EWT/en_ewt-ud-test.conllu': conllu(('1', 'ewt', 'X', 0)),
    'ud/UD_English-EWT/en_ewt-ud-train.conllu': conllu(('1', 'train', 'X', 0)),
    'ud/UD_Old_French-SRCMF/fro_srcmf-ud-test.conllu': conllu(('1', 'fro', 'X', 0)),
  }
  files = convert('udpos', {'ud-treebanks-v2.5.tgz': tar_of(members)})
  assert files == {
    'udpos/test-en.tsv': 'ewt\n\npud\n',
    'labels/udpos/test-en.tsv': 'X\n\nX\n',
    'udpos/train-en.tsv': 'train\tX\n',
  }


def test_what_is_no_conllu_is_told_with_its_line(convert):
  for content, what, line in (
    (b'# a\n1\tx\n', '2 columns, and CoNLL-U has 10', ':2'),
    (conllu(('1-3', 'abc', '_', '_'), ('1', 'a', 'X', 0)), 'the words of 1-3 are not all there', ''),
  ):
    with pytest.raises(UsageError, match=what) as error:
      convert('udpos', {'ud-treebanks-v2.5.tgz': tar_of({'ud/UD_de/de_x-ud-dev.conllu': content})})
    assert f'de_x-ud-dev.conllu{line}' in error.value.where


def test_real_tokens_are_written_as_they_are(convert, shared_data):
  root = shared_data / 'xtreme'
  name = 'udpos/dev-mr.tsv'
  blocks = [block.splitlines() for block in (root / name).read_text('utf-8').split('\n\n')]
  rows = [[(str(n), *line.split('\t'), n - 1) for n, line in enumerate(block, 1)] for block in blocks]
  content = b''.join(conllu(*sentence) for sentence in rows)
  files = convert('udpos', {'ud-treebanks-v2.5.tgz': tar_of({'ud/UD_Marathi-UFAL/mr_ufal-ud-dev.conllu': content})})
  assert files[name] == (root / name).read_text('utf-8')
