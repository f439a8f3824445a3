"""A shard of a token store: documents as ids, in a fixed order → packed rows → ArrayRecord.

One worker makes a shard from documents in a fixed order, so the bytes do not depend on the workers.
"""

import abc
import dataclasses
import functools
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from etils import epath

from rembert.data.masking import SpecialIds
from rembert.data.packing import PackingConfig, pack
from rembert.data.token_store import SPLITS, Shard, StoredLanguage, row_dtype, sha256_of
from rembert.errors import UsageError
from rembert.files import write_whole
from tasks.corpus.format import read_texts
from tasks.vocabulary import load_vocabulary

# group_size 1: rows are read one by one. More would make every read decompress its neighbours.
_WRITER_OPTIONS = 'group_size:1,max_parallelism:1'


@dataclasses.dataclass(frozen=True)
class StoreConfig:
  """Everything but the documents that decides the bytes of a store.

  Attributes:
    folder: where it is written.
    vocab_size: tokens in the vocabulary.
    sequence_length: S.
    packing: how documents fill rows.
    special: ids of special tokens.
  """

  folder: str
  vocab_size: int
  sequence_length: int
  packing: PackingConfig = PackingConfig()
  special: SpecialIds = SpecialIds()

  def __post_init__(self):
    if not 16 <= self.sequence_length <= 1 << 16:
      raise UsageError(
        f'sequence_length must be between 16 and {1 << 16}',
        where=f'--sequence_length={self.sequence_length}',
        fix='correct the flag',
      )


@dataclasses.dataclass(frozen=True)
class DocumentShard(abc.ABC):
  """Documents that become one shard of a store. Workers receive it pickled.

  Attributes:
    name: of the language or task, the folder in the store.
    split: `train` or `validation`.
    index: of the shard in its split.
    total: shards of the split.
    size: bytes, about, to share out the work by.
  """

  name: str
  split: str
  index: int
  total: int
  size: int

  @abc.abstractmethod
  def documents(self) -> Iterator[np.ndarray]:
    """Ids of each document without special tokens, int [n], in a fixed order."""


@dataclasses.dataclass(frozen=True)
class Counts:
  """What is counted of the documents of a name before they are ids; see `StoredLanguage`."""

  sentences: int
  characters: int
  lost: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class CorpusShard(DocumentShard):
  """A shard of a corpus, tokenized by the SentencePiece library.

  The SentencePiece of TensorFlow Text takes three times as long. Its ids differ where two segmentations are exactly as
  likely, so that pre-training would see other ids than fine-tuning and predictions, which call the library.

  Attributes:
    path: of the shard.
    vocabulary: SentencePiece model, a file that every worker can read.
  """

  path: str
  vocabulary: str

  def documents(self) -> Iterator[np.ndarray]:
    """See `DocumentShard`."""
    processor = _vocabulary(self.vocabulary)
    for text in read_texts(epath.Path(self.path)):
      yield np.array(processor.encode(text), np.int32)


_vocabulary = functools.lru_cache(maxsize=1)(load_vocabulary)


@dataclasses.dataclass(frozen=True)
class WrittenShard:
  """A finished shard and what is in it."""

  split: str
  shard: Shard
  documents: int
  tokens: int


def write_shard(source: DocumentShard, config: StoreConfig) -> tuple[str, WrittenShard | None]:
  """Packs and writes the documents of a shard; the name, and what was written, None without documents."""
  file = f'{source.name}/{source.split}-{source.index:05}-of-{source.total:05}.array_record'
  documents = tokens = 0

  def counted() -> Iterator[np.ndarray]:
    nonlocal documents, tokens
    for ids in source.documents():
      documents, tokens = documents + 1, tokens + len(ids)
      yield ids

  packed = pack(counted(), config.sequence_length, config.special, config=config.packing)
  path = epath.Path(config.folder) / file
  rows = write_rows((row.ids for row, _ in packed), path, row_dtype(config.vocab_size))
  if not rows:
    path.unlink()
    return source.name, None
  shard = Shard(file=file, rows=rows, bytes=path.stat().length, sha256=sha256_of(path))
  return source.name, WrittenShard(source.split, shard, documents, tokens)


def write_rows(rows: Iterable[np.ndarray], path: epath.Path, dtype: np.dtype) -> int:
  """Writes rows as an ArrayRecord file, which appears under its name when it is complete; returns their number."""
  from array_record.python import array_record_module

  path.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory() as folder:
    local = os.path.join(folder, 'shard')  # ArrayRecord writes to local disks only
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


def finish(name: str, found: Iterable[WrittenShard | None], counts: Counts, folder: str) -> None:
  """Writes the part of the manifest of a language or task, when all its shards are there."""
  written = sorted((each for each in found if each is not None), key=lambda part: part.shard.file)
  of_split = {split: [part for part in written if part.split == split] for split in SPLITS}
  part = StoredLanguage(
    shards={split: tuple(each.shard for each in parts) for split, parts in of_split.items()},
    documents={split: sum(each.documents for each in parts) for split, parts in of_split.items()},
    tokens={split: sum(each.tokens for each in parts) for split, parts in of_split.items()},
    sentences=counts.sentences,
    characters=counts.characters,
    lost=dict(counts.lost),
  )
  write_whole(epath.Path(folder) / name / 'language.json', json.dumps(dataclasses.asdict(part), indent=1))
