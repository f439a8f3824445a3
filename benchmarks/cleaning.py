"""MediaWiki dumps to clean text on one core: this project beside wikiextractor 3.1.0.

A run reads all dumps of a setting from their files: it decompresses, cuts out the pages, and cleans the articles. Both
sides do this in one process and keep the text to themselves. For wikiextractor that is its own page reader
(`collect_pages`) and its `Extractor`, called for each page as its worker processes do: its command starts three
processes, even with `--processes 1`, which would share the one core and pass the pages through pipes, and to be charged
for that would not be fair. Its settings are those of `--text --no-templates`; reserved characters are not escaped.

Without templates, as a dump that begins in the middle holds no definitions, and as this project expands none: it reads
the arguments of those that stand in a sentence. wikiextractor's command nevertheless parses all templates and drops
those that it does not know, which is nearly all of them; its `clean` can also drop them unread, which is faster.

This project's side is what a corpus is made of: short articles are left out, and each text occurs once.
`MB` are those of the articles' wikitext, uncompressed, in UTF-8, the same for both.
"""

import collections
import dataclasses
import functools
import importlib.resources
import io
import logging
import lzma
import os
import pathlib
import typing
from collections.abc import Iterable, Iterator

from benchmarks.turns import Contestant, NotHere, Run
from rembert.errors import UsageError
from tasks.corpus.documents import CorpusConfig, Document, clean
from tasks.corpus.sources import Part, RawDocument, find_parts, read_part
from tasks.wikipedia.dumps import Dump, find_dumps, read_articles

DUMPS_VARIABLE = 'REMBERT_BENCH_DUMPS'

OURS, WIKIEXTRACTOR, UNREAD = 'this project', 'wikiextractor', '… templates dropped unread'


class Size(typing.NamedTuple):
  """What there is to clean."""

  articles: int
  megabytes: float


@dataclasses.dataclass(frozen=True)
class Setting:
  """Dumps, as `find_dumps` looks for them, and how many times a run goes through them."""

  pattern: str
  passes: int

  @functools.cached_property
  def dumps(self) -> list[list[Dump]]:
    """By language."""
    return list(find_dumps(self.pattern).values())

  @functools.cached_property
  def size(self) -> Size:
    """Of one pass, counted by reading it."""
    lengths = [len(page.text.encode()) for dumps in self.dumps for dump in dumps for page in read_articles(dump.path)]
    return Size(len(lengths), sum(lengths) / 1e6)

  @property
  def description(self) -> str:
    """One line."""
    files = sum(len(dumps) for dumps in self.dumps)
    return (
      f'{files} dumps in {len(self.dumps)} languages, {self.size.articles:,} articles, '
      f'{self.size.megabytes:.1f} MB of wikitext, {self.passes} ×'
    )


SETTINGS = {
  'sample': Setting(str(importlib.resources.files('tasks.wikipedia') / 'sample'), passes=5),
  'dumps': Setting(os.environ.get(DUMPS_VARIABLE, ''), passes=1),
}


def documents(parts: Iterable[Part], counts: collections.Counter) -> Iterator[Document]:
  """The documents of dumps, cleaned, each text once; `counts` has the articles read and the documents."""
  config, seen = CorpusConfig(held_out=0), set()
  for found in (found for part in parts for found in read_part(part)):
    counts['articles'] += isinstance(found, RawDocument)
    document = clean(found, config)
    if isinstance(document, Document) and document.digest not in seen:
      seen.add(document.digest)
      counts['documents'] += 1
      yield document


# --- contestants: each returns a function that cleans all dumps -------------------------------------------------------


def prepare_ours(setting: Setting) -> Run:
  """The documents of a corpus."""
  logging.getLogger('tasks.wikipedia.dumps').setLevel(logging.ERROR)  # that a dump is cut off has been said before

  def run() -> dict[str, int]:
    counts, characters = collections.Counter(), 0
    for _ in range(setting.passes):
      characters += sum(len(document.text) for document in documents(find_parts('dumps', setting.pattern), counts))
    return _per_pass(setting, counts['articles'], counts['documents'], characters)

  return run


def prepare_wikiextractor(setting: Setting, read_templates: bool) -> Run:
  """All pages through its `Extractor`; or, without reading templates, through the part of it that cleans."""
  from wikiextractor import WikiExtractor, extract

  ignored_tags = [*extract._DEFAULT_IGNORED_TAG_PATTERNS, extract.ignoreTag('a')]  # as its command has them

  def text_of(extractor: extract.Extractor) -> str:
    if not read_templates:
      return '\n'.join(extractor.clean_text(''.join(extractor.page), expand_templates=False, html_safe=False))
    text = io.StringIO()
    extractor.extract(text, html_safe=False)
    return text.getvalue().strip()

  def run() -> dict[str, int]:
    pages = characters = 0
    for _ in range(setting.passes):
      for dump in (dump for dumps in setting.dumps for dump in dumps):
        with _opened(WikiExtractor, str(dump.path)) as lines:
          prefix, namespaces = _namespaces(WikiExtractor, lines)
          for page_id, revision, title, page in WikiExtractor.collect_pages(lines):
            extractor = extract.Extractor(
              *(page_id, revision, '', title, page),
              templatePrefix=prefix,
              knownNamespaces=namespaces,
              ignored_tag_patterns=ignored_tags,
              to_text=True,
            )
            characters += len(text_of(extractor))
            pages += 1
    return _per_pass(setting, pages, pages, characters)

  return run


def _opened(wikiextractor, path: str) -> typing.TextIO:
  # It does not know xz. This is how it opens what it knows.
  return lzma.open(path, 'rt', encoding='utf-8') if path.endswith('.xz') else wikiextractor.decode_open(path)


def _namespaces(wikiextractor, lines: typing.TextIO) -> tuple[str, set[str]]:
  """Reads the header as its `process_dump` does: the prefix of templates, and all namespaces."""
  prefix, namespaces = '', {'Template'}
  for line in lines:
    found = wikiextractor.tagRE.search(line)
    if found and found.group(2) == 'namespace':
      namespaces.add(found.group(3))
      if 'key="10"' in line:
        wikiextractor.templateNamespace = found.group(3)
        prefix = f'{found.group(3)}:'
    elif found and found.group(2) == '/siteinfo':
      break
  return prefix, namespaces


def _per_pass(setting: Setting, articles: int, documents: int, characters: int) -> dict[str, int]:
  names = ('articles', 'documents', 'characters kept')
  return {name: count // setting.passes for name, count in zip(names, (articles, documents, characters), strict=True)}


def contestants(setting_name: str, scratch: pathlib.Path) -> list[Contestant]:
  """In the order in which they run; the first is this project, and ratios are taken to it."""
  del scratch
  setting = SETTINGS[setting_name]
  if not setting.pattern:
    raise NotHere(f'no larger dumps are named: {DUMPS_VARIABLE}=FOLDER (or a glob of MediaWiki exports)')
  try:
    work = {'MB': setting.passes * setting.size.megabytes, 'pages': setting.passes * setting.size.articles}
  except UsageError as error:
    raise NotHere(f'{error.what} ({error.where})') from error
  contestant = functools.partial(Contestant, work=work, one_core=True)
  return [
    contestant(OURS, prepare_ours, (setting,)),
    contestant(WIKIEXTRACTOR, prepare_wikiextractor, (setting, True)),
    contestant(UNREAD, prepare_wikiextractor, (setting, False)),
  ]
