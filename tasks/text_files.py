"""Plain text on disk, also packed: a paragraph a line, a blank line between documents."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator

from etils import epath

_OPENERS = {'.xz': lzma.open, '.bz2': bz2.open, '.gz': gzip.open}
# What reading raises where a file is no archive, or is damaged or cut off.
DAMAGED = (OSError, EOFError, lzma.LZMAError, zlib.error)


def read_text_documents(path: epath.Path) -> Iterator[list[str]]:
  """The paragraphs of each document; where the file breaks off, one of `DAMAGED` comes after all that stood before."""
  paragraphs: list[str] = []
  damage = None
  with path.open('rb') as stream:
    opener = _OPENERS.get(path.suffix)
    lines = iter(opener(stream) if opener else stream)
    while True:
      try:
        line = next(lines, None)
      except DAMAGED as error:
        line, damage = None, error
      paragraph = '' if line is None else line.decode('utf-8', 'replace').strip()
      if paragraph:
        paragraphs.append(paragraph)
      elif paragraphs:
        yield paragraphs
        paragraphs = []
      if line is None:
        break
  if damage is not None:
    raise damage
