"""SeqIO feature converters of this project's models, for other trainers that use `seqio.get_dataset`.

    converter = PackedMlmFeatureConverter(vocab_size=250300, seed=0)
    seqio.get_dataset('wikipedia.rembert', {'targets': 512}, converter, 'train', shuffle=True, num_epochs=None,
                      batch_size=32, trim_output_features=False)

This project's own trainer does not use them: its sequences and masks are functions of (seed, step, index), for any
number of readers and interruptions, which a dataset cannot provide.

Packing and masks are those of `rembert.data`, called from the dataset, so it runs in the process that created it, not
on a tf.data service, and its iterators cannot be saved.

B sequences · S positions · K masked positions per sequence
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import itertools
from collections.abc import Iterator, Mapping

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

    def batches() -> Iterator[dict[str, np.ndarray]]:
      documents = (example['targets'] for example in ds.as_numpy_iterator())
      rows = (row for row, _ in packing.pack(documents, task_feature_lengths['targets'], self._special))
      first_row = 0
      while some := list(itertools.islice(rows, _MASKED_AT_ONCE)):
        ids_BxS = np.stack(some)
        segments_BxS, positions_BxS = packing.segments_and_positions(ids_BxS, self._special)
        batch = {'input_ids': ids_BxS, 'token_type_ids': np.zeros_like(ids_BxS)}
        batch |= {'segment_ids': segments_BxS, 'position_ids': positions_BxS}
        if self._seed is not None:
          batch |= mask_rows(
            ids_BxS,
            seed=self._seed,
            stream=MASK_STREAM,
            step=0,
            first_row=first_row,
            special=self._special,
            vocab_size=self._vocab_size,
            config=self._masking,
          )
        yield batch
        first_row += len(some)

    signature = {name: tf.TensorSpec([None, lengths[name]], spec.dtype) for name, spec in self.MODEL_FEATURES.items()}
    return tf.data.Dataset.from_generator(batches, output_signature=signature).unbatch()

  def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> dict[str, int]:
    """Lengths of the features: S, or K."""
    length = task_feature_lengths['targets']
    masked = ('masked_positions', 'targets', 'weights')
    return {name: self._masking.slots(length) if name in masked else length for name in self.MODEL_FEATURES}
