"""SeqIO tasks: what they hold, and that any document can be the first."""

import math

import numpy as np
import pytest
import sentencepiece
import seqio
from xtreme_reference import Pieces

from rembert.data.config import DataConfig
from tasks import mlm
from tasks.survey import sample_text
from tasks.vocabulary import train_vocabulary
from tasks.wikipedia.corpus import open_corpus

RATES = {'hi': 0.25, 'ru': 0.75}


@pytest.fixture(scope='module')
def corpus():
  return open_corpus(DataConfig(languages=('hi', 'ru'), held_out=0.1))


@pytest.fixture(scope='module')
def vocabulary_file(corpus, tmp_path_factory):
  file = tmp_path_factory.mktemp('vocabulary') / 'sentencepiece.model'
  train_vocabulary(sample_text(corpus, {'hi': 10**6, 'ru': 10**6}), file, size=1500)
  return str(file)


@pytest.fixture(scope='module')
def mixture(corpus, vocabulary_file):
  return mlm.register(corpus, vocabulary_file, RATES)


def test_tasks_and_mixture_are_seqio_s_own(mixture):
  assert seqio.get_mixture_or_task('wikipedia') is mixture
  assert {task.name for task in mixture.tasks} == {'wikipedia.hi', 'wikipedia.ru'}
  assert [mixture.get_rate(seqio.TaskRegistry.get(f'wikipedia.{language}')) for language in RATES] == list(
    RATES.values()
  )


def test_an_example_is_the_ids_of_one_document(mixture, corpus, vocabulary_file):
  processor = sentencepiece.SentencePieceProcessor(model_file=vocabulary_file)
  documents = mlm.open_documents(mixture, corpus)
  for split, is_held_out in (('train', False), ('validation', True)):
    expected = [document.text for document, held_out in corpus.documents('hi') if held_out == is_held_out]
    ids = list(documents('hi', split, 0))
    assert len(ids) == len(expected) > 0
    assert [processor.decode(document.tolist()) for document in ids] == [' '.join(text.split()) for text in expected]


def test_what_is_read_is_what_seqio_s_own_dataset_gives_or_exactly_as_likely(mixture, corpus, vocabulary_file):
  documents = mlm.open_documents(mixture, corpus)
  processor = sentencepiece.SentencePieceProcessor(model_file=vocabulary_file)
  likelihood = lambda ids: math.fsum(processor.get_score(index) for index in ids.tolist())
  others = 0
  for task in mixture.tasks:
    for split in task.splits:
      examples = task.get_dataset(sequence_length=None, split=split, shuffle=False, trim_output_features=False)
      expected = [example['ids'] for example in examples.as_numpy_iterator()]
      ids = list(documents(task.name.removeprefix('wikipedia.'), split, 0))
      assert len(ids) == len(expected) > 0
      for left, right in zip(ids, expected, strict=True):
        assert left.dtype == right.dtype
        assert processor.decode(left.tolist()) == processor.decode(right.tolist())
        assert likelihood(left) == likelihood(right)
        others += not np.array_equal(left, right)
  assert others <= 0.1 * len(list(corpus.texts('ru', 'train')))


def test_pre_training_sees_the_ids_that_fine_tuning_and_predictions_do(corpus, vocabulary_file):
  encode = mlm.encoder(mlm.task_of_texts('hi', vocabulary_file))
  texts = ['', ' ', '000 0000 00000', 'ein\tWort\u3000\u00a0 mehr ', '[MASK] [CLS]<0x41>▁', '🌊e\u0301\u0000ﷺ']
  for text in [*corpus.texts('ru', 'validation'), *texts]:
    ids = encode(text)
    assert ids.dtype == np.int32
    assert ids.tolist() == Pieces(vocabulary_file).ids(text)


def test_reading_can_end_anywhere(mixture, corpus):
  for _ in range(5):
    documents = mlm.open_documents(mixture, corpus)('ru', 'train', 0)
    next(documents)
    documents.close()


def test_reading_from_any_document_gives_what_follows_it(mixture, corpus):
  documents = mlm.open_documents(mixture, corpus)
  everything = list(documents('ru', 'train', 0))
  for skip in (1, 7, len(everything) - 1, len(everything)):
    rest = list(documents('ru', 'train', skip))
    assert len(rest) == len(everything) - skip
    for left, right in zip(rest, everything[skip:], strict=True):
      np.testing.assert_array_equal(left, right)


def test_registering_another_corpus_replaces_the_first(corpus, vocabulary_file):
  mlm.register(corpus, vocabulary_file, {'hi': 1.0})
  assert [task.name for task in mlm.register(corpus, vocabulary_file, {'hi': 1.0}).tasks] == ['wikipedia.hi']
  mlm.register(corpus, vocabulary_file, RATES)
