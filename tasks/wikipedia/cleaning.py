"""Wikitext to paragraphs of clean prose.

The work is shared. Scanners that pass over the text once take out what a reader of the article's prose does not see:
comments, references, tables, infoboxes, pictures, categories. Their cost is linear whatever the input, and they leave
little. `mwparserfromhell`, a full parser and far slower, reads the arguments of the templates that stand in the middle
of a sentence and carry a part of it (`_ARGUMENT_SHOWN` and below). Patterns undo the rest: marks of bold and italic,
external links, tags, entities.

Decisions:
- Formulas: `<math>` is dropped with the blank before the punctuation after it, except where it is as plain as `x` or
  `n + 1`. Code blocks are dropped, inline `<code>` is kept.
- Sections of notes, sources and links are dropped with their subsections (`languages.boilerplate_headings`); so are
  headings, unless asked for.
- A list item is a paragraph. A paragraph has at least three words, or eight characters of a script without blanks.
- Text is NFC with single blanks; soft hyphens, zero-width spaces and direction marks go, joiners stay: they change
  how Persian, Hindi and emoji are written.
- Cleaning a paragraph again leaves it as it is. What does not come to rest after a few rounds is dropped and counted.
"""

import dataclasses
import functools
import html
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping

import mwparserfromhell
from mwparserfromhell.nodes import Argument, Template
from mwparserfromhell.parser import ParserError

from tasks.wikipedia import languages

LARGEST_ARTICLE = 4_000_000  # characters; MediaWiki stores at most 2 MiB of wikitext, so more is damage
_LARGEST_PARSED = 20_000  # characters of a paragraph that the parser is given
_MOST_BARS = 100  # in a template that is part of a sentence
_DEEPEST = 60  # templates, tables and links open within each other; MediaWiki itself stops at 40 templates
_MOST_ROUNDS = 4
_MIN_WORDS = 3
_MIN_UNSPACED = 8


@dataclasses.dataclass
class CleaningCounts:
  """What cleaning met, filled while cleaning.

  Attributes:
    articles: texts cleaned.
    paragraphs: paragraphs kept.
    fallbacks: paragraphs whose templates were removed by pattern, because the parser failed or the text is too large.
    unstable: paragraphs dropped because cleaning did not come to rest.
  """

  articles: int = 0
  paragraphs: int = 0
  fallbacks: int = 0
  unstable: int = 0


def clean_wikitext(
  text: str,
  *,
  language: str,
  namespaces: Mapping[int, str] | None = None,
  keep_headings: bool = False,
  max_characters: int = LARGEST_ARTICLE,
  counts: CleaningCounts | None = None,
) -> list[str]:
  """Returns the paragraphs of an article in reading order; never fails, whatever the text.

  Args:
    text: wikitext.
    language: Wikipedia's code; chooses the boilerplate headings and the variant of `-{…}-`.
    namespaces: the wiki's own names (`dumps.read_namespaces`), used beside those in `languages`.
    keep_headings: keep the headings that stand above prose, as paragraphs of their own.
    max_characters: of a longer text, templates are removed by pattern, without the parser.
    counts: filled with what was met.
  """
  counts = CleaningCounts() if counts is None else counts
  own = tuple((number, name.casefold()) for number, name in (namespaces or {}).items() if number in (-2, 6, 14))
  cleaner = _Cleaner(language, *_link_namespaces(own), keep_headings, len(text) <= max_characters, counts)
  paragraphs = list(cleaner.paragraphs(text))
  counts.articles += 1
  counts.paragraphs += len(paragraphs)
  return paragraphs


@functools.lru_cache(maxsize=256)
def _link_namespaces(own: tuple[tuple[int, str], ...]) -> tuple[frozenset[str], frozenset[str]]:
  files = languages.file_namespaces() | {name for number, name in own if number != 14}
  return files, languages.category_namespaces() | {name for number, name in own if number == 14}


