"""Two files that are translations of each other, line by line: FLORES, WMT's newstest, Tatoeba with its labels."""

import dataclasses

import numpy as np
from etils import epath

from rembert.errors import UsageError
from tasks.xtreme.files import read_lines


@dataclasses.dataclass(frozen=True)
class AlignedLines:
  """Sentences and their translations.

  Attributes:
    source: N sentences.
    target: M sentences.
    gold: [N] int64, the index of each source's translation; None where both stand in the same order.
    blank: pairs that were left out, since one side had no text.
  """

  source: tuple[str, ...]
  target: tuple[str, ...]
  gold: np.ndarray | None = None
  blank: int = 0


def read_aligned(source: epath.PathLike, target: epath.PathLike, max_pairs: int | None = None) -> AlignedLines:
  """The first pairs of two files, a sentence a line; pairs with a blank side are left out.

  Args:
    source: UTF-8, a sentence a line.
    target: line i is the translation of line i.
    max_pairs: how many at most; None for all.

  Raises:
    UsageError: a file cannot be read, is not UTF-8, has other lines than the other, or there is no pair.
  """
  sides = [list(read_lines(_existing(path))) for path in (source, target)]
  if len(sides[0]) != len(sides[1]):
    longer = max(sides, key=len)
    raise UsageError(
      f'{len(sides[0]):,} lines and {len(sides[1]):,} translations',
      where=f'{source}, {target}; {longer[min(map(len, sides))].where} has no partner',
      fix='give files of which line i translates line i; for Tatoeba --gin.xtreme.data_dir=FOLDER reads its labels too',
    )
  pairs = [(a.text.strip(), b.text.strip()) for a, b in zip(*sides, strict=True)]
  whole = [pair for pair in pairs if all(pair)]
  if not whole:
    raise UsageError('there is no pair of sentences', where=f'{source}, {target}', fix='a sentence a line')
  chosen = whole[:max_pairs]
  texts, translations = zip(*chosen, strict=True)
  return AlignedLines(texts, translations, blank=len(pairs) - len(whole))


def _existing(path: epath.PathLike) -> epath.Path:
  path = epath.Path(path)
  if not path.is_file():
    raise UsageError('there is no such file', where=str(path), fix='a text file, one sentence a line')
  return path
