"""MediaWiki XML exports, read as a stream: find the dumps of each language, then their pages one at a time.

A dump is never held in memory. The decompressed bytes are cut at `<page>` … `</page>` and every page is parsed by
itself, so that a page that is broken costs that page only, and a dump that was cut off gives all the pages before the
cut. What was lost is counted in `ReadCounts`, never passed over.

The language of a dump is that of its file name. Headers lie: extracts are often made with the header of another wiki.
"""

import bz2
import codecs
import dataclasses
import difflib
import fnmatch
import functools
import html
import itertools
import logging
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from xml.etree import ElementTree

from etils import epath

from rembert.errors import UsageError
from tasks.wikipedia import languages as wikipedia_languages

_CHUNK = 1 << 20  # bytes, compressed or not, that are held at a time beside the page being read
_LARGEST_PAGE = 64 << 20  # MediaWiki refuses articles above 2 MiB; with a history a page can be longer, up to a point
_LARGEST_HEADER = 1 << 20  # a real one is a few KiB; beyond this the file is something else

_ENDING = r'\.xml(?:-p\d+p\d+)?(?:\.(?:bz2|gz|xz))?'
_DUMP_NAME = re.compile(rf'(?P<database>[a-z][a-z0-9_-]*?wiki)(?:[-_.].*)?{_ENDING}', re.ASCII)
_DUMP_SUFFIX = re.compile(rf'.*{_ENDING}', re.ASCII)
# Beside the articles, a mirror's folder holds files of the same wiki that have no article text.
_WITHOUT_TEXT = re.compile(r'-(abstract|stub|pages-logging|pages-meta-history|siteinfo|flow)[^/]*$')
# `#REDIRECT [[…]]` in any language: one word right after the sign, while a list item has a blank there.
_REDIRECT = re.compile(r'\s*#[^\W\d][^\[\]\n]{0,40}\[\[')
_NAMESPACE = re.compile(rb'<namespace\s[^>]*key="(-?\d+)"[^>]*>([^<]+)</namespace>')


@functools.cache
def warn_once(message: str, *arguments) -> None:
  """Logs a warning, the first time: a dump is read in every epoch. Not through absl, whose logger a run silences."""
  logging.getLogger(__name__).warning(message, *arguments)


class DamagedDump(UsageError):
  """A file that can be opened and gives no page: no export, or damaged before its first page. It stays that way."""


@dataclasses.dataclass(frozen=True)
class Page:
  """The newest revision of one page. Articles are in namespace 0; `page_id` is 0 where the export has none."""

  title: str
  namespace: int
  page_id: int
  is_redirect: bool
  text: str


@dataclasses.dataclass
class ReadCounts:
  """What was lost, filled while reading; several dumps add up in one object.

  Attributes:
    broken_pages: pages lost because they are not well-formed, not closed, or larger than 64 MiB.
    truncated: whether a file ended before its closing tag, or its archive before its end.
  """

  broken_pages: int = 0
  truncated: bool = False


