"""Wikitext to paragraphs of clean prose.

The work is shared. Scanners that pass over the text once take out what a reader of the article's prose does not see:
comments, references, tables, infoboxes, pictures, categories (`blocks`). Their cost is linear whatever the
input, and they leave little. `mwparserfromhell`, a full parser and far slower, reads the arguments of the templates
that stand in the middle of a sentence and carry a part of it (`templates`). Patterns undo the rest: marks of bold and
italic, links, tags, entities (`text`).

Decisions:
- Formulas: `<math>` is dropped with the blank before the punctuation after it, except where it is as plain as `x` or
  `n + 1`. Code blocks are dropped, inline `<code>` is kept.
- Sections of notes, sources and links are dropped with their subsections (`blocks.boilerplate_headings`); so are
  headings, unless asked for.
- A list item is a paragraph. A paragraph has at least three words, or eight characters of a script without blanks.
- Text is NFC with single blanks; soft hyphens, zero-width spaces and direction marks go, joiners stay: they change
  how Persian, Hindi and emoji are written.
- Cleaning a paragraph again leaves it as it is. What does not come to rest after a few rounds is dropped and counted.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping

from tasks.wikipedia.blocks import prose_lines, with_one_variant, without_elements, without_nesting, without_unclosed
from tasks.wikipedia.templates import with_parameters_read, with_templates_read, without_templates
from tasks.wikipedia.text import (
  LinkNamespaces,
  link_namespaces,
  tidy,
  with_plain_links_read,
  without_inline_markup,
  without_placeholders,
)

LARGEST_ARTICLE = 4_000_000  # characters; MediaWiki stores at most 2 MiB of wikitext, so more is damage
_MOST_ROUNDS = 4
_MIN_WORDS = 3
_MIN_UNSPACED = 8
# What cleaning might take for markup, and so might not leave alone.
_SUSPECT = re.compile(r"[\[\]{}<>|&~='_/](?:(?<=[\[\]{}<>|&~=])|(?<=''|__|//))|^[*#:;!\-]")
_UNSPACED = re.compile(
  '[\u0e01-\u0e4e\u0e81-\u0ecd\u0f40-\u0fbc\u1000-\u109f\u1780-\u17d3\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]'
)


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
    namespaces: the wiki's own names (`dumps.read_namespaces`), used beside those of all editions.
    keep_headings: keep the headings that stand above prose, as paragraphs of their own.
    max_characters: of a longer text, templates are removed by pattern, without the parser.
    counts: filled with what was met.
  """
  counts = CleaningCounts() if counts is None else counts
  cleaner = _Cleaner(language, link_namespaces(namespaces), keep_headings, len(text) <= max_characters, counts)
  paragraphs = list(cleaner.paragraphs(text))
  counts.articles += 1
  counts.paragraphs += len(paragraphs)
  return paragraphs


@dataclasses.dataclass
class _Cleaner:
  language: str
  namespaces: LinkNamespaces
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
    """Paragraphs of any length, and whether each is a heading; a heading without prose below it is left out."""
    heading = ''
    for line, is_heading in prose_lines(self._without_blocks(text), self.language, self._shown):
      paragraph = self._shown(line)
      if is_heading:
        heading = paragraph if self.keep_headings else ''
      elif paragraph:
        if heading:
          yield heading, True
          heading = ''
        yield paragraph, False

  def _without_blocks(self, text: str) -> str:
    text = without_placeholders(text).replace('\r\n', '\n').replace('\r', '\n')
    text = without_elements(text)
    text = with_plain_links_read(text)
    text = with_parameters_read(text)
    text = without_nesting(text, self.namespaces)
    return with_one_variant(text, self.language)

  def _shown(self, line: str) -> str:
    """What a reader sees of a line."""
    line = without_unclosed(line)
    if '{{' in line:
      line = self._with_templates_read(line)
    return tidy(without_inline_markup(line))

  def _with_templates_read(self, line: str) -> str:
    read = with_templates_read(line) if self.may_parse else None
    if read is None:
      self.counts.fallbacks += 1
      read = without_templates(line)
    return read


def _is_long_enough(paragraph: str) -> bool:
  words = 0
  for word in paragraph.split(maxsplit=40):
    words += word[0].isalpha() or any(c.isalpha() for c in word)
    if words == _MIN_WORDS:
      return True
  return len(_UNSPACED.findall(paragraph, 0, 400)) >= _MIN_UNSPACED
