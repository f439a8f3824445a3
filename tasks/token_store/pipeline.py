"""The Beam pipeline: parts → documents → clean, deduplicated text → ids → packed rows → shards.

Nothing depends on who does what when. A document is known by the hash of its text; the hash decides its split and its
shard, and orders the shard. So the same input gives the same bytes, with one worker or a thousand.
"""

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator

import apache_beam as beam
import numpy as np
from etils import epath

from rembert.data.masking import SpecialIds
from rembert.data.packing import PackingConfig, pack
from rembert.data.token_store import SPLITS, Shard, StoredLanguage, row_dtype, sha256_of
from rembert.storage import write_whole
from tasks.token_store.sources import Part, RawDocument, clean, read_part
from tasks.wikipedia.documents import is_held_out
from tasks.wikipedia.sentences import count_sentences

# group_size 1: rows are read one by one. More would make every read decompress its neighbours.
_WRITER_OPTIONS = 'group_size:1,max_parallelism:1'


@dataclasses.dataclass(frozen=True)
class StoreConfig:
  """All that a store's bytes depend on, beside the text.

  Attributes:
    folder: where it is written.
    vocabulary: the SentencePiece model, a file that every worker can read.
    vocab_size: pieces in it.
    sequence_length: S.
    held_out: share of the documents that are `validation`.
    min_characters: shorter documents are left out.
    dedupe: `paragraphs` (each once in a language, as are documents), `documents` or `none`.
    shard_bytes: bytes of input to a shard.
    packing: how documents fill rows.
    special: ids of special pieces.
  """

  folder: str
  vocabulary: str
  vocab_size: int
  sequence_length: int
  held_out: float = 0.005
  min_characters: int = 100
  dedupe: str = 'paragraphs'
  shard_bytes: int = 64 << 20
  packing: PackingConfig = PackingConfig()
  special: SpecialIds = SpecialIds()


@dataclasses.dataclass(frozen=True)
class TextDocument:
  """A clean document on its way.

  Attributes:
    digest: of the whole clean text, before paragraphs that stand elsewhere were taken out.
    is_held_out: its split.
    paragraphs: in order.
  """

  digest: bytes
  is_held_out: bool
  paragraphs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class WrittenShard:
  """A finished shard and what is in it."""

  split: str
  shard: Shard
  documents: int
  tokens: int
  sentences: int
  characters: int


