"""Converts wikitext to paragraphs of clean prose.

Scanners that pass over the text once remove everything that is not prose: comments, references, tables, infoboxes,
images, categories. Their cost is linear for any input, and they leave little. `mwparserfromhell`, a full parser and
much slower, reads the arguments of templates that are part of a sentence (`templates`). Patterns undo the rest: bold
and italic marks, links, tags, entities (`text`).

Decisions:
- Formulas: `<math>` is dropped with the space before the punctuation after it, unless it is as simple as `x` or
  `n + 1`. Code blocks are dropped, inline `<code>` is kept.
- Sections of notes, sources and links are dropped with their subsections (`boilerplate_headings`); so are headings.
- A list item is a paragraph. A paragraph has at least three words, or eight characters of a script without spaces.
- Text is NFC with single spaces; soft hyphens, zero-width spaces and direction marks are dropped, joiners are kept,
  since they change how Persian, Hindi and emoji are written.
- Cleaning a paragraph again does not change it. Paragraphs that are still changing after a few rounds are dropped.
"""

import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping

from tasks.wikipedia import templates
from tasks.wikipedia.text import (
  HIDE,
  NOTHING,
  UNCLOSED,
  LinkNamespaces,
  is_embedded,
  link_namespaces,
  link_text,
  tidy,
  with_plain_links_read,
  without_inline_markup,
  without_placeholders,
)

LARGEST_ARTICLE = 4_000_000  # characters; MediaWiki stores at most 2 MiB of wikitext, so a larger one is corrupt
_MOST_ROUNDS = 4
_MIN_WORDS = 3
_MIN_UNSPACED = 8
# Characters that cleaning could interpret as markup.
_SUSPECT = re.compile(r"[\[\]{}<>|&~='_/](?:(?<=[\[\]{}<>|&~=])|(?<=''|__|//))|^[*#:;!\-]")
_UNSPACED = re.compile(
  '[\u0e01-\u0e4e\u0e81-\u0ecd\u0f40-\u0fbc\u1000-\u109f\u1780-\u17d3\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]'
)


def clean_wikitext(text: str, *, language: str, namespaces: Mapping[int, str] | None = None) -> list[str]:
  """Returns the paragraphs of an article in reading order; accepts any text.

  Args:
    text: wikitext. If it exceeds the size of an article, templates are removed by pattern, without the parser.
    language: Wikipedia's code; chooses the boilerplate headings and the variant of `-{…}-`.
    namespaces: the wiki's own names (`dumps.Dump.namespaces`), used in addition to those of all editions.
  """
  cleaner = _Cleaner(language, link_namespaces(namespaces), may_parse=len(text) <= LARGEST_ARTICLE)
  return list(cleaner.paragraphs(text))


@dataclasses.dataclass
class _Cleaner:
  language: str
  namespaces: LinkNamespaces
  may_parse: bool

  def paragraphs(self, text: str) -> Iterator[str]:
    for paragraph in self._rendered(text):
      stable = self._at_rest(paragraph)
      if stable and _is_long_enough(stable):
        yield stable

  def _at_rest(self, paragraph: str) -> str:
    """Cleans a paragraph until it no longer changes; '' if it does not become stable."""
    for _ in range(_MOST_ROUNDS):
      if not _SUSPECT.search(paragraph):
        return paragraph
      again = ' '.join(self._rendered(paragraph))
      if again == paragraph or not again:
        return again
      paragraph = again
    return ''

  def _rendered(self, text: str) -> Iterator[str]:
    """Yields paragraphs of any length."""
    text = without_placeholders(text).replace('\r\n', '\n').replace('\r', '\n')
    text = templates.with_parameters_read(with_plain_links_read(without_elements(text)))
    text = with_one_variant(without_nesting(text, self.namespaces), self.language)
    return filter(None, map(self._shown, prose_lines(text, self.language, self._shown)))

  def _shown(self, line: str) -> str:
    """The visible text of a line."""
    line = without_unclosed(line)
    if '{{' in line:
      read = templates.with_templates_read(line) if self.may_parse else None
      line = templates.without_templates(line) if read is None else read
    return tidy(without_inline_markup(line))


