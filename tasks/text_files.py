"""Plain text on disk, also packed: a paragraph a line, a blank line between documents."""

import bz2
import dataclasses
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping

from etils import epath

from rembert.data.config import DataConfig
from rembert.errors import UsageError
from tasks.wikipedia.corpus import ReadProgress
from tasks.wikipedia.documents import Document, is_held_out
from tasks.wikipedia.dumps import ReadCounts
from tasks.wikipedia.languages import missing_in_words, without_lists

_NAME = re.compile(r'(?P<language>[a-zA-Z]{2,}(?:-[a-zA-Z]+)*)\.txt(?:\.(?:xz|bz2|gz))?')
_OPENERS = {'.xz': lzma.open, '.bz2': bz2.open, '.gz': gzip.open}
# What reading raises where a file is no archive, or is damaged or cut off.
DAMAGED = (OSError, EOFError, lzma.LZMAError, zlib.error)


def read_text_documents(path: epath.Path, counts: ReadCounts | None = None) -> Iterator[list[str]]:
  """The paragraphs of each document; where the file breaks off, one of `DAMAGED` comes after all that stood before.

  Args:
    path: the file.
    counts: its `bytes_read` are kept up to date.
  """
  counts = counts or ReadCounts()
  paragraphs: list[str] = []
  damage = None
  with path.open('rb') as stream:
    opener = _OPENERS.get(path.suffix)
    unpacked = opener(stream) if opener else stream
    while True:
      try:
        line = unpacked.readline()
      except DAMAGED as error:
        line, damage = b'', error
      counts.bytes_read = stream.tell()
      paragraph = line.decode('utf-8', 'replace').strip()
      if paragraph:
        paragraphs.append(paragraph)
      elif paragraphs:
        yield paragraphs
        paragraphs = []
      if not line:
        break
  if damage is not None:
    raise damage


@dataclasses.dataclass(frozen=True)
class TextFiles:
  """A folder of plain text, a file for each language.

  Attributes:
    files: of each language, `LL.txt`, also packed (`.xz`, `.bz2`, `.gz`).
    held_out: share of held-out documents.
  """

  files: Mapping[str, epath.Path]
  held_out: float = 0.0

  @property
  def languages(self) -> tuple[str, ...]:
    """Codes, as the files are named, sorted."""
    return tuple(sorted(self.files))

  def documents(self, language: str, progress: ReadProgress | None = None) -> Iterator[tuple[Document, bool]]:
    """As `Corpus.documents`."""
    progress = progress or ReadProgress()
    progress.counts = ReadCounts()
    file = self.files[language]
    size = file.stat().length
    try:
      for paragraphs in read_text_documents(file, progress.counts):
        progress.fraction = min(1.0, progress.counts.bytes_read / max(size, 1))
        text = '\n'.join(paragraphs)
        yield Document(language=language, title='', text=text), is_held_out(text, self.held_out)
    except DAMAGED as error:
      raise UsageError(
        f'the text cannot be read: {error}', where=str(file), fix='check that the file is whole'
      ) from error
    progress.fraction = 1.0


def open_text_files(
  folder: epath.PathLike, config: DataConfig, say: Callable[[str], None] = lambda line: None
) -> TextFiles:
  """The text files of a folder; UsageError where there is none or a language given by its code has none.

  Args:
    folder: holds `LL.txt`, also packed.
    config: its `languages` and `held_out` count.
    say: is told in one line which languages of a list are missing.
  """
  folder = epath.Path(folder)
  there = {}
  for path in sorted(folder.iterdir()) if folder.is_dir() else []:
    if name := _NAME.fullmatch(path.name):
      there[name['language']] = path
  codes, listed = (tuple(there), ()) if config.languages is None else without_lists(config.languages)
  missing = [code for code in codes if code not in there]
  chosen = {code: there[code] for code in (*codes, *listed) if code in there}
  if missing or not chosen:
    raise UsageError(
      f'no text of {", ".join(missing)}' if missing else 'no text found',
      where=str(folder),
      fix='files are named by language: de.txt, or de.txt.xz, .bz2, .gz',
    )
  if line := missing_in_words(config.languages or (), tuple(chosen)):
    say(line)
  return TextFiles(chosen, config.held_out)
