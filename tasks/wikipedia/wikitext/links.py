"""Links within the wiki: `[[target|label]]` reads as its label; a link to a picture or a category as nothing."""

import re

from tasks.wikipedia.wikitext import placeholders
from tasks.wikipedia.wikitext.namespaces import LinkNamespaces

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
    return placeholders.hide_separators(shown)
  depth, pieces = 0, []
  for piece in _TEMPLATE_EDGE.split(shown):
    depth += (piece == '{{') - (piece == '}}')
    pieces.append(piece if depth else placeholders.hide_separators(piece))
  return ''.join(pieces)