def find_dumps(
  pattern: str | Sequence[str], languages: Sequence[str] | None = None, *, where_there: Sequence[str] = ()
) -> dict[str, list[epath.Path]]:
  """Returns the dumps of each Wikipedia, languages and files in sorted order.

  Args:
    pattern: a folder (searched with everything below it), a file, a glob, or several of these in a list or separated
      by commas; local, or on any store that `etils.epath` knows (`gs://…`).
    languages: the languages to return, by Wikipedia code or database name; all that are there when None.
    where_there: editions to return as well, those of them that have a dump.

  Raises:
    UsageError: nothing matches, a file name does not tell its language, a requested language has no dump, or no
      language is left.
  """
  patterns = _patterns(pattern)
  paths = sorted({str(path) for p in patterns for path in _matches(p)})
  if not paths:
    raise UsageError(
      'no dump found', where=', '.join(patterns) or 'an empty pattern', fix=[_what_is_there(p) for p in patterns]
    )
  found: dict[str, list[epath.Path]] = {}
  for path in map(epath.Path, paths):
    name = _DUMP_NAME.fullmatch(path.name)
    language = wikipedia_languages.language_of_database(name['database']) if name else None
    if language is None:
      raise UsageError(
        f'the file name {path.name} does not tell a Wikipedia language',
        where=str(path),
        fix='name it like enwiki-20230501-pages-articles.xml.bz2, or choose the files with a glob: */*wiki-*.xml.bz2',
      )
    found.setdefault(language, []).append(path)
  if languages is None:
    return {language: found[language] for language in sorted(found)}
  wanted = [wikipedia_languages.edition_of(language) or language for language in languages]
  missing = [language for language in wanted if language not in found]
  if missing:
    near = {m: difflib.get_close_matches(m, found, n=1, cutoff=0.5) for m in missing}
    raise UsageError(
      f'no dump of {", ".join(missing)}',
      where=', '.join(patterns),
      fix=[f'did you mean {near[m][0]!r} for {m!r}?' for m in missing if near[m]]
      + [f'choose among {_shortened(sorted(found))}, or add the missing dumps'],
    )
  chosen = {*wanted, *(language for language in where_there if language in found)}
  if not chosen:
    raise UsageError(
      f'no dump of any of the {len(where_there)} languages asked for',
      where=', '.join(patterns),
      fix=f'choose among {_shortened(sorted(found))}, or add dumps',
    )
  return {language: found[language] for language in sorted(chosen)}


def _patterns(pattern: str | Sequence[str]) -> list[str]:
  if not isinstance(pattern, str):
    return [part for item in pattern for part in _patterns(str(item))]
  if ',' in pattern and not epath.Path(pattern).exists():
    return [part.strip() for part in pattern.split(',') if part.strip()]
  return [pattern.strip()] if pattern.strip() else []


def _split_glob(pattern: str) -> tuple[epath.Path, str]:
  """The folder above the first component with a wildcard, and the rest."""
  parts = pattern.split('/')
  first = next((i for i, part in enumerate(parts) if re.search(r'[*?\[]', part)), len(parts))
  root = '/'.join(parts[:first]) or ('/' if pattern.startswith('/') else '.')
  return epath.Path(root), '/'.join(parts[first:])


def _matches(pattern: str) -> Iterable[epath.Path]:
  path = epath.Path(pattern).expanduser()
  if path.is_dir():
    for file, _ in _files_below(path):
      if not file.name.startswith('.') and not _WITHOUT_TEXT.search(file.name):
        yield file
    return
  if path.exists():
    yield path
    return
  root, rest = _split_glob(str(path))
  if not rest or not root.exists():
    return
  if '**' in rest:  # epath refuses it; the walk is the same work on a local disk
    glob = rest.replace('**/', '*')
    yield from (file for file, inside in _files_below(root) if fnmatch.fnmatchcase(inside, glob))
    return
  for match in root.glob(rest):
    if match.is_dir():
      yield from _matches(str(match))
    elif _DUMP_SUFFIX.fullmatch(match.name):
      yield match


def _files_below(root: epath.Path) -> Iterator[tuple[epath.Path, str]]:
  """Files whose names end as those of dumps do, and where they lie below a folder."""
  for folder, _, names in root.walk():
    for name in names:
      if _DUMP_SUFFIX.fullmatch(name):
        yield folder / name, str(folder / name).removeprefix(str(root)).lstrip('/')


def _what_is_there(pattern: str) -> str:
  root, _ = _split_glob(str(epath.Path(pattern).expanduser()))
  while not root.is_dir() and root.parent != root:
    root = root.parent
  names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
  looked_for = 'looked for *.xml, *.xml.bz2, *.xml.gz and *.xml.xz'
  return f'{looked_for}; {root} holds {_shortened(names) if names else "nothing"}'


def _shortened(names: Sequence[str], most: int = 12) -> str:
  return ', '.join(names[:most]) + (f', … ({len(names)} in all)' if len(names) > most else '')


