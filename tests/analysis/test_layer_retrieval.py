"""Translations by layer, compared with loops over all pairs in float64; files of translations."""

import numpy as np
import pytest

from rembert.analysis import layer_retrieval
from rembert.analysis.layer_retrieval import read_aligned
from rembert.errors import UsageError
from rembert.inference.embed import encode_lines
from rembert.tokenizer import TextEncoder


def plain_nearest(queries, targets):
  """One by one: the first of the targets with the smallest Σ (q − t)²."""
  found = []
  for query in queries.astype(np.float64):
    distances = [((query - target) ** 2).sum() for target in targets.astype(np.float64)]
    found.append(distances.index(min(distances)))
  return found


def plain_accuracy(source, target, gold):
  source, target = source.astype(np.float64), target.astype(np.float64)
  shift = np.mean([target[gold[i]] - source[i] for i in range(len(source))], axis=0)
  return 100 * np.mean([plain_nearest((source[i] + shift)[None], target)[0] == gold[i] for i in range(len(source))])


def random_sides(seed, sources=41, targets=41, width=7):
  """Sides that have enough to do with each other for some to be found."""
  random = np.random.default_rng(seed)
  target = random.standard_normal((targets, width)).astype(np.float32)
  gold = random.permutation(targets)[:sources]
  source = target[gold] + 0.9 * random.standard_normal((sources, width)).astype(np.float32) + 3
  return source, target, gold


@pytest.mark.parametrize('block_bytes', [1, 1000, 1 << 26])
def test_the_nearest_are_those_of_a_loop_whatever_the_blocks(monkeypatch, block_bytes):
  monkeypatch.setattr(layer_retrieval, '_BLOCK_BYTES', block_bytes)
  source, target, _ = random_sides(0, sources=30, targets=53)
  assert layer_retrieval.nearest(source, target).tolist() == plain_nearest(source, target)


@pytest.mark.parametrize('seed', range(2))
def test_accuracy_is_that_of_a_loop(seed):
  source, target, gold = random_sides(seed, sources=31)
  expected = plain_accuracy(source, target, gold)
  assert 0 < expected < 100
  assert layer_retrieval.translation_accuracy(source, target, gold) == pytest.approx(expected, abs=1e-12)
  assert layer_retrieval.translation_accuracy(source, source + 3) == 100  # a constant shift is undone


def test_of_equally_near_targets_the_first_is_taken():
  targets = np.array([[2.0, 0], [0, 1], [0, -1], [0, 1]])
  assert layer_retrieval.nearest(np.zeros((1, 2)), targets).tolist() == [1]
  copies = np.repeat(np.random.default_rng(0).standard_normal((9, 33)), 5, axis=0)
  assert layer_retrieval.nearest(copies, copies).tolist() == [5 * (row // 5) for row in range(45)]


def test_far_from_the_origin_nothing_is_lost_to_rounding():
  random = np.random.default_rng(1)
  targets = 1e4 + 1e-3 * random.standard_normal((60, 16))
  queries = targets + 1e-4 * random.standard_normal((60, 16))
  assert layer_retrieval.nearest(queries, targets).tolist() == plain_nearest(queries, targets)


# --- files ------------------------------------------------------------------


def write_sides(folder, source, target):
  for name, text in (('a.en', source), ('a.de', target)):
    if text is not None:
      (folder / name).write_text(text, encoding='utf-8')
  return folder / 'a.en', folder / 'a.de'


def test_pairs_are_those_of_the_same_line_and_blank_ones_are_left_out(tmp_path):
  source, target = 'one\n\ntwo\nthree\u2028still three\nfour\n', 'eins\nnichts\nzwei\ndrei\n  \n'
  files = write_sides(tmp_path, source, target)
  lines = read_aligned(*files)
  assert lines.source == ('one', 'two', 'three\u2028still three')
  assert lines.target == ('eins', 'zwei', 'drei')
  assert lines.blank == 2
  assert read_aligned(*files, 2).source == ('one', 'two')


@pytest.mark.parametrize(
  ('source', 'target', 'what', 'where'),
  [
    ('a\nb\n', 'a\nb\nc\n', '2 lines and 3 translations', 'a.de:3 has no counterpart'),
    ('\n \n', 'a\nb\n', 'no pair of sentences found', 'a.en'),
    (None, 'a\n', 'cannot be read', 'a.en'),
  ],
)
def test_files_of_different_lengths_are_an_error(tmp_path, source, target, what, where):
  with pytest.raises(UsageError, match=what) as caught:
    read_aligned(*write_sides(tmp_path, source, target))
  assert where in caught.value.where


def test_long_sentences_are_truncated_and_counted(random_encoder):
  encoder = TextEncoder(random_encoder.vocabulary)
  sentences, truncated = encode_lines(random_encoder, encoder, ['Fluss ' * 60, 'Fluss'])
  assert ([len(ids) for ids in sentences], truncated) == ([48, len(encoder.encode('Fluss'))], 1)
  assert [ids[-1] for ids in sentences] == [encoder.special.sep] * 2
