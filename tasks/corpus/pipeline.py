"""A corpus made by Apache Beam, on any of its runners.

Only what every runner has is used: one output per step, no state, and one last step that everything flows into.
"""

import apache_beam as beam

from tasks.corpus.documents import (
  CorpusConfig,
  Document,
  clean,
  first_of,
  keep_paragraphs,
  numbers_of_shards,
  paragraph_places,
  shard_of,
)
from tasks.corpus.format import WrittenShard, finish_language, write_shard
from tasks.corpus.sources import Lost, Part, read_part


def build(pipeline: beam.Pipeline, parts: list[Part], folder: str, config: CorpusConfig) -> None:
  """Adds everything that makes the languages of `parts`."""
  numbers = numbers_of_shards(parts, config)
  found = (
    pipeline
    | 'parts' >> beam.Create(parts)
    | 'spread parts' >> beam.Reshuffle()
    | 'read' >> beam.FlatMap(read_part)
    | 'spread documents' >> beam.Reshuffle()
    | 'clean' >> beam.Map(clean, config)
  )
  documents, lost = _parted(found, 'cleaned')
  losses = [lost]
  if config.dedupe != 'none':
    found = (
      documents
      | 'by text' >> beam.Map(_by_text)
      | 'same text' >> beam.GroupByKey()
      | 'each document once' >> beam.FlatMap(lambda element: first_of(element[1]))
    )
    documents, lost = _parted(found, 'documents')
    losses.append(lost)
  if config.dedupe == 'paragraphs':
    kept = (
      documents
      | 'paragraphs' >> beam.FlatMap(_places)
      | 'first place of each' >> beam.CombinePerKey(min)
      | 'places by document' >> beam.Map(lambda element: ((element[0][0], element[1][0]), element[1][1]))
    )
    found = (
      [documents | 'by document' >> beam.Map(_by_text), kept]
      | 'documents and places' >> beam.Flatten()
      | 'document and its places' >> beam.GroupByKey()
      | 'each paragraph once' >> beam.FlatMap(_keep_paragraphs, config)
    )
    documents, lost = _parted(found, 'paragraphs')
    losses.append(lost)
  written = (
    documents
    | 'to shards' >> beam.Map(lambda document: ((document.language, *shard_of(document, numbers)), document))
    | 'by shard' >> beam.GroupByKey()
    | 'write' >> beam.Map(_write_shard, folder, numbers)
  )
  counted = (
    losses
    | 'all losses' >> beam.Flatten()
    | 'by reason' >> beam.Map(lambda lost: ((lost.language, lost.reason), lost.count))
    | 'count losses' >> beam.CombinePerKey(sum)
    | 'losses by language' >> beam.Map(lambda element: (element[0][0], Lost(element[0][0], element[0][1], element[1])))
  )
  languages = pipeline | 'languages' >> beam.Create([(language, None) for language in numbers])
  _ = (
    [languages, written, counted]
    | 'all of it' >> beam.Flatten()
    | 'by language' >> beam.GroupByKey()
    | 'finish' >> beam.Map(_finish_language, folder, numbers)
  )


def _parted(found: beam.PCollection, name: str) -> tuple[beam.PCollection, beam.PCollection]:
  """Documents, and losses. Tagged outputs would do the same, but not every runner has them."""
  return (
    found | f'{name}: documents' >> beam.Filter(lambda each: isinstance(each, Document)),
    found | f'{name}: lost' >> beam.Filter(lambda each: isinstance(each, Lost)),
  )


def _by_text(document):
  return (document.language, document.digest), document


def _places(document):
  for digest, place in paragraph_places(document):
    yield (document.language, digest), place


def _keep_paragraphs(element, config: CorpusConfig):
  _, found = element
  found = list(found)
  [document] = [each for each in found if isinstance(each, Document)]
  return keep_paragraphs(document, [each for each in found if isinstance(each, int)], config)


def _write_shard(element, folder: str, numbers: dict[str, dict[str, int]]) -> tuple[str, WrittenShard]:
  (language, split, index), documents = element
  return language, write_shard(folder, language, split, index, numbers[language][split], documents)


def _finish_language(element, folder: str, numbers: dict[str, dict[str, int]]) -> None:
  language, found = element
  found = list(found)
  lost = {each.reason: each.count for each in found if isinstance(each, Lost)}
  written = [each for each in found if isinstance(each, WrittenShard)]
  finish_language(folder, language, numbers[language], written, lost)
