"""Where documents come from, behind one interface: MediaWiki dumps, or TensorFlow Datasets' `wikipedia`."""

import dataclasses
import functools
import importlib.resources
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from etils import epath

from rembert.data.config import SAMPLE, DataConfig
from rembert.errors import UsageError, first_line
from rembert.storage import why_unreachable
from tasks.wikipedia.documents import Document, is_held_out, read_documents
from tasks.wikipedia.dumps import Dump, ReadCounts, find_dumps
from tasks.wikipedia.languages import LISTS, missing_in_words, without_lists

if TYPE_CHECKING:
  import seqio
  import tensorflow_datasets as tfds

SPLITS = ('train', 'validation')
PUBLIC_BUCKET = 'gs://tfds-data/datasets'  # where TFDS's authors publish prepared datasets


@dataclasses.dataclass
class ReadProgress:
  """How far `Corpus.documents` has come; filled while reading.

  Attributes:
    fraction: of the language's data read so far, 0 to 1.
    counts: pages read, dropped and broken, where the source is a dump.
  """

  fraction: float = 0.0
  counts: ReadCounts | None = None


class Corpus(Protocol):
  """Documents by language, and the SeqIO data sources that stream them."""

  languages: tuple[str, ...]

  def documents(self, language: str, progress: ReadProgress | None = None) -> Iterator[tuple[Document, bool]]:
    """All documents of a language in a fixed order, each with whether it is held out."""

  def texts(self, language: str, split: str, skip: int = 0) -> Iterator[str]:
    """The texts of a split (`train`, `validation`) in the same order, without the first `skip`."""

  def fingerprint(self) -> dict:
    """What identifies the text without reading it; JSON."""

  def source(self, language: str) -> 'seqio.DataSource':
    """The same as a SeqIO source with splits `train` and `validation`; examples have `text` and `title`."""


@dataclasses.dataclass(frozen=True)
class DumpCorpus:
  """MediaWiki exports on disk or in a bucket.

  Attributes:
    dumps: the files of each language.
    held_out: share of held-out documents.
    min_characters: shorter documents are left out.
  """

  dumps: Mapping[str, Sequence[Dump]]
  held_out: float
  min_characters: int

  @property
  def languages(self) -> tuple[str, ...]:
    """Codes, sorted."""
    return tuple(sorted(self.dumps))

  def documents(self, language: str, progress: ReadProgress | None = None) -> Iterator[tuple[Document, bool]]:
    """See `Corpus`."""
    progress = progress or ReadProgress()
    progress.counts = ReadCounts()
    size = sum(epath.Path(dump.path).stat().length for dump in self.dumps[language])
    for document in self._split(language, 'all', progress.counts):
      progress.fraction = min(1.0, progress.counts.bytes_read / max(size, 1))
      yield document, is_held_out(document.text, self.held_out)
    progress.fraction = 1.0

  def texts(self, language: str, split: str, skip: int = 0) -> Iterator[str]:
    """See `Corpus`."""
    return (document.text for document in itertools.islice(self._split(language, split), skip, None))

  def _split(self, language: str, split: str, counts: ReadCounts | None = None) -> Iterator[Document]:
    return read_documents(
      self.dumps[language], split=split, held_out=self.held_out, min_characters=self.min_characters, counts=counts
    )

  def fingerprint(self) -> dict:
    """See `Corpus`: names and sizes of the files."""
    files = {
      language: [(epath.Path(dump.path).name, epath.Path(dump.path).stat().length) for dump in dumps]
      for language, dumps in self.dumps.items()
    }
    return {'files': files, 'held_out': self.held_out, 'min_characters': self.min_characters}

  def source(self, language: str) -> 'seqio.DataSource':
    """See `Corpus`."""
    from tasks.tensorflow_import import tensorflow as tf

    # isort: split
    import seqio

    def examples(split: str) -> Iterator[dict[str, str]]:
      for document in self._split(language, split):
        yield {'text': document.text, 'title': document.title, 'language': document.language}

    def dataset(split: str, shuffle_files: bool, seed: int | None = None) -> 'tf.data.Dataset':
      del shuffle_files, seed  # one stream, in order: rows are shuffled after packing, reproducibly
      signature = {name: tf.TensorSpec((), tf.string) for name in ('text', 'title', 'language')}
      return tf.data.Dataset.from_generator(functools.partial(examples, split), output_signature=signature)

    return seqio.FunctionDataSource(dataset_fn=dataset, splits=SPLITS)


