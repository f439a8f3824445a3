"""Comments, and elements that hold no prose: they go with what stands between their tags.

Tags that only dress a word are left to `inline`.
"""

import re

from tasks.wikipedia.wikitext import placeholders

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


def without_elements(text: str) -> str:
  """Drops comments and elements without prose, with what they hold; a tag without its end is dropped alone.

  Elements that are paragraphs of their own become blank lines, `<nowiki>` becomes text, plain formulas stay.
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
        position += 1  # as MediaWiki does: a comment on a line of its own does not part paragraphs
      continue
    name = match[2].lower()
    if match[3].endswith('/'):
      out.append(placeholders.NOTHING if name == 'nowiki' else '')
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
        out.append(placeholders.hide(content.replace('\n', ' ')))
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
