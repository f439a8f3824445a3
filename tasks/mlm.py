"""SeqIO tasks `wikipedia.{language}` and the mixture `wikipedia`: what an example of pre-training is.

An example is the ids of one document. Packing into rows and masking come after (`rembert.data`), because they depend on
the step; SeqIO's own MLM converter gives no loss on the tokens that are kept or replaced at random.
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import functools
import itertools
from collections.abc import Iterator, Mapping

import numpy as np
import seqio

from rembert.data.batches import OpenDocuments
from tasks.wikipedia.corpus import Corpus

MIXTURE = 'wikipedia'
TEXTS_AT_ONCE = 32


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
    seqio.TaskRegistry.add_provider(task_name(language), language_task(language, corpus.source(language), vocabulary))
  return seqio.MixtureRegistry.add(MIXTURE, [(task_name(language), rate) for language, rate in rates.items()])


def task_of_texts(language: str, vocabulary_file: str) -> seqio.Task:
  """`language_task` without a source of its own, for texts that someone else reads: see `encoder`."""
  nothing = seqio.FunctionDataSource(lambda split, shuffle_files, seed=None: None, splits=('train',))
  return language_task(language, nothing, seqio.SentencePieceVocabulary(vocabulary_file))


def encoder(task: seqio.Task):
  """Texts to their ids, by the task's own preprocessors inside TensorFlow, many at once."""

  @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
  def ids(texts: tf.Tensor) -> tf.RaggedTensor:
    examples = tf.data.Dataset.from_tensor_slices({'text': texts})
    examples = task.preprocess_postcache(task.preprocess_precache(examples), sequence_length=None)
    return examples.map(lambda example: example['ids']).ragged_batch(TEXTS_AT_ONCE).get_single_element()

  function = ids.get_concrete_function()

  def encode(texts: list[str]) -> list[np.ndarray]:
    """Ids of each of at most `TEXTS_AT_ONCE` texts."""
    ids = function(tf.constant(texts))
    return np.split(ids.values.numpy(), ids.row_splits.numpy()[1:-1])

  return encode


def open_documents(mixture: seqio.Mixture, corpus: Corpus) -> OpenDocuments:
  """Reads the mixture's tasks, one language at a time, from any document on, in the order of their source.

  The texts are read here and go through the task's preprocessors by the handful, inside TensorFlow. `task.get_dataset`
  gives the same examples, but has TensorFlow's threads call Python for each text: an iterator of that kind that is let
  go before its end waits for those threads while it holds the lock that they need, for ever.
  """
  tasks = {task.name: task for task in mixture.tasks}

  @functools.cache
  def encode(language: str):
    return encoder(tasks[task_name(language)])

  def documents(language: str, split: str, skip: int) -> Iterator[np.ndarray]:
    texts = corpus.texts(language, split, skip)
    while some := list(itertools.islice(texts, TEXTS_AT_ONCE)):
      yield from encode(language)(some)

  return documents
