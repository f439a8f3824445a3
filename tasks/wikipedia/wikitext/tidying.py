"""The last touch: blanks, characters that cannot be seen, and the parentheses and commas around what is gone."""

import re
import unicodedata

from tasks.wikipedia.wikitext import placeholders

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

  Args:
    paragraph: text that may hold placeholders; they become the signs that they stand for.
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
    paragraph = _CONTROL.sub(' ', _INVISIBLE.sub('', placeholders.unhide(paragraph)))
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
