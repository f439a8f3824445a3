"""Lines into paragraphs: what MediaWiki joins, what it sets apart, and which sections and lines hold no prose."""

import re
from collections.abc import Callable, Iterator

from tasks.wikipedia.wikitext.headings import boilerplate_headings

_HEADING = re.compile(r'(={1,6})([^\n]+?)(={1,6})')
_FEWEST_BARS = 2  # in a row of links to the neighbours of the article
_LINE_MARKS = frozenset('*#:;|!-')
_TABLE_ROW = re.compile(r'\||!(?=[^\n]*(?:!!|\|))')
_ITALIC_LINE = re.compile(r"''(?!').{1,300}''\.?")
_SENTENCE_END = re.compile(r'[.!?…。！？।॥؟۔։።။។»”")]\s*$')


def prose_lines(text: str, language: str, title_of: Callable[[str], str]) -> Iterator[tuple[str, bool]]:
  """Yields the paragraphs of an article and its headings, in reading order, and whether each is a heading.

  The lines of a paragraph are joined by blanks, a list item is a paragraph. Sections without prose are left out with
  their subsections.

  Args:
    text: wikitext without blocks; markup within a line may be left.
    language: Wikipedia's code; chooses the titles of the sections that are left out.
    title_of: makes the title that a reader sees of the wikitext of a heading.
  """
  boilerplate = boilerplate_headings(language)
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
      title = title_of(heading[2]).rstrip(' :').casefold()
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
      continue
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
