"""Builds a corpus: text is cleaned, deduplicated, split and written, in this process or by Apache Beam.

Every step is a pure function: a document is identified by the hash of its text, which decides its split and its shard,
and orders the shard. Nothing depends on the order of work, so that both ways write the same bytes. A directory has one
recipe; completed languages are kept; the manifest is written last.
"""

import contextlib
import dataclasses
import hashlib
import os
import re
import shlex
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from etils import epath

from rembert.data.config import DataConfig
from rembert.data.token_store import SPLITS
from rembert.errors import UsageError
from rembert.files import write_errors
from rembert.tracking.console import Console, human_bytes
from rembert.validation import Count, FractionBelowOne, OneOf, check_fields
from tasks.beam import BeamRunner, BeamSteps, LocalSteps, Tell, check_recipe, run_in_groups
from tasks.corpus.format import (
  MANIFEST,
  Corpus,
  Document,
  finish_corpus,
  finish_language,
  finished_languages,
  open_corpus,
  write_shard,
)
from tasks.corpus.sources import (
  Lost,
  Part,
  RawDocument,
  bytes_by_language,
  find_parts,
  parts_to_read_together,
  read_together,
)
from tasks.wikipedia.cleaning import clean_wikitext

LARGEST = 1 << 30  # bytes of input of a language, compressed or not, that one process takes
_COLUMNS = ('text_column', 'language_column', 'language')
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


def make_corpus(
  parts: Sequence[Part],
  folder: epath.PathLike,
  config: CorpusConfig,
  console: Console,
  *,
  runner: BeamRunner | None = None,
  group_mb: float = 0,
  command: str = 'python -m tasks.corpus --help',
) -> Corpus:
  """Makes the languages that are not done yet, and writes the manifest; opens what is complete.

  Args:
    runner: of Apache Beam. None: in this process, a language at a time, all of it in memory.
    group_mb: Beam makes languages together up to this many MB of input; 0 for all at once.
    command: does the same with Apache Beam; for the message.

  Raises:
    UsageError: the directory holds a corpus built with different options; or all of it holds no text to train on; or,
      without Beam, a language has more than about 1 GB of input.
    RunError: the pipeline failed; the same call resumes it.
  """
  where, folder, sizes = os.fspath(folder), epath.Path(folder), bytes_by_language(parts)
  is_complete = (folder / MANIFEST).exists()
  large = [f'{name}: {human_bytes(size)}' for name, size in sizes.items() if size > LARGEST]
  if large and runner is None and not is_complete:
    raise UsageError(
      f'too much text to prepare in this process: at most {human_bytes(LARGEST)} of input per language',
      where=', '.join(large[:6]) + (', …' if len(large) > 6 else ''),
      fix=command,
    )
  recipe = dataclasses.asdict(config) | {'sources': [part.recipe() for part in parts]}
  check_recipe(folder, recipe, 'corpus')
  if not is_complete:

    def run(languages: list[str], tell: Tell) -> None:
      some = [part for part in parts if part.language in languages]
      if runner is not None:
        runner.run(lambda pipeline: _add_languages(BeamSteps(pipeline), some, where, config), where)
        return
      with write_errors('the corpus', folder):
        _add_languages(LocalSteps(lambda note: tell(f'{languages[0]} · {note}')), some, where, config)

    done = finished_languages(folder)
    left = {language: size for language, size in sizes.items() if language not in done}
    run_in_groups(left, 1 if runner is None else group_mb * (1 << 20), console, 'making the corpus', run)
    with write_errors('the corpus', folder):
      finish_corpus(folder, sizes, recipe)
  corpus = open_corpus(folder)
  if not any(counts.documents for counts in corpus.languages.values()):
    lost = corpus.lost
    fix = 'check that dumps are of articles (pages-articles), or lower min_characters and held_out'
    if {'not UTF-8', 'files in UTF-16'} & lost.keys():
      fix = f'write the files as UTF-8: iconv -f {"UTF-16" if "files in UTF-16" in lost else "LATIN1"} -t UTF-8'
    counts = ', '.join(f'{reason}: {count:,}' for reason, count in lost.items())
    raise UsageError(
      'the corpus holds no text to train on' + (f'; left out are {counts}' if counts else ''),
      where=f'{folder}; languages: {", ".join(corpus.languages)}',
      fix=fix,
    )
  return corpus


# --- where a corpus is needed -----------------------------------------------------------------------------------------


