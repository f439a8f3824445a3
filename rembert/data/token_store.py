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
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rembert.errors import UsageError, first_line
from rembert.files import inside, sha256_of
from rembert.tokenizer import SpecialIds
from rembert.validation import CountOrZero, broken_rule

FORMAT = 1
MANIFEST = 'manifest.json'
VOCABULARY = 'vocabulary/sentencepiece.model'
SPLITS = ('train', 'validation')
_READER_OPTIONS = 'readahead_buffer_size:0'  # rows are read in random order


@dataclasses.dataclass(frozen=True)
class Shard:
  """A file of sequences; its path is relative to the store."""

  file: str
  rows: int
  bytes: int
  sha256: str

  def __post_init__(self):
    _check_counts({'rows': self.rows, 'bytes': self.bytes})


@dataclasses.dataclass(frozen=True)
class StoredLanguage:
  """The contents of a store in one language.

  Attributes:
    shards: shards of each split; `documents` are their numbers of documents.
    tokens: number of tokens in each split, without [CLS], [SEP] and [PAD].
    sentences: number in the training documents; likewise `characters`.
    lost: counts of skipped items, by reason.
  """

  shards: Mapping[str, tuple[Shard, ...]]
  documents: Mapping[str, int]
  tokens: Mapping[str, int]
  sentences: int
  characters: int
  lost: Mapping[str, int]

  def __post_init__(self):
    _check_counts({'sentences': self.sentences, 'characters': self.characters})
    for name in ('documents', 'tokens', 'lost'):
      _check_counts(getattr(self, name))

  def rows(self, split: str) -> int:
    """Number of sequences of a split."""
    return sum(shard.rows for shard in self.shards[split])

  @classmethod
  def of_json(cls, content: dict) -> 'StoredLanguage':
    """The inverse of `dataclasses.asdict`."""
    shards = {split: tuple(Shard(**shard) for shard in content['shards'][split]) for split in SPLITS}
    return cls(**(content | {'shards': shards}))


def _check_counts(counts: Mapping[str, Any]) -> None:
  for name, count in counts.items():
    if rule := broken_rule(count, CountOrZero):
      raise ValueError(f'{name} must be {rule}, not {count!r}')


def row_dtype(vocab_size: int) -> np.dtype:
  """The smallest dtype for all ids."""
  return np.dtype('<u2' if vocab_size <= 1 << 16 else '<u4')


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
    self.folder = epath.Path(folder)
    content = self._read_manifest()
    self.manifest_hash = hashlib.sha256(content).hexdigest()
    try:
      manifest = json.loads(content)
      self._take(manifest)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
      raise UsageError(
        f'the manifest of the store is malformed: {type(error).__name__} {first_line(error)}',
        where=str(self.folder / MANIFEST),
        fix='fetch it again, or make the store again: python -m tasks.token_store --help',
      ) from error
    self._refuse_missing_shards()

  def _take(self, manifest: dict) -> None:
    if manifest.get('format') != FORMAT:
      raise UsageError(
        f'the store has format {manifest.get("format")!r}; this version reads {FORMAT}',
        where=str(self.folder / MANIFEST),
        fix='make the store again: python -m tasks.token_store --help',
      )
    self.sequence_length: int = manifest['sequence_length']
    self.vocab_size: int = manifest['vocabulary']['pieces']
    self.vocabulary_hash: str = manifest['vocabulary']['sha256']
    self.special = SpecialIds(**manifest['special'])
    self._dtype = np.dtype(manifest['dtype'])
    rates = manifest.get('rates')
    self.rates = None if rates is None else {language: float(rate) for language, rate in rates.items()}
    self.languages = {code: StoredLanguage.of_json(part) for code, part in manifest['languages'].items()}
    _check_counts(
      dataclasses.asdict(self.special) | {'pieces': self.vocab_size, 'sequence_length': self.sequence_length}
    )
    if not self.sequence_length or self._dtype.kind != 'u':
      raise ValueError(f'rows of {self.sequence_length!r} ids of type {self._dtype}')
    for shard in self.shards():
      self.file(shard)

  def file(self, shard: Shard) -> epath.Path:
    """The file of a shard; UsageError for one that is not below the store."""
    return inside(self.folder, shard.file, where=self.folder / MANIFEST)

  def _read_manifest(self) -> bytes:
    file = self.folder / MANIFEST
    if file.exists():
      return file.read_bytes()
    done = [path.parent.name for path in self.folder.glob('*/language.json')] if self.folder.is_dir() else []
    if done:
      raise UsageError(
        f'the store is incomplete: {len(done)} languages are complete, the manifest is missing',
        where=str(self.folder),
        fix='run the command that makes it again: python -m tasks.token_store resumes',
      )
    raise UsageError('no token store found', where=str(file), fix='make one: python -m tasks.token_store --help')

  def _refuse_missing_shards(self) -> None:
    files = [(shard, self.file(shard)) for shard in self.shards()]
    sizes = [(shard, file.stat().length if file.exists() else None) for shard, file in files]
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

  def shards(self) -> list[Shard]:
    """All shards."""
    return [shard for part in self.languages.values() for split in SPLITS for shard in part.shards[split]]

  def rows(self, language: str, split: str) -> int:
    """Number of sequences of a language's split."""
    return self.languages[language].rows(split)

  @functools.cache  # noqa: B019 - a store lives as long as the run
  def _readers(self, language: str, split: str) -> tuple[list, np.ndarray]:
    """The open shards of a split, and the index of the first row of each."""
    from array_record.python import array_record_module

    shards = self.languages[language].shards[split]
    open_shard = lambda shard: array_record_module.ArrayRecordReader(str(self.file(shard)), _READER_OPTIONS)
    first_rows = np.cumsum([0, *(shard.rows for shard in shards)])
    return [open_shard(shard) for shard in shards], first_rows

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
      reason = first_line(error)
      raise UsageError(
        f'a shard of {language!r} cannot be read: {reason}',
        where=str(self.folder / language),
        fix=f'python -m tasks.token_store verify {self.folder} names the file',
      ) from error
    return ids.astype(np.int32)


def altered_shards(store: TokenStore) -> list[str]:
  """Files that differ from their checksums in the manifest; reads the whole store."""
  return [shard.file for shard in store.shards() if sha256_of(store.file(shard)) != shard.sha256]
