"""Documents of a corpus: where they come from, in parts for many workers, and what becomes of them.

Sources are MediaWiki dumps, plain text, or prepared TFDS datasets. Cleaning, the held-out split and deduplication are
pure functions: a document is known by the hash of its text, which decides its split and its shard, and orders the
shard. So nothing depends on who does what when: `build` writes the same bytes with Beam and without.
"""

import bz2
import dataclasses
import functools
import gzip
import hashlib
import importlib.resources
import itertools
import lzma
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from etils import epath

from rembert.data.config import SAMPLE
from rembert.data.token_store import SPLITS
from rembert.errors import UsageError, first_line
from rembert.files import why_unreachable
from rembert.validation import Count, FractionBelowOne, OneOf, check_fields
from tasks.wikipedia.cleaning import clean_wikitext
from tasks.wikipedia.dumps import DamagedDump, ReadCounts, find_dumps, read_articles, read_namespaces
from tasks.wikipedia.languages import LISTS, chosen_languages, language_of_database, missing_in_words, without_lists

if TYPE_CHECKING:
  import tensorflow_datasets as tfds

PUBLIC_BUCKET = 'gs://tfds-data/datasets'  # where TFDS's authors publish prepared datasets
_TEXT_NAME = re.compile(r'(?P<language>[\w-]+)\.txt(\.(xz|gz|bz2))?')
_OPENERS: dict[str, Callable] = {'.xz': lzma.open, '.bz2': bz2.open, '.gz': gzip.open}
# Raised while reading a file that is no archive, is damaged, or is cut off.
_DAMAGE = (OSError, EOFError, lzma.LZMAError, zlib.error)
_EXAMPLES_PER_PART = 20_000


@dataclasses.dataclass(frozen=True)
class Part:
  """What one worker reads at a time; small enough to be sent around.

  Attributes:
    kind: `dump`, `tfds` or `text`.
    path: of the file; for `tfds` the name of the dataset, which lies in `data_dir`.
    start: for `tfds`, the first example; `stop` is the example after the last.
    size: bytes, to share out the work by.
  """

  language: str
  kind: str
  path: str
  split: str = ''
  start: int = 0
  stop: int = 0
  data_dir: str | None = None
  size: int = 0


