"""BUCC 2018 (Zweigenbaum et al. 2018): find the pairs of translations in two heaps of sentences.

`bucc2018/LL-en.SPLIT.LL` and `bucc2018/LL-en.SPLIT.en` have lines `ID TAB sentence`; `bucc2018/LL-en.dev.gold`,
`labels/bucc2018/test-LL.tsv` and a file of predictions have lines `ID TAB ID`, the English one second. Pairs are mined
(`tasks.metrics.retrieval`), and those from a score on are taken; which score, is learned from the pairs of `dev`.

As in XTREME, a sentence that occurs more than once in a heap is searched once, and is in no pair: it has no one id.
XTREME's script embeds these sentences by their [CLS] (`--pool_type cls`, an encoder's output that no one trains here);
this project takes the mean over pieces, as for Tatoeba.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rembert.errors import UsageError
from tasks.metrics import retrieval
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.retrieval import Found, digest, lines_of, sentence_of

LANGUAGES = ('de', 'fr', 'ru', 'zh')
_SIDES = ('source', 'english')

Pairs = frozenset[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Heap:
  """Sentences of one language.

  Attributes:
    ids: all different.
    sentences: for each id.
  """

  ids: tuple[str, ...]
  sentences: tuple[str, ...]

  @functools.cached_property
  def distinct(self) -> dict[str, str | None]:
    """Each sentence once, with its id, or None if it has several; in the order of their first occurrence."""
    found: dict[str, str | None] = {}
    for identifier, sentence in zip(self.ids, self.sentences, strict=True):
      found[sentence] = None if sentence in found else identifier
    return found


@dataclasses.dataclass(frozen=True)
class Split:
  """Two heaps, and the pairs that are translations of each other; None where that is not known."""

  source: Heap
  english: Heap
  gold: Pairs | None


@dataclasses.dataclass(frozen=True)
class DevAndTest:
  """Both splits of a language."""

  dev: Split
  test: Split


class Bucc2018:
  """The task; see `tasks.xtreme.retrieval.RetrievalTask`."""

  name = 'bucc2018'
  languages = LANGUAGES
  scores = ('f1', 'precision', 'recall')

  def files(self, language: str) -> tuple[str, ...]:
    """Both sides of both splits."""
    return tuple(f'{language}-en.{split}.{side}' for split in ('dev', 'test') for side in (language, 'en'))

  def examples(self, folder: XtremeFolder, language: str) -> DevAndTest:
    """Reads a language; UsageError where pairs name sentences that are not there."""
    labels = folder.labels_file('bucc2018', language, 'tsv')
    gold = {
      'dev': folder.file('bucc2018', f'{language}-en.dev.gold'),
      'test': labels if labels.is_file() else None,
    }
    splits = {}
    for split, pairs in gold.items():
      heaps = [_read_heap(folder.file('bucc2018', f'{language}-en.{split}.{side}')) for side in (language, 'en')]
      splits[split] = Split(*heaps, None if pairs is None else _read_pairs(pairs, *heaps))
    return DevAndTest(**splits)

  def texts(self, examples: DevAndTest) -> Mapping[str, Sequence[str]]:
    """Both sides of both splits, each sentence once: `dev.source`, `dev.english`, `test.source`, `test.english`."""
    return {
      f'{split}.{side}': tuple(getattr(getattr(examples, split), side).distinct)
      for split in ('dev', 'test')
      for side in _SIDES
    }

  def find(
    self,
    examples: DevAndTest,
    embeddings: Mapping[str, np.ndarray],
    on_progress: Callable[[float], None] = lambda fraction: None,
  ) -> Found:
    """Pairs of `test`, from the score on that is best on `dev`."""
    work = {
      split: len(embeddings[f'{split}.source']) * len(embeddings[f'{split}.english']) for split in ('dev', 'test')
    }
    share = work['dev'] / sum(work.values())
    known = _mine('dev', examples.dev, embeddings, lambda fraction: on_progress(share * fraction))
    is_gold = np.array([pair in examples.dev.gold for pair in known], bool)
    threshold = retrieval.best_threshold(np.fromiter(known.values(), float), is_gold, len(examples.dev.gold))
    mined = _mine('test', examples.test, embeddings, lambda fraction: on_progress(share + (1 - share) * fraction))
    pairs = [pair for pair, score in mined.items() if score >= threshold]
    on_dev = retrieval.score_pairs({pair for pair, score in known.items() if score >= threshold}, examples.dev.gold)
    gold = examples.test.gold
    return Found(
      tuple('\t'.join(pair) for pair in pairs),
      None if gold is None else _by_name(retrieval.score_pairs(set(pairs), gold)),
      {'threshold': threshold, 'dev_f1': on_dev.f1, 'pairs': len(pairs)},
    )

  def chance(self, examples: DevAndTest) -> float:
    """F1 of somebody who gives every source sentence an English one at random; 0 where the pairs are not known."""
    gold = examples.test.gold
    if gold is None:
      return 0.0
    sources, english = len(examples.test.source.ids), len(examples.test.english.ids)
    return 200 * (len(gold) / english) / (sources + len(gold))

  def digest(self, examples: DevAndTest) -> str:
    """Of ids, sentences and pairs of both splits."""
    heaps = [heap for split in (examples.dev, examples.test) for heap in (split.source, split.english)]
    pairs = [sorted(map('\t'.join, split.gold or ())) for split in (examples.dev, examples.test)]
    return digest(*(part for heap in heaps for part in (heap.ids, heap.sentences)), *pairs)


def _by_name(mined: retrieval.Mined) -> dict[str, float]:
  return {name: getattr(mined, name) for name in Bucc2018.scores}


def _mine(name: str, split: Split, embeddings: Mapping[str, np.ndarray], on_progress) -> dict[tuple[str, str], float]:
  """Pairs of ids with their scores, by falling score."""
  source, english = (list(heap.distinct.values()) for heap in (split.source, split.english))
  found = retrieval.mine(*(embeddings[f'{name}.{side}'] for side in _SIDES), on_progress=on_progress)
  pairs = zip(found.source.tolist(), found.target.tolist(), found.score.tolist(), strict=True)
  return {(source[i], english[j]): score for i, j, score in pairs if source[i] is not None and english[j] is not None}


def _read_heap(path) -> Heap:
  sentences: dict[str, str] = {}
  for line in lines_of(path):
    identifier, tab, text = line.text.partition('\t')
    if not tab or not identifier:
      raise UsageError('a line is an id, a tab and a sentence', where=line.where, fix='fetch the file again')
    if identifier in sentences:
      raise UsageError(f'the id {identifier} occurs twice', where=line.where, fix='fetch the file again')
    sentences[identifier] = sentence_of(text, line.where)
  return Heap(tuple(sentences), tuple(sentences.values()))


def _read_pairs(path, source: Heap, english: Heap) -> Pairs:
  known = set(source.ids), set(english.ids)
  pairs = set()
  for line in lines_of(path):
    pair = tuple(line.text.split('\t'))
    if len(pair) != 2:
      raise UsageError('a line is two ids with a tab between them', where=line.where, fix='fetch the file again')
    for identifier, ids in zip(pair, known, strict=True):
      if identifier not in ids:
        raise UsageError(f'there is no sentence {identifier}', where=line.where, fix='pairs of the same data')
    pairs.add(pair)
  return frozenset(pairs)