def read_pages(path: epath.PathLike, *, counts: ReadCounts | None = None) -> Iterator[Page]:
  """Yields the pages of one dump in file order, in constant memory.

  Plain, gzip, bzip2 (one stream or many) and xz, told apart by their first bytes; UTF-8, or UTF-16 with a byte order
  mark. Of a page with a history, the last revision in the file is taken.

  Raises:
    UsageError: the file cannot be opened.
    DamagedDump: it is not a MediaWiki export, or is damaged before its first whole page.
  """
  path = epath.Path(path)
  counts = ReadCounts() if counts is None else counts
  archive, splitter, pages = _Archive(path), _Splitter(counts), 0
  for fragment in splitter.split(_as_utf8(archive.chunks())):
    page = _parse_page(fragment, splitter.namespaces)
    if page is None:
      counts.broken_pages += 1
      continue
    pages += 1
    yield page
  if not splitter.is_export and not archive.damage:
    raise _not_an_export(path)
  if splitter.is_closed and not archive.damage:
    return
  counts.truncated = True
  damage = archive.damage or 'the closing tag </mediawiki> is missing'
  if not pages:
    raise DamagedDump(f'no whole page in {path.name}', where=f'{path}: {damage}', fix='fetch the file again')
  warn_once('%s: %s; it gave %d whole pages.', path, damage, pages)


def read_articles(path: epath.PathLike, *, counts: ReadCounts | None = None) -> Iterator[Page]:
  """Yields the pages of namespace 0 that are no redirects; otherwise as `read_pages`."""
  for page in read_pages(path, counts=counts):
    if page.namespace == 0 and not page.is_redirect:
      yield page


def read_namespaces(path: epath.PathLike) -> dict[int, str]:
  """Returns the namespace names in the header of a dump, `{6: 'Datei', 14: 'Kategorie', …}`; empty without one.

  Raises as `read_pages` does for a file that cannot be opened, or is not a MediaWiki export.
  """
  path = epath.Path(path)
  archive, splitter = _Archive(path), _Splitter(ReadCounts())
  next(splitter.split(_as_utf8(archive.chunks())), None)
  if not splitter.is_export and not archive.damage:
    raise _not_an_export(path)
  return splitter.namespaces


def _not_an_export(path: epath.Path) -> DamagedDump:
  return DamagedDump(
    f'{path.name} is not a MediaWiki export',
    where=f'{path}: neither <mediawiki> nor <page> in its first MiB',
    fix='use a file called *-pages-articles*.xml, plain or as .bz2, .gz or .xz (others must be unpacked first)',
  )


class _Archive:
  """The decompressed bytes of a file, in chunks; what stopped them short is kept in `damage`."""

  def __init__(self, path: epath.Path):
    self.damage = ''
    self._path = path

  def chunks(self) -> Iterator[bytes]:
    try:
      file = self._path.open('rb')
    except (OSError, ValueError) as error:
      raise UsageError(
        f'cannot open the dump {self._path.name}',
        where=f'{self._path}: {error}',
        fix='check that the file is there and that you may read it',
      ) from error
    with file:
      first = file.read(_CHUNK)
      data = itertools.chain([first], iter(lambda: file.read(_CHUNK), b''))
      new_decompressor = next((new for magic, new in _DECOMPRESSORS.items() if first.startswith(magic)), None)
      yield from self._decompressed(data, new_decompressor) if new_decompressor else data

  def _decompressed(self, data: Iterable[bytes], new_decompressor: Callable) -> Iterator[bytes]:
    decompressor = None  # between two streams
    for pending in data:
      while pending or not (decompressor is None or decompressor.needs_input):
        if decompressor is None:
          pending = pending.lstrip(b'\0')  # xz and gzip files may be padded between streams
          if not pending:
            break
          decompressor = new_decompressor()
        try:
          # The cap keeps an archive that expands a thousandfold from filling the memory.
          chunk = decompressor.decompress(pending, _CHUNK)
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
          self.damage = f'the archive is damaged ({error})'
          return
        if chunk:
          yield chunk
        pending = decompressor.unused_data if decompressor.eof else b''
        decompressor = None if decompressor.eof else decompressor
    if decompressor is not None:
      self.damage = 'the archive ends before its end marker'


class _GzipDecompressor:
  """`zlib` behind the interface that the decompressors of `bz2` and `lzma` share."""

  def __init__(self):
    self._inflate, self.needs_input = zlib.decompressobj(wbits=31), True

  def decompress(self, data: bytes, max_length: int) -> bytes:
    chunk = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
    self.needs_input = not self._inflate.unconsumed_tail and len(chunk) < max_length
    return chunk

  def __getattr__(self, name: str):
    return getattr(self._inflate, name)  # eof, unused_data


