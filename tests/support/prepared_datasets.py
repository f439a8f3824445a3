"""Datasets of TensorFlow Datasets, prepared on disk as `tfds build` leaves them; nothing is downloaded."""

import pathlib
from collections.abc import Callable, Mapping, Sequence


def prepare_splits(
  dataset: str,
  configs: Mapping[str, Mapping[str, Sequence[Mapping]]],
  features: Callable[[], Mapping],
  folder: pathlib.Path,
) -> None:
  """Prepares `dataset/CONFIG`, version 1.0.0, with the examples of every split of every configuration.

  Args:
    dataset: its name.
    configs: examples by configuration and split; the configuration '' is that of a dataset without any.
    features: returns TFDS's features of an example.
    folder: where TFDS keeps its datasets.
  """
  from tasks.tensorflow_import import tensorflow  # noqa: F401

  # isort: split
  import tensorflow_datasets as tfds

  class Prepared(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    name = dataset
    VERSION = tfds.core.Version('1.0.0')
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=config) for config in configs if config]  # noqa: RUF012

    url_infos = None  # nothing is downloaded

    def _info(self):
      return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features()))

    def _split_generators(self, download_manager):
      of_config = configs[self.builder_config.name if self.builder_config else '']
      return {split: enumerate(examples) for split, examples in of_config.items()}

    def _generate_examples(self):
      raise AssertionError('every split has its own')

  tfds.disable_progress_bar()
  for config in configs:
    builder = Prepared(data_dir=folder, **({'config': config} if config else {}))
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))


def prepare_dataset(
  dataset: str, documents: Mapping[str, Sequence[Mapping[str, str]]], folder: pathlib.Path, *, split: str = 'train'
) -> pathlib.Path:
  """Prepares `dataset/CONFIG` with text features, for every configuration of `documents`; returns `folder`."""

  def features():
    import tensorflow_datasets as tfds

    return {field: tfds.features.Text() for field in next(iter(documents.values()))[0]}

  prepare_splits(dataset, {config: {split: examples} for config, examples in documents.items()}, features, folder)
  return folder