def _is_long_enough(paragraph: str) -> bool:
  words = 0
  for word in paragraph.split(maxsplit=40):
    words += word[0].isalpha() or any(c.isalpha() for c in word)
    if words == _MIN_WORDS:
      return True
  return len(_UNSPACED.findall(paragraph, 0, 400)) >= _MIN_UNSPACED


# --- elements, dropped with their content -----------------------------------------------------------------------------

# Dropped with their content.
_DROPPED_ELEMENTS = (
  'ref|references|gallery|timeline|score|imagemap|source|syntaxhighlight|pre|graph|mapframe|maplink|templatestyles|'
  'templatedata|categorytree|inputbox|hiero|includeonly|indicator|style|script|chem|ce|rt|rp|rtc|math|nowiki|table'
)
_ELEMENT = re.compile(rf'<!--|<(/?)({_DROPPED_ELEMENTS})(?=[\s/>])([^<>]*)>', re.IGNORECASE)
_END = {name: re.compile(rf'<(/?){name}(?=[\s/>])[^<>]*>', re.IGNORECASE) for name in _DROPPED_ELEMENTS.split('|')}
_BLOCK = re.compile(r'</?(?:p|div|li|ul|ol|dl|dd|dt|tr|td|th|center|blockquote|poem|hr|h[1-6])(?:\s[^<>]*)?/?>', re.I)
_TWO_BREAKS = re.compile(r'<br\s*/?>(?:\s*<br\s*/?>)+', re.IGNORECASE)
_HIDDEN = re.compile(r'<span[^<>]*display:\s*none[^<>]*>[^<>]*</span>', re.IGNORECASE)
_PLAIN_FORMULA = re.compile(r"[^\W_](?:[\w\s+\-=.,()/*!'][^\W_]?){0,20}")


def without_elements(text: str) -> str:
  """Drops comments and elements without prose, with their content; of an unclosed element only the tag.

  Elements that are separate paragraphs become blank lines, `<nowiki>` becomes text, simple formulas stay.
  """
  if '<' not in text:
    return text
  out: list[str] = []
  position = 0
  never_closed: set[str] = set()
  while match := _ELEMENT.search(text, position):
    out.append(text[position : match.start()])
    position = match.end()
    if match[2] is None:
      end = text.find('-->', position)
      position = len(text) if end < 0 else end + 3
      is_own_line = match.start() == 0 or text[match.start() - 1] == '\n'
      if is_own_line and text[position : position + 1] == '\n':
        position += 1  # as in MediaWiki, a comment on its own line does not separate paragraphs
      continue
    name = match[2].lower()
    if match[3].endswith('/'):
      out.append(NOTHING if name == 'nowiki' else '')
      continue
    if match[1]:
      continue
    end = None if name in never_closed else _element_end(text, position, name)
    if end is None:
      never_closed.add(name)
    if name == 'ref' and (end is None or end.group()[1] != '/'):
      # Unclosed, or another one opens before its end: drops the rest of the line, not of the article.
      stop = len(text) if end is None else end.start()
      newline = text.find('\n', position, stop)
      position = newline if newline >= 0 else stop
    elif end is None:
      continue
    else:
      content = text[position : end.start()]
      if name == 'nowiki':
        out.append(content.replace('\n', ' ').translate(HIDE))
      elif name == 'math' and _PLAIN_FORMULA.fullmatch(content.strip()):
        out.append(content.strip())
      position = end.end()
  out.append(text[position:])
  text = ''.join(out)
  if '<' in text:
    text = _HIDDEN.sub('', text) if 'display' in text else text
    text = _BLOCK.sub('\n\n', _TWO_BREAKS.sub('\n\n', text))
  return text


def _element_end(text: str, position: int, name: str) -> re.Match[str] | None:
  """The end tag of an element that opened before `position`; for a reference, also the start of the next one."""
  depth = 1
  for match in _END[name].finditer(text, position):
    if match[1]:
      depth -= 1
    elif match.group().endswith('/>'):
      continue
    elif name == 'table':
      depth += 1
    elif name == 'ref':
      return match
    if not depth:
      return match
  return None


# --- nested markup: tables, templates and links, read in one pass with a stack ----------------------------------------

