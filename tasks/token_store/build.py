"""Builds a token store with Apache Beam: tokenizes documents, packs them, and writes ArrayRecord shards.

One worker makes a shard from documents in a fixed order, so the bytes do not depend on the workers.
"""

import dataclasses
import functools
import hashlib
import importlib.metadata
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from etils import epath

from rembert.command_line import import_modules
from rembert.data.packing import PackingConfig, pack
from rembert.data.stream_source import SourcePlace
from rembert.data.token_store import (
  FORMAT,
  MANIFEST,
  SPLITS,
  VOCABULARY,
  Shard,
  StoredLanguage,
  TokenStore,
  row_dtype,
  write_records,
)
from rembert.files import sha256_of, write_errors, write_whole
from rembert.tokenizer import SpecialIds, load_vocabulary
from rembert.tracking.console import Console
from tasks.beam import BeamRunner, BeamSteps, check_recipe, run_in_groups
from tasks.corpus.format import Corpus, LanguageStatistics, read_texts

if TYPE_CHECKING:
  import seqio


@dataclasses.dataclass(frozen=True)
class StoreConfig:
  """The directory of a store, and everything but the documents that determines its bytes."""

  folder: str
  vocab_size: int
  sequence_length: int
  packing: PackingConfig
  special: SpecialIds


@dataclasses.dataclass(frozen=True)
class DocumentShard:
  """Documents that become shard number `index` of the `total` of a split. Workers receive it pickled."""

  name: str  # name of the language or task, and of its directory in the store
  split: str
  index: int
  total: int
  size: int  # approximate size in bytes, to balance the work
  # Returns the ids of each document without special tokens, int [n], in a fixed order.
  documents: Callable[[], Iterator[np.ndarray]]


def corpus_shards(corpus: Corpus, vocabulary: str) -> dict[str, list[DocumentShard]]:
  """A shard for each shard of a corpus, by language; all workers must be able to read the file `vocabulary`."""
  shards: dict[str, list[DocumentShard]] = {language: [] for language in corpus.languages}
  for language, split in itertools.product(corpus.languages, SPLITS):
    files = corpus.shards(language, split)
    for index, file in enumerate(files):
      documents = functools.partial(_corpus_documents, str(file), vocabulary)
      shards[language].append(DocumentShard(language, split, index, len(files), file.stat().length, documents))
  return shards


def _corpus_documents(path: str, vocabulary: str) -> Iterator[np.ndarray]:
  """Tokenizes the texts of a shard with the SentencePiece library.

  TensorFlow Text's SentencePiece takes three times as long. Its ids differ if two segmentations are equally likely, so
  that pre-training would see other ids than fine-tuning and predictions, which use the library.
  """
  processor = _vocabulary(vocabulary)
  for text in read_texts(epath.Path(path)):
    yield np.array(processor.encode(text), np.int32)


_vocabulary = functools.lru_cache(maxsize=1)(load_vocabulary)


def task_shards(task: 'seqio.Task', modules: Sequence[str], config: StoreConfig) -> list[DocumentShard]:
  """A shard for each file of the source of a SeqIO task, which `modules` register and which tokenizes the text."""
  shards = []
  for split in SPLITS:
    files = [epath.Path(path) for path in task.source.list_shards(split)] if split in task.splits else []
    for index, path in enumerate(files):
      size = path.stat().length if path.exists() else 0
      documents = functools.partial(_task_documents, task.name, split, (index, len(files)), tuple(modules), config)
      shards.append(DocumentShard(task.name, split, index, len(files), size, documents))
  return shards


def _task_documents(
  name: str, split: str, shard: tuple[int, int], modules: Sequence[str], config: StoreConfig
) -> Iterator[np.ndarray]:
  """The documents of one shard of a task's source."""
  register(modules)
  from tasks import registration
  from tasks.pretraining import TaskDocuments

  documents = TaskDocuments(
    {name: registration.find(name)},
    special=config.special,
    vocab_size=config.vocab_size,
    sequence_length=config.sequence_length,
    seed=0,
    shard=shard,
  )
  return (ids for ids, _ in documents(name, split, SourcePlace()))


def register(modules: Sequence[str]) -> None:
  """Registers the tasks of this project and of `modules`."""
  import_modules(modules)
  import tasks.mixtures  # noqa: F401


class WrittenShard(NamedTuple):
  """A finished shard and its counts."""

  split: str
  shard: Shard
  documents: int
  tokens: int