@dataclasses.dataclass
class _Cleaner:
  language: str
  files: frozenset[str]
  categories: frozenset[str]
  keep_headings: bool
  may_parse: bool
  counts: CleaningCounts

  def paragraphs(self, text: str) -> Iterator[str]:
    for paragraph, is_heading in self._rendered(text):
      if is_heading:
        yield paragraph
        continue
      stable = self._at_rest(paragraph)
      if stable and _is_long_enough(stable):
        yield stable

  def _at_rest(self, paragraph: str) -> str:
    """The paragraph as cleaning leaves it alone; empty where there is none."""
    for _ in range(_MOST_ROUNDS):
      if not _SUSPECT.search(paragraph):
        return paragraph
      again = ' '.join(p for p, is_heading in self._rendered(paragraph) if not is_heading)
      if again == paragraph or not again:
        return again
      paragraph = again
    self.counts.unstable += 1
    return ''

  def _rendered(self, text: str) -> Iterator[tuple[str, bool]]:
    """Paragraphs of any length, and whether each is a heading."""
    heading = ''
    for line, is_heading in self._prose(self._without_blocks(text)):
      paragraph = _tidy(self._without_inline_markup(line))
      if is_heading:
        heading = paragraph if self.keep_headings else ''
      elif paragraph:
        if heading:
          yield heading, True
          heading = ''
        yield paragraph, False

  # --- what is no prose --------------------------------------------------------------------------------------------

  def _without_blocks(self, text: str) -> str:
    text = _RESERVED.sub('', text).replace('\r\n', '\n').replace('\r', '\n')
    if '<' in text:
      text = _without_elements(text)
    text = _SIMPLE_LINK.sub(r'\1', text)  # nine links in ten, at the speed of the pattern matcher
    text = _HALF_LINK.sub(lambda match: match[1] or match[2], text)
    if '{{{' in text:
      text = _PARAMETER.sub(r'\1', text)
    if '{' in text or '[[' in text or '}}' in text or ']]' in text:
      text = self._without_nesting(text)
    if '-{' in text and self.language in _CONVERTED:
      text = self._one_variant(text)
    return text

  def _without_nesting(self, text: str) -> str:
    """Drops tables, templates that are not part of a sentence, and links to files; puts labels for other links.

    One pass with a stack. What is never closed is taken as text.
    """
    text = '\n' + text
    stack: list[tuple[str, list[str]]] = []
    out: list[str] = []
    position = 0
    for match in _BRACKET.finditer(text):
      if match.start() < position:
        continue
      pieces = stack[-1][1] if stack else out
      pieces.append(text[position : match.start()])
      position = match.end()
      bracket = match.group()[-2:]
      if bracket in _CLOSING:
        if len(stack) < _DEEPEST:
          stack.append((bracket, ['\n'] if bracket == '{|' else []))
        continue
      opening = _OPENING[bracket]
      if bracket == '|}' and next((kind for kind, _ in reversed(stack) if kind != '[['), '') != '{|':
        # Not the end of a table: a bar before the end of a template.
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
          self._give_up(stack, out)
      _, inside = stack.pop()
      pieces = stack[-1][1] if stack else out
      content = ''.join(inside)
      if bracket == '}}':
        pieces.append(self._template_left(content))
      elif bracket == ']]':
        pieces.append(self._link_text(content))
      else:
        pieces.append('\n')
    (stack[-1][1] if stack else out).append(text[position:])
    while stack:
      self._give_up(stack, out)
    return ''.join(out)

  def _give_up(self, stack: list[tuple[str, list[str]]], out: list[str]) -> None:
    """Takes the innermost open bracket as text."""
    kind, inside = stack.pop()
    pieces = stack[-1][1] if stack else out
    if kind == '[[':
      head = ''.join(inside[:1])
      if self._is_embedded(head.partition('|')[0]):
        # A picture that was never closed: its line is lost, the article is not.
        inside = [''.join(inside).partition('\n')[2]]
      else:
        pieces.append(kind)
    elif kind == '{{':
      pieces.append(_UNCLOSED)
    pieces.extend(inside)

  def _template_left(self, content: str) -> str:
    """The template itself where it is part of a sentence, for the parser to read; else nothing."""
    is_small = len(content) <= _LARGEST_PARSED and content.count('|') <= _MOST_BARS
    if is_small and _template_rule(_template_name(content)) is not None:
      return '{{' + content.replace('\n', ' ') + '}}'
    return ''

  def _is_embedded(self, target: str) -> bool:
    prefix, colon, rest = target.partition(':')
    if not colon:
      return False
    return prefix.strip().replace('_', ' ').casefold() in self.files or _FILE_NAME.search(rest) is not None

  def _link_text(self, content: str) -> str:
    target, bar, label = content.partition('|')
    prefix, colon, rest = target.partition(':')
    if colon:
      name = prefix.strip().replace('_', ' ')
      if self._is_embedded(target) or name.casefold() in self.categories:
        return ''
      if _LANGUAGE_PREFIX.fullmatch(name) and name not in _PROJECT_PREFIXES:
        return ''
      if not name:
        target = re.sub(r'[a-z-]{1,12}:', '', rest, count=1) if re.match(r'\s*[a-z-]{1,12}:', rest) else rest
      elif name in _PROJECT_PREFIXES:
        target = rest
    if '\n\n' in content:
      return content
    shown = label if label.strip() else target
    if bar and not label.strip():
      shown = re.sub(r'\s*\([^()]*\)\s*$', '', shown)  # `[[Mercury (planet)|]]`
    # Inside a template a bar or an equals sign would part the arguments.
    return shown.strip(' ' if bar else None).replace('\n', ' ').translate(_HIDE_SEPARATORS)

  def _one_variant(self, text: str) -> str:
    """One reading of `-{zh-hans:…;zh-hant:…}-`: the language's first choice if it is there, else the first."""
    choices = _CONVERTED[self.language]

    def reading(match: re.Match[str]) -> str:
      flags, bar, rules = match[1].rpartition('|')
      if bar and set(flags.replace(';', '').strip()) & set('HTD-'):
        return ''  # a rule for the rest of the article, or a title: nothing is shown
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

  # --- lines -------------------------------------------------------------------------------------------------------

  def _prose(self, text: str) -> Iterator[tuple[str, bool]]:
    """The lines of each paragraph joined, and headings, in reading order."""
    boilerplate = languages.boilerplate_headings(self.language)
    skipped_level = 0
    paragraph: list[str] = []
    is_at_top = True  # of a section, where notes on other articles stand
    for line in text.split('\n'):
      stripped = line.strip()
      first = stripped[:1]
      if first == '=' and (heading := _HEADING.fullmatch(stripped)):
        if paragraph:
          yield ' '.join(paragraph), False
          paragraph = []
        level = min(len(heading[1]), len(heading[3]))
        if skipped_level and level > skipped_level:
          continue
        title = _tidy(self._without_inline_markup(heading[2])).rstrip(' :').casefold()
        skipped_level = level if title in boilerplate else 0
        is_at_top = True
        if not skipped_level:
          yield heading[2], True
        continue
      if skipped_level:
        continue
      is_plain = first not in _LINE_MARKS and line[:1] not in (' ', '\t')
      if is_plain and stripped and stripped.count(' | ') < _FEWEST_BARS:
        paragraph.append(stripped)
        is_at_top = False
        continue
      if paragraph:
        yield ' '.join(paragraph), False
        paragraph = []
      if not stripped or stripped.startswith('----') or (first in '|!' and _TABLE_ROW.match(stripped)):
        continue
      if stripped.count(' | ') >= _FEWEST_BARS:
        continue  # a row of links to the neighbours of the article
      if first in '*#:;':
        item = stripped.lstrip('*#:; \t')
        if first == ':' and is_at_top and _ITALIC_LINE.fullmatch(item):
          continue  # a hatnote, from the time before there were templates for them
        yield item, False
      elif line[:1] in (' ', '\t') and not _SENTENCE_END.search(stripped):
        continue  # MediaWiki shows such a line as code
      else:
        yield stripped, False
      is_at_top = False
    if paragraph:
      yield ' '.join(paragraph), False

  # --- within a line -----------------------------------------------------------------------------------------------

  def _without_inline_markup(self, line: str) -> str:
    if _UNCLOSED in line:
      head, _, rest = line.partition(_UNCLOSED)
      # At the start of a line it opens an infobox, whose name and first fields follow; elsewhere a word may.
      line = head + (rest.replace(_UNCLOSED, '') if head.strip() else '')
    if '{{' in line:
      line = self._with_templates_read(line)
    if '|' in line:
      line = _BROKEN_LINK.sub(r'\1', line)
      if 'px|' in line:
        line = line.rpartition('|')[2]  # what is left of a picture that lost its brackets
    if '[' in line:
      line = _EXTERNAL_LINK.sub(r'\1', line)
    if '<' in line:
      line = _BREAK.sub(' ', line)
      line = _TAG.sub('', line)
    if '://' in line:
      line = _URL.sub('', line)
    if "''" in line:
      line = _without_quotes(line)
    if '__' in line:
      line = _MAGIC_WORD.sub(lambda match: '' if match[1] == match[1].upper() else match[0], line)
    if '&' in line:
      line = _without_entities(line)
    return line

  def _with_templates_read(self, line: str) -> str:
    if self.may_parse and len(line) <= _LARGEST_PARSED:
      try:
        # Of all markup the parser is shown templates only: it tries every reading of a bracket or a tag that is
        # never closed, which on a few kilobytes of them takes it minutes.
        return _read_nodes(mwparserfromhell.parse(line.translate(_SHIELD), skip_style_tags=True)).translate(_UNSHIELD)
      except (ParserError, RecursionError, ValueError, OverflowError):
        pass
    self.counts.fallbacks += 1
    for _ in range(_DEEPEST):
      line, changed = _INNERMOST_TEMPLATE.subn(lambda match: match[1].rpartition('|')[2], line)
      if not changed:
        break
    return line