_DECOMPRESSORS: dict[bytes, Callable] = {
  b'BZh': bz2.BZ2Decompressor,
  b'\xfd7zXZ\x00': functools.partial(lzma.LZMADecompressor, lzma.FORMAT_XZ),
  b'\x1f\x8b': _GzipDecompressor,
}


def _as_utf8(chunks: Iterator[bytes]) -> Iterator[bytes]:
  """The same text as UTF-8 without a byte order mark, whatever mark it begins with."""
  first = next(chunks, b'').removeprefix(codecs.BOM_UTF8)
  marks = {codecs.BOM_UTF16_LE: 'utf-16', codecs.BOM_UTF16_BE: 'utf-16', b'<\0': 'utf-16-le', b'\0<': 'utf-16-be'}
  encoding = next((name for mark, name in marks.items() if first.startswith(mark)), None)
  chunks = itertools.chain([first], chunks)
  if encoding is None:
    return chunks
  decoder = codecs.getincrementaldecoder(encoding)(errors='replace')
  return (decoder.decode(chunk).encode('utf-8', 'replace') for chunk in chunks)


class _Splitter:
  """Cuts a byte stream into pages.

  Pages that are not closed or too large are counted as broken.

  Attributes:
    namespaces: names by number, in the header before the first page.
    is_export: whether the first 1 MiB held a page or the root element of an export.
    is_closed: whether the end of the export was seen after the last page.
  """

  def __init__(self, counts: ReadCounts):
    self.namespaces: dict[int, str] = {}
    self.is_export = self.is_closed = False
    self._counts = counts

  def split(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields `<page>` … `</page>`; nothing when it is no export."""
    buffer, searched, is_in_header, is_skipping = bytearray(), 0, True, False
    for chunk in chunks:
      buffer += chunk
      if is_in_header:
        start = buffer.find(b'<page>')
        if start < 0 and len(buffer) < _LARGEST_HEADER:
          continue
        self._end_header(buffer, start)
        is_in_header = False
        if not self.is_export:
          return
      begin = 0
      while (end := buffer.find(b'</page>', max(begin, searched))) >= 0:
        end += len(b'</page>')
        # A page that was never closed is followed by the next one's opening: only the last opening counts.
        start = buffer.rfind(b'<page>', begin, end)
        self._counts.broken_pages += buffer.count(b'<page>', begin, max(start, begin))
        if start >= 0:
          yield bytes(buffer[start:end])
        elif not is_skipping:
          self._counts.broken_pages += 1
        begin, is_skipping = end, False
      del buffer[:begin]
      searched = max(0, len(buffer) - len(b'</page>') + 1)
      if len(buffer) > _LARGEST_PAGE:
        self._counts.broken_pages += not is_skipping
        is_skipping = True
        del buffer[: -len(b'</mediawiki>')]
        searched = 0
    if is_in_header:
      self._end_header(buffer, -1)
    self._counts.broken_pages += buffer.count(b'<page>')
    self.is_closed = b'</mediawiki>' in buffer

  def _end_header(self, buffer: bytearray, first_page: int) -> None:
    header = bytes(buffer if first_page < 0 else buffer[:first_page])
    # By pattern: a header that was cut off is no document that a parser would take.
    found = _NAMESPACE.findall(header)
    self.namespaces = {int(key): html.unescape(name.decode('utf-8', 'replace')) for key, name in found}
    # Pages without a root element are a piece cut out of a dump: as good as any.
    self.is_export = first_page >= 0 or b'<mediawiki' in header


def _parse_page(fragment: bytes, namespaces: Mapping[int, str]) -> Page | None:
  """The page, None where it is broken. Inside an element no document type can stand, so no entity can be declared."""
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
    by_title = (key for key, name in namespaces.items() if name.casefold() == prefix)
    namespace = int(number) if number is not None else next(by_title, 0)
    is_redirect = page.find('redirect') is not None or _REDIRECT.match(text) is not None
    return Page(title, namespace, int(page.findtext('id') or 0), is_redirect, text)
  except (ElementTree.ParseError, ValueError):
    return None