@dataclasses.dataclass(frozen=True)
class RawDocument:
  """A document as it was found, before the expensive part of cleaning.

  Attributes:
    kind: of the part that it comes from.
    title: '' if it has none.
    id: of a page, `file:line` of plain text, the `id` of a TFDS example; '' if it has none.
    text: wikitext or plain text. Bytes that are not UTF-8 are surrogate escapes.
    namespaces: names by number, for wikitext.
  """

  language: str
  kind: str
  title: str
  id: str
  text: str
  namespaces: tuple[tuple[int, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class Lost:
  """Something of a language that was left out, and how many times."""

  language: str
  reason: str
  count: int = 1


def find_parts(
  kind: str,
  name: str | Sequence[str],
  languages: Sequence[str] | None = None,
  *,
  data_dir: str | None = None,
  say: Callable[[str], None] = lambda line: None,
) -> list[Part]:
  """The parts of a source, ordered by language.

  Args:
    kind: `dumps`, `text` or `tfds`.
    name: the folder or glob of dumps (`sample` for the small corpus that comes with the project); the folder of plain
      text; or the TFDS dataset with `{language}` in it.
    languages: codes, which must exist, or lists by name, of which those that exist are taken; None for all.
    data_dir: where prepared TFDS datasets lie; None is TFDS's own folder, then its public bucket.
    say: is given one line with the languages of a list that are missing.

  Raises:
    UsageError: nothing is found, or a language given by its code is missing.
  """
  if kind == 'tfds':
    parts = _tfds_parts(str(name), data_dir, languages)
  else:
    parts = _text_parts(str(name), languages) if kind == 'text' else _dump_parts(name, languages)
  if missing := missing_in_words(languages or (), {part.language for part in parts}):
    say(missing)
  return parts


def _dump_parts(pattern: str | Sequence[str], languages: Sequence[str] | None) -> list[Part]:
  if pattern == SAMPLE:
    pattern = str(importlib.resources.files('tasks.wikipedia') / 'sample')
  codes, listed = (None, ()) if languages is None else without_lists(languages)
  dumps = find_dumps(pattern, codes, where_there=listed)
  return [
    Part(language, 'dump', str(file), size=file.stat().length) for language, files in dumps.items() for file in files
  ]


def _text_parts(folder: str, languages: Sequence[str] | None) -> list[Part]:
  found: dict[str, list[Part]] = {}
  for file in sorted(epath.Path(folder).iterdir()) if epath.Path(folder).is_dir() else []:
    if match := _TEXT_NAME.fullmatch(file.name):
      name = match['language']
      language = (name.islower() and language_of_database(name)) or name  # bg-Latn stays as it is
      found.setdefault(language, []).append(Part(language, 'text', str(file), size=file.stat().length))
  if not found:
    raise UsageError('no text files', where=folder, fix='name a folder with de.txt, en.txt.xz, …')
  return [part for language in chosen_languages(languages, found, where=folder) for part in found[language]]


def _tfds_parts(dataset: str, data_dir: str | None, languages: Sequence[str] | None) -> list[Part]:
  """Ranges of examples. Split names are in brackets, `c4/multilingual[{language}]`; without, it is `train`."""
  if languages is None or '{language}' not in dataset:
    raise UsageError(
      'a TFDS dataset needs {language} in its name, and a list of languages',
      where=f'data.tfds or --tfds = {dataset}; data.languages or --languages = {languages}',
      fix=[
        "--tfds='wikipedia/20230601.{language}' --languages=de,sw",
        f"--gin.data.languages=\"('en', 'de')\", or a list by its name: {', '.join(LISTS)}",
      ],
    )
  codes, listed = without_lists(languages)
  name, _, split = dataset.rstrip(']').partition('[')
  parts, reasons = [], {}
  for language in sorted({*codes, *listed}):
    of_language, of_split = name.format(language=language), (split or 'train').format(language=language)
    try:
      builder, folder = _prepared(of_language, data_dir)
      info = builder.info.splits[of_split]
    except Exception as error:  # TFDS raises types of its own for names, versions, splits and folders
      reasons[language] = first_line(error)
      continue
    total = info.num_examples
    for start in range(0, total, _EXAMPLES_PER_PART):
      stop = min(total, start + _EXAMPLES_PER_PART)
      size = int(info.num_bytes * (stop - start) / total)
      parts.append(Part(language, 'tfds', of_language, of_split, start, stop, folder, size))
  if not parts or any(code in reasons for code in codes):
    raise _unreadable(name, data_dir, {code: why for code, why in reasons.items() if code in codes or not parts})
  return parts


def _unreadable(name: str, data_dir: str | None, reasons: dict[str, str]) -> UsageError:
  """All datasets that cannot be read, in one error."""
  if not reasons:
    return UsageError('the TFDS datasets hold no examples', where=f'{name}, tfds_data_dir = {data_dir}')
  language = next(iter(reasons))
  first, more = name.format(language=language), f' and {len(reasons) - 1} more' if len(reasons) > 1 else ''
  return UsageError(
    f'TensorFlow Datasets cannot read {first}{more}: {reasons[language]}',
    where=f'{name}, tfds_data_dir = {data_dir}; languages: {", ".join(list(reasons)[:12])}'
    + (', …' if len(reasons) > 12 else ''),
    fix=[
      # TFDS's extra does not name all that its command line imports.
      'prepare it in an environment of its own:  pip install tensorflow "tensorflow-datasets[wikipedia]" mlcroissant '
      f'importlib_resources; tfds build {first} --data_dir=DIR;  then here --tfds_data_dir=DIR, or '
      '--gin.data.tfds_data_dir=DIR',
      'or read dumps from dumps.wikimedia.org:  --dumps=FOLDER, or --gin.data.source=dumps --gin.data.dumps=FOLDER',
    ],
  )


@functools.cache
def _prepared(name: str, data_dir: str | None) -> tuple['tfds.core.DatasetBuilder', str | None]:
  """The reader of a prepared dataset, and the folder that it lies in; LookupError with the reason if there is none.

  It is read from its files alone: the code that prepared it may need packages that are not installed here.
  """
  from tasks.tensorflow_import import tensorflow  # noqa: F401

  # isort: split
  import tensorflow_datasets as tfds

  reasons = []
  # TFDS itself no longer looks into its bucket (`try_gcs` does nothing), but reads there what it is pointed at.
  for folder in [data_dir] if data_dir else [None, PUBLIC_BUCKET]:
    if reason := why_unreachable(folder or ''):
      reasons.append(reason)
      continue
    try:
      return tfds.core.read_only_builder.builder_from_files(name, data_dir=folder), folder
    except tfds.core.DatasetNotFoundError:
      reasons.append(f'it has not been prepared in {folder or "~/tensorflow_datasets"}')
    except Exception as error:  # whatever its file system and parsers raise
      reasons.append(first_line(error))
  raise LookupError('; '.join(reasons))


def bytes_by_language(parts: Iterable[Part]) -> dict[str, int]:
  """Bytes of input of each language."""
  sizes: dict[str, int] = {}
  for part in parts:
    sizes[part.language] = sizes.get(part.language, 0) + part.size
  return sizes


def read_part(part: Part) -> Iterator[RawDocument | Lost]:
  """The documents of a part; a broken page or a truncated file costs no more than itself, and is counted."""
  readers = {'dump': _read_dump, 'text': _read_text, 'tfds': _read_tfds}
  return readers[part.kind](part)


def _read_dump(part: Part) -> Iterator[RawDocument | Lost]:
  counts = ReadCounts()
  try:
    namespaces = tuple(sorted(read_namespaces(part.path).items()))
    for page in read_articles(part.path, counts=counts):
      yield RawDocument(part.language, part.kind, page.title, str(page.page_id or ''), page.text, namespaces)
  except DamagedDump:
    yield Lost(part.language, 'damaged dumps')
  if counts.broken_pages:
    yield Lost(part.language, 'broken pages', counts.broken_pages)
  if counts.truncated:
    yield Lost(part.language, 'truncated dumps')


def _read_text(part: Part) -> Iterator[RawDocument | Lost]:
  """Paragraphs are lines; blank lines separate documents."""
  file, damage = epath.Path(part.path), None
  with file.open('rb') as stream:
    opener = _OPENERS.get(file.suffix)
    lines = opener(stream) if opener else stream
    first, paragraphs = 0, []
    for number in itertools.count(1):
      try:
        line = lines.readline()
      except _DAMAGE as error:
        line, damage = b'', error
      paragraph = line.decode('utf-8', 'surrogateescape').strip()
      if paragraph:
        first = first or number
        paragraphs.append(paragraph)
      elif paragraphs:
        yield RawDocument(part.language, part.kind, '', f'{file.name}:{first}', '\n'.join(paragraphs))
        first, paragraphs = 0, []
      if not line:
        break
  if damage is not None:
    yield Lost(part.language, 'truncated files')


def _read_tfds(part: Part) -> Iterator[RawDocument | Lost]:
  import tensorflow_datasets as tfds

  builder, _ = _prepared(part.path, part.data_dir)
  split = tfds.core.ReadInstruction(part.split, from_=part.start, to=part.stop, unit='abs')
  for example in tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False)):
    title, name = example.get('title', b''), example.get('id', b'')
    yield RawDocument(
      part.language,
      part.kind,
      title.decode('utf-8', 'replace'),
      name.decode('utf-8', 'replace') if isinstance(name, bytes) else str(name),
      example['text'].decode('utf-8', 'surrogateescape'),
    )