# --- elements ------------------------------------------------------------------------------------------------------

# Dropped with what they hold.
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

# Noncharacters, which no text may hold, stand in for what must not be read as markup until the end.
_RESERVED = re.compile('[\ufdd0-\ufdef]')
_UNCLOSED = '\ufdd0'
_NOTHING = '\ufdd1'  # `<nowiki/>`: parts two quotes that would else be one mark
_HIDDEN_CHARACTERS = "[]{}<>|'=*#:;_!-"
_HIDE = {ord(c): chr(0xFDD2 + i) for i, c in enumerate(_HIDDEN_CHARACTERS)}
_HIDE_SEPARATORS = {ord(c): _HIDE[ord(c)] for c in '|='}
_UNHIDE = {0xFDD0: None, 0xFDD1: None} | {0xFDD2 + i: c for i, c in enumerate(_HIDDEN_CHARACTERS)}
_SHIELDED_CHARACTERS = "[]<>'&:/"
_SHIELD = {ord(c): chr(0xFDE4 + i) for i, c in enumerate(_SHIELDED_CHARACTERS)}
_UNSHIELD = {0xFDE4 + i: c for i, c in enumerate(_SHIELDED_CHARACTERS)}


def _without_elements(text: str) -> str:
  """Drops comments and the elements above with what they hold; a tag without its end is dropped alone."""
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
        position += 1  # as MediaWiki does: a comment on a line of its own does not part paragraphs
      continue
    name = match[2].lower()
    if match[3].endswith('/'):
      out.append(_NOTHING if name == 'nowiki' else '')
      continue
    if match[1]:
      continue
    end = None if name in never_closed else _element_end(text, position, name)
    if end is None:
      never_closed.add(name)
    if name == 'ref' and (end is None or end.group()[1] != '/'):
      # Its end was forgotten, or another opens before: the rest of the line is lost, the article is not.
      stop = len(text) if end is None else end.start()
      newline = text.find('\n', position, stop)
      position = newline if newline >= 0 else stop
    elif end is None:
      continue
    else:
      content = text[position : end.start()]
      if name == 'nowiki':
        out.append(content.replace('\n', ' ').translate(_HIDE))
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


# --- brackets and links --------------------------------------------------------------------------------------------

