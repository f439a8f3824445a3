"""Rows of examples that were made in memory, computed at once: a tf.data pipeline takes a second to begin."""

import functools

import seqio

from rembert.tokenizer import SpecialIds
from tasks import registration, rows
from tasks.seqio_vocabulary import RembertVocabulary
from tasks.tables.files import Example
from tasks.tables.registry import example_columns
from tasks.xtreme import preprocessors, registry
from tasks.xtreme.benchmark import XtremeTask

_MAKERS = {
  'classification': preprocessors.pair_rows,
  'tagging': preprocessors.word_rows,
  'qa': functools.partial(preprocessors.question_rows, doc_stride=128, max_query_length=64),
}


def pair(first, second, label, where='test-de.tsv:1') -> Example:
  """Two texts and their label."""
  return Example(where, {'first': first, 'second': second}, label)


def sentence(*words, tags=None, where='test-de.tsv:1') -> Example:
  """Words and their tags."""
  return Example(where, {'words': words}, tags)


def ask(context, *answers, question='?', name='q', where='file.json:data[0]') -> Example:
  """A question with answers, texts in the context or pairs of text and place."""
  found = [(each, context.index(each)) if isinstance(each, str) else each for each in answers]
  return Example(where, {'id': name, 'question': question, 'context': context}, found or None)


class AnyVocabulary(RembertVocabulary):
  """A vocabulary whose special tokens are not looked at."""

  special = SpecialIds()


@functools.cache
def any_vocabulary(file) -> AnyVocabulary:
  """The vocabulary of a file."""
  return AnyVocabulary(file)


class _OneBatch:
  """As much of a dataset of one batch as preprocessors use."""

  def __init__(self, features):
    self.features, self.element_spec = features, dict.fromkeys(features)

  def batch(self, size):
    assert size
    return self

  def map(self, function, **_):
    return _OneBatch(function.python_function(self.features))  # tracing it would take longer

  def unbatch(self):
    return self


def computed_rows(task: XtremeTask, examples, vocabulary: RembertVocabulary, *, max_length: int, **options):
  """Rows of a task's preprocessor, as `tasks.rows.stream_rows` gives them.

  Args:
    task: of XTREME.
    examples: of the task.
    vocabulary: their tokens.
    max_length: ids in a row at most.
    **options: of the preprocessor.
  """
  maker = functools.partial(_MAKERS[task.head], **options)
  features = {'input_ids': seqio.Feature(vocabulary, add_eos=False)}
  batch = _OneBatch(example_columns(task.kind(), examples))
  found = maker(batch, sequence_length={'input_ids': max_length}, output_features=features).features
  if not found['example'].shape[0]:
    return []
  columns = {name: rows.elements(column) for name, column in found.items()}
  return list(rows.rows_of(columns, task.head, max_length, task.name, keep_examples=True))


def registered(task: str, language: str, **options):
  """The SeqIO task of XTREME's, registered now with the options of `add_xtreme`."""
  registry.add_xtreme(**options)
  return registration.find(f'{options.get("name", "xtreme")}.{task}.{language}')
