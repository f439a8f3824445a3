"""Markup within a line, undone by patterns: external links, tags, marks of bold and italic, entities."""

import html
import re

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

  Args:
    line: wikitext of one paragraph, its templates read.
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