_CLOSING = {'{{': '}}', '[[': ']]', '{|': '|}'}
_OPENING = {closing: opening for opening, closing in _CLOSING.items()}
# Tables begin and end at the start of a line. Of `|}}}` the first brace ends a table, of `|}}` none does.
_BRACKET = re.compile(r'\{\{|\}\}|\[\[|\]\]|\n[ \t:]*\{\||\n[ \t]*\|\}(?!\}(?!\}))')
_SIMPLE_LINK = re.compile(r'\[\[(?:[^\[\]{}|:\n]*+\|)?+([^\[\]{}|:=\n]++)\]\]')
# A link that lacks a bracket: `[[Vienna|Viennese]`, `[Vienna|Viennese]]`.
_HALF_LINK = re.compile(
  r'\[(?:\[[^\[\]|:\n]{1,100}\|([^\[\]|\n]{1,100})\](?!\])|(?<!\[\[)[^\[\]|:\n]{1,100}\|([^\[\]|\n]{1,100})\]\])'
)
_PARAMETER = re.compile(r'\{\{\{[^{}|]{0,100}(?:\|([^{}|]{0,1000}))?\}\}\}')
_FILE_NAME = re.compile(
  r'\.(?:jpe?g|png|svg|gif|og[gav]|webm|pdf|djvu|tiff?|webp|mp[34]|wav|xcf|midi?|flac|opus)\s*$', re.IGNORECASE
)
_LANGUAGE_PREFIX = re.compile(r'[a-z]{2,3}|[a-z]{2,3}-[a-z-]{2,9}|simple|tarask')
_PROJECT_PREFIXES = frozenset(
  {
    *('b', 'c', 'd', 'm', 'n', 'q', 's', 'v', 'w', 'mw', 'voy', 'wikt', 'bug', 'doi', 'rfc', 'species', 'commons'),
    *('meta', 'wikibooks', 'wikinews', 'wikiquote', 'wikisource', 'wikipedia', 'wiktionary', 'wikivoyage', 'wikidata'),
  }
)

# Editions written in several scripts or standards, and the one to read, best first.
_CHINESE = ('zh-hans', 'zh-cn', 'zh')
_CONVERTED = {
  **dict.fromkeys(('zh', 'wuu', 'gan', 'zh-classical', 'zh-yue'), _CHINESE),
  **dict.fromkeys(('sr', 'sh'), ('sr-ec', 'sr-cyrl')),
  **dict.fromkeys(('kk', 'ku', 'uz', 'tg', 'crh', 'iu', 'shi', 'ban', 'tly', 'mni'), ()),
}
_CONVERTER = re.compile(r'-\{([^{}]*+)\}-')
_VARIANT = re.compile(r'[a-z]{2,3}(?:-[a-z]{2,6})?', re.IGNORECASE)


# --- templates -----------------------------------------------------------------------------------------------------

# Templates that stand in a sentence, and the number of the argument that is read there. All others are dropped:
# notes, pronunciations, icons, and whatever stands beside the text.
_ARGUMENT_SHOWN = {
  # words of another language, or of another script
  **dict.fromkeys(('lang', 'langx', 'langue', 'llang', 'мова', 'язык', 'lingua', 'ngôn ngữ', 'en langue', 'lang-x'), 2),
  **dict.fromkeys(('transl', 'translit', 'transliteration', 'wikt-lang', 'langwithname', 'rtl-lang', 'link audio'), 2),
  **dict.fromkeys(
    ('unicode', 'script', 'polytonic', 'iast', 'grc', 'nastaliq', 'hebrew', 'hebr', 'persian', 'urdu'), 1
  ),
  **dict.fromkeys(
    ('nihongo', 'nihongo2', 'nihongo3', 'nhật', 'նիհոնգո', 'ruby', 'ruby-ja', 'ruby-zh', 'jap', 'vie'), 1
  ),
  **dict.fromkeys(
    ('jis2004フォント', '補助漢字フォント', 'cp932フォント', 'indic', 'kor', 'angbr', 'angle bracket'), 1
  ),
  **dict.fromkeys(('latin', 'allemand', 'anglais', 'russo', 'latino', 'tedesco', 'inglese', 'francese', 'русский'), 1),
  **dict.fromkeys(('ألمانية', 'إنجليزية', 'فرنسية', 'لاتينية', 'يونانية', 'روسية', 'إسبانية', 'إيطالية', 'تركية'), 1),
  **dict.fromkeys(('آلمانی', 'انگلیسی', 'فرانسوی', 'لاتین', 'یونانی', 'روسی', 'عربی', 'فارسی', 'عبرية'), 1),
  **dict.fromkeys(('de', 'en', 'fr', 'es', 'it', 'ru', 'la', 'pl', 'el', 'ja', 'pt', 'nl', 'sv', 'lt', 'lv', 'uk'), 1),
  # how words look
  **dict.fromkeys(('nowrap', 'nobr', 'nobreak', 'nowrapped', 'nbr', 'tutto attaccato', 'ta', 'small', 'smaller'), 1),
  **dict.fromkeys(('big', 'larger', 'em', 'strong', 'sc', 'sc2', 'smallcaps', 'small caps', 'smcp', 'allcaps'), 1),
  **dict.fromkeys(
    ('maiuscoletto', 'versaleta', 'versalita', 'aut', 'mono', 'code', 'tt', 'kbd', 'key', 'samp', 'var'), 1
  ),
  **dict.fromkeys(
    ('mvar', 'math', 'chem2', 'nobold', 'noitalic', 'noitalics', 'sup', 'sub', 'underline', 'u', 'dfn'), 1
  ),
  **dict.fromkeys(('abbr', 'abréviation', 'abbrlink', 'tooltip', 'finedetail', 'color', 'font color', 'uc', 'lc'), 1),
  **dict.fromkeys(('"', "'", '«', 'guil', 'sic', 'sic?', 'as written', 'not a typo', 'typo', 'visible anchor'), 1),
  **dict.fromkeys(('vanchor', 'anker', 'lcfirst', 'ucfirst', 'quote inline', 'qi'), 1),
  # doubted words
  **dict.fromkeys(('citation needed span', 'fact span', 'cns', 'citazione necessaria', 'chiarire', 'senza fonte'), 1),
  **dict.fromkeys(('要出典範囲', '要検証範囲', 'refnec', 'demande de source', 'référence nécessaire'), 1),
  # links that are not yet there, or lead elsewhere
  **dict.fromkeys(
    ('ill', 'interlanguage link', 'illm', 'link-interwiki', 'iw', '仮リンク', 'le', 'нп', 'нп2', 'нп3'), 1
  ),
  **dict.fromkeys(('нп4', 'нп5', 'не переведено', 'не переведено 2', 'не переведено 5', 'не перекладено', 'lknn'), 1),
  **dict.fromkeys(('임시링크', '임시 링크', 'lien', 'liên kết ngôn ngữ', 'nhl', 'linktext', 'wikt', 'section link'), 1),
  **dict.fromkeys(('flag', 'flagcountry', 'flagu', 'flagg', 'flag+link', '국기', 'drapeau2', 'դրոշ', 'դրոշավորում'), 1),
  **dict.fromkeys(('sclass', 'ship', 'uss', 'hms', 'country'), 1),
  # numbers
  **dict.fromkeys(('formatnum', 'nts', 'num', 'nombre', 'число', 'numero', 'fmtn', 'szám', 'decimals'), 1),
  # quotations
  **dict.fromkeys(('quote', 'blockquote', 'cquote', 'quotation', 'bquote', 'rquote', 'pull quote', 'poemquote'), 1),
  **dict.fromkeys(('cita', 'citazione', 'citation bloc', 'цитата', 'zitat', 'citat', 'cytat', 'citace', 'քաղվածք'), 1),
}

