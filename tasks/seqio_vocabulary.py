"""A SentencePiece vocabulary for SeqIO that is loaded and checked when it is first used."""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import functools
import os
from collections.abc import Callable

import seqio
import tensorflow_text as tf_text

from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds, check_vocabulary, load_vocabulary

VARIABLE = 'REMBERT_VOCABULARY'


class RembertVocabulary(seqio.SentencePieceVocabulary):
  """`seqio.SentencePieceVocabulary` with RemBERT's special ids; constructing one reads no file.

  `encode_tf` returns the ids of TensorFlow Text, `encode` those of the SentencePiece library. They differ only if two
  segmentations are equally likely. `path` is a `sentencepiece.model`, local or remote; without it, the file in the
  environment variable `REMBERT_VOCABULARY` when the vocabulary is first used.
  """

  def __init__(self, path: str | os.PathLike | None = None):
    super().__init__(None if path is None else os.fspath(path))

  @property
  def sentencepiece_model_file(self) -> str:
    """The SentencePiece file; UsageError if neither `path` nor `REMBERT_VOCABULARY` is set."""
    path = self._sentencepiece_model_file or os.environ.get(VARIABLE)
    if not path:
      raise UsageError(
        'no vocabulary is set',
        where=f'environment variable {VARIABLE}',
        fix=[
          f'export {VARIABLE}=/path/to/sentencepiece.model',
          "tasks.add_wikipedia(vocabulary='…'), tasks.add_xtreme(vocabulary='…')",
        ],
      )
    return path

  @functools.cached_property
  def special(self) -> SpecialIds:
    """Ids of [PAD], [CLS], [SEP], [MASK], [UNK]; raises as `check_vocabulary`."""
    return check_vocabulary(self.sentencepiece_model_file, vocab_size=1 << 31)

  @functools.cached_property
  def tf_tokenizer(self) -> tf_text.SentencepieceTokenizer:
    """TensorFlow Text's tokenizer; one for all datasets, as parsing 250,000 tokens takes time and memory."""
    # Outside of the traced function: a model created inside would exist once per iterator.
    with tf.init_scope():
      return tf_text.SentencepieceTokenizer(model=self.sp_model)

  @functools.cached_property
  def space_id(self) -> int:
    """Id of a single `▁`, the space before a character with which no `▁` token begins."""
    return self.tokenizer.piece_to_id('▁')

  @functools.cached_property
  def functions(self) -> dict[tuple, Callable]:
    """Traced functions that tokenize with it, by what they do (`tasks.xtreme.preprocessors`)."""
    return {}

  def tokenize_with_offsets(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Ids of a text, and start and end of each token in it, in UTF-8 bytes; int32 [n] each."""
    ids, begins, ends = self.tf_tokenizer.tokenize_with_offsets(text)
    return ids, tf.cast(begins, tf.int32), tf.cast(ends, tf.int32)

  _model: seqio.vocabularies._ModelContext | None

  def _model_context(self):
    # Not SeqIO's own loader, which caches by file name, although a file may be rewritten.
    if self._model is None:
      self.special  # noqa: B018 - checks the file once, with an error that names it
      processor = load_vocabulary(self.sentencepiece_model_file)
      self._model = seqio.vocabularies._ModelContext(processor, processor.serialized_model_proto())
    return self._model

  def __getstate__(self):
    state = super().__getstate__()
    found_later = ('special', 'space_id', 'tf_tokenizer', 'functions')
    return {name: value for name, value in state.items() if name not in found_later}

  def __eq__(self, other) -> bool:
    return isinstance(other, RembertVocabulary) and self._sentencepiece_model_file == other._sentencepiece_model_file

  __hash__ = None  # type: ignore[assignment]