def build(pipeline: beam.Pipeline, parts: list[Part], config: StoreConfig) -> None:
  """Adds everything that makes the languages of `parts`."""
  sizes: dict[str, int] = {}
  for part in parts:
    sizes[part.language] = sizes.get(part.language, 0) + part.size
  shards = {language: max(1, -(-size // config.shard_bytes)) for language, size in sizes.items()}

  read = (
    pipeline
    | 'parts' >> beam.Create(parts)
    | 'spread parts' >> beam.Reshuffle()
    | 'read' >> beam.ParDo(_Read()).with_outputs('lost', main='documents')
  )
  cleaned = (
    read.documents
    | 'spread documents' >> beam.Reshuffle()
    | 'clean' >> beam.ParDo(_Clean(config)).with_outputs('lost', main='documents')
  )
  documents, lost = cleaned.documents, [read.lost, cleaned.lost]
  if config.dedupe != 'none':
    once = (
      documents
      | 'documents by text' >> beam.GroupByKey()
      | 'each document once' >> beam.ParDo(_FirstDocument()).with_outputs('lost', main='documents')
    )
    documents = once.documents
    lost.append(once.lost)
  if config.dedupe == 'paragraphs':
    kept = (
      documents
      | 'paragraphs' >> beam.FlatMap(_paragraph_places)
      | 'first place of each' >> beam.CombinePerKey(min)
      | 'places by document' >> beam.Map(_place_by_document)
    )
    whole = (
      {'document': documents, 'kept': kept}
      | 'documents and their paragraphs' >> beam.CoGroupByKey()
      | 'without repeated paragraphs' >> beam.ParDo(_KeepParagraphs(config)).with_outputs('lost', main='documents')
    )
    documents = whole.documents
    lost.append(whole.lost)
  written = (
    documents
    | 'tokenize' >> beam.ParDo(_Tokenize(config, shards))
    | 'by shard' >> beam.GroupByKey()
    | 'write' >> beam.ParDo(_WriteShard(config, shards))
  )
  losses = lost | beam.Flatten() | 'count losses' >> beam.CombinePerKey(sum) | beam.MapTuple(_loss_by_language)
  languages = pipeline | 'languages' >> beam.Create([(language, None) for language in sizes])
  _ = (
    {'language': languages, 'written': written, 'lost': losses}
    | 'by language' >> beam.CoGroupByKey()
    | 'finish' >> beam.Map(_finish_language, config.folder)
  )


def digest_of(text: str) -> bytes:
  """128 bits that stand for a text."""
  return hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=16).digest()


# --- steps ------------------------------------------------------------------------------------------------------------


class _Read(beam.DoFn):
  """Part → raw documents; what was lost, by language and reason."""

  def process(self, part: Part) -> Iterator:
    lost: dict[str, int] = {}
    yield from read_part(part, lost)
    for reason, count in lost.items():
      if count:
        yield beam.pvalue.TaggedOutput('lost', ((part.language, reason), count))


class _Clean(beam.DoFn):
  """Raw document → ((language, digest), document)."""

  def __init__(self, config: StoreConfig):
    self._config = config

  def process(self, document: RawDocument) -> Iterator:
    paragraphs = clean(document)
    text = '\n'.join(paragraphs)
    if len(text) < self._config.min_characters:
      yield beam.pvalue.TaggedOutput('lost', ((document.language, 'too short'), 1))
      return
    held_out = is_held_out(text, self._config.held_out)
    digest = digest_of(text)
    yield (document.language, digest), TextDocument(digest, held_out, tuple(paragraphs))


class _FirstDocument(beam.DoFn):
  """Of the documents with one text, one."""

  def process(self, element) -> Iterator:
    key, documents = element
    first, count = None, 0
    for document in documents:
      first, count = first or document, count + 1
    yield key, first
    if count > 1:
      yield beam.pvalue.TaggedOutput('lost', ((key[0], 'repeated documents'), count - 1))


def _paragraph_places(element) -> Iterator:
  """((language, paragraph), where it stands)."""
  (language, digest), document = element
  for index, paragraph in enumerate(document.paragraphs):
    yield (language, digest_of(paragraph)), (digest, index)


def _place_by_document(element):
  """((language, document), number of a paragraph that stands there first)."""
  (language, _), (digest, index) = element
  return (language, digest), index


class _KeepParagraphs(beam.DoFn):
  """A document with those of its paragraphs that stand nowhere before."""

  def __init__(self, config: StoreConfig):
    self._config = config

  def process(self, element) -> Iterator:
    (language, digest), found = element
    [document] = found['document']
    kept = tuple(document.paragraphs[index] for index in sorted(found['kept']))
    repeated = len(document.paragraphs) - len(kept)
    if repeated:
      yield beam.pvalue.TaggedOutput('lost', ((language, 'repeated paragraphs'), repeated))
    if len('\n'.join(kept)) < self._config.min_characters:
      yield beam.pvalue.TaggedOutput('lost', ((language, 'too short'), 1))
      return
    yield (language, digest), dataclasses.replace(document, paragraphs=kept)


@dataclasses.dataclass(frozen=True)
class _Tokens:
  """A document as ids, with what there is to count of it."""

  digest: bytes
  ids: bytes
  sentences: int
  characters: int


class _Tokenize(beam.DoFn):
  """((language, digest), document) → ((language, split, shard), ids), by the language's SeqIO task."""

  def __init__(self, config: StoreConfig, shards: dict[str, int]):
    self._config, self._shards = config, shards

  def setup(self):
    self._encoders = {}

  def process(self, element) -> Iterator:
    (language, _), document = element
    text = '\n'.join(document.paragraphs)
    ids = self._encoder(language)(text)
    split = SPLITS[document.is_held_out]
    shards = number_of_shards(self._shards[language], split, self._config)
    shard = int.from_bytes(document.digest[:8], 'big') % shards
    sentences = count_sentences(list(document.paragraphs), language)
    yield (language, split, shard), _Tokens(document.digest, ids.astype('<u4').tobytes(), sentences, len(text))

  def _encoder(self, language: str):
    if language not in self._encoders:
      from tasks import mlm

      # Every language has the same preprocessors and features: the vocabulary is one.
      self._encoders[language] = next(iter(self._encoders.values()), None) or mlm.encoder(
        mlm.task_of_texts(language, self._config.vocabulary)
      )
    return self._encoders[language]


def number_of_shards(of_language: int, split: str, config: StoreConfig) -> int:
  """Files of a split: held-out documents are few."""
  return of_language if split == 'train' else max(1, round(of_language * config.held_out))


class _WriteShard(beam.DoFn):
  """((language, split, shard), documents) → (language, the written shard)."""

  def __init__(self, config: StoreConfig, shards: dict[str, int]):
    self._config, self._shards = config, shards

  def process(self, element) -> Iterator:
    (language, split, index), documents = element
    documents = sorted(documents, key=lambda tokens: tokens.digest)
    total = number_of_shards(self._shards[language], split, self._config)
    file = f'{language}/{split}-{index:05}-of-{total:05}.array_record'
    ids = (np.frombuffer(document.ids, '<u4') for document in documents)
    packed = pack(ids, self._config.sequence_length, self._config.special, config=self._config.packing)
    rows = write_rows(
      (row.ids for row, _ in packed),
      epath.Path(self._config.folder) / file,
      row_dtype(self._config.vocab_size),
    )
    path = epath.Path(self._config.folder) / file
    yield (
      language,
      WrittenShard(
        split=split,
        shard=Shard(file=file, rows=rows, bytes=path.stat().length, sha256=sha256_of(path)),
        documents=len(documents),
        tokens=sum(len(document.ids) // 4 for document in documents),
        sentences=sum(document.sentences for document in documents),
        characters=sum(document.characters for document in documents),
      ),
    )


def write_rows(rows: Iterator[np.ndarray], path: epath.Path, dtype: np.dtype) -> int:
  """Writes rows as an ArrayRecord file, which appears under its name when it is whole; returns their number."""
  from array_record.python import array_record_module

  path.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory() as folder:
    local = os.path.join(folder, 'shard')  # ArrayRecord writes to local disks alone
    writer = array_record_module.ArrayRecordWriter(local, _WRITER_OPTIONS)
    count = 0
    for row in rows:
      writer.write(row.astype(dtype).tobytes())
      count += 1
    writer.close()
    partial = path.parent / f'{path.name}.partial'
    epath.Path(local).copy(partial, overwrite=True)
  partial.replace(path)
  return count


def _loss_by_language(key, count):
  language, reason = key
  return language, (reason, count)


def _finish_language(element: tuple[str, dict], folder: str) -> None:
  """Writes the language's part of the manifest, when all its shards are there."""
  language, found = element
  written = sorted(found['written'], key=lambda part: part.shard.file)
  of_split = lambda split: [part for part in written if part.split == split]
  training = of_split('train')
  language_part = StoredLanguage(
    shards={split: tuple(part.shard for part in of_split(split)) for split in SPLITS},
    documents={split: sum(part.documents for part in of_split(split)) for split in SPLITS},
    tokens={split: sum(part.tokens for part in of_split(split)) for split in SPLITS},
    sentences=sum(part.sentences for part in training),
    characters=sum(part.characters for part in training),
    lost=dict(sorted(found['lost'])),
  )
  content = json.dumps(dataclasses.asdict(language_part), indent=1)
  write_whole(epath.Path(folder) / language / 'language.json', content)