# The name of the argument that holds the text, where it is not given by number.
_NAMED_TEXT = ('text', 'quote', 'content', 'texte', 'trad', 'lt', 'текст', 'testo', 'texto')

_CONSTANT = {
  **dict.fromkeys(('nbsp', 'space', 'spaces', 'sp', 'esd', 'thinsp', 'thin space', 'hair space', 'nbs'), ' '),
  **dict.fromkeys(('snd', 'spnd', 'spaced ndash', 'spaced en dash', 'sndash', 'snds', 'spndash', '--'), ' – '),
  **dict.fromkeys(('ndash', 'endash', 'en dash', 'nsndns'), '–'),
  **dict.fromkeys(('mdash', 'emdash', 'em dash', '---', '—', 'тире'), '—'),
  **dict.fromkeys(('spaced mdash', 'smdash', 'spaced em dash'), ' — '),
  **dict.fromkeys(('·', '•', 'dot', 'bull', 'middot', '⋅'), ' · '),
  **dict.fromkeys(("'", 'apostrophe', '’'), '’'),
  **dict.fromkeys(("'s", 'apos-s', '’s'), '’s'),
  **dict.fromkeys(('...', '…', 'ellipsis'), '…'),
  **dict.fromkeys(('1er', 'ier'), '1er'),
  **dict.fromkeys(('e', 'ème'), 'e'),
  **dict.fromkeys(('км²', 'км2'), 'км²'),
  **dict.fromkeys(('km²', 'km2'), 'km²'),
  **{'!': '|', '=': '=', '(': '{', ')': '}', 'er': 'er', 'n°': 'nº', 'number sign': '№', 'eqm': '⇌'},
  **{'av jc': 'av. J.-C.', 'ap jc': 'apr. J.-C.', 'до н. э.': 'до н. э.', 'градус цельсія': '°C'},
}

_Arguments = Mapping[str, str]


def _converted(arguments: _Arguments) -> str:
  """`{{convert|3|km|mi}}` as '3 km', `{{convert|3|to|5|km}}` as '3 to 5 km'."""
  first, second, third, unit = (arguments.get(str(i), '') for i in (1, 2, 3, 4))
  joint = {'-': '–', 'x': ' × ', '+': ' + ', 'by': ' by ', 'to': ' to ', 'and': ' and ', 'or': ' or ', '×': ' × '}
  joint |= {'to(-)': ' to ', '–': '–', 'to about': ' to about ', 'đến': ' đến '}
  if second in joint and re.match(r'[\d.,]', third):
    return f'{first}{joint[second]}{third} {unit}'.rstrip()
  return f'{first} {second}'.rstrip()


def _quantity(arguments: _Arguments) -> str:
  """A number and its unit: `{{unité|3|km}}`, `{{val|3|u=km}}`, `{{M|3|ul=km}}`."""
  unit = next((arguments[key] for key in ('ul', 'u', 'up') if arguments.get(key)), '')
  if not unit:
    unit = next((arguments[key] for key in ('2', '3') if re.search(r'[^\W\d]', arguments.get(key, ''))), '')
  return f'{arguments.get("1", "")} {unit}'.strip()