@dataclasses.dataclass(frozen=True)
class TfdsCorpus:
  """TensorFlow Datasets' `wikipedia`, whose articles are already plain text.

  TFDS has one split, `train`; its last documents are held out, one at least, for TFDS knows no empty split.

  Attributes:
    languages: codes.
    dataset: TFDS name with `{language}` in it.
    data_dir: where prepared datasets lie; None for TFDS's default folder and then its public bucket.
    held_out: share of held-out documents.
  """

  languages: tuple[str, ...]
  dataset: str
  data_dir: str | None
  held_out: float

  def check(self) -> None:
    """Raises UsageError, naming the local alternative, if languages cannot be read; all of them at once."""
    reasons = self.unreadable()
    if not reasons:
      return
    first = self._name(next(iter(reasons)))
    shown = ', '.join(list(reasons)[:12]) + (', …' if len(reasons) > 12 else '')
    more = f' and {len(reasons) - 1} more' if len(reasons) > 1 else ''
    raise UsageError(
      f'TensorFlow Datasets cannot read {first}{more}: {next(iter(reasons.values()))}',
      where=f'data.tfds, data.tfds_data_dir = {self.data_dir}; languages: {shown}',
      fix=[
        # TFDS's extra does not name all that its command line imports.
        'prepare it in an environment of its own:  pip install tensorflow "tensorflow-datasets[wikipedia]" mlcroissant '
        f'importlib_resources; tfds build {first} --data_dir=DIR;  then here --gin.data.tfds_data_dir=DIR',
        'or read dumps from dumps.wikimedia.org:  --gin.data.source=dumps --gin.data.dumps=FOLDER',
      ],
    )

  def unreadable(self) -> dict[str, str]:
    """Languages that cannot be read, each with the reason."""
    reasons = {}
    for language in self.languages:
      try:
        _prepared_builder(self._name(language), self.data_dir)
      except LookupError as error:
        reasons[language] = str(error)
    return reasons

  def documents(self, language: str, progress: ReadProgress | None = None) -> Iterator[tuple[Document, bool]]:
    """See `Corpus`."""
    progress = progress or ReadProgress()
    total, first_held_out = self._lengths(language)
    for split in SPLITS:
      offset = 0 if split == 'train' else first_held_out
      for index, example in enumerate(self.source(language).get_dataset(split, shuffle=False).as_numpy_iterator()):
        progress.fraction = (offset + index + 1) / total
        text, title = example['text'].decode(), example['title'].decode()
        yield Document(language=language, title=title, text=text), split == 'validation'

  def texts(self, language: str, split: str, skip: int = 0) -> Iterator[str]:
    """See `Corpus`."""
    dataset = self.source(language).get_dataset(split, shuffle=False).skip(skip)
    return (example['text'].decode() for example in dataset.as_numpy_iterator())

  def fingerprint(self) -> dict:
    """See `Corpus`: dataset names, and the held-out share."""
    return {'datasets': [self._name(language) for language in self.languages], 'held_out': self.held_out}

  def source(self, language: str) -> 'seqio.DataSource':
    """See `Corpus`."""
    import seqio

    _, first_held_out = self._lengths(language)
    builder, folder = _prepared_builder(self._name(language), self.data_dir)
    return seqio.TfdsDataSource(
      builder.get_reference().tfds_name(include_version=True),  # SeqIO takes no name without a version
      tfds_data_dir=folder,
      splits={'train': f'train[:{first_held_out}]', 'validation': f'train[{first_held_out}:]'},
      read_only=True,  # else what is missing would be downloaded and prepared, for hours, in the middle of a run
    )

  def _name(self, language: str) -> str:
    return self.dataset.format(language=language)

  def _lengths(self, language: str) -> tuple[int, int]:
    """Number of documents, and the number of the first that is held out."""
    builder, _ = _prepared_builder(self._name(language), self.data_dir)
    total = builder.info.splits['train'].num_examples
    return total, total - min(total - 1, max(1, round(total * self.held_out)))


@functools.cache
def _prepared_builder(name: str, data_dir: str | None) -> tuple['tfds.core.DatasetBuilder', str | None]:
  """The builder of a prepared dataset of two documents or more, and the folder that it lies in.

  Raises:
    LookupError: there is none; with the reason.
  """
  import tensorflow_datasets as tfds

  reasons = []
  # TFDS itself no longer looks into its bucket (`try_gcs` does nothing), but reads there what it is pointed at.
  for folder in [data_dir] if data_dir else [None, PUBLIC_BUCKET]:
    if reason := why_unreachable(folder or ''):
      reasons.append(reason)
      continue
    try:
      builder = tfds.builder(name, data_dir=folder)
      total = builder.info.splits['train'].num_examples if builder.info.splits else 0
    except Exception as error:  # TFDS raises whatever its file system and parsers raise
      reasons.append(first_line(error))
      continue
    if total >= 2:
      return builder, folder
    where = 'there' if data_dir else f'in {folder or "~/tensorflow_datasets"}'
    reasons.append(f'it holds {total} document(s)' if builder.info.splits else f'it has not been prepared {where}')
  raise LookupError('; '.join(reasons))


def open_corpus(config: DataConfig, say: Callable[[str], None] = lambda line: None) -> Corpus:
  """The corpus that `config` names.

  Args:
    config: a language given by its code must be there; of a list of languages, those that are there are taken.
    say: is told in one line which languages of a list are missing.

  Raises:
    UsageError: the corpus does not exist, a language given by its code is missing, or none of a list is there.
  """
  codes, listed = (None, ()) if config.languages is None else without_lists(config.languages)
  corpus = _tfds_corpus(config, codes, listed) if config.source == 'tfds' else _dump_corpus(config, codes, listed)
  if missing := missing_in_words(config.languages or (), corpus.languages):
    say(missing)
  return corpus


def _tfds_corpus(config: DataConfig, codes: tuple[str, ...] | None, listed: tuple[str, ...]) -> TfdsCorpus:
  if not codes and not listed:
    raise UsageError(
      'TFDS needs a list of languages',
      where='data.languages',
      fix=["--gin.data.languages=\"('en', 'de')\"", f'or a list by its name: {", ".join(LISTS)}'],
    )
  of_languages = lambda languages: TfdsCorpus(languages, config.tfds, config.tfds_data_dir, config.held_out)
  unreadable = of_languages(listed).unreadable()
  there = [language for language in listed if language not in unreadable]
  # With nothing at all to read, the reasons are those of all that was asked for.
  corpus = of_languages(tuple(dict.fromkeys((*codes, *(there if codes or there else listed)))))
  corpus.check()
  return corpus


def _dump_corpus(config: DataConfig, codes: tuple[str, ...] | None, listed: tuple[str, ...]) -> DumpCorpus:
  pattern = config.dumps
  if pattern == SAMPLE:
    pattern = str(importlib.resources.files('tasks.wikipedia') / 'sample')
  dumps = find_dumps(pattern, codes, where_there=listed)
  return DumpCorpus(dumps=dumps, held_out=config.held_out, min_characters=config.min_characters)
