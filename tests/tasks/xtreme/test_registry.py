"""XTREME's SeqIO tasks: registered without touching a file, rows equal to the reference, scores the official ones."""

import functools

import numpy as np
import pytest
import seqio
import xtreme_reference as reference
from computed_rows import registered

import tasks
from rembert.errors import UsageError
from tasks import registration, rows
from tasks.tensorflow_import import tensorflow as tf
from tasks.xtreme import XtremeConfig
from tasks.xtreme.benchmark import TASKS

FEATURES = ('input_ids', 'token_type_ids', 'labels')
CONFIG = XtremeConfig(doc_stride=8)


@pytest.fixture
def samples(xtreme_samples, xtreme_vocabulary, monkeypatch):
  """Registers the tasks over tests/data/xtreme; the environment names data and vocabulary when they are used."""
  tasks.add_xtreme(doc_stride=CONFIG.doc_stride)
  monkeypatch.setenv('XTREME_DATA_DIR', str(xtreme_samples.root))
  monkeypatch.setenv('REMBERT_VOCABULARY', str(xtreme_vocabulary))
  return xtreme_samples


# --- rows and scores --------------------------------------------------------------------------------------------------

# Of each format a file, with features of its own; rows are shorter than some examples.
FILES = {
  'xnli': ('train', 'en', 24, {'first', 'second'}),
  'udpos': ('test', 'zh', 24, {'words', 'first_tokens'}),
  'mlqa': ('test', 'zh', 70, {'id', 'context', 'answers', 'begin'}),
}


@functools.cache
def sample_rows(name: str) -> tuple[seqio.Task, list[rows.Features]]:
  """A SeqIO task over tests/data/xtreme, which `samples` has registered, and its rows of the file of `FILES`."""
  split, language, length, _ = FILES[name]
  task = registration.find(f'xtreme.{name}.{language}')
  return task, list(rows.stream_rows(task, split, TASKS[name].head, max_length=length))


@pytest.mark.parametrize('name', FILES)
def test_rows_equal_the_reference(samples, xtreme_pieces, name):
  task, (split, language, length, features) = TASKS[name], FILES[name]
  _, found = sample_rows(name)
  examples = task.examples(samples, split, language, needs_labels=True)
  expected = {
    'xnli': lambda: reference.pair_rows(examples, task.labels, xtreme_pieces, max_length=length),
    'udpos': lambda: reference.word_rows(examples, task.labels, xtreme_pieces, max_length=length),
    'mlqa': lambda: reference.windows(examples, xtreme_pieces, max_length=length, doc_stride=CONFIG.doc_stride),
  }[name]()
  assert len(found) == len(expected) > 0
  assert len(found) > len(examples) or name == 'xnli'
  for row, other in zip(found, expected, strict=True):
    for key, value in other.items():
      np.testing.assert_array_equal(getattr(row, key) if key in FEATURES else row.example[key], value)
  assert max(len(row.input_ids) for row in found) <= length
  assert {*FEATURES, 'example', 'where'} | features <= set(found[0].example)


def test_all_languages_share_one_traced_function(samples):
  for language, split in ('en', 'train'), ('zh', 'test'):
    task = registration.find(f'xtreme.udpos.{language}')
    list(rows.stream_rows(task, split, 'tagging', max_length=24))
  (traced,) = task.output_features['input_ids'].vocabulary.functions.values()
  assert traced.experimental_get_tracing_count() == 1


@pytest.mark.parametrize('name', FILES)
def test_the_metric_is_the_score_of_the_predictions_in_the_file(samples, name):
  task, language = TASKS[name], FILES[name][1]
  seqio_task, found = sample_rows(name)
  random = np.random.default_rng(0)
  sizes = {'classification': lambda row: (len(task.labels),), 'qa': lambda row: (len(row.input_ids), 2)}
  shape = sizes.get(task.head, lambda row: (len(row.input_ids), len(task.labels)))
  scores = [random.normal(size=shape(row)).astype(np.float32) for row in found]
  targets = rows.targets(seqio_task, found)
  expected = task.score(targets, task.predict(targets, scores, CONFIG), language)
  assert rows.metrics(seqio_task, found, scores, task.head) == expected
  assert tuple(expected) == task.scores


def test_train_of_xquad_and_mlqa_is_squads_in_english_alone(samples):
  texts = lambda name: [
    each['context'] for each in registration.find(name).source.get_dataset('train').as_numpy_iterator()
  ]
  assert texts('xtreme.xquad.en') == texts('xtreme.mlqa.en') == texts('xtreme.squad.en')
  assert 'train' not in registration.find('xtreme.xquad.de').splits


# --- registration -----------------------------------------------------------------------------------------------------


