"""XNLI and PAWS-X: files as XTREME's preprocessing writes them, predictions, scores."""

import csv
import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rembert.errors import UsageError
from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.files import XtremeFolder
from tasks.xtreme.sentence_pairs import PairExample

CONFIG = XtremeConfig()
XNLI, PAWSX = TASKS['xnli'], TASKS['pawsx']


def table(rows):
  """Rows as a csv writer writes them."""
  file = io.StringIO(newline='')
  csv.writer(file, delimiter='\t').writerows(rows)
  return file.getvalue()


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_line_is_two_sentences_and_a_label(write, read):
  path = write('xnli/dev-de.tsv', 'Es regnet.\tEs ist nass.\tentailment\r\nJa.\tNein.\tcontradiction\r\n')
  assert read(XNLI, 'dev') == [
    PairExample('Es regnet.', 'Es ist nass.', 'entailment', f'{path}:1'),
    PairExample('Ja.', 'Nein.', 'contradiction', f'{path}:2'),
  ]


def test_line_numbers_are_right_after_line_breaks_in_quotes(write, read):
  path = write('pawsx/dev-de.tsv', table([('a\nb', 'c\r\nd', '1'), ('e', 'f', '0'), ('g\n', '"h"', '1')]))
  examples = read(PAWSX, 'dev')
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
def test_whatever_python_s_csv_writer_wrote_comes_back(write, read, rows):
  write('pawsx/dev-de.tsv', table(rows))
  examples = read(PAWSX, 'dev')
  assert [(example.first, example.second, example.label) for example in examples] == rows


@pytest.mark.parametrize(
  ('content', 'gold', 'needs_labels', 'labels'),
  [
    ('a\tb\r\nc\td\r\n', 'neutral\nentailment\n', True, ['neutral', 'entailment']),
    ('a\tb\tneutral\n', 'entailment\n', True, ['neutral']),  # a third column counts
    ('a\tb\n', 'nonsense\n', False, [None]),
  ],
)
def test_gold_labels_of_a_test_file_are_read_if_they_are_needed(write, read, content, gold, needs_labels, labels):
  write('xnli/test-de.tsv', content)
  write('labels/xnli/test-de.tsv', gold)
  assert [example.label for example in read(XNLI, 'test', needs_labels=needs_labels)] == labels


def test_gold_labels_may_be_in_another_directory(write, read, tmp_path):
  write('data/xnli/test-de.tsv', 'a\tb\n')
  write('gold/xnli/test-de.tsv', 'neutral\n')
  examples = XNLI.examples(XtremeFolder(tmp_path / 'data', tmp_path / 'gold'), 'test', 'de', needs_labels=True)
  assert [example.label for example in examples] == ['neutral']


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
def test_a_broken_file_is_one_error_with_file_and_line(write, read, content, line, what):
  path = write('xnli/dev-de.tsv', content)
  with pytest.raises(UsageError, match=what) as error:
    read(XNLI, 'dev')
  assert error.value.where == f'{path}:{line}'
  assert all(error.value.fix)


def test_a_test_file_without_gold_labels_is_an_error_where_they_are_needed(write, read, tmp_path):
  path = write('xnli/test-de.tsv', 'a\tb\n')
  with pytest.raises(UsageError, match='no gold labels') as error:
    read(XNLI, 'test')
  assert error.value.where == str(path)
  assert str(tmp_path / 'labels' / 'xnli' / 'test-de.tsv') in str(error.value)
  assert '--gin.xtreme.split' in str(error.value)


@pytest.mark.parametrize('gold', ['neutral\n', 'neutral\nneutral\nneutral\n'])
def test_another_number_of_gold_labels_is_an_error_that_names_both_files(write, read, gold):
  path = write('xnli/test-de.tsv', 'a\tb\nc\td\n')
  gold_path = write('labels/xnli/test-de.tsv', gold)
  with pytest.raises(UsageError, match='gold labels for 2 pairs') as error:
    read(XNLI, 'test')
  assert f'{path}:2' in error.value.where
  assert f'{gold_path}:{len(gold.split())}' in error.value.where


def test_an_unknown_gold_label_is_found_in_its_own_file(write, read):
  write('pawsx/test-de.tsv', 'a\tb\nc\td\n')
  gold_path = write('labels/pawsx/test-de.tsv', '0\nyes\n')
  with pytest.raises(UsageError, match="unknown label 'yes'") as error:
    read(PAWSX, 'test')
  assert error.value.where == f'{gold_path}:2'


# --- predictions and scores -------------------------------------------------------------------------------------------


def targets(task, *labels):
  """Rows of a task as `metric_fns` get them, with labels by name; None is unknown."""
  index = lambda label: -1 if label is None else task.labels.index(label)
  return [
    {'example': np.int32(number), 'labels': np.array([index(label)], np.int32), 'where': b'test-de.tsv:1'}
    for number, label in enumerate(labels)
  ]


def test_the_highest_logit_is_predicted():
  scores = [np.array([0, 2, 1], np.float32), np.array([-1, -3, -0.5], np.float32)]
  rows = targets(XNLI, None, None)
  predictions = XNLI.predict(rows, scores, CONFIG)
  assert predictions == {0: 'entailment', 1: 'neutral'}
  assert XNLI.file_text(predictions, rows, 2) == 'entailment\nneutral\n'
  with pytest.raises(ValueError, match='argument 2'):
    XNLI.predict(rows, scores[:1], CONFIG)


def test_the_score_is_accuracy():
  rows = targets(PAWSX, '0', '1', '1', '0')
  predictions = dict(enumerate(['0', '1', '0', '0']))
  assert PAWSX.score(rows, predictions, 'de') == {'accuracy': 75.0}


def test_there_is_no_score_without_labels():
  with pytest.raises(UsageError, match='no score without gold labels') as error:
    PAWSX.score(targets(PAWSX, '0', None), {0: '0', 1: '0'}, 'de')
  assert error.value.where == 'test-de.tsv:1'


def test_the_baseline_is_the_most_frequent_label_of_train():
  train = [PairExample('', '', label, '') for label in ('neutral', 'entailment', 'neutral')]
  assert XNLI.baseline(train, targets(XNLI, None, None)) == {0: 'neutral', 1: 'neutral'}


# --- real data --------------------------------------------------------------------------------------------------------


def test_real_files_are_read_whole(shared_data):
  folder = XtremeFolder(shared_data / 'xtreme')
  # Counts: README.md next to the data. Every label of XNLI's test is as frequent as any other.
  for task, split, language, count in (
    (XNLI, 'train', 'en', 30_539),
    (XNLI, 'dev', 'en', 2_490),
    (XNLI, 'test', 'en', 5_010),
    (XNLI, 'test', 'sw', 2_505),
    (PAWSX, 'dev', 'de', 2_000),
    (PAWSX, 'test', 'de', 2_000),
  ):
    examples = task.examples(folder, split, language, needs_labels=True)
    assert len(examples) == count
    assert not any('""' in text for example in examples for text in (example.first, example.second))
    if (task, split) == (XNLI, 'test'):
      rows = targets(task, *(example.label for example in examples))
      baseline = task.baseline(examples, rows)
      assert task.score(rows, baseline, language) == {'accuracy': pytest.approx(100 / 3)}
