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

CONFIG = XtremeConfig()
FEATURES = ('input_ids', 'token_type_ids', 'labels')


def reference_rows(task, examples, pieces, max_length):
  match task.head:
    case 'classification':
      return reference.pair_rows(examples, task.labels, pieces, max_length=max_length)
    case 'tagging':
      return reference.word_rows(examples, task.labels, pieces, max_length=max_length)
  return reference.windows(examples, pieces, max_length=max_length)


def equal(row, other) -> bool:
  ours = lambda name: getattr(row, name) if name in FEATURES else row.example[name]
  return all(np.array_equal(ours(name), value) for name, value in other.items())


@pytest.fixture
def samples(xtreme_samples, xtreme_vocabulary):
  """Registers the tasks over tests/data/xtreme."""
  tasks.add_xtreme(data_dir=xtreme_samples.root, vocabulary=xtreme_vocabulary)
  return xtreme_samples


# --- rows -------------------------------------------------------------------------------------------------------------


# Of each task one file; rows of 24 tokens, or of 70, are shorter than some examples.
FILES = {
  **dict.fromkeys(('xnli', 'pawsx'), ('train', 'en')),
  **dict.fromkeys(('panx', 'udpos', 'xquad', 'mlqa'), ('test', 'zh')),
  'squad': ('dev', 'en'),
  'tydiqa': ('test', 'ko'),
}


@functools.cache
def sample_rows(name: str) -> tuple[seqio.Task, list[rows.Features]]:
  """A SeqIO task over tests/data/xtreme, which `samples` has registered, and its rows of the file of `FILES`."""
  (split, language), head = FILES[name], TASKS[name].head
  task = registration.find(f'xtreme.{name}.{language}')
  return task, list(rows.stream_rows(task, split, head, max_length=70 if head == 'qa' else 24))


@pytest.mark.parametrize('name', TASKS)
def test_rows_equal_the_reference(samples, xtreme_pieces, name):
  task, (split, language) = TASKS[name], FILES[name]
  _, found = sample_rows(name)
  max_length = 70 if task.head == 'qa' else 24
  examples = task.examples(samples, split, language, needs_labels=True)
  expected = reference_rows(task, examples, xtreme_pieces, max_length)
  assert len(found) == len(expected) > 0
  assert all(equal(row, other) for row, other in zip(found, expected, strict=True))
  assert max(len(row.input_ids) for row in found) <= max_length


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


def test_the_environment_names_data_and_vocabulary_when_they_are_used(xtreme_samples, xtreme_vocabulary, monkeypatch):
  tasks.add_xtreme(name='of_environment')
  monkeypatch.setenv('XTREME_DATA_DIR', str(xtreme_samples.root))
  monkeypatch.setenv('REMBERT_VOCABULARY', str(xtreme_vocabulary))
  assert list(rows.stream_rows(registration.find('of_environment.xnli.de'), 'test', 'classification', max_length=64))


def test_mixtures_have_all_languages_and_splits_are_those_with_files(samples):
  mixture = registration.find('xtreme.xnli')
  assert [task.name for task in mixture.tasks] == [f'xtreme.xnli.{language}' for language in TASKS['xnli'].languages]
  assert {mixture.get_rate(task) for task in mixture.tasks} == {1.0}
  assert list(registration.find('xtreme.xnli.de').splits) == ['dev', 'test']
  assert list(registration.find('xtreme.xnli.en').splits) == ['train', 'dev', 'test']
  assert set(mixture.splits) == {'train', 'dev', 'test'}


def test_a_later_registration_replaces_an_earlier_one_of_ours(samples, tmp_path):
  tasks.add_xtreme(data_dir=tmp_path)
  with pytest.raises(UsageError, match='missing'):
    list(rows.stream_rows(registration.find('xtreme.xnli.de'), 'test', 'classification', max_length=64))


