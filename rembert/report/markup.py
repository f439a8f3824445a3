"""HTML as a tree of elements: what is shown can never become markup, because no text is ever pasted into text."""

import re
from xml.etree import ElementTree

Element = ElementTree.Element
Content = Element | str | None

# What no HTML document may hold, however it is written.
_CONTROL = re.compile('[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]')
_SLUG = re.compile(r'[^a-z0-9]+')


def clean(text: object) -> str:
  """Text without the characters that HTML, XML and UTF-8 cannot hold; they become �."""
  return _CONTROL.sub('�', str(text))


def element(tag: str, *content: Content, **attributes: object) -> Element:
  """An element.

  Args:
    tag: its name.
    *content: elements and text in their order; None is left out.
    **attributes: `class_` and `for_` without their underscore, others with - for _. True is an attribute without a
      value, None and False none.
  """
  made = ElementTree.Element(tag)
  for name, value in attributes.items():
    if value is not None and value is not False:
      made.set(name.rstrip('_').replace('_', '-'), '' if value is True else clean(value))
  for part in content:
    append(made, part)
  return made


def append(parent: Element, part: Content) -> None:
  """Adds an element, or text, at the end."""
  if part is None:
    return
  if isinstance(part, ElementTree.Element):
    parent.append(part)
  elif len(parent):
    parent[-1].tail = (parent[-1].tail or '') + clean(part)
  else:
    parent.text = (parent.text or '') + clean(part)


def document(root: Element) -> str:
  """The page as text."""
  return '<!doctype html>\n' + ElementTree.tostring(root, encoding='unicode', method='html') + '\n'


def slug(*words: object) -> str:
  """Words as part of a file name or an anchor: a-z, 0-9 and -."""
  return _SLUG.sub('-', ' '.join(map(str, words)).lower()).strip('-')[:60] or 'x'


class Slugs:
  """Slugs of one page, each given out once."""

  def __init__(self):
    self._taken: set[str] = set()

  def new(self, *words: object) -> str:
    """A slug that nobody else has; numbered where words come again."""
    base = made = slug(*words)
    number = 1
    while made in self._taken:
      number += 1
      made = f'{base}-{number}'
    self._taken.add(made)
    return made