def find_corpus(
  data: DataConfig, workdir: epath.PathLike, console: Console, *, flag: str = '--gin.data.corpus'
) -> Callable[[], Corpus]:
  """A function that opens the corpus `data.corpus`, or makes `WORKDIR/corpus` in this process unless it is there.

  What is missing is a UsageError now, before any work; the function raises as `make_corpus` does. Text that is too much
  for this process is an error with the command that makes the corpus, and the flag that names it.
  """
  if data.corpus:
    opened = open_corpus(data.corpus).of_languages(data.languages, console.say)
    return lambda: opened
  parts, fields = find_parts(data, console.say), ('tfds_data_dir', 'languages', 'held_out', 'min_characters')
  config = CorpusConfig(held_out=data.held_out, min_characters=data.min_characters)
  values = {name: getattr(data, name) for name in (data.source, *(_COLUMNS if data.source == 'text' else ()), *fields)}
  given = shlex.join(
    f'--{name}={",".join(value) if isinstance(value, tuple) else value}'
    for name, value in values.items()
    if value is not None
  )
  command = f'python -m tasks.corpus {given} --output=CORPUS; then {flag}=CORPUS'
  return lambda: make_corpus(parts, epath.Path(workdir) / 'corpus', config, console, command=command)


@contextlib.contextmanager
def corpus_or_text(folder: epath.PathLike, languages: Sequence[str] | None, console: Console) -> Iterator[Corpus]:
  """The corpus in a folder; or its plain text, all of it, as a corpus in a directory that is deleted at the end."""
  chosen: dict[str, Any] = {'languages': languages and tuple(languages)}
  if (epath.Path(folder) / MANIFEST).exists():
    data = DataConfig(corpus=os.fspath(folder), **chosen)
  else:
    data = DataConfig(source='text', text=os.fspath(folder), held_out=0, min_characters=1, **chosen)
  with tempfile.TemporaryDirectory() as workdir:
    yield find_corpus(data, workdir, console)()


# --- documents --------------------------------------------------------------------------------------------------------


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
  sizes = {language: max(1, -(-size // config.shard_bytes)) for language, size in bytes_by_language(parts).items()}
  of_held_out = lambda train: max(1, round(train * config.held_out))
  return {language: {'train': train, 'validation': of_held_out(train)} for language, train in sizes.items()}


def shard_of(document: Document, numbers: Mapping[str, Mapping[str, int]]) -> tuple[str, int]:
  """Split and number of the shard that a document belongs to."""
  split = SPLITS[document.is_held_out]
  return split, int.from_bytes(document.digest[:8], 'big') % numbers[document.language][split]


# --- the steps, the same in this process and for Apache Beam ----------------------------------------------------------


def _add_languages(steps: LocalSteps | BeamSteps, parts: Sequence[Part], folder: str, config: CorpusConfig) -> None:
  """Everything that makes the languages of `parts`."""
  numbers = numbers_of_shards(parts, config)

  def regroup(label: str, found: Iterable, pairs_of: Callable, reduce: Callable) -> Any:
    """Regroups documents. What was lost passes through, those of a language and reason as one."""
    pairs = lambda each: [((each.language, each.reason), each)] if isinstance(each, Lost) else pairs_of(each)

    def results(key: Any, values: Iterable) -> Iterable:
      values = list(values)
      if isinstance(values[0], Lost):
        return [dataclasses.replace(values[0], count=sum(each.count for each in values))]
      return reduce(key, values)

    return steps.regroup(label, found, pairs, results)

  # --- documents, cleaned --------------------------------------------------------------
  found = steps.spread('read', steps.create('parts', parts_to_read_together(parts)), read_together)
  found = steps.spread('clean', found, lambda each: [clean(each, config)])

  # --- each document once ---------------------------------------------------------------
  by_text = lambda document: [((document.language, document.digest), document)]
  if config.dedupe != 'none':
    found = regroup('each document once', found, by_text, lambda _, same: first_of(same))

  # --- each paragraph once --------------------------------------------------------------
  if config.dedupe == 'paragraphs':
    # The first place of each paragraph, by document.
    places_of = lambda each: paragraph_places(each) if isinstance(each, Document) else ()
    first_place = lambda key, places: [((key[0], digest), index) for digest, index in [min(places)]]
    first = steps.regroup('first place of each paragraph', found, places_of, first_place)
    both = steps.flatten('documents and places', found, first)
    by_document = lambda each: by_text(each) if isinstance(each, Document) else [each]
    found = regroup('each paragraph once', both, by_document, lambda _, same: keep_paragraphs(same, config))

  # --- shards, counts, statistics -------------------------------------------------------
  to_shard = lambda document: [((document.language, *shard_of(document, numbers)), document)]
  written = regroup('write', found, to_shard, lambda shard, some: _write(folder, numbers, shard, some))
  languages = steps.create('languages', [(language, None) for language in numbers])
  by_language = lambda each: [(each.language, each) if isinstance(each, Lost) else each]
  finish = lambda language, found: finish_language(folder, language, numbers[language], found)
  steps.regroup('finish', steps.flatten('all of it', languages, written), by_language, finish)


def _write(folder: str, numbers: Mapping, shard: tuple[str, str, int], documents: Iterable[Document]) -> list:
  language, split, index = shard
  return [(language, write_shard(folder, language, split, index, numbers[language][split], documents))]
