"""Datasets of TensorFlow Datasets that are prepared already, as sources of SeqIO tasks."""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import os
from collections.abc import Mapping

import seqio
import tensorflow_datasets as tfds

from rembert.errors import UsageError, first_line


class PreparedTfdsSource(seqio.TfdsDataSource):
  """`seqio.TfdsDataSource` of a text dataset that never downloads or prepares one; examples have `text`.

  Without `shuffle`, files are read one after the other, by no threads of its own: a hundred languages are read at a
  time. Constructing one touches no file.

  Args:
    tfds_name: with config and version.
    splits: to splits of the dataset.
  """

  def __init__(self, tfds_name: str, splits: Mapping[str, str]):
    super().__init__(tfds_name, splits=dict(splits), read_only=True)

  def get_dataset(self, split='train', shuffle=True, seed=None, shard_info=None, **_) -> tf.data.Dataset:
    """See `seqio.DataSource`.

    Raises:
      UsageError: the dataset is not prepared, or lacks the split.
    """
    self._refuse_unprepared(split)
    if shuffle or shard_info:
      return super().get_dataset(split, shuffle, seed, shard_info)
    config = tfds.ReadConfig(
      try_autocache=False,
      skip_prefetch=True,
      interleave_cycle_length=1,
      num_parallel_calls_for_decode=1,
      num_parallel_calls_for_interleave_files=1,
    )
    decoders = tfds.decode.PartialDecoding({'text': tfds.features.Text()})
    loader = self.tfds_dataset
    return loader.builder.as_dataset(split=loader._map_split(split), read_config=config, decoders=decoders)

  def num_input_examples(self, split: str) -> int:
    """See `seqio.DataSource`; raises as `get_dataset` does."""
    self._refuse_unprepared(split)
    return super().num_input_examples(split)

  def _refuse_unprepared(self, split: str) -> None:
    loader, problem = self.tfds_dataset, ''
    tfds_split = loader._map_split(split)
    try:
      splits = loader.info.splits
      if not splits:
        problem = 'is not prepared'
      elif tfds_split not in splits or not splits[tfds_split].num_examples:
        problem = f'has no examples in its split {tfds_split}'
    except Exception as error:  # TFDS raises whatever its file systems and parsers raise
      problem = f'cannot be read: {first_line(error)}'
    if problem:
      name = loader.name.split(':')[0]
      folder = loader.data_dir or os.environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets'
      raise UsageError(
        f'{name} {problem}',
        where=f'TensorFlow Datasets, environment variable TFDS_DATA_DIR: {folder}',
        fix=[
          f'prepare it: tfds build {name} --data_dir=DIR; then export TFDS_DATA_DIR=DIR',
          'or make a corpus of dumps, python -m tasks.corpus --help, and call tasks.add_wikipedia(corpus=…)',
        ],
      )
