"""A token store: packed sequences of ids in ArrayRecord shards, read by index, with a manifest.

    STORE/manifest.json                                written last: a store without it is unfinished
    STORE/vocabulary/sentencepiece.model
    STORE/de/train-00000-of-00004.array_record         sequences of `sequence_length` ids, one record each
    STORE/de/validation-00000-of-00001.array_record
    STORE/de/language.json                             the language's part of the manifest, written at its end

A record is the ids of a sequence, little-endian, of the manifest's `dtype`. Segments and positions follow from them:
every document begins with [CLS], and text has no [PAD].
"""

import dataclasses
import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rembert.errors import UsageError, first_line
from rembert.files import inside, is_remote
from rembert.tokenizer import SpecialIds
from rembert.validation import CountOrZero, broken_rule

FORMAT = 1
MANIFEST = 'manifest.json'
VOCABULARY = 'vocabulary/sentencepiece.model'
SPLITS = ('train', 'validation')


@dataclasses.dataclass(frozen=True)
class Shard:
  """A file of sequences; its path is relative to the store."""

  file: str
  rows: int
  bytes: int
  sha256: str


@dataclasses.dataclass(frozen=True)
class StoredLanguage:
  """The contents of a store in one language, by split; tokens are counted without [CLS], [SEP] and [PAD].

  Sentences and characters are those of the training documents, `lost` are counts of skipped items by reason.
  """

  shards: Mapping[str, tuple[Shard, ...]]
  documents: Mapping[str, int]
  tokens: Mapping[str, int]
  sentences: int
  characters: int
  lost: Mapping[str, int]

  def rows(self, split: str) -> int:
    """Number of sequences of a split."""
    return sum(shard.rows for shard in self.shards[split])

  @classmethod
  def of_json(cls, content: dict) -> 'StoredLanguage':
    """The inverse of `dataclasses.asdict`."""
    shards = {split: tuple(Shard(**shard) for shard in content['shards'][split]) for split in SPLITS}
    return cls(**(content | {'shards': shards}))


def row_dtype(vocab_size: int) -> np.dtype:
  """The smallest dtype for all ids."""
  return np.dtype('<u2' if vocab_size <= 1 << 16 else '<u4')


def write_records(path: epath.Path, records: Iterable[bytes]) -> int:
  """Writes an ArrayRecord file atomically; returns the number of records."""
  from array_record.python import array_record_module

  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.parent / f'{path.name}.partial'
  count = 0
  with tempfile.TemporaryDirectory() as folder:
    # ArrayRecord writes to local disks only.
    local = os.path.join(folder, 'records') if is_remote(path) else os.fspath(partial)
    # Records are read one by one: in larger groups, every read would decompress neighbours.
    writer = array_record_module.ArrayRecordWriter(local, 'group_size:1,max_parallelism:1')
    for record in records:
      writer.write(record)
      count += 1
    writer.close()
    if is_remote(path):
      epath.Path(local).copy(partial, overwrite=True)
  partial.replace(path)
  return count


def open_records(path: epath.Path) -> Any:
  """A reader of an ArrayRecord file in random order."""
  from array_record.python import array_record_module

  return array_record_module.ArrayRecordReader(str(path), 'readahead_buffer_size:0')