# --- what becomes of documents ----------------------------------------------------------------------------------------

# Marks that TFDS's `wiki40b` puts between the parts of an article.
_WIKI40B_MARK = re.compile(r'\n?_(START_ARTICLE|START_SECTION|START_PARAGRAPH)_\n')


@dataclasses.dataclass(frozen=True)
class CorpusConfig:
  """Everything but the sources that decides the bytes of a corpus.

  Attributes:
    held_out: share of the documents that are `validation`, chosen by a hash of their text.
    min_characters: shorter documents are left out.
    dedupe: `paragraphs` (each once in a language, and each document), `documents` or `none`.
    shard_bytes: bytes of input per shard.
  """

  held_out: FractionBelowOne = 0.005
  min_characters: Count = 100
  dedupe: Annotated[str, OneOf(('paragraphs', 'documents', 'none'))] = 'paragraphs'
  shard_bytes: Count = 64 << 20

  def __post_init__(self):
    check_fields(self, '')
    object.__setattr__(self, 'held_out', float(self.held_out))  # 0 and 0.0 are one recipe


@dataclasses.dataclass(frozen=True)
class Document:
  """A clean document, with the title and id of its `RawDocument`.

  Attributes:
    digest: of the whole clean text, before paragraphs that also occur elsewhere were taken out.
    is_held_out: its split.
    paragraphs: in order.
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


def digest_of(text: str) -> bytes:
  """128 bits that stand for a text."""
  return hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=16).digest()


def is_held_out(text: str, held_out: float) -> bool:
  """Whether a document is of the share `held_out`, 0 to 1, for validation: a function of its text alone."""
  digest = hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).digest()
  return int.from_bytes(digest, 'big') < held_out * 2**64


def clean(found: RawDocument | Lost, config: CorpusConfig) -> Document | Lost:
  """The document with clean NFC paragraphs, or the reason why it is left out; losses pass through."""
  if isinstance(found, Lost):
    return found
  if found.kind == 'dump':
    paragraphs = clean_wikitext(found.text, language=found.language, namespaces=dict(found.namespaces))
  else:
    text = _WIKI40B_MARK.sub('\n', found.text).replace('_NEWLINE_', '\n')
    lines = (' '.join(unicodedata.normalize('NFC', line).split()) for line in text.split('\n'))
    paragraphs = [line for line in lines if line]
  text = '\n'.join(paragraphs)
  if len(text) < config.min_characters:
    return Lost(found.language, 'too short')
  if re.search('[\ud800-\udfff]', text):  # bytes that are no character, or half of one
    return Lost(found.language, 'not UTF-8')
  held_out = is_held_out(text, config.held_out)
  return Document(found.language, digest_of(text), held_out, found.title, found.id, tuple(paragraphs))


def first_of(same: Iterable[Document]) -> Iterator[Document | Lost]:
  """Of documents with the same text, the one with the smallest id and title, whatever their order; and the loss."""
  documents = iter(same)
  first, repeated = next(documents), 0
  for document in documents:
    first, repeated = min(first, document, key=lambda each: (each.id, each.title)), repeated + 1
  yield first
  if repeated:
    yield Lost(first.language, 'repeated documents', repeated)


def paragraph_places(document: Document) -> Iterator[tuple[tuple[str, bytes], tuple[bytes, int]]]:
  """Each paragraph, by language and hash, and its place (document, index). It is kept at its least place."""
  for index, paragraph in enumerate(document.paragraphs):
    yield (document.language, digest_of(paragraph)), (document.digest, index)


def keep_paragraphs(found: Iterable[Document | int], config: CorpusConfig) -> Iterator[Document | Lost]:
  """A document with the paragraphs at the indices that come with it only, and the losses."""
  found = list(found)
  [document] = [each for each in found if isinstance(each, Document)]
  paragraphs = tuple(document.paragraphs[index] for index in sorted(each for each in found if isinstance(each, int)))
  if len(paragraphs) < len(document.paragraphs):
    yield Lost(document.language, 'repeated paragraphs', len(document.paragraphs) - len(paragraphs))
  document = dataclasses.replace(document, paragraphs=paragraphs)
  yield document if len(document.text) >= config.min_characters else Lost(document.language, 'too short')


def numbers_of_shards(parts: Iterable[Part], config: CorpusConfig) -> dict[str, dict[str, int]]:
  """Shards of each language and split, by bytes of input."""
  numbers = {}
  for language, size in bytes_by_language(parts).items():
    train = max(1, -(-size // config.shard_bytes))
    numbers[language] = {'train': train, 'validation': max(1, round(train * config.held_out))}
  return numbers


def shard_of(document: Document, numbers: Mapping[str, Mapping[str, int]]) -> tuple[str, int]:
  """Split and number of the shard that a document belongs to."""
  split = SPLITS[document.is_held_out]
  return split, int.from_bytes(document.digest[:8], 'big') % numbers[document.language][split]
