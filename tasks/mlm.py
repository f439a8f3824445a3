"""SeqIO tasks `wikipedia.{language}` and the mixture `wikipedia`: what an example of pre-training is.

An example is the ids of one document. Packing into rows and masking come after (`rembert.data`), because they depend on
the step; SeqIO's own MLM converter gives no loss on the tokens that are kept or replaced at random.
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import functools
from collections.abc import Iterator, Mapping

import numpy as np
import seqio

from rembert.data.batches import OpenDocuments
from tasks.wikipedia.corpus import Corpus

MIXTURE = 'wikipedia'


def task_name(language: str) -> str:
  """Name of a language's task in the SeqIO registry."""
  return f'{MIXTURE}.{language}'


def register(corpus: Corpus, vocabulary_file: str, rates: Mapping[str, float]) -> seqio.Mixture:
  """Adds a task per language of `rates` and their mixture to SeqIO's registries, in place of any of that name."""
  vocabulary = seqio.SentencePieceVocabulary(vocabulary_file)
  if MIXTURE in seqio.MixtureRegistry.names():
    seqio.MixtureRegistry.remove(MIXTURE)
  for language in rates:
    if task_name(language) in seqio.TaskRegistry.names():
      seqio.TaskRegistry.remove(task_name(language))
    seqio.TaskRegistry.add(
      task_name(language),
      source=corpus.source(language),
      preprocessors=[
        functools.partial(seqio.preprocessors.rekey, key_map={'ids': 'text'}),
        functools.partial(seqio.preprocessors.tokenize, copy_pretokenized=False),
      ],
      output_features={'ids': seqio.Feature(vocabulary, add_eos=False, dtype=tf.int32)},
    )
  return seqio.MixtureRegistry.add(MIXTURE, [(task_name(language), rate) for language, rate in rates.items()])


def open_documents(mixture: seqio.Mixture) -> OpenDocuments:
  """Reads the mixture's tasks, one language at a time, from any document on, in the order of their source."""
  tasks = {task.name: task for task in mixture.tasks}
  options = tf.data.Options()
  options.deterministic = True
  options.threading.private_threadpool_size = 1  # a hundred languages are open at once

  @functools.cache  # tracing a task's functions takes longer than an epoch of a small language
  def dataset(language: str, split: str) -> tf.data.Dataset:
    task = tasks[task_name(language)]
    return task.get_dataset(
      sequence_length=None, split=split, shuffle=False, num_epochs=1, trim_output_features=False
    ).with_options(options)

  def documents(language: str, split: str, skip: int) -> Iterator[np.ndarray]:
    for example in dataset(language, split).skip(skip).as_numpy_iterator():
      yield example['ids']

  return documents