def test_options_of_questions_are_checked_and_used(samples, xtreme_vocabulary):
  with pytest.raises(UsageError, match='doc_stride must be'):
    tasks.add_xtreme(doc_stride=0)
  _, usual = sample_rows('xquad')
  options = {'data_dir': samples.root, 'vocabulary': xtreme_vocabulary, 'name': 'overlapping', 'doc_stride': 8}
  overlapping = list(rows.stream_rows(registered('xquad', 'zh', **options), 'test', 'qa', max_length=70))
  assert len(overlapping) > len(usual)


# --- what other programs of SeqIO's make of them ----------------------------------------------------------------------


@pytest.mark.parametrize('name', ['xnli', 'panx', 'xquad'])
def test_examples_pass_seqios_checks_as_plain_tensors_with_all_features(samples, name):
  task = registration.find(f'xtreme.{name}.de')
  dataset = task.get_dataset({'input_ids': 96, 'token_type_ids': 96}, split='test', shuffle=False)
  assert all(isinstance(spec, tf.TensorSpec) for spec in dataset.element_spec.values())
  assert {*FEATURES, 'example', 'where'} < set(dataset.element_spec)
  more = {
    'xnli': {'first', 'second'},
    'panx': {'words', 'first_tokens'},
    'xquad': {'id', 'context', 'answers', 'begin'},
  }
  assert more[name] < set(dataset.element_spec)
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
  seqio_task, found = sample_rows('xquad')
  scores = np.random.default_rng(0).normal(size=(len(found), 70, 2)).astype(np.float32)
  lengths = {'input_ids': 70, 'token_type_ids': 70, 'labels': 2}
  evaluator = seqio.Evaluator(
    seqio_task.name, _Padded(pack=False), 'test', sequence_length=lengths, target_field_name='labels'
  )
  metrics, _ = evaluator.evaluate(compute_metrics=True, score_fn=lambda dataset: list(enumerate(scores)))
  assert metrics.result()[seqio_task.name] == rows.metrics(seqio_task, found, list(scores), 'qa')


# --- scores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('name', TASKS)
def test_the_metric_is_the_score_of_the_predictions_in_the_file(samples, name):
  task, (_, language) = TASKS[name], FILES[name]
  seqio_task, found = sample_rows(name)
  random = np.random.default_rng(0)
  sizes = {'classification': lambda row: (len(task.labels),), 'qa': lambda row: (len(row.input_ids), 2)}
  shape = sizes.get(task.head, lambda row: (len(row.input_ids), len(task.labels)))
  scores = [random.normal(size=shape(row)).astype(np.float32) for row in found]
  targets = rows.targets(seqio_task, found)
  predictions = task.predict(targets, scores, CONFIG)
  expected = task.score(targets, predictions, language)
  assert rows.metrics(seqio_task, found, scores, task.head) == expected
  assert tuple(expected) == task.scores


def test_rows_without_gold_labels_are_read_and_never_scored(samples, xtreme_vocabulary, tmp_path):
  options = {'data_dir': samples.root, 'labels_dir': tmp_path, 'vocabulary': xtreme_vocabulary, 'name': 'unlabelled'}
  unlabelled = registered('panx', 'de', **options)
  found = list(rows.stream_rows(unlabelled, 'test', 'tagging', max_length=96))
  assert {label for row in found for label in np.atleast_1d(row.labels).tolist()} == {-1}
  scores = [np.zeros((len(row.input_ids), 7), np.float32) for row in found]
  with pytest.raises(UsageError, match='no score without gold labels') as error:
    rows.metrics(unlabelled, found, scores, 'tagging')
  assert str(samples.root / 'panx') in error.value.where


def test_a_training_file_without_labels_is_an_error(tmp_path, xtreme_vocabulary):
  (tmp_path / 'xnli').mkdir()
  (tmp_path / 'xnli' / 'train-en.tsv').write_text('a\tb\n')
  task = registered('xnli', 'en', data_dir=tmp_path, vocabulary=xtreme_vocabulary)
  with pytest.raises(UsageError, match='no gold labels') as error:
    list(rows.stream_rows(task, 'train', 'classification', max_length=64))
  assert error.value.where.endswith('train-en.tsv')
