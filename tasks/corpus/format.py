"""A corpus on disk: cleaned text by language, as the prepared dataset `corpus/{language}` of TensorFlow Datasets.

    CORPUS/recipe.json                                               written first: options and sources
    CORPUS/statistics/de.json                                        written when the language is done
    CORPUS/corpus.json                                               written last: without it, a corpus is unfinished
    CORPUS/corpus/de/1.0.0/dataset_info.json, features.json
    CORPUS/corpus/de/1.0.0/corpus-train.tfrecord-00000-of-00004      text, title, id; ordered by a hash of the text
    CORPUS/corpus/de/1.0.0/corpus-validation.tfrecord-00000-of-00001

`tfds.builder_from_directory('CORPUS/corpus/de/1.0.0')` and `seqio.TfdsDataSource('corpus/de:1.0.0',
tfds_data_dir='CORPUS')` read it. A split without documents does not exist: it has no files, and TFDS does not list it.
"""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from etils import epath

from rembert.data.token_store import SPLITS
from rembert.errors import UsageError, first_line
from rembert.files import sha256_of, write_whole
from tasks.beam import RECIPE
from tasks.corpus.sources import Lost
from tasks.wikipedia.languages import chosen_languages
from tasks.wikipedia.text import count_sentences

FORMAT = 1
MANIFEST, NAME, VERSION = 'corpus.json', 'corpus', '1.0.0'
FEATURES = ('text', 'title', 'id')


@dataclasses.dataclass(frozen=True)
class Document:
  """A clean document, with the title and id of its `RawDocument`.

  `digest` is that of the whole clean text, before paragraphs that also occur elsewhere were taken out.
  """

  language: str
  digest: bytes
  is_held_out: bool
  title: str
  id: str
  paragraphs: tuple[str, ...]

  @property
  def text(self) -> str:
    """The paragraphs, joined by newlines."""
    return '\n'.join(self.paragraphs)


@dataclasses.dataclass(frozen=True)
class LanguageStatistics:
  """Counts of one language. Sentences and characters are those of the documents to train on; `lost` is by reason."""

  documents: int
  held_out: int
  sentences: int
  characters: int
  lost: Mapping[str, int] = dataclasses.field(default_factory=dict)


def total_lost(losses: Iterable[Mapping[str, int]]) -> dict[str, int]:
  """The sum of counts by reason."""
  return dict(sorted(sum(map(collections.Counter, losses), collections.Counter()).items()))


@dataclasses.dataclass(frozen=True)
class Corpus:
  """An open corpus."""

  folder: epath.Path
  languages: Mapping[str, LanguageStatistics]  # contents of each, ordered by code
  fingerprint: str  # SHA-256 of corpus.json: two corpora with the same are the same
  recipe: Mapping  # options and sources that it was made with
  checksums: Mapping[str, Mapping[str, Sequence[str]]]  # SHA-256 of every shard, by language and split

  @property
  def lost(self) -> dict[str, int]:
    """What was left out of all languages, by reason."""
    return total_lost(counts.lost for counts in self.languages.values())

  def shards(self, language: str, split: str) -> list[epath.Path]:
    """Files of a split, in order; none if the split is empty."""
    total = len(self.checksums[language][split])
    return [_shard_path(self.folder, language, split, index, total) for index in range(total)]

  def texts(self, language: str, split: str) -> Iterator[str]:
    """The documents of a split, in order; UsageError if a shard is missing or damaged."""
    for shard in self.shards(language, split):
      yield from read_texts(shard)

  def sample(self, language: str, split: str, characters: int) -> Iterator[str]:
    """The first texts of a split that hold so many characters: a random sample, as the order is that of a hash."""
    taken = 0
    for text in self.texts(language, split) if characters > 0 else ():
      yield text
      taken += len(text)
      if taken >= characters:
        break

  def of_languages(self, languages: Sequence[str] | None, say: Callable[[str], None] = lambda line: None) -> 'Corpus':
    """The same corpus with some of its languages only; arguments and errors as of `chosen_languages`."""
    chosen = chosen_languages(languages, self.languages, where=str(self.folder), say=say)
    return dataclasses.replace(self, languages={language: self.languages[language] for language in chosen})


def open_corpus(folder: epath.PathLike) -> Corpus:
  """The finished corpus in a folder; reads corpus.json only.

  UsageError if there is none, or it is unfinished, damaged, or of another format.
  """
  folder = epath.Path(folder)
  file = folder / MANIFEST
  if not file.exists():
    if (folder / RECIPE).exists():
      raise UsageError(
        f'the corpus is unfinished: {len(finished_languages(folder))} languages are done',
        where=str(folder),
        fix='run the command that makes it again, which resumes it',
      )
    raise UsageError(f'no corpus: there is no {MANIFEST}', where=str(folder), fix='python -m tasks.corpus --help')
  content = file.read_bytes()
  try:
    manifest = json.loads(content)
    if manifest['format'] != FORMAT:
      raise ValueError(f'format {manifest["format"]}, and this program reads {FORMAT}')
    languages = dict(sorted(manifest['languages'].items()))
    checksums = {language: part.pop('shards') for language, part in languages.items()}
    statistics = {language: LanguageStatistics(**part) for language, part in languages.items()}
  except (ValueError, TypeError, KeyError, AttributeError) as error:
    raise UsageError(
      f'the corpus cannot be read: {type(error).__name__} {first_line(error)}',
      where=str(file),
      fix='copy it again, or delete it and make the corpus again',
    ) from error
  return Corpus(folder, statistics, hashlib.sha256(content).hexdigest(), manifest['recipe'], checksums)