class TokenStore:
  """An open token store.

  Attributes:
    sequence_length: S of every sequence.
    vocabulary_hash: SHA-256 of the SentencePiece model, which has `vocab_size` tokens.
    languages: contents by language.
    rates: sampling rates of its languages, if it was made of a SeqIO mixture; else None.
    manifest_hash: SHA-256 of the manifest, which identifies the store.
  """

  def __init__(self, folder: epath.PathLike):
    """Opens a store.

    Raises:
      UsageError: there is none; its manifest is malformed, of another format, or names files outside of the store; or
        shards are missing or of another size.
    """
    self.folder = epath.Path(folder)
    file = self.folder / MANIFEST
    if not file.exists():
      raise self._unfinished()
    content = file.read_bytes()
    self.manifest_hash = hashlib.sha256(content).hexdigest()
    try:
      self._read(json.loads(content))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
      raise UsageError(
        f'the manifest of the store is malformed: {type(error).__name__} {first_line(error)}',
        where=str(file),
        fix='fetch it again, or make the store again: python -m tasks.token_store --help',
      ) from error
    sizes = [(shard, path.stat().length if (path := self.file(shard)).exists() else None) for shard in self.shards()]
    wrong = [
      f'{shard.file} is missing' if size is None else f'{shard.file} has {size} bytes, not {shard.bytes}'
      for shard, size in sizes
      if size != shard.bytes
    ]
    if wrong:
      raise UsageError(
        f'{len(wrong)} shards of the store are missing or altered',
        where=f'{self.folder}: ' + '; '.join(wrong[:5]) + (' …' if len(wrong) > 5 else ''),
        fix='copy them again; or delete the manifest and these languages, and run python -m tasks.token_store again',
      )

  def _unfinished(self) -> UsageError:
    done = [path.parent.name for path in self.folder.glob('*/language.json')] if self.folder.is_dir() else []
    if done:
      return UsageError(
        f'the store is incomplete: {len(done)} languages are complete, the manifest is missing',
        where=str(self.folder),
        fix='run the command that makes it again: python -m tasks.token_store resumes',
      )
    where = str(self.folder / MANIFEST)
    return UsageError('no token store found', where=where, fix='make one: python -m tasks.token_store --help')

  def _read(self, manifest: dict) -> None:
    if manifest.get('format') != FORMAT:
      raise ValueError(f'format {manifest.get("format")!r}; this version reads {FORMAT}')
    self.sequence_length: int = manifest['sequence_length']
    self.vocab_size: int = manifest['vocabulary']['pieces']
    self.vocabulary_hash: str = manifest['vocabulary']['sha256']
    self.special = SpecialIds(**manifest['special'])
    self._dtype = np.dtype(manifest['dtype'])
    rates = manifest.get('rates')
    self.rates = None if rates is None else {language: float(rate) for language, rate in rates.items()}
    self.languages = {code: StoredLanguage.of_json(part) for code, part in manifest['languages'].items()}
    counts = [self.sequence_length, self.vocab_size, *dataclasses.astuple(self.special)]
    counts += [count for shard in self.shards() for count in (shard.rows, shard.bytes)]
    for part in self.languages.values():
      of_splits = (part.documents, part.tokens, part.lost)
      counts += [part.sentences, part.characters, *(count for each in of_splits for count in each.values())]
    for count in counts:
      if rule := broken_rule(count, CountOrZero):
        raise ValueError(f'a count must be {rule}, not {count!r}')
    if not self.sequence_length or self._dtype.kind != 'u':
      raise ValueError(f'rows of {self.sequence_length!r} ids of type {self._dtype}')

  def file(self, shard: Shard) -> epath.Path:
    """The file of a shard; UsageError for one that is not below the store."""
    return inside(self.folder, shard.file, where=self.folder / MANIFEST)

  def shards(self) -> list[Shard]:
    """All shards."""
    return [shard for part in self.languages.values() for split in SPLITS for shard in part.shards[split]]

  def rows(self, language: str, split: str) -> int:
    """Number of sequences of a language's split."""
    return self.languages[language].rows(split)

  @functools.cache  # noqa: B019 - a store lives as long as the run
  def _readers(self, language: str, split: str) -> tuple[list, np.ndarray]:
    """The open shards of a split, and the index of the first row of each."""
    shards = self.languages[language].shards[split]
    first_rows = np.cumsum([0, *(shard.rows for shard in shards)])
    return [open_records(self.file(shard)) for shard in shards], first_rows

  def read(self, language: str, split: str, indices: Sequence[int] | np.ndarray) -> np.ndarray:
    """Sequences by index in a split, ids int32 [len(indices), S]; UsageError if a shard is corrupt."""
    indices = np.asarray(indices, np.int64)
    try:
      readers, first_rows = self._readers(language, split)
      shards = np.searchsorted(first_rows, indices, side='right') - 1
      numbers = zip(shards.tolist(), (indices - first_rows[shards]).tolist(), strict=True)
      # One call each: several records at a time go through a thread pool, whose overhead is up to ten times the
      # reading. `data.read_threads` hides slow disks. A range of one, since for a list of one ArrayRecord reads the
      # index of the whole shard, of up to 30,000 rows.
      records = [readers[shard].read(record, record + 1)[0] for shard, record in numbers]
      ids = np.frombuffer(b''.join(records), self._dtype).reshape(len(indices), self.sequence_length)
    except Exception as error:  # ArrayRecord has its own exception types
      raise UsageError(
        f'a shard of {language!r} cannot be read: {first_line(error)}',
        where=str(self.folder / language),
        fix=f'python -m tasks.token_store verify {self.folder} names the file',
      ) from error
    return ids.astype(np.int32)
