"""The documents of one language: its articles, cleaned, each text once, in the order of the dumps."""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import Literal

from rembert.errors import UsageError
from tasks.wikipedia.cleaning import CleaningCounts, clean_wikitext
from tasks.wikipedia.dumps import DamagedDump, Dump, Page, ReadCounts, read_articles, read_namespaces, warn_once

_DIGEST_BYTES = 8


@dataclasses.dataclass(frozen=True)
class Document:
  """One article.

  Attributes:
    language: Wikipedia's code.
    title: of the article.
    text: clean paragraphs, joined by newlines.
  """

  language: str
  title: str
  text: str


@dataclasses.dataclass
class DocumentCounts:
  """What became of the articles, filled while reading.

  `articles = documents + duplicates + too_short + other_split`.

  Attributes:
    articles: articles read.
    documents: of these, documents yielded.
    duplicates: of these, texts that had come before.
    too_short: of these, articles with too little prose: stubs, lists, disambiguation pages.
    other_split: of these, documents of the split that was not asked for.
    cleaning: what cleaning met.
  """

  articles: int = 0
  documents: int = 0
  duplicates: int = 0
  too_short: int = 0
  other_split: int = 0
  cleaning: CleaningCounts = dataclasses.field(default_factory=CleaningCounts)


def is_held_out(text: str, held_out: float) -> bool:
  """Whether a document belongs to validation: a pure function of its text, whatever dump or order it comes in.

  Args:
    text: of the document.
    held_out: share of the documents to hold out, 0 to 1.
  """
  return int.from_bytes(_digest(text), 'big') < held_out * 2 ** (8 * _DIGEST_BYTES)


def read_documents(
  dumps: Sequence[Dump],
  *,
  split: Literal['train', 'validation', 'all'],
  held_out: float,
  min_characters: int = 100,
  counts: ReadCounts | None = None,
  document_counts: DocumentCounts | None = None,
) -> Iterator[Document]:
  """Yields the documents of one language, in the order of the dumps and of the pages in them.

  A damaged dump is left out with a warning where there is another one of the language.

  Remembers 8 bytes of each text so that each comes once: about 80 MB of memory for a million documents.

  Args:
    dumps: of one language.
    split: `train`, `validation`, or `all` for both.
    held_out: share of the documents that are `validation`, 0 to 1.
    min_characters: shorter documents are left out.
    counts: filled with what was read and lost.
    document_counts: filled with what became of the articles.

  Raises:
    UsageError: the split is not known, a dump cannot be opened, or none of them gives pages (`dumps.read_pages`).
  """
  if split not in ('train', 'validation', 'all'):
    raise UsageError(f'no split called {split!r}', fix="one of 'train', 'validation', 'all'")
  return _documents(dumps, split, held_out, min_characters, counts, document_counts or DocumentCounts())


def _documents(dumps, split, held_out, min_characters, read_counts, counts) -> Iterator[Document]:
  seen: set[bytes] = set()
  for dump, page, namespaces in _articles(dumps, read_counts):
    counts.articles += 1
    paragraphs = clean_wikitext(page.text, language=dump.language, namespaces=namespaces, counts=counts.cleaning)
    text = '\n'.join(paragraphs)
    if len(text) < min_characters:
      counts.too_short += 1
      continue
    digest = _digest(text)
    if digest in seen:
      counts.duplicates += 1
      continue
    seen.add(digest)
    if split != 'all' and is_held_out(text, held_out) != (split == 'validation'):
      counts.other_split += 1
      continue
    counts.documents += 1
    yield Document(dump.language, page.title, text)


def _articles(dumps: Sequence[Dump], counts: ReadCounts | None) -> Iterator[tuple[Dump, Page, dict[int, str]]]:
  """The articles of all dumps; of one that is damaged, a warning, or the error where no other is whole.

  A dump that cannot be opened is always an error: it may be there again tomorrow, and documents are known by number.
  """
  error, is_any_read = None, False
  for dump in dumps:
    try:
      namespaces = read_namespaces(dump.path)
      for page in read_articles(dump.path, counts=counts):
        yield dump, page, namespaces
    except DamagedDump as damaged:
      warn_once('%s is left out: %s', dump.path, damaged.what)
      error = error or damaged
    else:
      is_any_read = True
  if error is not None and not is_any_read:
    raise error


def _digest(text: str) -> bytes:
  return hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=_DIGEST_BYTES).digest()