def _dataset_path(folder: epath.PathLike, language: str) -> epath.Path:
  return epath.Path(folder) / NAME / language / VERSION


def _shard_path(folder: epath.PathLike, language: str, split: str, index: int, total: int) -> epath.Path:
  return _dataset_path(folder, language) / f'{NAME}-{split}.tfrecord-{index:05}-of-{total:05}'


def read_texts(shard: epath.Path) -> Iterator[str]:
  """The texts of a shard, in order; UsageError if it is missing or damaged."""
  from tasks.tensorflow_import import tensorflow as tf

  try:
    for record in tf.data.TFRecordDataset(str(shard)).as_numpy_iterator():
      yield tf.train.Example.FromString(record).features.feature['text'].bytes_list.value[0].decode()
  except (tf.errors.OpError, ValueError, IndexError) as error:
    raise UsageError(
      f'a shard of the corpus cannot be read: {first_line(error)}',
      where=str(shard),
      fix='copy the corpus again, or make it again in another folder: python -m tasks.corpus --help',
    ) from error


@dataclasses.dataclass(frozen=True)
class WrittenShard:
  """A finished shard and what is in it."""

  split: str
  index: int
  documents: int
  sentences: int
  characters: int
  bytes: int
  sha256: str


def write_shard(
  folder: epath.PathLike, language: str, split: str, index: int, total: int, documents: Iterable[Document]
) -> WrittenShard:
  """Writes the documents of a shard in the corpus's order; the file appears under its name when it is complete."""
  from tasks.tensorflow_import import tensorflow as tf

  path = _shard_path(folder, language, split, index, total)
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.parent / f'{path.name}.partial'
  documents = sorted(documents, key=lambda document: (document.digest, document.id, document.title))
  bytes_of = lambda text: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
  with tf.io.TFRecordWriter(str(partial)) as writer:
    for document in documents:
      feature = {name: bytes_of(getattr(document, name)) for name in FEATURES}
      example = tf.train.Example(features=tf.train.Features(feature=feature))
      writer.write(example.SerializeToString(deterministic=True))
  partial.replace(path)
  return WrittenShard(
    split=split,
    index=index,
    documents=len(documents),
    sentences=sum(count_sentences(list(document.paragraphs), language) for document in documents),
    characters=sum(len(document.text) for document in documents),
    bytes=path.stat().length,
    sha256=sha256_of(path),
  )


def finish_language(
  folder: epath.PathLike, language: str, numbers: Mapping[str, int], found: Iterable[WrittenShard | Lost | None]
) -> tuple[()]:
  """Completes a language whose shards are written: shards without documents, TFDS's metadata, and its statistics.

  `numbers` has the shards of each split, and `found` those that were written, and what was left out; returns no
  items: it is the last step of a pipeline.
  """
  found = list(found)
  written = {(each.split, each.index): each for each in found if isinstance(each, WrittenShard)}
  shards: dict[str, list[WrittenShard]] = {split: [] for split in SPLITS}
  for split in {split for split, _ in written}:
    for index in range(numbers[split]):
      shard = written.get((split, index)) or write_shard(folder, language, split, index, numbers[split], ())
      shards[split].append(shard)
  if written:
    _write_metadata(_dataset_path(folder, language), language, shards)
  count = lambda split, name: sum(getattr(shard, name) for shard in shards[split])
  statistics = LanguageStatistics(
    documents=count('train', 'documents'),
    held_out=count('validation', 'documents'),
    sentences=count('train', 'sentences'),
    characters=count('train', 'characters'),
    lost=dict(sorted((each.reason, each.count) for each in found if isinstance(each, Lost))),
  )
  checksums = {split: [shard.sha256 for shard in of_split] for split, of_split in shards.items()}
  content = dataclasses.asdict(statistics) | {'shards': checksums}
  write_whole(epath.Path(folder) / 'statistics' / f'{language}.json', json.dumps(content, indent=1))
  return ()


def _write_metadata(path: epath.Path, language: str, shards: Mapping[str, Sequence[WrittenShard]]) -> None:
  import tensorflow_datasets as tfds

  identity = tfds.core.dataset_info.DatasetIdentity(
    name=NAME, config_name=language, version=tfds.core.Version(VERSION), data_dir=str(path), module_name=''
  )
  features = tfds.features.FeaturesDict({name: tfds.features.Text() for name in FEATURES})
  info = tfds.core.DatasetInfo(builder=identity, features=features, description='Clean, deduplicated text.')
  info.set_file_format('tfrecord')
  file_name = tfds.core.ShardedFileTemplate(data_dir=path, dataset_name=NAME, filetype_suffix='tfrecord')
  splits = [
    tfds.core.SplitInfo(
      name=split,
      shard_lengths=[shard.documents for shard in of_split],
      num_bytes=sum(shard.bytes for shard in of_split),
      filename_template=file_name.replace(split=split),
    )
    for split, of_split in shards.items()
    if of_split
  ]
  info.set_splits(tfds.core.splits.SplitDict(splits))
  info.write_to_directory(path)


def finished_languages(folder: epath.Path) -> dict[str, epath.Path]:
  """The file of statistics of each language that is done."""
  return {file.name.removesuffix('.json'): file for file in epath.Path(folder).glob('statistics/*.json')}


def finish_corpus(folder: epath.Path, languages: Iterable[str], recipe: Mapping) -> None:
  """Writes corpus.json once every language is done."""
  files = finished_languages(folder)
  of_languages = {language: json.loads(files[language].read_text()) for language in sorted(languages)}
  manifest = {'format': FORMAT, 'recipe': recipe, 'languages': of_languages}
  write_whole(epath.Path(folder) / MANIFEST, json.dumps(manifest, indent=1))
