"""A corpus made in this process, for small ones: the bytes of the Beam pipeline, without Apache Beam."""

import collections
import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence

from etils import epath

from rembert.files import write_errors
from rembert.tracking.console import Console
from tasks.corpus.documents import (
  CorpusConfig,
  Document,
  clean,
  first_of,
  keep_paragraphs,
  numbers_of_shards,
  paragraph_places,
  shard_of,
)
from tasks.corpus.format import MANIFEST, Corpus, finish_language, open_corpus, write_shard
from tasks.corpus.making import Tell, make, refuse_large
from tasks.corpus.sources import Lost, Part, find_parts, read_part

_TELL_EVERY = 1000  # documents


def make_corpus(
  parts: Sequence[Part],
  folder: epath.PathLike,
  config: CorpusConfig,
  console: Console,
  *,
  command: str = 'python -m tasks.corpus --help',
) -> Corpus:
  """Makes a corpus, or opens the one that is there; the same bytes as `pipeline`, resumed by language.

  Args:
    parts: what to read.
    folder: of the corpus.
    config: how documents are chosen.
    console: shows progress.
    command: does the same with Apache Beam.

  Raises:
    UsageError: the folder holds another corpus; a language has more than about 1 GB of input, which is held in memory
      here; or all of it holds no text to train on.
  """
  if not (epath.Path(folder) / MANIFEST).exists():
    refuse_large(parts, command)
  run = lambda some, tell: _make_languages(some, folder, config, tell)
  return make(parts, folder, config, console, run, group_bytes=1)  # a language at a time


@contextlib.contextmanager
def temporary_corpus(
  parts: Sequence[Part], config: CorpusConfig, console: Console, *, command: str = 'python -m tasks.corpus --help'
) -> Iterator[Corpus]:
  """As `make_corpus`, in a directory that is deleted at the end."""
  with tempfile.TemporaryDirectory() as folder:
    yield make_corpus(parts, folder, config, console, command=command)


@contextlib.contextmanager
def corpus_or_text(folder: epath.PathLike, languages: Sequence[str] | None, console: Console) -> Iterator[Corpus]:
  """The corpus in a folder; or its plain text, all of it, as a temporary corpus."""
  if (epath.Path(folder) / MANIFEST).exists():
    yield open_corpus(folder).of_languages(languages, console.say)
    return
  parts = find_parts('text', os.fspath(folder), languages, say=console.say)
  with temporary_corpus(parts, CorpusConfig(held_out=0, min_characters=1), console) as corpus:
    yield corpus


def _make_languages(parts: Sequence[Part], folder: epath.PathLike, config: CorpusConfig, tell: Tell) -> None:
  for language, numbers in numbers_of_shards(parts, config).items():
    lost: collections.Counter[str] = collections.Counter()
    documents = _documents([part for part in parts if part.language == language], config, lost, tell)
    if config.dedupe != 'none':
      documents = _unique_documents(documents, lost)
    if config.dedupe == 'paragraphs':
      documents = _unique_paragraphs(list(documents), config, lost)
    shards = collections.defaultdict(list)
    for document in documents:
      shards[shard_of(document, {language: numbers})].append(document)
    with write_errors('the corpus', folder):
      written = [
        write_shard(folder, language, split, index, numbers[split], of_shard)
        for (split, index), of_shard in shards.items()
      ]
      finish_language(folder, language, numbers, written, lost)


def _documents(
  parts: Sequence[Part], config: CorpusConfig, lost: collections.Counter, tell: Tell
) -> Iterator[Document]:
  found = (clean(each, config) for part in parts for each in read_part(part))
  for number, document in enumerate(_without_losses(found, lost)):
    if number % _TELL_EVERY == 0:
      tell(f'{document.language} · {number:,} documents')
    yield document


def _unique_documents(documents: Iterable[Document], lost: collections.Counter) -> Iterator[Document]:
  same = collections.defaultdict(list)
  for document in documents:
    same[document.digest].append(document)
  return _without_losses((each for of_text in same.values() for each in first_of(of_text)), lost)


def _unique_paragraphs(
  documents: Sequence[Document], config: CorpusConfig, lost: collections.Counter
) -> Iterator[Document]:
  places: dict[bytes, tuple[bytes, int]] = {}
  for document in documents:
    for digest, place in paragraph_places(document):
      places[digest] = min(place, places.get(digest, place))
  kept = collections.defaultdict(list)
  for document, index in places.values():
    kept[document].append(index)
  found = (each for document in documents for each in keep_paragraphs(document, kept[document.digest], config))
  return _without_losses(found, lost)


def _without_losses(found: Iterable[Document | Lost], lost: collections.Counter) -> Iterator[Document]:
  """The documents; losses are added up."""
  for each in found:
    if isinstance(each, Lost):
      lost[each.reason] += each.count
    else:
      yield each