def _fraction(arguments: _Arguments) -> str:
  parts = [arguments[str(i)] for i in (1, 2, 3) if arguments.get(str(i))]
  if len(parts) == 3:
    return f'{parts[0]} {parts[1]}/{parts[2]}'
  return '/'.join(parts if len(parts) == 2 else ['1', *parts])


def _reading(arguments: _Arguments) -> str:
  return f'{arguments.get("1", "")}（{arguments.get("2", "")}）'


def _century(arguments: _Arguments) -> str:
  return f'{arguments.get("1", "")}{arguments.get("2", "e")} siècle'


def _last(arguments: _Arguments) -> str:
  numbers = [key for key in arguments if key.isdecimal()]
  return arguments[max(numbers, key=int)] if numbers else ''


def _joined(arguments: _Arguments) -> str:
  return ' '.join(value for key, value in arguments.items() if key.isdecimal() and value)


def _gapless(arguments: _Arguments) -> str:
  return ''.join(value for key, value in arguments.items() if key.isdecimal())


_COMPUTED: dict[str, Callable[[_Arguments], str]] = {
  **dict.fromkeys(('convert', 'cvt', 'chuyển đổi', 'unidad', 'convertir', 'conversie'), _converted),
  **dict.fromkeys(('val', 'unité', 'unite', 'tmp', 'm', 'unità', 'число с единицей'), _quantity),
  **dict.fromkeys(('frac', 'sfrac', 'fraction', 'дробь', 'fracción'), _fraction),
  **dict.fromkeys(('読み仮名', '読み仮名 ruby不使用', 'ふりがな'), _reading),
  **dict.fromkeys(('s', 's-', 'sp-', '-s', '-s-'), _century),
  **dict.fromkeys(('tsl', 'translink', 'internal link helper'), _last),
  **dict.fromkeys(('date', 'date-', 'date de naissance', 'date de décès', 'daton', 'дата'), _joined),
  **dict.fromkeys(('gaps', 'formatted number', 'chem'), _gapless),
  'circa': lambda arguments: f'c. {arguments.get("1", "")}'.rstrip(),
  'c.': lambda arguments: f'c. {arguments.get("1", "")}'.rstrip(),
  'as of': lambda arguments: f'As of {arguments.get("1", "")}'.rstrip(),
  'siglo': lambda arguments: f'siglo {arguments.get("1", "")}',
  'séc': lambda arguments: f'século {arguments.get("1", "")}',
  'segle': lambda arguments: f'segle {arguments.get("1", "")}',
  'm s.l.m.': lambda arguments: f'{arguments.get("1", "")} m s.l.m.',
  'exp': lambda arguments: f'×10^{arguments.get("1", "")}',
  'euro': lambda arguments: f'{arguments.get("1", "")} €',
  'us$': lambda arguments: f'US${arguments.get("1", "")}',
  'incise': lambda arguments: f'– {arguments.get("1", "")} –',
  'heure': lambda arguments: f'{arguments.get("1", "")} h {arguments.get("2", "")}'.rstrip(),
}
_PARSER_FUNCTION = re.compile(r'\s*(formatnum|lc|uc|lcfirst|ucfirst|nowrap)\s*:', re.IGNORECASE)
# Families of templates with the text first: `{{lang-la|…}}`, `{{k-de|…}}` (Finnish), `{{link-de|…}}` (Chinese),
# `{{script/Arabic|…}}`; German ones bear a code and a capital S, `{{laS|…}}`.
_TEXT_FIRST = re.compile(r'lang-[a-z-]{2,14}\d?( short)?|(?:k|link)-[a-z]{2,3}|script/[a-z]+')
_CENTURY = re.compile(r'[ivxlc]+er? siècle')  # French: `{{XIXe siècle}}` reads as it is called
_CODE_S = re.compile(r'[a-z]{2,3}S')


@functools.lru_cache(maxsize=65536)
def _template_rule(name: str) -> Callable[[_Arguments], str] | None:
  """How a template reads in a sentence; None for those that are no part of one."""
  lower = ' '.join(name.replace('_', ' ').split()).lower()
  if _CODE_S.fullmatch(name) or _TEXT_FIRST.fullmatch(lower):
    return lambda arguments: arguments.get('1', '')
  if _CENTURY.fullmatch(lower):
    return lambda arguments: name
  if lower in _COMPUTED:
    return _COMPUTED[lower]
  number = _ARGUMENT_SHOWN.get(lower)
  constant = _CONSTANT.get(lower)
  if number is None and constant is None:
    return None

  def shown(arguments: _Arguments) -> str:
    if number is None:
      return constant
    for key in (str(number), *_NAMED_TEXT):
      if arguments.get(key):
        return arguments[key]
    # A quotation box with a source only, `{{'}}` without an argument, `{{lang|text}}`.
    return constant if constant is not None else arguments.get('1', '')

  return shown


def _template_name(content: str) -> str:
  if function := _PARSER_FUNCTION.match(content):
    return function[1]
  return content[:200].partition('|')[0].strip()


def _read_nodes(wikicode: mwparserfromhell.wikicode.Wikicode) -> str:
  """The text with its templates read; all other markup as it stands."""
  out = []
  for node in wikicode.nodes:
    if isinstance(node, Template):
      out.append(_read_template(node))
    elif isinstance(node, Argument):
      out.append(_read_nodes(node.default) if node.default is not None else '')
    else:
      out.append(str(node))
  return ''.join(out)


