"""The Beam pipeline of a token store, on any of Beam's runners: every shard is written by one worker."""

from collections.abc import Mapping, Sequence

import apache_beam as beam

from tasks.token_store.shards import Counts, DocumentShard, StoreConfig, finish, write_shard


def build(
  pipeline: beam.Pipeline, shards: Sequence[DocumentShard], counts: Mapping[str, Counts], config: StoreConfig
) -> None:
  """Adds everything that makes the languages or tasks of `counts`; all their shards have to be in `shards`."""
  names = pipeline | 'names' >> beam.Create([(name, None) for name in counts])
  written = (
    pipeline
    | 'shards' >> beam.Create(shards)
    | 'spread shards' >> beam.Reshuffle()
    | 'write' >> beam.Map(write_shard, config)
  )
  _ = (
    [names, written]
    | 'all of it' >> beam.Flatten()
    | 'by name' >> beam.GroupByKey()
    | 'finish' >> beam.Map(_finish, dict(counts), config.folder)
  )


def _finish(element, counts: Mapping[str, Counts], folder: str) -> None:
  name, found = element
  finish(name, found, counts[name], folder)
