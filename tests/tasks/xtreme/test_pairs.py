"""XNLI and PAWS-X: files as XTREME's preprocessing writes them, rows, predictions, scores."""

import collections
import csv
import pathlib

import numpy as np
import pytest
from etils import epath
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rembert.errors import UsageError
from tasks.xtreme import pawsx, xnli
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.pairs import PairExample, kept_pieces
from tasks.xtreme.task import IGNORED

CONFIG = XtremeConfig()
CLS, SEP = 312, 313


class Folder:
  """Files of a task of pairs, as they are given or as a csv writer writes them."""

  def __init__(self, root: pathlib.Path):
    self.root = root

  def write(self, name: str, content: bytes | str) -> epath.Path:
    path = epath.Path(self.root) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path

  def write_table(self, name: str, rows) -> epath.Path:
    path = self.write(name, '')
    with open(path, 'w', newline='', encoding='utf-8') as file:
      csv.writer(file, delimiter='\t').writerows(rows)
    return path

  def read(self, task, split, language='de', *, needs_labels=True):
    return task.TASK.examples(XtremeFolder(self.root), split, language, needs_labels=needs_labels)


@pytest.fixture
def folder(tmp_path):
  return Folder(tmp_path)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_line_is_two_sentences_and_a_label(folder):
  path = folder.write('xnli/dev-de.tsv', 'Es regnet.\tEs ist nass.\tentailment\r\nJa.\tNein.\tcontradiction\r\n')
  assert folder.read(xnli, 'dev') == [
    PairExample('Es regnet.', 'Es ist nass.', 'entailment', f'{path}:1'),
    PairExample('Ja.', 'Nein.', 'contradiction', f'{path}:2'),
  ]


def test_line_numbers_are_right_after_line_breaks_in_quotes(folder):
  path = folder.write_table('pawsx/dev-de.tsv', [('a\nb', 'c\r\nd', '1'), ('e', 'f', '0'), ('g\n', '"h"', '1')])
  examples = folder.read(pawsx, 'dev')
  assert [example.where for example in examples] == [f'{path}:{line}' for line in (1, 4, 5)]
  assert examples[2].first == 'g\n'
  assert examples[2].second == '"h"'


_TEXTS = st.text(
  st.characters(exclude_categories=('Cs',), exclude_characters='\0\r\ufeff'), max_size=20
) | st.sampled_from(
  ['"', '""', 'a "b" c', '"a" b', '\t', 'a\tb', '\n', 'a\nb', ' ', "'", '\x85', '\N{LINE SEPARATOR}', '\\', '图“”']
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(_TEXTS, _TEXTS, st.sampled_from(['0', '1'])), min_size=1, max_size=5))
def test_whatever_python_s_csv_writer_wrote_comes_back(folder, rows):
  folder.write_table('pawsx/dev-de.tsv', rows)
  examples = folder.read(pawsx, 'dev')
  assert [(example.first, example.second, example.label) for example in examples] == rows


def test_gold_labels_of_a_test_file_come_from_beside_it(folder):
  folder.write('xnli/test-de.tsv', 'a\tb\r\nc\td\r\n')
  folder.write('labels/xnli/test-de.tsv', 'neutral\nentailment\n')
  assert [example.label for example in folder.read(xnli, 'test')] == ['neutral', 'entailment']


def test_gold_labels_may_lie_elsewhere(folder, tmp_path):
  folder.write('data/xnli/test-de.tsv', 'a\tb\n')
  folder.write('gold/xnli/test-de.tsv', 'neutral\n')
  examples = xnli.TASK.examples(XtremeFolder(tmp_path / 'data', tmp_path / 'gold'), 'test', 'de', needs_labels=True)
  assert [example.label for example in examples] == ['neutral']


def test_a_third_column_of_a_test_file_counts(folder):
  folder.write('xnli/test-de.tsv', 'a\tb\tneutral\n')
  folder.write('labels/xnli/test-de.tsv', 'entailment\n')
  assert [example.label for example in folder.read(xnli, 'test')] == ['neutral']


def test_without_need_no_labels_are_read(folder):
  folder.write('xnli/test-de.tsv', 'a\tb\n')
  folder.write('labels/xnli/test-de.tsv', 'nonsense\n')
  assert [example.label for example in folder.read(xnli, 'test', needs_labels=False)] == [None]


def test_an_empty_sentence_is_read(folder):
  folder.write_table('pawsx/dev-de.tsv', [('', 'b', '0')])
  assert folder.read(pawsx, 'dev')[0].first == ''


