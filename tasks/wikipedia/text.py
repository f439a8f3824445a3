"""Inline text: removes links and other markup by patterns, tidies paragraphs, and counts sentences."""

import dataclasses
import functools
import html
import json
import pathlib
import re
import unicodedata
from collections.abc import Mapping

# --- placeholders -----------------------------------------------------------------------------------------------------

# Placeholders for signs that are text, so that later steps do not read them as markup: noncharacters, which text must
# not contain. Tables for `str.translate`: `HIDE` lasts until `UNHIDE` at the end, which also drops the other marks;
# `HIDE_SEPARATORS` is for signs that would separate the arguments of a template around the text; `SHIELD` is for all
# markup except templates, while the parser runs. They use different placeholders, so neither undoes the other.
_RESERVED = re.compile('[\ufdd0-\ufdef]')
UNCLOSED = '\ufdd0'  # an unclosed template
NOTHING = '\ufdd1'  # `<nowiki/>` separates two quotes that would otherwise be one mark
_HIDDEN = "[]{}<>|'=*#:;_!-"
_SHIELDED = "[]<>'&:/"
HIDE = {ord(c): chr(0xFDD2 + i) for i, c in enumerate(_HIDDEN)}
HIDE_SEPARATORS = {ord(c): HIDE[ord(c)] for c in '|='}
UNHIDE = {ord(UNCLOSED): None, ord(NOTHING): None} | {0xFDD2 + i: c for i, c in enumerate(_HIDDEN)}
SHIELD = {ord(c): chr(0xFDE4 + i) for i, c in enumerate(_SHIELDED)}
UNSHIELD = {0xFDE4 + i: c for i, c in enumerate(_SHIELDED)}


def without_placeholders(text: str) -> str:
  """Drops placeholder characters of the original text, so that later ones are ours."""
  return _RESERVED.sub('', text)


# --- internal links: replaced by their label; links to images and categories are dropped -----------------------------

# `namespaces.json` has the names with which links embed an image or categorise the article, by edition: the current one
# first, then older ones. MediaWiki and its translators define them. A missing name matters little: the header of a dump
# names its namespaces (`dumps.Dump.namespaces`), and images are recognised by the suffix of their name.
_NAMESPACES = json.loads((pathlib.Path(__file__).parent / 'namespaces.json').read_text('utf-8'))
_MEDIA, _FILE, _CATEGORY = -2, 6, 14  # MediaWiki's numbers


@dataclasses.dataclass(frozen=True)
class LinkNamespaces:
  """Case-folded namespaces of links that embed an image or sound (`files`) or categorise the article (`categories`)."""

  files: frozenset[str]
  categories: frozenset[str]


def link_namespaces(own: Mapping[int, str] | None = None) -> LinkNamespaces:
  """The names of all editions, and a wiki's own by MediaWiki's number, as in `dumps.Dump.namespaces`."""
  return _link_namespaces(*((own or {}).get(number, '') for number in (_MEDIA, _FILE, _CATEGORY)))


@functools.lru_cache(maxsize=256)
def _link_namespaces(media: str, file: str, category: str) -> LinkNamespaces:
  fold = lambda *editions: frozenset(name.casefold() for names in editions for name in names if name)
  files = fold(*_NAMESPACES['files'].values(), _NAMESPACES['media'], [media, file])
  return LinkNamespaces(files, fold(*_NAMESPACES['categories'].values(), [category]))


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
  """Replaces links without other markup, nine in ten of all, by a fast pattern."""
  text = _SIMPLE_LINK.sub(r'\1', text)
  return _HALF_LINK.sub(lambda match: match[1] or match[2], text)


def is_embedded(target: str, namespaces: LinkNamespaces) -> bool:
  """Whether a link to `target` embeds an image or sound."""
  prefix, colon, rest = target.partition(':')
  if not colon:
    return False
  return prefix.strip().replace('_', ' ').casefold() in namespaces.files or _FILE_NAME.search(rest) is not None


def link_text(content: str, namespaces: LinkNamespaces) -> str:
  """The visible text of the link `[[content]]`; '' for images, categories, and the same article in other languages.

  The content is a target and, after a bar, a label; links and templates within it are already replaced.
  """
  target, bar, label = content.partition('|')
  prefix, colon, rest = target.partition(':')
  if colon:
    name = prefix.strip().replace('_', ' ')
    if is_embedded(target, namespaces) or name.casefold() in namespaces.categories:
      return ''
    if _LANGUAGE_PREFIX.fullmatch(name) and name not in _PROJECT_PREFIXES:
      return ''
    if not name:  # `[[:de:Fluss]]`, `[[:Category:Rivers]]`: an ordinary visible link
      target = re.sub(r'[a-z-]{1,12}:', '', rest, count=1) if re.match(r'\s*[a-z-]{1,12}:', rest) else rest
    elif name in _PROJECT_PREFIXES:
      target = rest
  if '\n\n' in content:
    return content  # a link cannot span paragraphs, so this is not one
  shown = label if label.strip() else target
  if bar and not label.strip():
    shown = re.sub(r'\s*\([^()]*\)\s*$', '', shown)  # `[[Mercury (planet)|]]`
  return _as_argument(shown.strip(' ' if bar else None).replace('\n', ' '))