_CLOSING = {'{{': '}}', '[[': ']]', '{|': '|}'}
_OPENING = {closing: opening for opening, closing in _CLOSING.items()}
# Tables begin and end at the start of a line. In `|}}}` the first brace ends a table; in `|}}` none does, and the bar
# is an empty last argument of a template.
_BRACKET = re.compile(r'\{\{|\}\}|\[\[|\]\]|\n[ \t:]*\{\||\n[ \t]*\|\}(?!\}(?!\}))')

_Open = tuple[str, list[str]]  # a bracket, and the text since


def without_nesting(text: str, namespaces: LinkNamespaces) -> str:
  """Drops tables, templates that are not part of a sentence, and links to files; replaces other links by labels.

  The text must not contain comments and elements. Unclosed markup is treated as text; an unclosed template
  leaves a mark for `without_unclosed`.
  """
  if not any(bracket in text for bracket in ('{', '[[', '}}', ']]')):
    return text
  text = '\n' + text
  stack: list[_Open] = []
  out: list[str] = []
  position = 0
  for match in _BRACKET.finditer(text):
    pieces = stack[-1][1] if stack else out
    pieces.append(text[position : match.start()])
    position = match.end()
    bracket = match.group()[-2:]
    if bracket in _CLOSING:
      if len(stack) < templates.DEEPEST:
        stack.append((bracket, ['\n'] if bracket == '{|' else []))
      continue
    opening = _OPENING[bracket]
    if bracket == '|}' and next((kind for kind, _ in reversed(stack) if kind != '[['), '') != '{|':
      # Without an open table, this is a bar before the end of a template.
      pieces.append('\n|')
      pieces.append('}' if text[position : position + 1] == '}' else '')
      continue
    if not stack or stack[-1][0] != opening:
      if bracket == ']]':
        pieces.append(bracket)
        continue
      if not any(kind == opening for kind, _ in stack):
        continue
      while stack[-1][0] != opening:
        _close_as_text(stack, out, namespaces)
    _, inside = stack.pop()
    pieces = stack[-1][1] if stack else out
    content = ''.join(inside)
    if bracket == '}}':
      pieces.append(templates.kept_for_reading(content))
    elif bracket == ']]':
      pieces.append(link_text(content, namespaces))
    else:
      pieces.append('\n')
  (stack[-1][1] if stack else out).append(text[position:])
  while stack:
    _close_as_text(stack, out, namespaces)
  return ''.join(out)


def _close_as_text(stack: list[_Open], out: list[str], namespaces: LinkNamespaces) -> None:
  """Treats the innermost open bracket as text."""
  kind, inside = stack.pop()
  pieces = stack[-1][1] if stack else out
  if kind == '[[':
    head = ''.join(inside[:1])
    if is_embedded(head.partition('|')[0], namespaces):
      # An unclosed image: drops its line, not the article.
      inside = [''.join(inside).partition('\n')[2]]
    else:
      pieces.append(kind)
  elif kind == '{{':
    pieces.append(UNCLOSED)
  pieces.extend(inside)


def without_unclosed(line: str) -> str:
  """Drops the remains of an unclosed template on a line."""
  if UNCLOSED not in line:
    return line
  head, _, rest = line.partition(UNCLOSED)
  # At the start of a line it opens an infobox, followed by its name and fields; elsewhere a word may follow.
  return head + (rest.replace(UNCLOSED, '') if head.strip() else '')


# --- language converters, `-{zh-hans:…;zh-hant:…}-` -------------------------------------------------------------------

# Editions in several scripts or standards, with the preferred variants, best first.
_CONVERTED = {
  **dict.fromkeys(('zh', 'wuu', 'gan', 'zh-classical', 'zh-yue'), ('zh-hans', 'zh-cn', 'zh')),
  **dict.fromkeys(('sr', 'sh'), ('sr-ec', 'sr-cyrl')),
  **dict.fromkeys(('kk', 'ku', 'uz', 'tg', 'crh', 'iu', 'shi', 'ban', 'tly', 'mni'), ()),
}
_CONVERTER = re.compile(r'-\{([^{}]*+)\}-')
_VARIANT = re.compile(r'[a-z]{2,3}(?:-[a-z]{2,6})?', re.IGNORECASE)


