"""Any SeqIO task can be pre-trained on: its documents are those of `get_dataset`, from any place of its source."""

import functools
import itertools

import numpy as np
import pytest

from rembert.data.stream_source import SourcePlace, language_rows
from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds
from tasks import pretraining
from tasks.seqio_vocabulary import RembertVocabulary
from tasks.tensorflow_import import tensorflow as tf

# isort: split
import seqio

LINES = [f'Line {number} ' + 'of a text in which the words repeat. ' * (number % 5) for number in range(57)]


@pytest.fixture(scope='module')
def vocabulary(xtreme_vocabulary):
  return RembertVocabulary(xtreme_vocabulary)


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  """Three files of lines, which SeqIO's sources interleave."""
  folder = tmp_path_factory.mktemp('lines')
  for number in range(3):
    (folder / f'part-{number}.txt').write_text('\n'.join(LINES[number::3]) + '\n')
  return {'train': str(folder / 'part-*.txt'), 'validation': str(folder / 'part-0.txt')}


# --- preprocessors of another program ---------------------------------------------------------------------------


def as_text(dataset):
  return dataset.map(lambda line: {'text': line}, num_parallel_calls=tf.data.AUTOTUNE)


def as_targets(dataset):
  return dataset.map(lambda line: {'targets': line})


def only_long(dataset):
  return dataset.filter(lambda example: tf.strings.length(example['text']) > 40)


def only_long_lines(dataset):
  return dataset.filter(lambda line: tf.strings.length(line) > 40)


def drop_all_features(dataset, output_features):
  encode = output_features['targets'].vocabulary.encode_tf
  return dataset.map(lambda example: {'targets': encode(example['text'])})


def twice(dataset):
  """Two documents of each example."""
  return dataset.flat_map(lambda example: tf.data.Dataset.from_tensors(example).repeat(2))


def shuffle(dataset):
  return dataset.shuffle(8, seed=1, reshuffle_each_iteration=False)


def join_pairs(dataset):
  return dataset.batch(2).map(lambda example: {'text': tf.strings.reduce_join(example['text'])})


def remember(dataset):
  return dataset.cache()


@seqio.map_over_dataset(num_seeds=1)
def draw(example, seed):
  length = tf.random.stateless_uniform([], seed, 5, 20, tf.int32)
  return {'text': tf.strings.substr(example['text'], 0, length)}


def mind_other_features(dataset):
  assert set(dataset.element_spec) == {'text'}
  return dataset.filter(lambda example: tf.strings.length(example['text']) > 40)


AT_SOURCE = {
  'map': [as_text, pretraining.tokenize],
  'as T5 has them': [as_targets, functools.partial(seqio.preprocessors.tokenize, copy_pretokenized=False)],
  'filter': [as_text, only_long, pretraining.tokenize],
  'several documents': [as_text, only_long, twice, pretraining.tokenize],
}
FROM_THE_BEGINNING = {
  'filtered lines': [only_long_lines, as_text, pretraining.tokenize],
  'features dropped after a filter': [as_text, only_long, drop_all_features],
  'shuffled': [as_text, shuffle, pretraining.tokenize],
  'joined': [as_text, join_pairs, pretraining.tokenize],
  'cached': [as_text, remember, pretraining.tokenize],
  'drawn': [as_text, draw, pretraining.tokenize],
  'a feature is minded': [as_text, mind_other_features, pretraining.tokenize],
}
ALL = AT_SOURCE | FROM_THE_BEGINNING


def task_of(vocabulary, files, preprocessors, **features):
  output_features = {'targets': seqio.Feature(vocabulary, add_eos=False, dtype=tf.int32)} | features
  source = seqio.TextLineDataSource(files)
  return seqio.Task('pretraining_test', source=source, preprocessors=preprocessors, output_features=output_features)


def documents_of(task, vocab_size=2000):
  return pretraining.TaskDocuments(
    {'law': task}, special=SpecialIds(), vocab_size=vocab_size, sequence_length=64, seed=3
  )


