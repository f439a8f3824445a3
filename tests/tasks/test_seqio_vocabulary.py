"""The vocabulary of SeqIO tasks: found late, checked once, equal to the SentencePiece library."""

import math
import pathlib
import pickle

import numpy as np
import pytest

from rembert.errors import UsageError
from tasks.tensorflow_import import tensorflow as tf

# isort: split
from rembert.tokenizer import load_vocabulary
from tasks.seqio_vocabulary import RembertVocabulary

XTREME = pathlib.Path(__file__).parent.parent / 'data' / 'xtreme'
TEXT = 'Hällo Welt, 世界 Ａ ½ 👩‍🚀'


def test_ids_equal_the_librarys(xtreme_vocabulary):
  vocabulary = RembertVocabulary(xtreme_vocabulary)
  expected = load_vocabulary(xtreme_vocabulary).encode(TEXT)
  assert vocabulary.encode(TEXT) == vocabulary.encode_tf(TEXT).numpy().tolist() == expected
  assert vocabulary.vocab_size == 2000


def test_offsets_are_bytes_of_the_original_text(xtreme_vocabulary):
  vocabulary = RembertVocabulary(xtreme_vocabulary)
  ids, begins, ends = (each.numpy() for each in vocabulary.tokenize_with_offsets(TEXT))
  pieces = load_vocabulary(xtreme_vocabulary).encode(TEXT, return_type='proto').pieces
  assert [(piece.id, piece.begin, piece.end) for piece in pieces] == list(zip(ids, begins, ends, strict=True))


def test_datasets_share_one_model(xtreme_vocabulary):
  vocabulary = RembertVocabulary(xtreme_vocabulary)
  read = lambda: tf.data.Dataset.from_tensors(TEXT).map(vocabulary.encode_tf)
  inside = [read(), read()]
  assert vocabulary.tf_tokenizer is vocabulary.tf_tokenizer
  for dataset in inside:
    for _ in range(2):
      assert next(dataset.as_numpy_iterator()).tolist() == vocabulary.encode(TEXT)


# Texts that TensorFlow Text and the library segment in different ways, at most, by sample (docs/concepts/data.md). How
# many exactly depends on the vocabulary: 0, and 87 or 126 of 400 with two that were tried.
DIFFERENT = {'of XTREME': 2, 'of repeated characters': 200}


@pytest.mark.parametrize('sample', DIFFERENT)
def test_tensorflow_text_and_the_library_differ_only_between_equally_likely_segmentations(sample, xtreme_vocabulary):
  vocabulary = RembertVocabulary(xtreme_vocabulary)
  random = np.random.default_rng(0)
  texts = {
    'of XTREME': [line for file in sorted(XTREME.glob('*/*.tsv')) for line in file.read_text().splitlines()],
    'of repeated characters': [
      ''.join(random.choice(list('0Iaé世 '), 40, p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.1])) for _ in range(400)
    ],
  }[sample]
  likelihood = lambda ids: math.fsum(vocabulary.tokenizer.get_score(index) for index in ids)
  different = 0
  for text, ids in zip(texts, vocabulary.tf_tokenizer.tokenize(texts).to_list(), strict=True):
    expected = vocabulary.encode(text)
    assert vocabulary.decode(ids) == vocabulary.decode(expected)
    assert likelihood(ids) == pytest.approx(likelihood(expected), rel=1e-6)
    different += ids != expected
  assert len(texts) >= 400
  assert different <= DIFFERENT[sample]


def test_without_a_path_the_environment_names_the_file_at_first_use(xtreme_vocabulary, monkeypatch):
  monkeypatch.delenv('REMBERT_VOCABULARY', raising=False)
  vocabulary = RembertVocabulary()
  with pytest.raises(UsageError, match='no vocabulary is set') as error:
    _ = vocabulary.vocab_size
  assert 'REMBERT_VOCABULARY' in str(error.value)
  assert 'add_xtreme(vocabulary=' in str(error.value)
  monkeypatch.setenv('REMBERT_VOCABULARY', str(xtreme_vocabulary))
  assert vocabulary.vocab_size == 2000
  monkeypatch.setenv('REMBERT_VOCABULARY', __file__)
  with pytest.raises(UsageError, match='not a SentencePiece model'):
    _ = RembertVocabulary().vocab_size


def test_it_can_be_pickled_before_and_after_it_was_used(xtreme_vocabulary):
  vocabulary = RembertVocabulary(xtreme_vocabulary)
  assert pickle.loads(pickle.dumps(vocabulary)) == vocabulary
  assert vocabulary.special.cls == 312
  assert pickle.loads(pickle.dumps(vocabulary)).encode(TEXT) == vocabulary.encode(TEXT)
