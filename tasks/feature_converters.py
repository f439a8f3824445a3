"""SeqIO feature converters: what this project's models are trained on, for trainers that use `seqio.get_dataset`.

    converter = PackedMlmFeatureConverter(vocab_size=250300, seed=0)
    seqio.get_dataset('wikipedia.rembert', {'targets': 512}, converter, 'train', shuffle=True, num_epochs=None,
                      batch_size=32, trim_output_features=False)

This project's own trainer uses none of them: its rows and masks are functions of (seed, step, row), whoever reads them
and wherever a run was interrupted, which a dataset alone cannot give.

B rows · S positions · K predictions per row
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
from collections.abc import Mapping

import numpy as np
import seqio

from rembert.data.masking import MaskingConfig, mask_rows
from rembert.data.mixture import MASK_STREAM
from rembert.data.packing import SHORTEST_SEGMENT, segments_and_positions
from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds

_Spec = seqio.FeatureConverter.FeatureSpec
_MASKED_AT_ONCE = 256  # rows


class PackedMlmFeatureConverter(seqio.FeatureConverter):
  """Documents, `targets`, to packed rows of masked language modelling: `[CLS] … [SEP] [CLS] … [SEP]`.

  Features of a row, all int32 but the weights:

    input_ids [S]         ids, [PAD] at the end; with a seed, as the model is to see them
    token_type_ids [S]    0
    segment_ids [S]       1 for the first document of the row, 2 for the next, 0 on padding
    position_ids [S]      0, 1, 2 … from the start of each document
    masked_positions [K]  with a seed: ascending; 0 in slots without a prediction
    targets [K]           with a seed: the ids there; 0
    weights [K]           with a seed: 1; 0; float32

  Rows are those of `rembert.data.packing.pack`, and masks those of `rembert.data.masking.mask_rows` for step 0, where
  the row's number in the dataset, from 0, is its row; both bit by bit. A document that does not fit is continued in the
  next row: call `seqio.get_dataset` with `trim_output_features=False`, or SeqIO cuts documents at S tokens before.

  Args:
    vocab_size: random replacements are below it.
    seed: of the masks; None packs only.
    masking: shares; tokens are chosen one by one.
    special: ids of [PAD], [CLS], [SEP] and [MASK].

  Raises:
    UsageError: `masking` asks for whole words or spans.
  """

  TASK_FEATURES = {'targets': _Spec(dtype=tf.int32)}  # noqa: RUF012 - SeqIO's name for what is the same for all
  MODEL_FEATURES = dict.fromkeys(('input_ids', 'token_type_ids', 'segment_ids', 'position_ids'), _Spec(dtype=tf.int32))
  PACKING_FEATURE_DTYPES = None

  def __init__(
    self,
    *,
    vocab_size: int,
    seed: int | None = None,
    masking: MaskingConfig = MaskingConfig(),
    special: SpecialIds = SpecialIds(),
  ):
    if masking.whole_word or masking.ngram > 1:
      raise UsageError(
        'the feature converter masks tokens one by one, not in words or spans',
        where=f'masking.whole_word = {masking.whole_word}, masking.ngram = {masking.ngram}',
        fix='rembert.data.masking.mask_rows does, on the rows of a converter without seed',
      )
    self._vocab_size, self._seed, self._masking, self._special = vocab_size, seed, masking, special
    if seed is not None:
      masked = {'masked_positions': _Spec(tf.int32), 'targets': _Spec(tf.int32), 'weights': _Spec(tf.float32)}
      self.MODEL_FEATURES = self.MODEL_FEATURES | masked
    # SeqIO's check of lengths would refuse documents of more than S tokens; those of rows are static here.
    super().__init__(pack=False, apply_length_check=False)

  def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
    lengths = self.get_model_feature_lengths(task_feature_lengths)

    def targets(example: Mapping[str, tf.Tensor]) -> tf.Tensor:
      return example['targets']

    batches = pack(ds.map(targets), task_feature_lengths['targets'], self._special).batch(_MASKED_AT_ONCE).enumerate()

    def of_numpy(number: np.ndarray, ids_BxS: np.ndarray) -> list[np.ndarray]:
      segments_BxS, positions_BxS = segments_and_positions(ids_BxS, self._special)
      rows = {'input_ids': ids_BxS, 'token_type_ids': np.zeros_like(ids_BxS)}
      rows |= {'segment_ids': segments_BxS, 'position_ids': positions_BxS}
      if self._seed is not None:
        rows |= mask_rows(
          ids_BxS,
          seed=self._seed,
          stream=MASK_STREAM,
          step=0,
          first_row=int(number) * _MASKED_AT_ONCE,
          special=self._special,
          vocab_size=self._vocab_size,
          config=self._masking,
        )
      return [rows[name] for name in self.MODEL_FEATURES]

    def features(number: tf.Tensor, ids_BxS: tf.Tensor) -> dict[str, tf.Tensor]:
      types = [spec.dtype for spec in self.MODEL_FEATURES.values()]
      # Not stateful: iterators over the dataset may be saved.
      rows = tf.numpy_function(of_numpy, [number, ids_BxS], types, stateful=False)
      return {
        name: tf.ensure_shape(values, [None, lengths[name]])
        for name, values in zip(self.MODEL_FEATURES, rows, strict=True)
      }

    return batches.map(features, num_parallel_calls=tf.data.AUTOTUNE).unbatch()

  def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> dict[str, int]:
    """Lengths of the features: S, or K."""
    length = task_feature_lengths['targets']
    masked = ('masked_positions', 'targets', 'weights')
    return {name: self._masking.slots(length) if name in masked else length for name in self.MODEL_FEATURES}


class _LabelledFeatureConverter(seqio.FeatureConverter):
  """Rows of a fine-tuning task, filled up to S: `input_ids`, `token_type_ids`, `segment_ids` and `labels`, int32.

  An example has `input_ids` of at most S tokens, special ids among them; `labels` of rank 1; and, unless
  `token_type_ids` is False, `token_type_ids`. `segment_ids` is 1 for tokens and 0 for padding. Without
  `token_type_ids`, they are 0.

  Args:
    token_type_ids: whether examples have them.
    pad: id of [PAD].
  """

  PACKING_FEATURE_DTYPES = None
  _LABELS: int | None  # how many of an example; None is one per token, and −1 on padding

  def __init__(self, *, token_type_ids: bool = True, pad: int = SpecialIds().pad):
    names = ('input_ids', *(('token_type_ids',) if token_type_ids else ()), 'labels')
    self.TASK_FEATURES = dict.fromkeys(names, _Spec(dtype=tf.int32))
    self.MODEL_FEATURES = self.TASK_FEATURES | dict.fromkeys(('token_type_ids', 'segment_ids'), _Spec(dtype=tf.int32))
    self._pad = pad
    super().__init__(pack=False)

  def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
    length = task_feature_lengths['input_ids']

    def filled(values: tf.Tensor, value: int) -> tf.Tensor:
      return tf.ensure_shape(tf.pad(values, [[0, length - tf.size(values)]], constant_values=value), [length])

    def features(example: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
      ids, labels = example['input_ids'], example['labels']
      return {
        'input_ids': filled(ids, self._pad),
        'token_type_ids': filled(example.get('token_type_ids', tf.zeros_like(ids)), 0),
        'segment_ids': filled(tf.ones_like(ids), 0),
        'labels': filled(labels, -1) if self._LABELS is None else tf.ensure_shape(labels, [self._LABELS]),
      }

    return ds.map(features, num_parallel_calls=tf.data.AUTOTUNE)

  def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> dict[str, int]:
    """Lengths of the features: S, and that of the labels."""
    length = task_feature_lengths['input_ids']
    return dict.fromkeys(self.MODEL_FEATURES, length) | {'labels': self._LABELS or length}


class ClassificationFeatureConverter(_LabelledFeatureConverter):
  """One label for each row, `labels` [1]; else as `_LabelledFeatureConverter`."""

  _LABELS = 1


class TaggingFeatureConverter(_LabelledFeatureConverter):
  """A label for each token, `labels` [S], −1 where nothing is predicted; else as `_LabelledFeatureConverter`."""

  _LABELS = None


class SpanFeatureConverter(_LabelledFeatureConverter):
  """First and last token of an answer, `labels` [2]; else as `_LabelledFeatureConverter`."""

  _LABELS = 2


# --- rows -------------------------------------------------------------------------------------------------------------


def pack(documents: tf.data.Dataset, sequence_length: int, special: SpecialIds) -> tf.data.Dataset:
  """`rembert.data.packing.pack` as a dataset: ids of documents, int32 [n], to rows, int32 [S]."""
  per_row = sequence_length - 2  # tokens of a document that fills a row

  def filled(row: tf.Tensor) -> tf.Tensor:
    return tf.pad(row, [[0, sequence_length - tf.size(row)]], constant_values=special.pad)[None]

  def add(open_row: tf.Tensor, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The row that is still open after a document, and those that are done."""
    here = tf.minimum(tf.size(ids), sequence_length - tf.size(open_row) - 2)
    first = tf.concat([open_row, [special.cls], ids[:here], [special.sep]], 0)
    later = -(-(tf.size(ids) - here) // per_row)  # rows that the document takes after the first
    full = tf.maximum(later - 1, 0)
    text = tf.reshape(ids[here : here + full * per_row], [full, per_row])
    between = tf.concat([tf.fill([full, 1], special.cls), text, tf.fill([full, 1], special.sep)], 1)
    last = tf.concat([[special.cls], ids[here + full * per_row :], [special.sep]], 0)
    rows = tf.concat([filled(first), between, filled(last)], 0)[: 1 + later]
    length = tf.where(later > 0, tf.size(last), tf.size(first))
    is_open = sequence_length - length >= SHORTEST_SEGMENT + 2
    return rows[later, : tf.where(is_open, length, 0)], rows[: 1 + later - tf.cast(is_open, tf.int32)]

  def end(open_row: tf.Tensor, is_end: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The same for a document without ids, or after the last one."""
    is_done = is_end & (tf.size(open_row) > 0)
    return open_row[: tf.where(is_done, 0, tf.size(open_row))], filled(open_row)[: tf.cast(is_done, tf.int32)]

  def step(open_row: tf.Tensor, document: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    ids, is_end = document
    open_row, done = tf.cond(tf.size(ids) > 0, lambda: add(open_row, ids), lambda: end(open_row, is_end))
    return tf.ensure_shape(open_row, [None]), tf.ensure_shape(done, [None, sequence_length])

  def not_the_end(ids: tf.Tensor) -> tuple[tf.Tensor, bool]:
    return ids, False

  nothing = tf.zeros([0], tf.int32)
  return (
    documents.map(not_the_end).concatenate(tf.data.Dataset.from_tensors((nothing, True))).scan(nothing, step).unbatch()
  )