# --- documents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('kind', ALL)
def test_documents_are_those_of_get_dataset_from_any_place(kind, vocabulary, files):
  task = task_of(vocabulary, files, ALL[kind])
  dataset = task.get_dataset({'targets': 64}, shuffle=False, seed=3, trim_output_features=False)
  expected = [example['targets'] for example in dataset.as_numpy_iterator()]
  documents = documents_of(task)
  assert documents.prepare() == ([] if kind in AT_SOURCE else ['law'])
  read = list(documents('law', 'train', SourcePlace()))
  assert len(read) == len(expected) > 10
  for (ids, _), ours in zip(read, expected, strict=True):
    np.testing.assert_array_equal(ids, ours)
  places = sorted({place for _, place in read})
  assert (len(places) > 1) == (kind in AT_SOURCE)
  for place in {*places[:2], places[len(places) // 2], places[-1]}:
    again = list(documents('law', 'train', place))
    assert len(again) == len(read) - place.document
    for (ids, at), (ours, ours_at) in zip(again, read[place.document :], strict=True):
      np.testing.assert_array_equal(ids, ours)
      assert at == ours_at


def test_examples_that_are_skipped_are_not_preprocessed(vocabulary, files):
  seen = []

  def note(dataset):
    def noted(example):
      return {'text': tf.numpy_function(lambda text: seen.append(text) or text, [example['text']], tf.string)}

    return dataset.map(noted).map(lambda example: {'text': tf.ensure_shape(example['text'], [])})

  documents = documents_of(task_of(vocabulary, files, [as_text, note, pretraining.tokenize]))
  next(documents('law', 'train', SourcePlace(50, 50)))
  assert 0 < len(seen) <= len(LINES) - 50  # as many as are read together, and none of those before


def test_two_readers_of_a_task_do_not_disturb_each_other(vocabulary, files):
  documents = documents_of(task_of(vocabulary, files, AT_SOURCE['filter']))
  everything = [ids for ids, _ in documents('law', 'train', SourcePlace())]
  first = documents('law', 'train', SourcePlace())
  begun = [next(first)[0] for _ in range(3)]
  other = documents('law', 'train', SourcePlace(0, 0))
  for ids in everything:
    np.testing.assert_array_equal(next(other)[0], ids)
  for ids, expected in zip([*begun, *(ids for ids, _ in first)], everything, strict=True):
    np.testing.assert_array_equal(ids, expected)


@pytest.mark.parametrize('kind', ['filter', 'joined'])
def test_rows_resume_bitwise_in_the_middle_of_an_epoch_and_after_it(kind, vocabulary, files):
  documents = documents_of(task_of(vocabulary, files, ALL[kind]))
  rows = lambda **state: language_rows(
    'law', documents, sequence_length=32, special=SpecialIds(), seed=1, window=3, **state
  )
  found = list(itertools.takewhile(lambda row: row[1]['epoch'] < 2, rows()))
  for start in (1, 7, len(found) // 2, len(found) - 3):
    for (row, _), (expected, _) in zip(rows(state=found[start][1]), found[start + 1 : start + 6], strict=False):
      np.testing.assert_array_equal(row, expected)


def test_a_split_that_a_task_lacks_is_empty(vocabulary, files):
  task = task_of(vocabulary, {'train': files['train']}, AT_SOURCE['map'])
  assert list(documents_of(task)('law', 'validation', SourcePlace())) == []
  assert len(list(documents_of(task_of(vocabulary, files, AT_SOURCE['map']))('law', 'validation', SourcePlace()))) == 19


# --- what a task lacks ------------------------------------------------------------------------------------------------


def test_everything_that_a_task_lacks_is_in_one_error(vocabulary, files):
  floats = {'targets': seqio.Feature(vocabulary, add_eos=False, dtype=tf.float32)}
  bytes_only = {'targets': seqio.Feature(seqio.ByteVocabulary(), add_eos=False, dtype=tf.int32)}
  extra = {'targets': seqio.Feature(seqio.SentencePieceVocabulary('v.model', extra_ids=4), dtype=tf.int32)}
  cache = [as_text, seqio.CacheDatasetPlaceholder(required=True), pretraining.tokenize]
  task = lambda name, features, splits, preprocessors=(): seqio.Task(
    name, source=seqio.TextLineDataSource(splits), preprocessors=list(preprocessors), output_features=features
  )
  tasks = [
    task('no_targets', {'inputs': seqio.Feature(vocabulary)}, {'test': files['train']}),
    task('floats', floats, files),
    task('of_bytes', bytes_only, files),
    task('extra', extra, files),
    task('cached', pretraining.features(vocabulary), files, cache),
    task('fine', pretraining.features(vocabulary), files),
  ]
  with pytest.raises(UsageError, match='5 SeqIO task') as error:
    pretraining.check_tasks(tasks)
  for words in (
    "no_targets: no output feature 'targets': it has inputs; no split 'train': it has test",
    "floats: 'targets' is float32 of rank 1",
    'of_bytes: the vocabulary',
    'extra: the vocabulary of ',
    'cached: it requires caching',
  ):
    assert words in str(error.value)
  assert 'fine' not in str(error.value)


def test_tasks_of_a_mixture_have_one_vocabulary(vocabulary, files, xtreme_vocabulary, tmp_path):
  of_seqio = seqio.SentencePieceVocabulary(str(xtreme_vocabulary))
  (tmp_path / 'other.model').write_bytes(xtreme_vocabulary.read_bytes() + b' ')
  other = RembertVocabulary(tmp_path / 'other.model')
  ours, same, different = (
    task_of(each, files, []).replace(name=name)
    for name, each in {'ours': vocabulary, 'same': of_seqio, 'different': other}.items()
  )
  assert pretraining.check_tasks([ours, same]) == vocabulary
  with pytest.raises(UsageError, match='different vocabularies') as error:
    pretraining.check_tasks([ours, same, different])
  assert 'different: ' in error.value.where


@pytest.mark.parametrize(
  ('preprocessors', 'words'),
  [
    ([as_text], "have no 'targets' of int32 and rank 1"),
    ([as_targets], "have no 'targets' of int32 and rank 1"),
    ([lambda dataset: dataset.no_such_thing()], 'cannot be opened'),
  ],
)
def test_documents_that_are_not_what_a_task_declares_are_an_error_at_opening(preprocessors, words, vocabulary, files):
  with pytest.raises(UsageError, match=words):
    documents_of(task_of(vocabulary, files, preprocessors)).prepare()
  with pytest.raises(UsageError, match=r'pretraining_test.* cannot be opened') as error:
    documents_of(task_of(vocabulary, {'train': '/nowhere/*.txt'}, AT_SOURCE['map'])).prepare()
  assert '/nowhere' in str(error.value)


def test_special_ids_in_a_document_are_an_error(vocabulary, files):
  def end_with_separator(dataset):
    return dataset.map(lambda example: {'targets': tf.concat([example['targets'], [313]], 0)})

  task = task_of(vocabulary, files, [*AT_SOURCE['map'], end_with_separator])
  with pytest.raises(UsageError, match='special or unknown to the model: 313'):
    next(documents_of(task)('law', 'train', SourcePlace()))
  with pytest.raises(UsageError, match='special or unknown'):
    list(documents_of(task_of(vocabulary, files, AT_SOURCE['map']), vocab_size=600)('law', 'train', SourcePlace()))


def test_a_damaged_file_is_an_error_that_names_the_task(vocabulary, tmp_path):
  (tmp_path / 'a.tfrecord').write_bytes(b'damaged' * 10)
  source = seqio.TFExampleDataSource(
    {'train': str(tmp_path / 'a.tfrecord')}, {'text': tf.io.FixedLenFeature([], tf.string)}
  )
  task = seqio.Task(
    'damaged', source=source, preprocessors=[pretraining.tokenize], output_features=pretraining.features(vocabulary)
  )
  with pytest.raises(UsageError, match="reading a document of SeqIO task 'damaged' failed"):
    next(documents_of(task)('law', 'train', SourcePlace()))


# --- rates ------------------------------------------------------------------------------------------------------------


def test_rates_of_a_mixture_are_normalized_and_tasks_without_any_left_out(vocabulary, files):
  named = lambda name: task_of(vocabulary, files, []).replace(name=name)
  inner = seqio.Mixture('inner', [(named('a'), 1), (named('b'), lambda task: 3)])
  outer = seqio.Mixture('outer', [(inner, 2), (named('c'), 6), (named('d'), 0)])
  assert pretraining.normalized_rates(outer) == pytest.approx({'a': 0.0625, 'b': 0.1875, 'c': 0.75})
  assert pretraining.normalized_rates(named('a')) == {'a': 1.0}


@pytest.mark.parametrize('rate', [0, -1, float('nan'), lambda task: 1 / 0])
def test_invalid_rates_are_an_error(rate, vocabulary, files):
  mixture = seqio.Mixture('odd', [(task_of(vocabulary, files, []), rate)])
  with pytest.raises(UsageError, match='rates of the mixture'):
    pretraining.normalized_rates(mixture)
