"""Reads MediaWiki XML exports as a stream: finds the dumps of each language, then yields their pages one at a time.

A dump is never in memory as a whole. The decompressed bytes are split at `<page>` … `</page>`, and every page is parsed
separately, so that a malformed page affects only itself, and a truncated dump yields all pages before its end. `Dump`
counts the losses.

The language of a dump is that of its file name: extracts are often made with the header of another wiki.
"""

import dataclasses
import fnmatch
import html
import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree

from etils import epath

from rembert.errors import UsageError
from rembert.files import decompressed, is_archive_damage
from tasks.wikipedia.languages import language_of_database

_CHUNK = 1 << 20  # bytes, decompressed, that are read at a time
_LARGEST_PAGE = 64 << 20  # MediaWiki rejects articles above 2 MiB; a page with its history can be longer
_LARGEST_HEADER = 1 << 20  # a real one has a few KiB; otherwise the file is not a dump

_ENDING = r'\.xml(?:-p\d+p\d+)?(?:\.(?:bz2|gz|xz))?'
_DUMP_NAME = re.compile(rf'(?P<database>[a-z][a-z0-9_-]*?wiki)(?:[-_.].*)?{_ENDING}', re.ASCII)
_DUMP_SUFFIX = re.compile(rf'.*{_ENDING}', re.ASCII)
# A mirror's directory also holds files of the same wiki that have no article text.
_WITHOUT_TEXT = re.compile(r'-(abstract|stub|pages-logging|pages-meta-history|siteinfo|flow)[^/]*$')
# `#REDIRECT [[…]]` in any language: one word right after the sign, while a list item has a space there.
_REDIRECT = re.compile(r'\s*#[^\W\d][^\[\]\n]{0,40}\[\[')
_NAMESPACE = re.compile(rb'<namespace\s[^>]*key="(-?\d+)"[^>]*>([^<]+)</namespace>')


class DamagedDump(UsageError):
  """A file that can be opened but has no page: not an export, or corrupt before its first page. Permanent."""


# --- finding ----------------------------------------------------------------------------------------------------------


def find_dumps(pattern: str | Sequence[str]) -> dict[str, list[epath.Path]]:
  """Returns the dumps of each Wikipedia, languages and files in sorted order.

  Args:
    pattern: a directory (searched recursively), a file, a glob, or several of these in a list or separated
      by commas; local, or on any storage that `etils.epath` supports (`gs://…`).

  Raises:
    UsageError: nothing matches, or a file name does not name its language.
  """
  patterns = _patterns(pattern)
  paths = sorted({str(path) for each in patterns for path in _matches(each)})
  if not paths:
    fix = [_what_is_there(each) for each in patterns]
    raise UsageError('no dump found', where=', '.join(patterns) or 'an empty pattern', fix=fix)
  found: dict[str, list[epath.Path]] = {}
  for path in map(epath.Path, paths):
    name = _DUMP_NAME.fullmatch(path.name)
    language = language_of_database(name['database']) if name else None
    if language is None:
      raise UsageError(
        f'the file name {path.name} does not name a Wikipedia language',
        where=str(path),
        fix='rename it like enwiki-20230501-pages-articles.xml.bz2, or choose files with a glob: */*wiki-*.xml.bz2',
      )
    found.setdefault(language, []).append(path)
  return dict(sorted(found.items()))


def _patterns(pattern: str | Sequence[str]) -> list[str]:
  if not isinstance(pattern, str):
    return [part for item in pattern for part in _patterns(item)]
  if ',' in pattern and not epath.Path(pattern).exists():
    return [part.strip() for part in pattern.split(',') if part.strip()]
  return [pattern.strip()] if pattern.strip() else []


def _matches(pattern: str) -> Iterable[epath.Path]:
  path = epath.Path(pattern).expanduser()
  if path.is_dir():
    return [file for file, _ in _files_below(path) if not _WITHOUT_TEXT.search(file.name)]
  if path.exists():
    return [path]
  root = path  # the directory above the first component with a wildcard
  while re.search(r'[*?\[]', str(root)):
    root = root.parent
  rest = str(path).removeprefix(str(root)).lstrip('/')
  if not rest or not root.exists():
    return []
  if '**' in rest:  # epath rejects it; walking costs the same on a local disk
    glob = rest.replace('**/', '*')
    return [file for file, inside in _files_below(root) if fnmatch.fnmatchcase(inside, glob)]
  found = list(root.glob(rest))
  below = itertools.chain.from_iterable(_matches(str(match)) for match in found if match.is_dir())
  return [*below, *(match for match in found if _DUMP_SUFFIX.fullmatch(match.name) and not match.is_dir())]


def _files_below(root: epath.Path) -> Iterator[tuple[epath.Path, str]]:
  """Files with the suffix of dumps, except hidden ones, and their paths relative to a directory."""
  for folder, _, names in root.walk():
    for name in names:
      if _DUMP_SUFFIX.fullmatch(name) and not name.startswith('.'):
        yield folder / name, str(folder / name).removeprefix(str(root)).lstrip('/')


def _what_is_there(pattern: str) -> str:
  root = epath.Path(pattern).expanduser()
  while not root.is_dir() and root.parent != root:
    root = root.parent
  names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
  shown = ', '.join(names[:12]) + (f', … ({len(names)} in total)' if len(names) > 12 else '')
  return f'searched for *.xml, *.xml.bz2, *.xml.gz and *.xml.xz; {root} contains {shown or "nothing"}'


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Page:
  """The newest revision of a page. Articles are in namespace 0; `page_id` is 0 if the export has none."""

  title: str
  namespace: int
  page_id: int
  is_redirect: bool
  text: str


