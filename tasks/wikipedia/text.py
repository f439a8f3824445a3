"""Text within a line: links and other markup undone by patterns, stand-ins, the last tidying, counting sentences."""

import dataclasses
import functools
import html
import json
import pathlib
import re
import unicodedata
from collections.abc import Mapping

# --- stand-ins --------------------------------------------------------------------------------------------------------

# For signs that are text, so that no later step reads them as markup: noncharacters, which no text may hold. Tables for
# `str.translate`. `HIDE` is for the rest of the way, until `UNHIDE` at its end, which drops the other marks too;
# `HIDE_SEPARATORS` is for the signs that would part the arguments of a template around the text; `SHIELD` is for all
# markup but templates, around their parser alone. They use different stand-ins, so neither undoes the other.
_RESERVED = re.compile('[\ufdd0-\ufdef]')
UNCLOSED = '\ufdd0'  # a template that was opened and never closed
NOTHING = '\ufdd1'  # `<nowiki/>`: parts two quotes that would else be one mark
_HIDDEN = "[]{}<>|'=*#:;_!-"
_SHIELDED = "[]<>'&:/"
HIDE = {ord(c): chr(0xFDD2 + i) for i, c in enumerate(_HIDDEN)}
HIDE_SEPARATORS = {ord(c): HIDE[ord(c)] for c in '|='}
UNHIDE = {ord(UNCLOSED): None, ord(NOTHING): None} | {0xFDD2 + i: c for i, c in enumerate(_HIDDEN)}
SHIELD = {ord(c): chr(0xFDE4 + i) for i, c in enumerate(_SHIELDED)}
UNSHIELD = {0xFDE4 + i: c for i, c in enumerate(_SHIELDED)}


def without_placeholders(text: str) -> str:
  """Drops stand-ins that came with the text, so that those that follow are ours."""
  return _RESERVED.sub('', text)


# --- links within the wiki: a label is read, a link to a picture or a category as nothing ----------------------------

# `namespaces.json` has the names under which links embed a picture or file the article, by edition: the current one
# first, then those that older text still uses. MediaWiki and its translators fixed them. A name missing there costs
# little: a dump's own header names its namespaces (`dumps.Dump.namespaces`), and a picture is known by the ending of
# its name.
_NAMESPACES = json.loads((pathlib.Path(__file__).parent / 'namespaces.json').read_text('utf-8'))
_MEDIA, _FILE, _CATEGORY = -2, 6, 14  # MediaWiki's numbers


@dataclasses.dataclass(frozen=True)
class LinkNamespaces:
  """Case-folded names under which a link embeds a picture or sound (`files`), or files the article (`categories`)."""

  files: frozenset[str]
  categories: frozenset[str]


def link_namespaces(own: Mapping[int, str] | None = None) -> LinkNamespaces:
  """The names of all editions, and a wiki's own by MediaWiki's number, as `dumps.Dump.namespaces` has them."""
  return _link_namespaces(tuple((number, (own or {}).get(number, '')) for number in (_MEDIA, _FILE, _CATEGORY)))


@functools.lru_cache(maxsize=256)
def _link_namespaces(own: tuple[tuple[int, str], ...]) -> LinkNamespaces:
  files, categories = [*_NAMESPACES['files'].values(), _NAMESPACES['media']], [*_NAMESPACES['categories'].values()]
  for number, name in own:
    (categories if number == _CATEGORY else files).append([name] if name else [])
  fold = lambda editions: frozenset(name.casefold() for names in editions for name in names)
  return LinkNamespaces(fold(files), fold(categories))


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
_PROJECT_PREFIXES = frozenset(_NAMESPACES['projects'])


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

  The content is a target, and a label after a bar; links and templates within it have been read.
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
    return shown.translate(HIDE_SEPARATORS)
  depth, pieces = 0, []
  for piece in _TEMPLATE_EDGE.split(shown):
    depth += (piece == '{{') - (piece == '}}')
    pieces.append(piece if depth else piece.translate(HIDE_SEPARATORS))
  return ''.join(pieces)


# --- external links, tags, marks of bold and italic, entities ---------------------------------------------------------

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


def without_inline_markup(line: str) -> str:
  """Drops marks, tags and addresses and keeps the words between them; reads entities.

  The line is wikitext of one paragraph, its templates read.
  """
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


def _without_quotes(line: str) -> str:
  """Undoes the marks of bold and italic, by MediaWiki's rules for apostrophes next to them."""
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
    line, changed = _ENTITY.subn(lambda match: html.unescape(match[0].rstrip(';') + ';'), line)
    if not changed:
      break
  return line


# --- blanks, characters that cannot be seen, and the parentheses and commas around what is gone -----------------------

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


def tidy(paragraph: str) -> str:
  """Brings text to NFC and single blanks; drops invisible characters, empty parentheses and stray separators.

  Placeholders become the signs that they stand for.
  """
  for _ in range(6):
    tidied = _tidied_once(paragraph)
    if tidied == paragraph:
      break
    paragraph = tidied
  return paragraph


def _tidied_once(paragraph: str) -> str:
  paragraph = ' '.join(paragraph.split())
  if not paragraph.isprintable():
    paragraph = _CONTROL.sub(' ', _INVISIBLE.sub('', paragraph.translate(UNHIDE)))
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


# --- sentences --------------------------------------------------------------------------------------------------------

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
