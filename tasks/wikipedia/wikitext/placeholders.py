"""Stand-ins for signs that are text, so that no later step reads them as markup: noncharacters, which no text may hold.

`hide` is for the rest of the way, until `unhide` at its end; `shield` is around the parser of templates alone. The two
use different stand-ins, so neither undoes the other.
"""

import re

_RESERVED = re.compile('[\ufdd0-\ufdef]')
UNCLOSED = '\ufdd0'  # a template that was opened and never closed
NOTHING = '\ufdd1'  # `<nowiki/>`: parts two quotes that would else be one mark
_HIDDEN_CHARACTERS = "[]{}<>|'=*#:;_!-"
_HIDE = {ord(c): chr(0xFDD2 + i) for i, c in enumerate(_HIDDEN_CHARACTERS)}
_HIDE_SEPARATORS = {ord(c): _HIDE[ord(c)] for c in '|='}
_UNHIDE = {ord(UNCLOSED): None, ord(NOTHING): None} | {0xFDD2 + i: c for i, c in enumerate(_HIDDEN_CHARACTERS)}
_SHIELDED_CHARACTERS = "[]<>'&:/"
_SHIELD = {ord(c): chr(0xFDE4 + i) for i, c in enumerate(_SHIELDED_CHARACTERS)}
_UNSHIELD = {0xFDE4 + i: c for i, c in enumerate(_SHIELDED_CHARACTERS)}


def without_placeholders(text: str) -> str:
  """Drops stand-ins that came with the text, so that those that follow are ours."""
  return _RESERVED.sub('', text)


def hide(text: str) -> str:
  """Puts stand-ins for every sign of markup."""
  return text.translate(_HIDE)


def hide_separators(text: str) -> str:
  """Puts stand-ins for the signs that would part the arguments of a template around the text."""
  return text.translate(_HIDE_SEPARATORS)


def unhide(text: str) -> str:
  """Undoes `hide` and drops the other marks."""
  return text.translate(_UNHIDE)


def shield(text: str) -> str:
  """Puts stand-ins for all markup but templates."""
  return text.translate(_SHIELD)


def unshield(text: str) -> str:
  """Undoes `shield`."""
  return text.translate(_UNSHIELD)
