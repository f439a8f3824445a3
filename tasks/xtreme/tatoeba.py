"""Tatoeba (Artetxe & Schwenk 2019): find the English translation of each sentence, by cosine.

`tatoeba/LL-en.LL` has the sentences and `tatoeba/LL-en.en` the translations, in another order (XTREME sorts them);
line i of `labels/tatoeba/test-LL.tsv`, and of a file of predictions, is the 0-based line number of the translation of
sentence i.

XTREME's paper and this module look for the nearest English sentence of each sentence. XTREME's script
(`third_party/run_retrieval.py`) happens to ask the other way round; on labels that say where a sentence's translation
is, that would be scored wrongly.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rembert.errors import UsageError
from tasks.metrics import retrieval
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.retrieval import Found, digest, lines_of, sentence_of

_CODES = 'ar he vi id jv tl eu ml ta te af nl de el bn hi mr ur fa fr it pt es bg ru ja ka ko th sw zh kk tr et fi hu'
LANGUAGES = tuple(_CODES.split())


@dataclasses.dataclass(frozen=True)
class Translations:
  """Sentences and their translations.

  Attributes:
    source: N sentences.
    english: N sentences.
    gold: [N] int64, for each source the index of its translation; None where there are no labels.
  """

  source: tuple[str, ...]
  english: tuple[str, ...]
  gold: np.ndarray | None


class Tatoeba:
  """The task; see `tasks.xtreme.retrieval.RetrievalTask`."""

  name = 'tatoeba'
  languages = LANGUAGES
  scores: tuple[str, ...] = ('accuracy',)

  def files(self, language: str) -> tuple[str, ...]:
    """Sentences, and English ones."""
    return f'{language}-en.{language}', f'{language}-en.en'

  def examples(self, folder: XtremeFolder, language: str) -> Translations:
    """Reads a language; UsageError where sides or labels do not fit together."""
    paths = [folder.file('tatoeba', name) for name in self.files(language)]
    source, english = (tuple(sentence_of(*line) for line in lines_of(path)) for path in paths)
    if len(source) != len(english):
      raise UsageError(
        f'{len(source)} sentences and {len(english)} translations',
        where=f'{paths[0]}; {paths[1]}',
        fix='fetch both files again',
      )
    labels = folder.labels_file('tatoeba', language, 'tsv')
    return Translations(source, english, _read_gold(labels, len(source)) if labels.is_file() else None)

  def texts(self, examples: Translations) -> Mapping[str, Sequence[str]]:
    """Both sides."""
    return {'source': examples.source, 'english': examples.english}

  def find(
    self,
    examples: Translations,
    embeddings: Mapping[str, np.ndarray],
    on_progress: Callable[[float], None] = lambda fraction: None,
  ) -> Found:
    """The nearest English sentence of each, by cosine."""
    predicted = retrieval.nearest(embeddings['source'], embeddings['english'])
    on_progress(1.0)
    scores = None if examples.gold is None else {'accuracy': retrieval.accuracy(predicted, examples.gold)}
    return Found(tuple(map(str, predicted.tolist())), scores)

  def chance(self, examples: Translations) -> float:
    """One in N."""
    return 100 / len(examples.english)

  def digest(self, examples: Translations) -> str:
    """Of both sides and the labels."""
    return digest(examples.source, examples.english, () if examples.gold is None else map(str, examples.gold.tolist()))


def _read_gold(path, count: int) -> np.ndarray:
  gold = []
  for line in lines_of(path):
    if not (line.text.isascii() and line.text.isdigit() and int(line.text) < count):
      raise UsageError(
        f'{line.text!r} is not the number of a line, 0 to {count - 1}',
        where=line.where,
        fix='each line of the labels is the 0-based line number of a translation',
      )
    gold.append(int(line.text))
  if len(gold) != count:
    raise UsageError(f'{len(gold)} labels for {count} sentences', where=str(path), fix='labels of the same data')
  return np.asarray(gold, np.int64)
