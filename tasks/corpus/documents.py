"""Documents of a corpus: what becomes of a text on its way there.

Cleaning, the held-out split and deduplication are pure functions: a document is identified by the hash of its text,
which decides its split and its shard, and orders the shard. So nothing depends on the order of work: `build` writes the
same bytes with Beam and without.
"""

import dataclasses
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from rembert.data.token_store import SPLITS
from rembert.validation import Count, FractionBelowOne, OneOf, check_fields
from tasks.corpus.sources import Lost, Part, RawDocument, bytes_by_language
from tasks.wikipedia.cleaning import clean_wikitext

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
  if found.namespaces is not None:
    paragraphs = clean_wikitext(found.text, language=found.language, namespaces=found.namespaces)
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
