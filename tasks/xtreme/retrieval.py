"""What a retrieval task of XTREME is: sentences to be embedded, translations found by the embeddings, files, scores.

Nothing is learned here: a trained encoder embeds sentences as it is (paper, footnote 6, leaves these tasks out).
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rembert.errors import UsageError
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.layout import Line, XtremeFolder, read_lines


@dataclasses.dataclass(frozen=True)
class Found:
  """What was found for a language.

  Attributes:
    lines: of the file of predictions, as XTREME's `evaluate.py` reads it.
    scores: by name, 0 to 100; None where there are no gold labels.
    notes: what else a person should know, by name (a threshold).
  """

  lines: tuple[str, ...]
  scores: dict[str, float] | None
  notes: dict[str, float] = dataclasses.field(default_factory=dict)


class RetrievalTask(Protocol):
  """One task; its examples are of a type of their own.

  Attributes:
    name: folder of its data.
    languages: that XTREME judges it in, each against English.
    scores: names of the scores; the first is the task's.
  """

  name: str
  languages: tuple[str, ...]
  scores: tuple[str, ...]

  def files(self, language: str) -> tuple[str, ...]:
    """Names of the files with the sentences of a language, in the folder of the task."""

  def examples(self, folder: XtremeFolder, language: str) -> Any:
    """Reads a language.

    Raises:
      UsageError: no such file, or a line that is not as it should be (with file and line).
    """

  def texts(self, examples: Any) -> Mapping[str, Sequence[str]]:
    """Sentences that have to be embedded, by a name."""

  def find(self, examples: Any, embeddings: Mapping[str, np.ndarray], on_progress: Callable[[float], None]) -> Found:
    """Translations.

    Args:
      examples: as they were read.
      embeddings: for each name of `texts`, [sentences, H].
      on_progress: is told the fraction that is done.
    """

  def chance(self, examples: Any) -> float:
    """What the first score is on average for somebody who guesses."""

  def digest(self, examples: Any) -> str:
    """A checksum of all that the result depends on but the embeddings, gold labels included."""


def chosen_languages(task: RetrievalTask, folder: XtremeFolder, config: XtremeConfig) -> tuple[str, ...]:
  """Languages to be judged, in XTREME's order: those asked for, or all that have data.

  Raises:
    UsageError: another split than `test`, a language that the task has not, or none with data.
  """
  if config.split != 'test':
    raise UsageError(
      f'{task.name} has no {config.split} split to be judged on', where='xtreme.split', fix="xtreme.split = 'test'"
    )
  unknown = sorted(set(config.languages or ()) - set(task.languages))
  if unknown:
    raise UsageError(
      f'{task.name} has no language {", ".join(unknown)}',
      where='xtreme.languages',
      fix=f'some of {" ".join(task.languages)}',
    )
  languages = tuple(language for language in task.languages if language in (config.languages or task.languages))
  if config.languages is None:  # a file that was asked for and is not there is told when it is read
    has = lambda language: all(folder.has(task.name, name) for name in task.files(language))
    languages = tuple(language for language in languages if has(language))
  if not languages:
    raise UsageError(
      f'there is nothing of {task.name}',
      where=str(folder.root / task.name),
      fix=f'python -m tasks.xtreme.download --data_dir={folder.root} --tasks={task.name}',
    )
  return languages


def sentence_of(text: str, where: str) -> str:
  """A sentence without the space around it; UsageError if nothing is left."""
  sentence = text.strip()
  if not sentence:
    raise UsageError('a sentence is empty', where=where, fix='fetch the file again')
  return sentence


def lines_of(path) -> list[Line]:
  """Lines of a file that has some; UsageError if it has none."""
  lines = list(read_lines(path))
  if not lines:
    raise UsageError('the file is empty', where=str(path), fix='fetch the file again')
  return lines


def digest(*parts: Iterable[str]) -> str:
  """SHA-256 of several lists of texts."""
  found = hashlib.sha256()
  for part in parts:
    for text in part:
      found.update(text.encode() + b'\n')
    found.update(b'\0')
  return found.hexdigest()