class Dump:
  """An export in UTF-8, plain or compressed with gzip, bzip2 or xz, as published by Wikimedia."""

  def __init__(self, path: epath.PathLike):
    self.path = epath.Path(path)
    self.namespaces: dict[int, str] = {}  # names by number, `{6: 'Datei', …}`, from the first page on
    self.broken_pages = 0  # so far: malformed, unclosed, or larger than 64 MiB
    self.is_truncated = False  # the file or its archive; known at the end
    self._archive_damage, self._is_closed = '', False

  def articles(self) -> Iterator[Page]:
    """The pages of namespace 0 that are not redirects; otherwise as `pages`."""
    for page in self.pages():
      if page.namespace == 0 and not page.is_redirect:
        yield page

  def pages(self) -> Iterator[Page]:
    """Yields the pages in file order, in constant memory; of a page with a history, the last revision in the file.

    Raises:
      UsageError: the file cannot be opened.
      DamagedDump: it is not a MediaWiki export, or is corrupt before its first complete page.
    """
    pages = 0
    for fragment in self._fragments(self._chunks()):
      page = self._parse(fragment)
      if page is None:
        self.broken_pages += 1
        continue
      pages += 1
      yield page
    damage = self._archive_damage or ('' if self._is_closed else 'the closing tag </mediawiki> is missing')
    self.is_truncated = bool(damage)
    if damage and not pages:
      raise DamagedDump(
        f'no complete page in {self.path.name}', where=f'{self.path}: {damage}', fix='fetch the file again'
      )
    if damage:
      # Not by absl, whose logger a run silences.
      logging.getLogger(__name__).warning('%s: %s; read %d complete pages.', self.path, damage, pages)

  def _chunks(self) -> Iterator[bytes]:
    """Yields the decompressed bytes, up to the first corruption of the archive."""
    try:
      file = self.path.open('rb')
    except (OSError, ValueError) as error:
      raise UsageError(
        f'cannot open the dump {self.path.name}',
        where=f'{self.path}: {error}',
        fix='check that the file exists and is readable',
      ) from error
    with file:
      stream = decompressed(file)
      # At most one read of the file, so that everything decompressed before the corruption is kept.
      read = getattr(stream, 'read1', stream.read)
      try:
        while chunk := read(_CHUNK):
          yield chunk
      except Exception as error:
        if not is_archive_damage(error):
          raise
        self._archive_damage = f'the archive is corrupt ({error})'

  def _fragments(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Splits a byte stream at `<page>` … `</page>`. Counts pages that are unclosed or too large as broken."""
    buffer, searched, is_in_header, is_skipping = bytearray(), 0, True, False
    for chunk in chunks:
      buffer += chunk
      if is_in_header:
        start = buffer.find(b'<page>')
        if start < 0 and len(buffer) < _LARGEST_HEADER:
          continue
        self._read_header(buffer, start)
        is_in_header = False
      begin = 0
      while (end := buffer.find(b'</page>', max(begin, searched))) >= 0:
        end += len(b'</page>')
        # An unclosed page is followed by the next opening tag, so only the last one counts.
        start = buffer.rfind(b'<page>', begin, end)
        self.broken_pages += buffer.count(b'<page>', begin, max(start, begin))
        if start >= 0:
          yield bytes(buffer[start:end])
        elif not is_skipping:
          self.broken_pages += 1
        begin, is_skipping = end, False
      del buffer[:begin]
      searched = max(0, len(buffer) - len(b'</page>') + 1)
      if len(buffer) > _LARGEST_PAGE:
        self.broken_pages += not is_skipping
        is_skipping = True
        del buffer[: -len(b'</mediawiki>')]
        searched = 0
    if is_in_header:
      self._read_header(buffer, -1)
    self.broken_pages += buffer.count(b'<page>')
    self._is_closed = b'</mediawiki>' in buffer

  def _read_header(self, buffer: bytearray, first_page: int) -> None:
    header = bytes(buffer if first_page < 0 else buffer[:first_page])
    # By pattern, since a parser would reject a truncated header. Pages without a root element are part of a dump.
    if first_page < 0 and b'<mediawiki' not in header and not self._archive_damage:
      raise DamagedDump(
        f'{self.path.name} is not a MediaWiki export',
        where=f'{self.path}: neither <mediawiki> nor <page> in its first MiB',
        fix='use a file called *-pages-articles*.xml, in UTF-8, plain or as .bz2, .gz or .xz (unpack others first)',
      )
    found = _NAMESPACE.findall(header)
    self.namespaces = {int(key): html.unescape(name.decode('utf-8', 'replace')) for key, name in found}

  def _parse(self, fragment: bytes) -> Page | None:
    """Parses a page; None if it is malformed. Inside an element no document type can declare entities."""
    try:
      page = ElementTree.fromstring(fragment)
      title = page.findtext('title')
      revisions = page.findall('revision')
      if not title or not revisions:
        return None
      text = revisions[-1].findtext('text') or ''
      number = page.findtext('ns')
      # Exports before version 0.6 (2012) have no <ns>, before 0.4 no <redirect>.
      prefix = title.partition(':')[0].casefold()
      by_title = (key for key, name in self.namespaces.items() if name.casefold() == prefix)
      namespace = int(number) if number is not None else next(by_title, 0)
      is_redirect = page.find('redirect') is not None or _REDIRECT.match(text) is not None
      return Page(title, namespace, int(page.findtext('id') or 0), is_redirect, text)
    except (ElementTree.ParseError, ValueError):
      return None
