"""Feature converters pass SeqIO's validations, and give the rows and masks of `rembert.data` bit by bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.data.masking import MaskingConfig, mask_rows
from rembert.data.mixture import MASK_STREAM
from rembert.data.packing import pack, segments_and_positions
from rembert.tokenizer import SpecialIds
from tasks import feature_converters, pretraining
from tasks.feature_converters import PackedMlmFeatureConverter
from tasks.tensorflow_import import tensorflow as tf

# isort: split
import seqio

SPECIAL, VOCAB = SpecialIds(), 5000
OTHER = SpecialIds(pad=1, cls=5, sep=6, mask=7)


def documents_of(seed, count=30, longest=150):
  random = np.random.default_rng(seed)
  lengths = random.choice([0, 1, 2, 5, 7, 8, 9, 20, longest, 3 * longest], count)
  return [random.integers(SPECIAL.first_piece, VOCAB, length).astype(np.int32) for length in lengths]


def dataset_of(documents):
  signature = tf.TensorSpec([None], tf.int32)
  return tf.data.Dataset.from_generator(lambda: iter(documents), output_signature=signature)


def task_of(documents, name='converter_test'):
  source = seqio.FunctionDataSource(
    lambda split, shuffle_files: dataset_of(documents).map(lambda ids: {'targets': ids}), splits=('train',)
  )
  features = {'targets': seqio.Feature(seqio.PassThroughVocabulary(VOCAB), add_eos=False, dtype=tf.int32)}
  return seqio.Task(name, source=source, preprocessors=[], output_features=features)


def rows_of(task, length, converter, **options):
  dataset = seqio.get_dataset(
    task, {'targets': length}, converter, 'train', trim_output_features=False, verbose=False, **options
  )
  return list(dataset.as_numpy_iterator())


# --- packing ----------------------------------------------------------------------------------------------------------


@given(length=st.integers(3, 70), seed=st.integers(0, 2**32), special=st.sampled_from([SPECIAL, OTHER]))
@settings(deadline=None, max_examples=4)
def test_rows_are_those_of_pack(length, seed, special):
  assert_packed(documents_of(seed, longest=length), length, special)


@pytest.mark.parametrize('documents', [[], [[]], [[400], [], [401]]])
def test_few_or_empty_documents_are_packed(documents):
  assert_packed([np.array(ids, np.int32) for ids in documents], 16, SPECIAL)


def assert_packed(documents, length, special):
  expected = [row.tolist() for row, _ in pack(documents, length, special)]
  rows = feature_converters.pack(dataset_of(documents), length, special).as_numpy_iterator()
  assert [row.tolist() for row in rows] == expected


# --- pre-training, through SeqIO --------------------------------------------------------------------------------------


@pytest.mark.parametrize('at_once', [3, 64])
def test_masked_rows_of_get_dataset_are_those_of_mask_rows_whatever_is_masked_at_once(at_once, monkeypatch):
  monkeypatch.setattr(feature_converters, '_MASKED_AT_ONCE', at_once)
  documents = documents_of(0, count=60)
  rows = rows_of(task_of(documents), 32, PackedMlmFeatureConverter(vocab_size=VOCAB, seed=11))
  ids = np.stack([row for row, _ in pack(documents, 32, SPECIAL)])
  expected = mask_rows(
    ids, seed=11, stream=MASK_STREAM, step=0, first_row=0, special=SPECIAL, vocab_size=VOCAB, config=MaskingConfig()
  )
  expected |= {'token_type_ids': np.zeros_like(ids)}
  expected |= dict(zip(('segment_ids', 'position_ids'), segments_and_positions(ids, SPECIAL), strict=True))
  assert len(rows) > at_once
  for row in rows:
    assert row.keys() == expected.keys()
  for name, values in expected.items():
    np.testing.assert_array_equal(np.stack([row[name] for row in rows]), values, err_msg=name)


def test_without_a_seed_rows_are_packed_only():
  documents = documents_of(1)
  rows = rows_of(task_of(documents), 32, PackedMlmFeatureConverter(vocab_size=VOCAB))
  assert [row['input_ids'].tolist() for row in rows] == [row.tolist() for row, _ in pack(documents, 32, SPECIAL)]
  assert set(rows[0]) == {'input_ids', 'token_type_ids', 'segment_ids', 'position_ids'}


def test_batches_have_static_shapes_and_another_epoch_has_other_masks():
  documents = documents_of(2, count=6)
  options = {'num_epochs': 2, 'batch_size': 2}
  batches = rows_of(task_of(documents), 32, PackedMlmFeatureConverter(vocab_size=VOCAB, seed=0), **options)
  assert {name: (values.shape, values.dtype) for name, values in batches[0].items()} == {
    **dict.fromkeys(('input_ids', 'token_type_ids', 'segment_ids', 'position_ids'), ((2, 32), np.int32)),
    **dict.fromkeys(('masked_positions', 'targets'), ((2, 5), np.int32)),
    'weights': ((2, 5), np.float32),
  }
  unmasked = np.concatenate([batch['masked_positions'] for batch in batches])
  assert not np.array_equal(unmasked[: len(unmasked) // 2], unmasked[len(unmasked) // 2 : len(unmasked) // 2 * 2])


def test_the_tokens_of_a_document_beyond_s_are_kept_only_without_seqio_s_trimming():
  task, converter = task_of([np.arange(400, 500, dtype=np.int32)]), PackedMlmFeatureConverter(vocab_size=VOCAB)
  assert len(rows_of(task, 32, converter)) == 4
  assert len(list(seqio.get_dataset(task, {'targets': 32}, converter, 'train', verbose=False))) == 2


def test_a_task_of_text_is_packed_with_its_own_ids(xtreme_vocabulary):
  from tasks.seqio_vocabulary import RembertVocabulary

  vocabulary = RembertVocabulary(xtreme_vocabulary)
  texts = ['Wasser ist flüssig.', 'Water is wet.']
  source = seqio.FunctionDataSource(
    lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices({'text': texts}), splits=('train',)
  )
  task = seqio.Task(
    'text_test', source=source, preprocessors=[pretraining.tokenize], output_features=pretraining.features(vocabulary)
  )
  [row] = rows_of(task, 64, PackedMlmFeatureConverter(vocab_size=2000))
  expected = [id for text in texts for id in (312, *vocabulary.encode(text), 313)]
  assert row['input_ids'].tolist() == [*expected, *[0] * (64 - len(expected))]