@pytest.mark.parametrize(
  ('content', 'line', 'what'),
  [
    ('', 1, 'empty'),
    ('\ufeffa\tb\tneutral\n', 1, 'byte order mark'),
    ('a\tb\tneutral\na\n', 2, 'a line of 1 column'),
    ('a\tb\tneutral\n\na\tb\tneutral\n', 2, 'a line of 0 columns'),
    ('a\tb\tneutral\td\n', 1, 'a line of 4 columns'),
    ('a\tb\tneutral\nc\td\n', 2, 'a line of 2 columns, and of 3 before'),
    ('"a\n\nb"\tb\tneutral\na\tb\tcontradictory\n', 4, "unknown label 'contradictory'"),
    ('a\tb\tneutral\na\tb\t\n', 2, "unknown label ''"),
    ('a\tb\n', 1, 'no gold labels; it takes three columns'),
    ('a\tb\tneutral\n"No," he said.\tb\tneutral\n', 2, 'not as a csv writer writes it'),
    ('a\tb\tneutral\n"No.\tb\tneutral\na\tb\tneutral\n', 2, 'not as a csv writer writes it'),
    ('a\rb\tb\tneutral\n', 1, 'not as a csv writer writes it'),
    ('a\tb\tneutral\nä\tb\tneutral\n'.encode('latin-1'), 2, 'not UTF-8'),
  ],
)
def test_a_broken_file_is_one_error_with_file_and_line(folder, content, line, what):
  path = folder.write('xnli/dev-de.tsv', content)
  with pytest.raises(UsageError, match=what) as error:
    folder.read(xnli, 'dev')
  assert error.value.where == f'{path}:{line}'
  assert all(error.value.fix)


def test_a_language_without_data_is_an_error_that_names_the_file(folder, tmp_path):
  with pytest.raises(UsageError, match='missing') as error:
    folder.read(xnli, 'test', 'sw')
  assert error.value.where == str(tmp_path / 'xnli' / 'test-sw.tsv')


def test_a_test_file_without_gold_labels_is_an_error_where_they_are_needed(folder, tmp_path):
  path = folder.write('xnli/test-de.tsv', 'a\tb\n')
  with pytest.raises(UsageError, match='no gold labels') as error:
    folder.read(xnli, 'test')
  assert error.value.where == str(path)
  assert str(tmp_path / 'labels' / 'xnli' / 'test-de.tsv') in str(error.value)
  assert '--gin.xtreme.split' in str(error.value)


@pytest.mark.parametrize('gold', ['neutral\n', 'neutral\nneutral\nneutral\n'])
def test_another_number_of_gold_labels_is_an_error_that_names_both_files(folder, gold):
  path = folder.write('xnli/test-de.tsv', 'a\tb\nc\td\n')
  gold_path = folder.write('labels/xnli/test-de.tsv', gold)
  with pytest.raises(UsageError, match='gold labels for 2 pairs') as error:
    folder.read(xnli, 'test')
  assert f'{path}:2' in error.value.where
  assert f'{gold_path}:{len(gold.split())}' in error.value.where


def test_an_unknown_gold_label_is_found_in_its_own_file(folder):
  folder.write('pawsx/test-de.tsv', 'a\tb\nc\td\n')
  gold_path = folder.write('labels/pawsx/test-de.tsv', '0\nyes\n')
  with pytest.raises(UsageError, match="unknown label 'yes'") as error:
    folder.read(pawsx, 'test')
  assert error.value.where == f'{gold_path}:2'


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_row_is_both_texts_between_special_pieces_with_types(xtreme_pieces):
  example = PairExample('Es regnet heute.', 'Es ist nass.', 'entailment', 'dev-de.tsv:1')
  (row,) = xnli.TASK.rows([example], xtreme_pieces, max_length=128, config=CONFIG)
  first, second = xtreme_pieces.ids(example.first), xtreme_pieces.ids(example.second)
  assert row.input_ids.tolist() == [CLS, *first, SEP, *second, SEP]
  assert row.token_type_ids.tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)
  assert row.labels.shape == ()
  assert xnli.TASK.labels[row.labels] == 'entailment'
  assert {row.input_ids.dtype, row.token_type_ids.dtype, row.labels.dtype} == {np.dtype(np.int32)}


def test_an_example_without_a_label_has_an_ignored_one(xtreme_pieces):
  (row,) = xnli.TASK.rows([PairExample('a', '', None, '')], xtreme_pieces, max_length=8, config=CONFIG)
  assert row.labels == IGNORED
  assert row.input_ids[-2:].tolist() == [SEP, SEP]


def test_long_pairs_are_cut_to_the_length_of_a_row(xtreme_pieces):
  examples = [
    PairExample('lang ' * 100, 'kurz', '0', ''),
    PairExample('kurz', 'lang ' * 100, '0', ''),
    PairExample('lang ' * 100, 'länger ' * 100, '0', ''),
  ]
  for length in (5, 6, 31, 32):
    rows = pawsx.TASK.rows(examples, xtreme_pieces, max_length=length, config=CONFIG)
    for index, (row, example) in enumerate(zip(rows, examples, strict=True)):
      first, second = xtreme_pieces.ids(example.first), xtreme_pieces.ids(example.second)
      truncate_longer(first, second, length - 3)
      assert row.example == index
      assert row.input_ids.tolist() == [CLS, *first, SEP, *second, SEP]
      assert row.token_type_ids.tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)
      assert len(row.input_ids) == length