def test_registering_touches_no_file_and_reading_without_data_names_both_ways(monkeypatch):
  monkeypatch.delenv('XTREME_DATA_DIR', raising=False)
  monkeypatch.delenv('REMBERT_VOCABULARY', raising=False)
  tasks.add_xtreme(name='nowhere')
  task = registration.find('nowhere.xnli.de')
  assert set(task.splits) == {'train', 'dev', 'test'}
  with pytest.raises(UsageError, match=r'xtreme\.data_dir is not set') as error:
    task.get_dataset({'input_ids': 64}, split='test', shuffle=False)
  assert 'XTREME_DATA_DIR' in str(error.value)
  assert 'add_xtreme(data_dir=' in str(error.value)
  with pytest.raises(UsageError, match='doc_stride must be'):
    tasks.add_xtreme(doc_stride=0)


@pytest.mark.parametrize('name', TASKS)
def test_mixtures_have_all_languages_and_splits_are_those_with_files(samples, name):
  mixture, trained = registration.find(f'xtreme.{name}'), TASKS[TASKS[name].trained_on or name]
  by_name = {task.name: task for task in mixture.tasks}
  assert by_name.keys() == {f'xtreme.{name}.{language}' for language in TASKS[name].languages}
  assert {mixture.get_rate(task) for task in mixture.tasks} == {1.0}
  for language in TASKS[name].languages:
    files = TASKS[name].files | ({'train': trained.files['train']} if language == 'en' else {})
    there = {split for split in files if samples.has(files[split].format(language=language))}
    assert set(by_name[f'xtreme.{name}.{language}'].splits) == there


def test_a_later_registration_replaces_an_earlier_one_of_ours(samples, tmp_path):
  tasks.add_xtreme(data_dir=tmp_path)
  with pytest.raises(UsageError, match='missing'):
    list(rows.stream_rows(registration.find('xtreme.xnli.de'), 'test', 'classification', max_length=64))


def test_gold_labels_are_optional_but_for_training(samples, xtreme_vocabulary, tmp_path):
  options = {'vocabulary': xtreme_vocabulary, 'name': 'unlabelled'}
  task = registered('panx', 'de', data_dir=samples.root, labels_dir=tmp_path, **options)
  tags = [row['tags'] for row in task.source.get_dataset('test').ragged_batch(100).as_numpy_iterator()]
  assert {label for row in tags for words in row for label in np.atleast_1d(words).tolist()} == {-1}
  (tmp_path / 'xnli').mkdir()
  (tmp_path / 'xnli' / 'train-en.tsv').write_text('a\tb\n')
  task = registered('xnli', 'en', data_dir=tmp_path, **options)
  with pytest.raises(UsageError, match='no gold labels') as error:
    list(rows.stream_rows(task, 'train', 'classification', max_length=64))
  assert error.value.where.endswith('train-en.tsv')


# --- what other programs of SeqIO's make of them ----------------------------------------------------------------------


def test_examples_pass_seqios_checks_as_plain_tensors(samples):
  task = registration.find('xtreme.panx.de')
  dataset = task.get_dataset({'input_ids': 96, 'token_type_ids': 96}, split='test', shuffle=False)
  assert all(isinstance(spec, tf.TensorSpec) for spec in dataset.element_spec.values())
  assert len(list(dataset.as_numpy_iterator())) > 0


class _Padded(seqio.FeatureConverter):
  """Rows as a model takes them."""

  TASK_FEATURES = {name: seqio.FeatureConverter.FeatureSpec(tf.int32) for name in FEATURES}  # noqa: RUF012
  MODEL_FEATURES = TASK_FEATURES
  PACKING_FEATURE_DTYPES = None

  def _convert_features(self, ds, task_feature_lengths):
    pad = lambda row: {
      name: tf.ensure_shape(tf.pad(row[name], [[0, length - tf.shape(row[name])[0]]]), [length])
      for name, length in task_feature_lengths.items()
    }
    return ds.map(pad)

  def get_model_feature_lengths(self, task_feature_lengths):
    return task_feature_lengths


def test_seqios_evaluator_computes_the_same_scores(samples):
  seqio_task, found = sample_rows('xnli')
  scores = np.random.default_rng(0).normal(size=(len(found), 3)).astype(np.float32)
  lengths = {'input_ids': 24, 'token_type_ids': 24, 'labels': 1}
  evaluator = seqio.Evaluator(
    seqio_task.name, _Padded(pack=False), 'train', sequence_length=lengths, target_field_name='labels'
  )
  metrics, _ = evaluator.evaluate(compute_metrics=True, score_fn=lambda dataset: list(enumerate(scores)))
  assert metrics.result()[seqio_task.name] == rows.metrics(seqio_task, found, list(scores), 'classification')