def _read_template(template: Template) -> str:
  name = str(template.name).translate(_UNSHIELD)
  arguments: dict[str, str] = {}
  if function := _PARSER_FUNCTION.match(name):
    name, arguments['1'] = function[1], name[function.end() :].strip()
  rule = _template_rule(name.strip())
  if rule is None:
    return ''
  for parameter in template.params:
    arguments[str(parameter.name).strip()] = _read_nodes(parameter.value).strip()
  return rule(arguments)


_INNERMOST_TEMPLATE = re.compile(r'\{\{([^{}]*+)\}\}')


# --- lines -----------------------------------------------------------------------------------------------------------

_HEADING = re.compile(r'(={1,6})([^\n]+?)(={1,6})')
_FEWEST_BARS = 2
_LINE_MARKS = frozenset('*#:;|!-')
_TABLE_ROW = re.compile(r'\||!(?=[^\n]*(?:!!|\|))')
_ITALIC_LINE = re.compile(r"''(?!').{1,300}''\.?")
_SENTENCE_END = re.compile(r'[.!?…。！？।॥؟۔։።။។»”")]\s*$')
_UNSPACED = re.compile(
  '[\u0e01-\u0e4e\u0e81-\u0ecd\u0f40-\u0fbc\u1000-\u109f\u1780-\u17d3\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]'
)


def _is_long_enough(paragraph: str) -> bool:
  words = 0
  for word in paragraph.split(maxsplit=40):
    words += word[0].isalpha() or any(c.isalpha() for c in word)
    if words == _MIN_WORDS:
      return True
  return len(_UNSPACED.findall(paragraph, 0, 400)) >= _MIN_UNSPACED


# --- within a line ---------------------------------------------------------------------------------------------------

# Quantifiers that give nothing back (`++`), and a bound: an unclosed bracket must not cost a search of the whole line
# for every other one.
_EXTERNAL_LINK = re.compile(
  r'\[(?:(?:https?|ftps?|ircs?|gopher|git|svn)://|//|mailto:|news:|tel:)[^\s\[\]]*+[ \t]*+([^\]\n]{0,2000}+)\]',
  re.IGNORECASE,
)
_BROKEN_LINK = re.compile(r'\[[^\[\]|]{1,100}\|([^\[\]|]{1,100})\]')
_URL = re.compile(r'\b(?:https?|ftps?|ircs?|gopher)://[^\s<>\[\]{}|"«»“”，。、；：（）「」]*', re.IGNORECASE)
_BREAK = re.compile(r'<br\s*/?>|</?br>', re.IGNORECASE)
_TAG = re.compile(r'</?[A-Za-z][A-Za-z0-9]*(?:[\s/][^<>]*)?>')
_MAGIC_WORD = re.compile(r'__([^\W\d]\w{2,30}?)__')
_ENTITY = re.compile(r'&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});|&nbsp(?![A-Za-z])')
_QUOTES = re.compile("'{2,}")


def _without_quotes(line: str) -> str:
  """Undoes the marks of bold and italic, by MediaWiki's rules for apostrophes beside them."""
  parts = _QUOTES.split(line)
  marks = [len(match) for match in _QUOTES.findall(line)]
  kept = [1 if mark == 4 else int(mark > 5) for mark in marks]
  bold = sum(mark in (3, 4, 5) or mark > 5 for mark in marks)
  italic = sum(mark == 2 or mark >= 5 for mark in marks)
  if bold % 2 and italic % 2:
    # `L'''Unità''` is an apostrophe and italic: best after a word of one letter, else after any word.
    candidates = [i for i, mark in enumerate(marks) if mark == 3 and parts[i] and not parts[i][-1].isspace()]
    one_letter = [i for i in candidates if len(parts[i]) == 1 or parts[i][-2].isspace()]
    for i in (one_letter or candidates)[:1]:
      kept[i] = 1
  return parts[0] + ''.join("'" * n + part for n, part in zip(kept, parts[1:], strict=True))


def _without_entities(line: str) -> str:
  for _ in range(3):  # `&amp;nbsp;` is common
    line, changed = _ENTITY.subn(_character, line)
    if not changed:
      break
  return line


def _character(match: re.Match[str]) -> str:
  entity = match.group()
  return html.unescape(entity if entity.endswith(';') else entity + ';')


# --- the last touch --------------------------------------------------------------------------------------------------

