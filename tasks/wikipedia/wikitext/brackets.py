"""What nests: tables, templates and links within each other, read in one pass with a stack."""

import re

from tasks.wikipedia.wikitext import templates
from tasks.wikipedia.wikitext.links import is_embedded, link_text
from tasks.wikipedia.wikitext.namespaces import LinkNamespaces
from tasks.wikipedia.wikitext.placeholders import UNCLOSED

_CLOSING = {'{{': '}}', '[[': ']]', '{|': '|}'}
_OPENING = {closing: opening for opening, closing in _CLOSING.items()}
# Tables begin and end at the start of a line. Of `|}}}` the first brace ends a table, of `|}}` none does: there the bar
# is an empty last argument of a template.
_BRACKET = re.compile(r'\{\{|\}\}|\[\[|\]\]|\n[ \t:]*\{\||\n[ \t]*\|\}(?!\}(?!\}))')

_Open = tuple[str, list[str]]  # a bracket, and the text since


def without_nesting(text: str, namespaces: LinkNamespaces) -> str:
  """Drops tables, templates that are not part of a sentence, and links to files; puts labels for other links.

  What is never closed is taken as text; a template that is never closed leaves a mark for `without_unclosed`.

  Args:
    text: wikitext without comments and elements.
    namespaces: of the wiki.
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
      # No table is open: a bar before the end of a template.
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
        _give_up(stack, out, namespaces)
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
    _give_up(stack, out, namespaces)
  return ''.join(out)


def _give_up(stack: list[_Open], out: list[str], namespaces: LinkNamespaces) -> None:
  """Takes the innermost open bracket as text."""
  kind, inside = stack.pop()
  pieces = stack[-1][1] if stack else out
  if kind == '[[':
    head = ''.join(inside[:1])
    if is_embedded(head.partition('|')[0], namespaces):
      # A picture that was never closed: its line is lost, the article is not.
      inside = [''.join(inside).partition('\n')[2]]
    else:
      pieces.append(kind)
  elif kind == '{{':
    pieces.append(UNCLOSED)
  pieces.extend(inside)


def without_unclosed(line: str) -> str:
  """Drops what a template that was never closed leaves on a line."""
  if UNCLOSED not in line:
    return line
  head, _, rest = line.partition(UNCLOSED)
  # At the start of a line it opens an infobox, whose name and first fields follow; elsewhere a word may.
  return head + (rest.replace(UNCLOSED, '') if head.strip() else '')