def truncate_longer(first: list, second: list, room: int) -> None:
  """A piece at a time, as BERT does it."""
  while len(first) + len(second) > room:
    longer = first if len(first) > len(second) else second
    longer.pop()


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 80))
def test_what_is_kept_is_what_cutting_piece_by_piece_keeps(first, second, room):
  left, right = [0] * first, [0] * second
  truncate_longer(left, right, room)
  assert kept_pieces(first, second, room) == (len(left), len(right))


def test_of_two_equally_long_texts_the_second_loses():
  assert kept_pieces(5, 5, 9) == (5, 4)
  assert kept_pieces(5, 5, 8) == (4, 4)
  assert kept_pieces(5, 5, 1) == (1, 0)


def test_a_row_too_short_for_a_pair_is_an_error(xtreme_pieces):
  with pytest.raises(UsageError, match='no room for a pair'):
    xnli.TASK.rows([PairExample('a', 'b', None, '')], xtreme_pieces, max_length=4, config=CONFIG)


# --- predictions and scores -------------------------------------------------------------------------------------------


def test_the_highest_logit_is_predicted(xtreme_pieces):
  examples = [PairExample('a', 'b', None, ''), PairExample('c', 'd', None, '')]
  rows = xnli.TASK.rows(examples, xtreme_pieces, max_length=16, config=CONFIG)
  outputs = [np.array([0, 2, 1], np.float32), np.array([-1, -3, -0.5], np.float32)]
  predictions = xnli.TASK.predictions(examples, rows, outputs, config=CONFIG)
  assert predictions == ['entailment', 'neutral']
  assert xnli.TASK.file_text(examples, predictions) == 'entailment\nneutral\n'
  with pytest.raises(ValueError, match='argument 2'):
    xnli.TASK.predictions(examples, rows, outputs[:1], config=CONFIG)
  with pytest.raises(ValueError, match='1 rows of 2 pairs'):
    xnli.TASK.predictions(examples, rows[:1], outputs[:1], config=CONFIG)


def test_the_score_is_accuracy():
  examples = [PairExample('', '', label, '') for label in ('0', '1', '1', '0')]
  assert pawsx.TASK.score(examples, ['0', '1', '0', '0'], 'de') == {'accuracy': 75.0}


def test_there_is_no_score_and_no_baseline_without_labels():
  examples = [PairExample('', '', None, 'test-de.tsv:1')]
  with pytest.raises(UsageError, match='no score without gold labels'):
    pawsx.TASK.score(examples, ['0'], 'de')
  with pytest.raises(UsageError, match='gold labels'):
    pawsx.TASK.baseline(examples, examples)


def test_the_baseline_is_the_most_frequent_label_of_train():
  train = [PairExample('', '', label, '') for label in ('neutral', 'entailment', 'neutral')]
  examples = [PairExample('', '', None, '')] * 2
  assert xnli.TASK.baseline(train, examples) == ['neutral', 'neutral']


# --- samples and real data --------------------------------------------------------------------------------------------


@pytest.mark.parametrize('task', [xnli, pawsx])
def test_the_samples_are_balanced_and_the_same_in_all_languages(xtreme_samples, task):
  by_language = {}
  for split, languages, count in (
    ('train', ['en'], 12),
    ('dev', ['de', 'en', 'zh'], 6),
    ('test', ['de', 'en', 'zh'], 6),
  ):
    for language in languages:
      examples = task.TASK.examples(xtreme_samples, split, language, needs_labels=True)
      counts = collections.Counter(example.label for example in examples)
      assert counts == dict.fromkeys(task.TASK.labels, count // len(task.TASK.labels))
      by_language.setdefault(split, []).append([example.label for example in examples])
  assert all(labels == rest[0] for rest in by_language.values() for labels in rest)


def test_real_files_are_read_whole(shared_data):
  folder = XtremeFolder(shared_data / 'xtreme')
  # Counts: README.md beside the data. Every label of XNLI's test is as frequent as any other.
  for task, split, language, count in (
    (xnli, 'train', 'en', 30_539),
    (xnli, 'dev', 'en', 2_490),
    (xnli, 'test', 'en', 5_010),
    (xnli, 'test', 'sw', 2_505),
    (pawsx, 'dev', 'de', 2_000),
    (pawsx, 'test', 'de', 2_000),
  ):
    examples = task.TASK.examples(folder, split, language, needs_labels=True)
    assert len(examples) == count
    assert not any('""' in text for example in examples for text in (example.first, example.second))
    if (task, split) == (xnli, 'test'):
      baseline = task.TASK.baseline(examples, examples)
      assert task.TASK.score(examples, baseline, language) == {'accuracy': pytest.approx(100 / 3)}
