"""SeqIO tasks `wikipedia.{language}` and the mixture `wikipedia`: what an example of pre-training is.

An example is the ids of one document. Packing into rows and masking come after (`rembert.data`), because they depend on
the step; SeqIO's own MLM converter gives no loss on the tokens that are kept or replaced at random.
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import seqio

from rembert.data.batches import OpenDocuments
from tasks.corpus.format import VERSION, Corpus

MIXTURE = 'wikipedia'


def task_name(language: str) -> str:
  """Name of a language's task in the SeqIO registry."""
  return f'{MIXTURE}.{language}'


def language_task(language: str, source: seqio.DataSource, vocabulary: seqio.Vocabulary) -> seqio.Task:
  """What an example of a language is: the `text` of a document as `ids`."""
  return seqio.Task(
    task_name(language),
    source=source,
    preprocessors=[
      functools.partial(seqio.preprocessors.rekey, key_map={'ids': 'text'}),
      functools.partial(seqio.preprocessors.tokenize, copy_pretokenized=False),
    ],
    output_features={'ids': seqio.Feature(vocabulary, add_eos=False, dtype=tf.int32)},
  )


def register(corpus: Corpus, vocabulary_file: str, rates: Mapping[str, float]) -> seqio.Mixture:
  """Adds a task per language of `rates` and their mixture to SeqIO's registries, in place of any of that name."""
  vocabulary = seqio.SentencePieceVocabulary(vocabulary_file)
  if MIXTURE in seqio.MixtureRegistry.names():
    seqio.MixtureRegistry.remove(MIXTURE)
  for language in rates:
    if task_name(language) in seqio.TaskRegistry.names():
      seqio.TaskRegistry.remove(task_name(language))
    seqio.TaskRegistry.add_provider(task_name(language), language_task(language, _source(corpus, language), vocabulary))
  return seqio.MixtureRegistry.add(MIXTURE, [(task_name(language), rate) for language, rate in rates.items()])


def _source(corpus: Corpus, language: str) -> seqio.DataSource:
  return seqio.TfdsDataSource(f'corpus/{language}:{VERSION}', tfds_data_dir=str(corpus.folder))


def encoder(task: seqio.Task) -> Callable[[str], np.ndarray]:
  """A text to its ids, as the task's vocabulary cuts it, by SentencePiece's own library; int32 [n].

  The SentencePiece inside TensorFlow, which `task.get_dataset` asks, takes three times as long. It cuts otherwise where
  two ways are exactly as likely (`000`: `0`, `00` or `00`, `0`), so that pre-training would now and then see other ids
  than fine-tuning and predictions, which ask the library.
  """
  vocabulary = task.output_features['ids'].vocabulary
  return lambda text: np.array(vocabulary.encode(text), np.int32)


def open_documents(mixture: seqio.Mixture, corpus: Corpus) -> OpenDocuments:
  """Reads the mixture's tasks, one language at a time, from any document on, in the order of their source.

  The texts are read here, and nothing goes through TensorFlow. `task.get_dataset` gives the same examples (see
  `encoder`), but has TensorFlow's threads call Python for each text: an iterator of that kind that is let go before its
  end waits for those threads while it holds the lock that they need, for ever.
  """
  encoders = {task.name: encoder(task) for task in mixture.tasks}

  def documents(language: str, split: str, skip: int) -> Iterator[np.ndarray]:
    encode = encoders[task_name(language)]
    for text in itertools.islice(corpus.texts(language, split), skip, None):
      yield encode(text)

  return documents