def with_one_variant(text: str, language: str) -> str:
  """Replaces each `-{…}-` by one variant: the language's preferred one that exists, else the first.

  For editions without a converter, the text is unchanged.
  """
  if '-{' not in text or language not in _CONVERTED:
    return text
  choices = _CONVERTED[language]

  def reading(match: re.Match[str]) -> str:
    flags, bar, rules = match[1].rpartition('|')
    if bar and set(flags.replace(';', '').strip()) & set('HTD-'):
      return ''  # a rule for the rest of the article, or a title, which is not shown
    if 'R' in flags:
      return rules
    variants = {}
    for rule in rules.split(';'):
      code, colon, shown = rule.rpartition('=>')[2].partition(':')
      if colon and _VARIANT.fullmatch(code.strip()):
        variants.setdefault(code.strip().lower(), shown.strip())
    if not variants:
      return rules
    return next((variants[choice] for choice in choices if choice in variants), next(iter(variants.values())))

  for _ in range(3):  # nested converters are rare, and shallow
    text, changed = _CONVERTER.subn(reading, text)
    if not changed:
      break
  return text


# --- paragraphs, joined from lines as in MediaWiki; sections without prose --------------------------------------------

_HEADING = re.compile(r'(={1,6})([^\n]+?)(={1,6})')
_FEWEST_BARS = 2  # in a row of links to the neighbours of the article
_LINE_MARKS = frozenset('*#:;|!-')
_TABLE_ROW = re.compile(r'\||!(?=[^\n]*(?:!!|\|))')
_ITALIC_LINE = re.compile(r"''(?!').{1,300}''\.?")
_SENTENCE_END = re.compile(r'[.!?…。！？।॥؟۔։።။។»”")]\s*$')


# The usual titles of sections without prose, by language, by convention of each community.
_HEADINGS = json.loads((pathlib.Path(__file__).parent / 'headings.json').read_text('utf-8'))


@functools.cache
def boilerplate_headings(language: str) -> frozenset[str]:
  """Titles, case folded, of the sections without prose: English and the language's own.

  For a language without a table, the titles of all tables: small editions follow the model of a larger one in their
  last sections.
  """
  chosen = [_HEADINGS['en'], _HEADINGS[language]] if language in _HEADINGS else _HEADINGS.values()
  return frozenset(title.casefold() for titles in chosen for title in titles)


def prose_lines(text: str, language: str, title_of: Callable[[str], str]) -> Iterator[str]:
  """Yields the paragraphs of wikitext without blocks in reading order, with their inline markup.

  The lines of a paragraph are joined by spaces, a list item is a paragraph. Sections without prose are dropped with
  their subsections; `title_of` converts the wikitext of a heading to its visible title.
  """
  boilerplate = boilerplate_headings(language)
  skipped_level = 0
  paragraph: list[str] = []
  is_at_top = True  # of a section, where hatnotes are
  for line in text.split('\n'):
    stripped = line.strip()
    first = stripped[:1]
    if first == '=' and (heading := _HEADING.fullmatch(stripped)):
      if paragraph:
        yield ' '.join(paragraph)
        paragraph = []
      level = min(len(heading[1]), len(heading[3]))
      if skipped_level and level > skipped_level:
        continue
      title = title_of(heading[2]).rstrip(' :').casefold()
      skipped_level = level if title in boilerplate else 0
      is_at_top = True
      continue
    if skipped_level:
      continue
    is_plain = first not in _LINE_MARKS and line[:1] not in (' ', '\t')
    if is_plain and stripped and stripped.count(' | ') < _FEWEST_BARS:
      paragraph.append(stripped)
      is_at_top = False
      continue
    if paragraph:
      yield ' '.join(paragraph)
      paragraph = []
    if not stripped or stripped.startswith('----') or (first in '|!' and _TABLE_ROW.match(stripped)):
      continue
    if stripped.count(' | ') >= _FEWEST_BARS:
      continue
    if first in '*#:;':
      item = stripped.lstrip('*#:; \t')
      if first == ':' and is_at_top and _ITALIC_LINE.fullmatch(item):
        continue  # a hatnote without a template, as in old articles
      yield item
    elif line[:1] in (' ', '\t') and not _SENTENCE_END.search(stripped):
      continue  # MediaWiki shows such a line as code
    else:
      yield stripped
    is_at_top = False
  if paragraph:
    yield ' '.join(paragraph)