def _as_argument(shown: str) -> str:
  """The label with placeholders for bars and equals signs, which would separate arguments inside a template.

  Those of templates in the label itself stay, since they do separate arguments.
  """
  if '{{' not in shown:
    return shown.translate(HIDE_SEPARATORS)
  depth, pieces = 0, []
  for piece in _TEMPLATE_EDGE.split(shown):
    depth += (piece == '{{') - (piece == '}}')
    pieces.append(piece if depth else piece.translate(HIDE_SEPARATORS))
  return ''.join(pieces)


# --- external links, tags, bold and italic marks, entities ------------------------------------------------------------

# Possessive quantifiers (`++`) and a bound, so that an unclosed bracket does not cost a search of the whole line
# for each other one.
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
  """Drops marks, tags and addresses but keeps the words between them; decodes entities.

  The line is wikitext of one paragraph, without templates.
  """
  if '|' in line:
    line = _BROKEN_LINK.sub(r'\1', line)
    if 'px|' in line:
      line = line.rpartition('|')[2]  # the rest of an image without brackets
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
  """Removes bold and italic marks, by MediaWiki's rules for apostrophes next to them."""
  parts = _QUOTES.split(line)
  marks = [len(match) for match in _QUOTES.findall(line)]
  kept = [1 if mark == 4 else int(mark > 5) for mark in marks]
  bold = sum(mark in (3, 4, 5) or mark > 5 for mark in marks)
  italic = sum(mark == 2 or mark >= 5 for mark in marks)
  if bold % 2 and italic % 2:
    # `L'''Unità''` is an apostrophe and italic: preferably after a word of one letter, else after any word.
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


# --- spaces, invisible characters, and the parentheses and commas around removed text ---------------------------------

_INVISIBLE = re.compile('[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ufff9-\uffff]')
# Sorting combining marks takes quadratic time in their number; no script stacks more than a few (Unicode's
# stream-safe format allows 30).
_MARKS = re.compile(r'([^\w\s\x00-\x7f]{30})[^\w\s\x00-\x7f]+')
_LONGEST_UNCHECKED = 3000
_CONTROL = re.compile('[\x00-\x1f\x7f-\x9f]')
_RESIDUE = re.compile(r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}|''+|<!--|-->|</?ref\b[^<>]*>?|&nbsp;?")
_SEPARATORS = r',;:،؛，；：、|'
# A cheap check decides whether to try the patterns below, which few paragraphs need. It finds a sign that has
# nothing before it to separate or close, and an opening one with nothing after it.
_UNTIDY = re.compile(
  rf'[{_SEPARATORS}.。！？।)）\](（«“„「『《\["](?:'
  rf'(?<=[\s(（{_SEPARATORS}—–-][{_SEPARATORS}.。！？।)）\]])|(?<=[(（«“„「『《\["])(?=[\s{_SEPARATORS})）»”“」』》\]"/.–—-]))'
)
# Remains of templates in parentheses: separators without a part, a language or `IPA:` without a word.
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
_LEADING = re.compile(r'\.(?![.\w])|[-–—]\s')  # a dash remains after a flag or an icon


def tidy(paragraph: str) -> str:
  """Normalises text to NFC and single spaces; drops invisible characters, empty parentheses and stray separators.

  Placeholders become the original signs.
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

# Terminators of scripts in which they always end a sentence.
_FULL_STOP = re.compile('[。！？｡︒।॥؟۔։፧።፨၊။។៕᙮᠃᠉⸮꓿꘎꘏꛳꛷꣎꣏꩝꩞꩟꯫܀܁܂՜՞།༎‼⁇⁈⁉]+')
# The Latin ones also occur in numbers, names and abbreviations: they require a space or the end after them, no
# lower-case letter after that, and no single letter before.
_LATIN_STOP = re.compile(r'(?<![^\W\d_]\b\.)(?<!\b[^\W\d_])[.!?…]+["\'”’»)\]]*(?=\s+[^\sa-zà-öø-ÿа-яёα-ω]|\s*$)')
_GREEK_QUESTION = re.compile(r';(?=\s+[Α-ΩΆ-Ώ]|\s*$)')
_ARMENIAN_COLON = re.compile(r':(?=\s+[Ա-Ֆ]|\s*$)')
_THAI_CLAUSE = 12  # letters


def count_sentences(paragraphs: list[str], language: str) -> int:
  """Estimates the number of sentences, at least one per paragraph; accurate enough for language sampling.

  Thai and Lao do not end sentences with a sign, but separate clauses and sentences by spaces: the parts of at least 12
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