_INVISIBLE = re.compile('[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ufff9-\uffff]')
# Putting combining marks in order takes the square of their number; no writing stacks more than a few (Unicode's
# stream-safe format allows 30).
_MARKS = re.compile(r'([^\w\s\x00-\x7f]{30})[^\w\s\x00-\x7f]+')
_LONGEST_UNCHECKED = 3000
_CONTROL = re.compile('[\x00-\x1f\x7f-\x9f]')
_RESIDUE = re.compile(r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}|''+|<!--|-->|</?ref\b[^<>]*>?|&nbsp;?")
_SEPARATORS = r',;:،؛，；：、|'
# One cheap look decides whether the patterns below are tried: few paragraphs need them. It finds a sign that has
# nothing before it to part or to close, and an opening one with nothing after it.
_UNTIDY = re.compile(
  rf'[{_SEPARATORS}.。！？।)）\](（«“„「『《\["](?:'
  rf'(?<=[\s(（{_SEPARATORS}—–-][{_SEPARATORS}.。！？।)）\]])|(?<=[(（«“„「『《\["])(?=[\s{_SEPARATORS})）»”“」』》\]"/.–—-]))'
)
# What templates leave behind in parentheses: separators without a part, a language or `IPA:` without a word.
_AFTER_OPENING = re.compile(rf'(?<=[(（])[\s{_SEPARATORS}]++')
_BEFORE_CLOSING = re.compile(rf'(?<![\s{_SEPARATORS}])(?:[\s{_SEPARATORS}]|(?<=\s)[—–-](?=\s?[)）]))++(?=[)）])')
_LABEL_ALONE = re.compile(r'(?<=[(（])[^\W\d_][\w\s.-]{1,30}:\s?[,;)]\s?|\b(?:IPA|AFI|API|МФА|ՄՀԱ):\s?(?=[,;)])')
_EMPTY_PAIR = re.compile(
  r'[(（]\s?[-–—/.]?\s?[)）]|«\s?»|“\s?”|„\s?[“”]|「\s?」|『\s?』|《\s?》|(?<=\s)\[\s?\]|(?<=\s)""(?=[\s,.;:)]|$)'
)
_REPEATED = re.compile(r'([,;،؛，；、])(?:\s?[,;،؛，；、])+')
_BEFORE_STOP = re.compile(r'[,;:،؛]\s?(?=\.(?:\s|$))')
_BLANK_BEFORE = re.compile(r'\s(?=[,.،](?:[\s)»”"\]]|$)|[,،](?=\w)|[)\]，。、；：！？）।])')
_ORPHANS = ' ,;:،؛，；：、。|·•●▪■◦‣►*#=)）]}'
_LEADING = re.compile(r'\.(?![.\w])|[-–—]\s')  # a dash is what a flag or an icon before it leaves

# What cleaning might take for markup, and so might not leave alone.
_SUSPECT = re.compile(r"[\[\]{}<>|&~='_/](?:(?<=[\[\]{}<>|&~=])|(?<=''|__|//))|^[*#:;!\-]")


def _tidy(paragraph: str) -> str:
  for _ in range(6):
    tidied = _tidied_once(paragraph)
    if tidied == paragraph:
      break
    paragraph = tidied
  return paragraph


def _tidied_once(paragraph: str) -> str:
  paragraph = ' '.join(paragraph.split())
  if not paragraph.isprintable():
    paragraph = _CONTROL.sub(' ', _INVISIBLE.sub('', paragraph.translate(_UNHIDE)))
  if len(paragraph) > _LONGEST_UNCHECKED and not paragraph.isascii():
    paragraph = _MARKS.sub(r'\1', paragraph)
  if not unicodedata.is_normalized('NFC', paragraph):
    paragraph = unicodedata.normalize('NFC', paragraph)
  paragraph = _RESIDUE.sub('', paragraph)
  if _UNTIDY.search(paragraph):
    if '(' in paragraph or '（' in paragraph:
      paragraph = _AFTER_OPENING.sub('', paragraph)
      for _ in range(2):  # `(IPA: , German: )`
        paragraph = _LABEL_ALONE.sub(lambda match: ')' if ')' in match[0] else '', paragraph)
      paragraph = _BEFORE_CLOSING.sub('', paragraph)
    paragraph = _EMPTY_PAIR.sub('', paragraph)
    paragraph = _BEFORE_STOP.sub('', _REPEATED.sub(r'\1', paragraph))
    paragraph = _BLANK_BEFORE.sub('', paragraph)
  paragraph = paragraph.lstrip(_ORPHANS).rstrip(' |')
  return paragraph[leading.end() :] if (leading := _LEADING.match(paragraph)) else paragraph


# --- sentences -------------------------------------------------------------------------------------------------------

# Terminators of scripts where they end a sentence wherever they stand.
_FULL_STOP = re.compile('[。！？｡︒।॥؟۔։፧።፨၊။។៕᙮᠃᠉⸮꓿꘎꘏꛳꛷꣎꣏꩝꩞꩟꯫܀܁܂՜՞།༎‼⁇⁈⁉]+')
# The Latin ones also stand in numbers, names and abbreviations: they need a blank or the end after them, no small
# letter after that, and no single letter before.
_LATIN_STOP = re.compile(r'(?<![^\W\d_]\b\.)(?<!\b[^\W\d_])[.!?…]+["\'”’»)\]]*(?=\s+[^\sa-zà-öø-ÿа-яёα-ω]|\s*$)')
_GREEK_QUESTION = re.compile(r';(?=\s+[Α-ΩΆ-Ώ]|\s*$)')
_ARMENIAN_COLON = re.compile(r':(?=\s+[Ա-Ֆ]|\s*$)')
_THAI_CLAUSE = 12  # letters


def count_sentences(paragraphs: list[str], language: str) -> int:
  """Returns the number of sentences, at least one a paragraph: a cheap estimate, good enough to weigh languages by.

  Thai and Lao end no sentence with a sign but part clauses and sentences by a blank: spaced pieces of at least 12
  letters are counted instead.

  Args:
    paragraphs: clean text.
    language: Wikipedia's code.
  """
  return sum(_sentences(paragraph, language) for paragraph in paragraphs)


def _sentences(paragraph: str, language: str) -> int:
  if language in ('th', 'lo'):
    return max(1, sum(len(piece) >= _THAI_CLAUSE for piece in paragraph.split()))
  count = len(_FULL_STOP.findall(paragraph)) + len(_LATIN_STOP.findall(paragraph))
  if language == 'el':
    count += len(_GREEK_QUESTION.findall(paragraph))
  elif language == 'hy':
    count += len(_ARMENIAN_COLON.findall(paragraph))
  return max(1, count)
