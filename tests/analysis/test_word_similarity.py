"""Word similarity, compared with loops, ranks by hand, and what must not change it."""

import math

import numpy as np
import pytest
from random_checkpoints import leaves_of

from rembert.analysis.word_similarity import (
  WordPair,
  bootstrap_spearman,
  dot_products,
  interval,
  read_embeddings,
  read_word_pairs,
  resampled,
  spearman,
  word_similarity,
)
from rembert.checkpoint.load import open_source
from rembert.convert.huggingface import export
from rembert.errors import UsageError

TOLERANCE = 1e-9
UNKNOWN = 2


def plain_spearman(x, y):
  """Pearson's correlation of ranks that are counted: smaller values, and half of the others that are equal."""

  def ranks(values):
    return [
      sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2 for value in values
    ]

  a, b = ranks(x), ranks(y)
  mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
  product = sum((p - mean_a) * (q - mean_b) for p, q in zip(a, b, strict=True))
  return 100 * product / math.sqrt(sum((p - mean_a) ** 2 for p in a) * sum((q - mean_b) ** 2 for q in b))


@pytest.mark.parametrize('levels', [3, 10, 1000])
def test_spearman_is_that_of_ranks_by_hand_with_ties(levels):
  random = np.random.default_rng(levels)
  x, y = random.integers(0, levels, (2, 40))
  assert spearman(x, y) == pytest.approx(plain_spearman(x.tolist(), y.tolist()), abs=TOLERANCE)


def test_what_does_not_vary_has_no_correlation():
  assert spearman(np.ones(4), np.arange(4)) is None
  assert interval(np.array([np.nan])) == (None, None)


def test_the_bootstrap_is_spearman_of_each_sample():
  random = np.random.default_rng(0)
  x, y = random.integers(0, 9, (2, 25)).astype(float)
  indices = resampled(25, 40, seed=3)
  expected = [plain_spearman(x[chosen].tolist(), y[chosen].tolist()) for chosen in indices]
  np.testing.assert_allclose(bootstrap_spearman(x, y, indices), expected, atol=TOLERANCE)
  low, high = interval(bootstrap_spearman(x, y, indices))
  assert (low, high) == pytest.approx(tuple(np.percentile(expected, [2.5, 97.5])))
  np.testing.assert_array_equal(indices, resampled(25, 40, seed=3))


# --- words ------------------------------------------------------------------

PIECES = {'river': [5], 'mountain': [6, 7, 8], 'sea': [9, 9], 'hill': [10], 'Ω': [UNKNOWN], 'x': [5, UNKNOWN], '': []}
PAIRS = [
  WordPair(first, second, score)
  for first, second, score in [
    ('river', 'sea', 8.0),
    ('mountain', 'hill', 9.0),
    ('river', 'mountain', 4.0),
    ('sea', 'hill', 1.0),
    ('river', 'hill', 4.0),
    ('river', 'Ω', 3.0),
    ('x', 'sea', 2.0),
  ]
]


def random_tables():
  random = np.random.default_rng(4)
  return {'input': random.standard_normal((11, 6), np.float32), 'output': random.standard_normal((11, 9), np.float32)}


def test_a_word_is_the_mean_of_its_pieces_and_similarity_the_dot_product():
  table = random_tables()['input'].astype(np.float64)
  mean = lambda word: sum(table[piece] for piece in PIECES[word]) / len(PIECES[word])
  pairs = [(PIECES[pair.first], PIECES[pair.second]) for pair in PAIRS[:5]]
  expected = [sum(a * b for a, b in zip(mean(p.first), mean(p.second), strict=True)) for p in PAIRS[:5]]
  np.testing.assert_allclose(dot_products(table, pairs), expected, rtol=1e-12)


