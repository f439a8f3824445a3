"""SeqIO feature converters of this project's models, for other trainers that use `seqio.get_dataset`.

    converter = PackedMlmFeatureConverter(vocab_size=250300, seed=0)
    seqio.get_dataset('wikipedia.rembert', {'targets': 512}, converter, 'train', shuffle=True, num_epochs=None,
                      batch_size=32, trim_output_features=False)

This project's own trainer does not use them: its sequences and masks are functions of (seed, step, index), for any
number of readers and interruptions, which a dataset cannot provide.

Packing and masks are those of `rembert.data`, called from the dataset, so it runs in the process that created it, not
on a tf.data service.

B sequences · S positions · K masked positions per sequence
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
from collections.abc import Mapping

import numpy as np
import seqio

from rembert.data import packing
from rembert.data.masking import MaskingConfig, mask_rows
from rembert.data.mixture import MASK_STREAM
from rembert.tokenizer import SpecialIds

_Spec = seqio.FeatureConverter.FeatureSpec
_MASKED_AT_ONCE = 256  # sequences


class PackedMlmFeatureConverter(seqio.FeatureConverter):
  """Converts documents, `targets`, to packed sequences for masked language modelling: `[CLS] … [SEP] [CLS] … [SEP]`.

  Features of a sequence, int32 except the weights:

    input_ids [S]         ids, [PAD] at the end; with a seed, masked
    token_type_ids [S]    0
    segment_ids [S]       1 for the first document of the sequence, 2 for the next, 0 for padding
    position_ids [S]      0, 1, 2 … from the start of each document
    masked_positions [K]  with a seed: ascending; 0 in unused slots
    targets [K]           with a seed: the ids there; 0
    weights [K]           with a seed: 1; 0; float32

  Sequences equal those of `rembert.data.packing.pack`, and masks those of `rembert.data.masking.mask_rows` for step 0
  and the sequence's index in the dataset, bit for bit. A document that does not fit is continued in the next sequence:
  call `seqio.get_dataset` with `trim_output_features=False`, or SeqIO truncates documents to S tokens before.

  Args:
    vocab_size: upper bound of random replacements.
    seed: seed of the masks; None only packs.
    masking: fractions of masked tokens, which are selected one by one.
    special: ids of [PAD], [CLS], [SEP] and [MASK].
  """

  TASK_FEATURES = {'targets': _Spec(dtype=tf.int32)}  # noqa: RUF012 - SeqIO's class attribute
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
    self._vocab_size, self._seed, self._masking, self._special = vocab_size, seed, masking, special
    if seed is not None:
      masked = {'masked_positions': _Spec(tf.int32), 'targets': _Spec(tf.int32), 'weights': _Spec(tf.float32)}
      self.MODEL_FEATURES = self.MODEL_FEATURES | masked
    # SeqIO's check of lengths would reject documents of more than S tokens; here, lengths are static.
    super().__init__(pack=False, apply_length_check=False)

  def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
    lengths = self.get_model_feature_lengths(task_feature_lengths)

    def targets(example: Mapping[str, tf.Tensor]) -> tf.Tensor:
      return example['targets']

    batches = pack(ds.map(targets), task_feature_lengths['targets'], self._special).batch(_MASKED_AT_ONCE).enumerate()

    def of_numpy(number: np.ndarray, ids_BxS: np.ndarray) -> list[np.ndarray]:
      segments_BxS, positions_BxS = packing.segments_and_positions(ids_BxS, self._special)
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


# --- sequences --------------------------------------------------------------------------------------------------------


def pack(documents: tf.data.Dataset, sequence_length: int, special: SpecialIds) -> tf.data.Dataset:
  """`rembert.data.packing.pack` as a dataset: ids of documents, int32 [n], to sequences, int32 [S]."""

  def of_numpy(open_S: np.ndarray, ids: np.ndarray, is_end: bool) -> tuple[np.ndarray, np.ndarray]:
    """The incomplete sequence after a document, and the completed ones."""
    used = open_S[open_S != special.pad]
    before = [segment[1:-1] for segment in np.split(used, np.flatnonzero(used == special.cls))[1:]]
    rows = [row for row, _ in packing.pack([*before, ids], sequence_length, special)]
    is_open = rows and not is_end and np.count_nonzero(rows[-1] == special.pad) >= packing.SHORTEST_SEGMENT + 2
    still_open_S = rows.pop() if is_open else np.full_like(open_S, special.pad)
    return still_open_S, np.array(rows, np.int32).reshape(-1, sequence_length)

  def step(open_S: tf.Tensor, document: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    # Not stateful: iterators over the dataset may be saved.
    open_S, done = tf.numpy_function(of_numpy, [open_S, *document], [tf.int32, tf.int32], stateful=False)
    return tf.ensure_shape(open_S, [sequence_length]), tf.ensure_shape(done, [None, sequence_length])

  def not_the_end(ids: tf.Tensor) -> tuple[tf.Tensor, bool]:
    return ids, False

  end = tf.data.Dataset.from_tensors((tf.zeros([0], tf.int32), True))
  nothing = tf.fill([sequence_length], special.pad)
  return documents.map(not_the_end).concatenate(end).scan(nothing, step).unbatch()
