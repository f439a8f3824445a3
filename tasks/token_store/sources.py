"""Where documents come from: MediaWiki dumps, TensorFlow Datasets, or plain text, in parts for many workers."""

import dataclasses
import re
import unicodedata
from collections.abc import Iterator, Sequence

from etils import epath

from rembert.errors import UsageError, first_line
from tasks.text_files import DAMAGED, read_text_documents
from tasks.wikipedia.cleaning import clean_wikitext
from tasks.wikipedia.dumps import DamagedDump, ReadCounts, find_dumps, read_articles, read_namespaces
from tasks.wikipedia.languages import language_of_database, without_lists

_TEXT_NAME = re.compile(r'(?P<language>[\w-]+)\.txt(\.(xz|gz|bz2))?')
_EXAMPLES_PER_PART = 20_000
# Marks that TFDS's `wiki40b` puts between the parts of an article.
_WIKI40B_MARK = re.compile(r'\n?_(START_ARTICLE|START_SECTION|START_PARAGRAPH)_\n')


@dataclasses.dataclass(frozen=True)
class Part:
  """What one worker reads at a time; small enough to be sent around.

  Attributes:
    language: code.
    kind: `dump`, `tfds` or `text`.
    path: of the file; for `tfds` the name of the dataset.
    split: for `tfds`.
    start: first example, for `tfds`.
    stop: example after the last, for `tfds`.
    data_dir: where prepared datasets lie, for `tfds`.
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
    language: code.
    kind: of the part that it comes from.
    title: where it has one.
    text: wikitext or plain text.
    namespaces: names by number, for wikitext.
  """

  language: str
  kind: str
  title: str
  text: str
  namespaces: tuple[tuple[int, str], ...] = ()


# --- parts ------------------------------------------------------------------------------------------------------------


def dump_parts(pattern: str, languages: Sequence[str] | None) -> list[Part]:
  """A part for each dump; UsageError where there is none, or a language is missing that was named by its code."""
  codes, listed = (None, ()) if languages is None else without_lists(languages)
  dumps = find_dumps(pattern, codes, where_there=listed)
  return [
    Part(language, 'dump', str(dump.path), size=epath.Path(dump.path).stat().length)
    for language, files in dumps.items()
    for dump in files
  ]


def text_parts(folder: str, languages: Sequence[str] | None) -> list[Part]:
  """A part for each `LL.txt`, also `.xz`, `.gz`, `.bz2`: a paragraph a line, a blank line between documents."""
  found = {}
  for file in sorted(epath.Path(folder).iterdir()) if epath.Path(folder).is_dir() else []:
    name = _TEXT_NAME.fullmatch(file.name)
    if name:
      language = language_of_database(name['language']) or name['language']
      found.setdefault(language, []).append(Part(language, 'text', str(file), size=file.stat().length))
  if not found:
    raise UsageError('no text files', where=folder, fix='name a folder with de.txt, en.txt.xz, …')
  codes, listed = (tuple(found), ()) if languages is None else without_lists(languages)
  missing = [language for language in codes if language not in found]
  if missing:
    raise UsageError(f'no text in {", ".join(missing)}', where=folder, fix=f'there are {", ".join(sorted(found))}')
  return [part for language in sorted(found) if language in {*codes, *listed} for part in found[language]]


def tfds_parts(dataset: str, data_dir: str | None, languages: Sequence[str]) -> list[Part]:
  """Ranges of examples of a prepared dataset, or UsageError.

  Args:
    dataset: a name with `{language}` in its configuration, `wiki40b/{language}`, or in its split, in brackets:
      `c4/multilingual[{language}]`. Without brackets the split is `train`.
    data_dir: where prepared datasets lie; None is TFDS's own folder.
    languages: codes, as the dataset spells them, or lists by name.
  """
  codes, listed = without_lists(languages)
  name, _, split = dataset.rstrip(']').partition('[')
  parts = []
  for language in (*codes, *listed):
    of_language = (name.format(language=language), (split or 'train').format(language=language))
    try:
      info = _prepared(of_language[0], data_dir).info.splits[of_language[1]]
    except Exception as error:  # TFDS raises types of its own for names, versions, splits and folders
      reason = first_line(error)
      raise UsageError(
        f'TensorFlow Datasets cannot read {of_language[0]}, split {of_language[1]}: {reason}',
        where=f'--tfds={dataset}, --tfds_data_dir={data_dir}',
        fix='prepare it first (tfds build), and name its folder: --tfds_data_dir=DIR',
      ) from error
    total = info.num_examples
    for start in range(0, total, _EXAMPLES_PER_PART):
      stop = min(total, start + _EXAMPLES_PER_PART)
      size = int(info.num_bytes * (stop - start) / total)
      parts.append(Part(language, 'tfds', of_language[0], of_language[1], start, stop, data_dir, size))
  return parts


def _prepared(name: str, data_dir: str | None):
  """A dataset's reader, from its files alone: the code that once prepared it may want packages that are not here."""
  import tensorflow_datasets as tfds

  return tfds.core.read_only_builder.builder_from_files(name, data_dir=data_dir)


# --- documents --------------------------------------------------------------------------------------------------------


def read_part(part: Part, lost: dict[str, int]) -> Iterator[RawDocument]:
  """The documents of a part; what cannot be read is counted in `lost`, and costs no more than itself."""
  readers = {'dump': _read_dump, 'text': _read_text, 'tfds': _read_tfds}
  return readers[part.kind](part, lost)


def _read_dump(part: Part, lost: dict[str, int]) -> Iterator[RawDocument]:
  counts = ReadCounts()
  try:
    namespaces = tuple(sorted(read_namespaces(part.path).items()))
    for page in read_articles(part.path, counts=counts):
      yield RawDocument(part.language, part.kind, page.title, page.text, namespaces)
  except DamagedDump:
    lost['damaged dumps'] = lost.get('damaged dumps', 0) + 1
  lost['broken pages'] = lost.get('broken pages', 0) + counts.broken_pages
  lost['truncated dumps'] = lost.get('truncated dumps', 0) + int(counts.truncated)


def _read_text(part: Part, lost: dict[str, int]) -> Iterator[RawDocument]:
  try:
    for paragraphs in read_text_documents(epath.Path(part.path)):
      yield RawDocument(part.language, part.kind, '', '\n'.join(paragraphs))
  except DAMAGED:  # an archive that is cut off: what came before counts
    lost['truncated files'] = lost.get('truncated files', 0) + 1


def _read_tfds(part: Part, lost: dict[str, int]) -> Iterator[RawDocument]:
  del lost
  import tensorflow_datasets as tfds

  builder = _prepared(part.path, part.data_dir)
  split = tfds.core.ReadInstruction(part.split, from_=part.start, to=part.stop, unit='abs')
  for example in tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False)):
    title = example.get('title', b'').decode()
    yield RawDocument(part.language, part.kind, title, example['text'].decode())


def clean(document: RawDocument) -> list[str]:
  """The document's paragraphs, clean and NFC."""
  if document.kind == 'dump':
    return clean_wikitext(document.text, language=document.language, namespaces=dict(document.namespaces))
  text = _WIKI40B_MARK.sub('\n', document.text).replace('_NEWLINE_', '\n')
  lines = (' '.join(unicodedata.normalize('NFC', line).split()) for line in text.split('\n'))
  return [line for line in lines if line]