def test_embeddings_are_compared_with_human_judgements_and_uncovered_words_are_reported():
  tables = random_tables()
  found = word_similarity(tables, PAIRS, PIECES.__getitem__, unknown=UNKNOWN, samples=50)
  assert (found['pairs'], found['covered'], found['not_covered']) == (7, 5, ['Ω', 'x'])
  scores = [pair.score for pair in PAIRS[:5]]
  for name, table in tables.items():
    similarity = dot_products(table, [(PIECES[pair.first], PIECES[pair.second]) for pair in PAIRS[:5]])
    expected = plain_spearman(similarity.tolist(), scores)
    assert found[name]['rho'] == pytest.approx(expected, abs=TOLERANCE)
  assert found['difference']['rho'] == pytest.approx(found['input']['rho'] - found['output']['rho'])
  assert found['difference']['low'] <= found['difference']['rho'] <= found['difference']['high']


def test_equal_rankings_differ_by_zero_in_every_sample():
  table = random_tables()['input']
  found = word_similarity({'a': table, 'b': 2 * table}, PAIRS, PIECES.__getitem__, unknown=UNKNOWN, samples=50)
  assert found['a']['low'] < found['a']['high']
  assert (found['difference']['low'], found['difference']['rho'], found['difference']['high']) == (0, 0, 0)


def test_without_an_output_embedding_there_is_no_difference_and_without_pairs_no_score():
  tables = {'input': random_tables()['input'], 'output': None}
  found = word_similarity(tables, PAIRS, PIECES.__getitem__, unknown=UNKNOWN)
  assert (found['output'], found['difference']) == (None, None)
  nothing = word_similarity(random_tables(), PAIRS[5:], PIECES.__getitem__, unknown=UNKNOWN)
  assert (nothing['covered'], nothing['input']['rho'], nothing['difference']['rho']) == (0, None, None)


@pytest.mark.parametrize(
  'text',
  ['# by hand\ntiger\tcat\t7.35\n\nbook\tpaper\t-1\n', 'tiger cat 7.35\r\nbook   paper  -1 \r\n'],
  ids=['tabs', 'spaces'],
)
def test_word_pairs_are_separated_by_tabs_or_spaces(tmp_path, text):
  (tmp_path / 'words.txt').write_bytes(text.encode())
  assert read_word_pairs(tmp_path / 'words.txt') == [('tiger', 'cat', 7.35), ('book', 'paper', -1)]


@pytest.mark.parametrize('line', ['c d', 'c d many', 'c d N 2', 'c d nan', 'c,d,2'])
def test_a_line_that_is_no_word_pair_is_refused(tmp_path, line):
  file = tmp_path / 'words.txt'
  file.write_text(f'a b 1\n{line}\n')
  with pytest.raises(UsageError, match='is not two words and a score') as caught:
    read_word_pairs(file)
  assert caught.value.where.endswith('words.txt:2')
  file.write_text('\n# a b 1\n')
  with pytest.raises(UsageError, match='no word pair'):
    read_word_pairs(file)


# --- embeddings of a model --------------------------------------------------


def test_embeddings_are_the_parameters_without_padding_for_any_kind_of_path(saved, tmp_path):
  checkpoint = saved('mlm')
  export(checkpoint, tmp_path / 'exported')
  parameters = leaves_of(checkpoint)
  for path in (checkpoint.workdir, tmp_path / 'exported'):
    tables = read_embeddings(open_source(path))
    assert {name: table.shape for name, table in tables.items()} == {'input': (331, 18), 'output': (331, 43)}
    np.testing.assert_array_equal(tables['input'], parameters['encoder/embeddings/word/embedding'][:331])
    np.testing.assert_array_equal(tables['output'], parameters['mlm/output_embedding'][:331])


def test_without_an_output_embedding_there_is_one_table(written_run):
  for run in written_run(None), written_run(input_embedding_size=43, tie_word_embeddings=True):
    tables = read_embeddings(open_source(run))
    assert (tables['input'] is None, tables['output']) == (False, None)