def write_shard(source: DocumentShard, config: StoreConfig) -> tuple[str, WrittenShard | None]:
  """Packs and writes the documents of a shard; returns its name and the written shard, None without documents."""
  file = f'{source.name}/{source.split}-{source.index:05}-of-{source.total:05}.array_record'
  lengths = []

  def documents() -> Iterator[np.ndarray]:
    for ids in source.documents():
      lengths.append(len(ids))
      yield ids

  packed = pack(documents(), config.sequence_length, config.special, config=config.packing)
  path = epath.Path(config.folder) / file
  dtype = row_dtype(config.vocab_size)
  rows = write_records(path, (row.astype(dtype).tobytes() for row, _ in packed))
  if not rows:
    path.unlink()
    return source.name, None
  shard = Shard(file=file, rows=rows, bytes=path.stat().length, sha256=sha256_of(path))
  return source.name, WrittenShard(source.split, shard, len(lengths), sum(lengths))


def _finish(name: str, found: Iterable[WrittenShard | None], counts: LanguageStatistics, folder: str) -> tuple[()]:
  """Writes the manifest entry of a language or task, after all its shards; the last step of a pipeline."""
  written = sorted((each for each in found if each is not None), key=lambda part: part.shard.file)
  parts = {split: [each for each in written if each.split == split] for split in SPLITS}
  total = lambda field: {split: sum(getattr(each, field) for each in some) for split, some in parts.items()}
  part = StoredLanguage(
    shards={split: tuple(each.shard for each in some) for split, some in parts.items()},
    documents=total('documents'),
    tokens=total('tokens'),
    sentences=counts.sentences,
    characters=counts.characters,
    lost=dict(counts.lost),
  )
  write_whole(epath.Path(folder) / name / 'language.json', json.dumps(dataclasses.asdict(part), indent=1))
  return ()


def _add_names(
  steps: BeamSteps,
  shards: Sequence[DocumentShard],
  counts: Mapping[str, LanguageStatistics],
  config: StoreConfig,
) -> None:
  """Adds the steps that make the languages or tasks of `counts`, all of whose shards must be in `shards`."""
  names = steps.create('names', [(name, None) for name in counts])
  written = steps.spread('write', steps.create('shards', shards), lambda shard: [write_shard(shard, config)])
  finish = lambda name, found: _finish(name, found, counts[name], config.folder)
  steps.regroup('finish', steps.flatten('all of it', names, written), lambda pair: [pair], finish)


def make_store(
  shards: Mapping[str, Sequence[DocumentShard]],
  counts: Mapping[str, LanguageStatistics],
  config: StoreConfig,
  vocabulary: epath.PathLike,
  recipe: Mapping,
  runner: BeamRunner,
  console: Console,
  *,
  group_mb: float,
) -> TokenStore:
  """Makes a store of the documents of each language or task; skips those that are complete.

  `counts` are statistics of the documents before tokenization; `recipe`, JSON, is all that determines them, and its
  `rates` go into the manifest. Up to `group_mb` MB of documents are made together, 0 for all. UsageError if there is
  another store in the directory; RunError if the pipeline failed, which the same call resumes.
  """
  output, content = epath.Path(config.folder), epath.Path(vocabulary).read_bytes()
  how = dataclasses.asdict(config)
  recipe = {
    **recipe,
    **{name: how[name] for name in ('vocab_size', 'sequence_length', 'packing')},
    'vocabulary': hashlib.sha256(content).hexdigest(),
  }
  check_recipe(output, recipe, 'store')
  if (output / MANIFEST).exists():
    console.say(f'{output} is complete')
    return TokenStore(output)
  with write_errors('the store', output):
    write_whole(output / VOCABULARY, content)

  def run(names: list[str], tell) -> None:
    some = [shard for name in names for shard in shards[name]]
    of_names = {name: counts[name] for name in names}
    runner.run(lambda pipeline: _add_names(BeamSteps(pipeline), some, of_names, config), str(output))

  done = {path.parent.name for path in output.glob('*/language.json')}
  sizes = {name: sum(shard.size for shard in some) for name, some in shards.items() if name not in done}
  run_in_groups(sizes, group_mb * (1 << 20), console, 'making the store', run)

  languages = {name: json.loads((output / name / 'language.json').read_text()) for name in shards}
  manifest = {
    'format': FORMAT,
    'sequence_length': config.sequence_length,
    'dtype': row_dtype(config.vocab_size).str,
    'vocabulary': {'sha256': recipe['vocabulary'], 'pieces': config.vocab_size},
    'special': how['special'],
    'recipe': recipe,
    'versions': {name: importlib.metadata.version(name) for name in ('apache-beam', 'array-record', 'sentencepiece')},
    'languages': languages,
    **({'rates': recipe['rates']} if 'rates' in recipe else {}),
  }
  with write_errors('the store', output):
    write_whole(output / MANIFEST, json.dumps(manifest, indent=1))
  return TokenStore(output)
