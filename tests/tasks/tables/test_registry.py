"""SeqIO tasks of tables: names, labels, rates, rows, and what reading a long file takes."""

import json
import tracemalloc

import numpy as np
import pytest
from table_files import csv_of

import tasks
from rembert.data.finetune_batches import IndexedRows, write_rows
from rembert.errors import UsageError
from tasks.registration import find
from tasks.rows import stream_rows, tasks_and_rates


def write(file, rows):
  file.write_text(csv_of(rows), encoding='utf-8', newline='')
  return str(file)


@pytest.fixture
def reviews(tmp_path, xtreme_vocabulary):
  """`reviews.de` and `reviews.sw`, with labels 2, 10 and a name."""
  de = [{'text': f'Satz {number}', 'label': label} for number, label in enumerate(['10', '2', 'gut', '2'])]
  files = {'de': write(tmp_path / 'de.csv', de), 'sw': write(tmp_path / 'sw.csv', [{'text': 'Habari', 'label': '10'}])}
  test = write(tmp_path / 'test.csv', [{'text': 'Neu'}])
  return tasks.add_table(
    kind='classification', train=files, test=test, language='de', vocabulary=xtreme_vocabulary, name='reviews'
  )


def test_tables_are_tasks_by_language_in_a_mixture_by_their_numbers_of_examples(reviews, tmp_path):
  assert reviews.kind.labels == ('2', '10', 'gut')
  assert reviews.describe() == '3 labels: 2 2, 10 2, gut 1'
  assert [(task.name, rate) for task, rate in tasks_and_rates('reviews')] == [('reviews.de', 4), ('reviews.sw', 1)]
  assert set(find('reviews.de').splits) == {'train', 'test'}
  rows = list(stream_rows(find('reviews.de'), 'train', 'classification', max_length=16))
  assert [int(row.labels) for row in rows] == [1, 0, 2, 0]
  assert rows[1].example['where'].decode().endswith('de.csv:3')
  special = find('reviews.de').output_features['input_ids'].vocabulary.special
  for row in rows:  # a single text is between [CLS] and [SEP], as transformers has it
    assert (row.input_ids[0], row.input_ids[-1], (row.input_ids == special.sep).sum()) == (special.cls, special.sep, 1)
    assert not row.token_type_ids.any()
  [unlabelled] = stream_rows(find('reviews.de'), 'test', 'classification', max_length=16)
  assert unlabelled.labels == -1
  assert_indexed_rows_are_the_rows_and_written_once(rows, tmp_path)


def assert_indexed_rows_are_the_rows_and_written_once(rows, tmp_path):
  calls = []

  def source():
    calls.append(1)
    return iter(rows)

  for origin in ({'of': 1}, {'of': 1}, {'of': 2}):
    write_rows(tmp_path / 'rows', source, origin)
  assert len(calls) == 2
  indexed = IndexedRows(tmp_path / 'rows', 'classification')
  assert len(indexed) == 4
  for row, expected in zip(indexed, rows, strict=True):
    np.testing.assert_array_equal(row.input_ids, expected.input_ids)
    np.testing.assert_array_equal(row.token_type_ids, expected.token_type_ids)
    assert (row.labels, row.labels.dtype) == (expected.labels, expected.labels.dtype)


def test_an_unknown_label_names_its_line_before_anything_is_read(tmp_path, xtreme_vocabulary):
  train = write(tmp_path / 'train.csv', [{'text': 'a', 'label': 'x'}])
  dev = write(tmp_path / 'dev.csv', [{'text': 'a', 'label': 'x'}, {'text': 'b', 'label': 'y'}])
  with pytest.raises(UsageError, match="unknown label 'y'") as error:
    tasks.add_table(kind='classification', train=train, dev=dev, vocabulary=xtreme_vocabulary)
  assert error.value.where == f'{dev}:3'
  assert 'x' in error.value.fix[0]


def test_choices_are_rows_of_their_own_behind_the_same_text(tmp_path, xtreme_vocabulary):
  file = tmp_path / 'a.jsonl'
  file.write_text(json.dumps({'text': 'Wo?', 'choices': ['hier', 'dort drüben im Wald'], 'label': 1}) + '\n')
  tasks.add_table(kind='multiple_choice', train=str(file), vocabulary=xtreme_vocabulary, name='choices')
  [row] = stream_rows(find('choices.all'), 'train', 'multiple_choice', max_length=16)
  assert row.input_ids.shape == row.token_type_ids.shape
  assert row.input_ids.shape[0] == 2
  assert row.labels == 1
  assert (row.input_ids[0] == 0).any()  # padded to the longer one
  assert not (row.input_ids[1] == 0).any()


@pytest.mark.slow
def test_memory_does_not_grow_with_a_table(tmp_path, xtreme_vocabulary):
  def peak(count):
    name = f'long{count}'
    file = write(
      tmp_path / f'{name}.csv', [{'text': f'Ein Satz mit Wörtern, Nummer {n}', 'label': n} for n in range(count)]
    )
    tasks.add_table(kind='regression', train=file, vocabulary=xtreme_vocabulary, name=name)
    tracemalloc.start()
    rows = lambda: stream_rows(find(f'{name}.all'), 'train', 'regression', max_length=32, keep_examples=False)
    write_rows(tmp_path / name, rows, {})
    assert len(IndexedRows(tmp_path / name, 'regression')) == count
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most

  peak(2_000)  # what is imported and cached
  assert peak(60_000) < peak(6_000) + 2_000_000  # rows as objects would take 30 MB
