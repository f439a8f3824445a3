"""Links within the wiki: `[[target|label]]` reads as its label; a link to a picture or a category as nothing.

`namespaces.json` has the names under which links embed a picture or file the article, by edition: the current one
first, then those that older text still uses. MediaWiki and its translators fixed them. A name missing there costs
little: a dump's own header names its namespaces (`dumps.read_namespaces`), and a picture is known by the ending of its
name.
"""

import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Iterable, Mapping

from tasks.wikipedia.text import hide_separators

_MEDIA, _FILE, _CATEGORY = -2, 6, 14  # MediaWiki's numbers


@dataclasses.dataclass(frozen=True)
class LinkNamespaces:
  """What may stand before the colon of a link that shows nothing of the article; names are case folded.

  Attributes:
    files: names under which a link embeds a picture or offers a sound.
    categories: names under which a link files the article.
  """

  files: frozenset[str]
  categories: frozenset[str]


def link_namespaces(own: Mapping[int, str] | None = None) -> LinkNamespaces:
  """The names of all editions, and beside them a wiki's own.

  Args:
    own: names by MediaWiki's number, as `dumps.read_namespaces` finds them in a dump.
  """
  names = tuple((number, name.casefold()) for number, name in (own or {}).items())
  return _link_namespaces(tuple(item for item in names if item[0] in (_MEDIA, _FILE, _CATEGORY)))


@functools.lru_cache(maxsize=256)
def _link_namespaces(own: tuple[tuple[int, str], ...]) -> LinkNamespaces:
  return LinkNamespaces(
    files=file_namespaces() | {name for number, name in own if number != _CATEGORY},
    categories=category_namespaces() | {name for number, name in own if number == _CATEGORY},
  )


@functools.cache
def file_namespaces() -> frozenset[str]:
  """Names under which links embed a picture or offer a sound, case folded, in all the editions of the table."""
  return _fold_case(*_table()['files'].values(), _table()['media'])


@functools.cache
def category_namespaces() -> frozenset[str]:
  """Names under which links file the article, case folded, in all the editions of the table."""
  return _fold_case(*_table()['categories'].values())


@functools.cache
def _table() -> dict:
  return json.loads((pathlib.Path(__file__).parent / 'namespaces.json').read_text('utf-8'))


def _fold_case(*editions: Iterable[str]) -> frozenset[str]:
  return frozenset(name.casefold() for names in editions for name in names)


# --- links ------------------------------------------------------------------------------------------------------------

_SIMPLE_LINK = re.compile(r'\[\[(?:[^\[\]{}|:\n]*+\|)?+([^\[\]{}|:=\n]++)\]\]')
# A link that lacks a bracket: `[[Vienna|Viennese]`, `[Vienna|Viennese]]`.
_HALF_LINK = re.compile(
  r'\[(?:\[[^\[\]|:\n]{1,100}\|([^\[\]|\n]{1,100})\](?!\])|(?<!\[\[)[^\[\]|:\n]{1,100}\|([^\[\]|\n]{1,100})\]\])'
)
_FILE_NAME = re.compile(
  r'\.(?:jpe?g|png|svg|gif|og[gav]|webm|pdf|djvu|tiff?|webp|mp[34]|wav|xcf|midi?|flac|opus)\s*$', re.IGNORECASE
)
_TEMPLATE_EDGE = re.compile(r'(\{\{|\}\})')
_LANGUAGE_PREFIX = re.compile(r'[a-z]{2,3}|[a-z]{2,3}-[a-z-]{2,9}|simple|tarask')
_PROJECT_PREFIXES = frozenset(
  {
    *('b', 'c', 'd', 'm', 'n', 'q', 's', 'v', 'w', 'mw', 'voy', 'wikt', 'bug', 'doi', 'rfc', 'species', 'commons'),
    *('meta', 'wikibooks', 'wikinews', 'wikiquote', 'wikisource', 'wikipedia', 'wiktionary', 'wikivoyage', 'wikidata'),
  }
)


def with_plain_links_read(text: str) -> str:
  """Reads the links that hold no other markup: nine in ten, at the speed of the pattern matcher."""
  text = _SIMPLE_LINK.sub(r'\1', text)
  return _HALF_LINK.sub(lambda match: match[1] or match[2], text)


def is_embedded(target: str, namespaces: LinkNamespaces) -> bool:
  """Whether a link to `target` shows a picture or offers a sound."""
  prefix, colon, rest = target.partition(':')
  if not colon:
    return False
  return prefix.strip().replace('_', ' ').casefold() in namespaces.files or _FILE_NAME.search(rest) is not None


def link_text(content: str, namespaces: LinkNamespaces) -> str:
  """What a reader sees of the link `[[content]]`; empty for pictures, categories, and the same article elsewhere.

  Args:
    content: target, and label after a bar; links and templates within it have been read.
    namespaces: of the wiki.
  """
  target, bar, label = content.partition('|')
  prefix, colon, rest = target.partition(':')
  if colon:
    name = prefix.strip().replace('_', ' ')
    if is_embedded(target, namespaces) or name.casefold() in namespaces.categories:
      return ''
    if _LANGUAGE_PREFIX.fullmatch(name) and name not in _PROJECT_PREFIXES:
      return ''
    if not name:  # `[[:de:Fluss]]`, `[[:Category:Rivers]]`: a link that is shown as any other
      target = re.sub(r'[a-z-]{1,12}:', '', rest, count=1) if re.match(r'\s*[a-z-]{1,12}:', rest) else rest
    elif name in _PROJECT_PREFIXES:
      target = rest
  if '\n\n' in content:
    return content  # no link reaches over paragraphs: the brackets were not one
  shown = label if label.strip() else target
  if bar and not label.strip():
    shown = re.sub(r'\s*\([^()]*\)\s*$', '', shown)  # `[[Mercury (planet)|]]`
  return _as_argument(shown.strip(' ' if bar else None).replace('\n', ' '))


def _as_argument(shown: str) -> str:
  """The label with stand-ins for bars and equals signs: were it inside a template, they would part its arguments.

  Those of templates in the label itself stay as they are, for they do part arguments.
  """
  if '{{' not in shown:
    return hide_separators(shown)
  depth, pieces = 0, []
  for piece in _TEMPLATE_EDGE.split(shown):
    depth += (piece == '{{') - (piece == '}}')
    pieces.append(piece if depth else hide_separators(piece))
  return ''.join(pieces)
