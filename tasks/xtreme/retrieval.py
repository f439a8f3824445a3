"""Retrieval tasks of XTREME: sentences to be embedded, translations found by the embeddings, files, scores.

There is no training: a trained encoder embeds sentences as it is (paper, footnote 6, leaves these tasks out).

Tatoeba (Artetxe & Schwenk 2019) asks for the English translation of each sentence, by cosine. `tatoeba/LL-en.LL` has
the sentences and `tatoeba/LL-en.en` the translations, in another order (XTREME sorts them); line i of
`labels/tatoeba/test-LL.tsv`, and of a file of predictions, is the 0-based line number of the translation of sentence i.
XTREME's paper and this module look for the nearest English sentence of each sentence. XTREME's script
(`third_party/run_retrieval.py`) happens to ask the other way round; on labels that say where a sentence's translation
is, that would be scored wrongly.

BUCC 2018 (Zweigenbaum et al. 2018) asks for the pairs of translations in two heaps of sentences.
`bucc2018/LL-en.SPLIT.LL` and `bucc2018/LL-en.SPLIT.en` have lines `ID TAB sentence`; `bucc2018/LL-en.dev.gold`,
`labels/bucc2018/test-LL.tsv` and a file of predictions have lines `ID TAB ID`, the English one second. Pairs are mined
(`tasks.metrics.retrieval`), and those from a threshold on are taken, which is fitted to the pairs of `dev`. As in
XTREME, a sentence that occurs more than once in a heap is searched once, and is in no pair: it has no one id. XTREME's
script embeds these sentences by their [CLS] (`--pool_type cls`, an encoder's output that no one trains here); this
project takes the mean over tokens, as for Tatoeba.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from rembert.errors import UsageError
from tasks.metrics import retrieval
from tasks.tables.files import FETCH, some_lines
from tasks.xtreme import FILES, LANGUAGES, XtremeConfig
from tasks.xtreme.files import XtremeFolder

Progress = Callable[[float], None]  # called with the fraction that is done
Texts = Mapping[str, Sequence[str]]  # sentences to embed, by a name
Embeddings = Mapping[str, np.ndarray]  # [sentences, H] for each name of `Texts`


@dataclasses.dataclass(frozen=True)
class RetrievalResult:
  """The translations found for a language."""

  lines: tuple[str, ...]  # of the file of predictions, as XTREME's `evaluate.py` reads it
  scores: dict[str, float] | None  # by name, 0 to 100; None without gold labels
  # Further numbers for the log, by name (a threshold).
  notes: dict[str, float] = dataclasses.field(default_factory=dict)


# --- Tatoeba ----------------------------------------------------------------------------------------------------------


class Translations(NamedTuple):
  """N sentences, N translations, and for each source the index of its translation, int64 [N]; None without labels."""

  source: tuple[str, ...]
  english: tuple[str, ...]
  gold: np.ndarray | None


class Tatoeba:
  """The nearest English sentence of each sentence, by cosine; the chance is one in N."""

  name, scores, languages = 'tatoeba', ('accuracy',), LANGUAGES['tatoeba']

  def examples(self, folder: XtremeFolder, language: str) -> Translations:
    """Both sides, and labels if there are any; UsageError for a missing file, a wrong line, or sides of two lengths."""
    paths = [folder.file(name) for name in files_of_sentences(self.name, language)]
    source, english = (tuple(_sentence(*line) for line in some_lines(path)) for path in paths)
    if len(source) != len(english):
      what = f'{len(source)} sentences and {len(english)} translations'
      raise UsageError(what, where=f'{paths[0]}; {paths[1]}', fix='fetch both files again')
    labels = folder.labels_file(self.name, language, 'tsv')
    return Translations(source, english, _read_gold(labels, len(source)) if labels.is_file() else None)

  def count(self, folder: XtremeFolder, split: str, language: str) -> tuple[int, int | None]:
    """Sentences and labels; raises as `examples`."""
    examples = self.examples(folder, language)
    return len(examples.source), None if examples.gold is None else len(examples.gold)

  def texts(self, examples: Translations) -> Texts:
    """Both sides."""
    return {'source': examples.source, 'english': examples.english}

  def find(
    self, examples: Translations, embeddings: Embeddings, on_progress: Progress = lambda fraction: None
  ) -> RetrievalResult:
    """The nearest English sentence of each, by cosine."""
    predicted = retrieval.nearest(embeddings['source'], embeddings['english'])
    on_progress(1.0)
    gold = examples.gold
    scores = None if gold is None else {'accuracy': 100 * int((predicted == gold).sum()) / gold.size}
    return RetrievalResult(tuple(map(str, predicted.tolist())), scores)

  def chance(self, examples: Translations) -> float:
    """The expected accuracy of random guesses."""
    return 100 / len(examples.english)


def _read_gold(path: epath.Path, count: int) -> np.ndarray:
  lines = some_lines(path)
  for text, where in lines:
    if not (text.isascii() and text.isdigit() and int(text) < count):
      what = f'{text!r} is not the number of a line, 0 to {count - 1}'
      raise UsageError(what, where=where, fix='each line of the labels is the line number of a translation')
  if len(lines) != count:
    raise UsageError(f'{len(lines)} labels for {count} sentences', where=str(path), fix='labels of the same data')
  return np.array([int(line.text) for line in lines], np.int64)


# --- BUCC 2018 --------------------------------------------------------------------------------------------------------

_SIDES = ('source', 'english')

Heap = dict[str, str]  # id to sentence
Pairs = frozenset[tuple[str, str]]


class Split(NamedTuple):
  """Two heaps, and the pairs that are translations of each other; None if they are not known."""

  source: Heap
  english: Heap
  gold: Pairs | None


class DevAndTest(NamedTuple):
  """Both splits of a language."""

  dev: Split
  test: Split


class Bucc2018:
  """The pairs of translations in two heaps of sentences, most of which have no partner."""

  name, scores, languages = 'bucc2018', ('f1', 'precision', 'recall'), LANGUAGES['bucc2018']

  def examples(self, folder: XtremeFolder, language: str) -> DevAndTest:
    """Both splits, and the pairs of `test` if they are known; UsageError as that of `Tatoeba.examples`."""
    return DevAndTest(*(self._split(folder, split, language) for split in DevAndTest._fields))

  def count(self, folder: XtremeFolder, split: str, language: str) -> tuple[int, int | None]:
    """Pairs of `dev`; source sentences of `test`, and the pairs among them."""
    source, _, gold = self._split(folder, split, language)
    labels = None if gold is None else len(gold)
    return (labels or 0, labels) if split == 'dev' else (len(source), labels)

  def _split(self, folder: XtremeFolder, split: str, language: str) -> Split:
    stem = f'bucc2018/{language}-en.{split}'
    source, english = (_read_heap(folder.file(f'{stem}.{side}')) for side in (language, 'en'))
    gold = folder.file(f'{stem}.gold') if split == 'dev' else folder.labels_file(self.name, language, 'tsv')
    return Split(source, english, _read_pairs(gold, source, english) if gold.is_file() else None)

  def texts(self, examples: DevAndTest) -> Texts:
    """Both sides of both splits, each sentence once: `dev.source`, `dev.english`, `test.source`, `test.english`."""
    return {
      f'{name}.{side}': tuple(_distinct(heap))
      for name, split in examples._asdict().items()
      for side, heap in zip(_SIDES, split[:2], strict=True)
    }

  def find(
    self, examples: DevAndTest, embeddings: Embeddings, on_progress: Progress = lambda fraction: None
  ) -> RetrievalResult:
    """Pairs of `test`, from the score on that is best on `dev`."""
    of_dev, of_test = (
      len(embeddings[f'{split}.source']) * len(embeddings[f'{split}.english']) for split in ('dev', 'test')
    )
    share = of_dev / (of_dev + of_test)
    on_dev = _mine('dev', examples.dev, embeddings, lambda fraction: on_progress(share * fraction))
    dev_gold, gold = examples.dev.gold or frozenset(), examples.test.gold
    is_gold = np.array([pair in dev_gold for pair in on_dev], bool)
    threshold = retrieval.best_threshold(np.fromiter(on_dev.values(), float), is_gold, len(dev_gold))
    mined = _mine('test', examples.test, embeddings, lambda fraction: on_progress(share + (1 - share) * fraction))
    pairs = [pair for pair, score in mined.items() if score >= threshold]
    dev_scores = retrieval.score_pairs({pair for pair, score in on_dev.items() if score >= threshold}, dev_gold)
    scores = None if gold is None else retrieval.score_pairs(set(pairs), gold)
    return RetrievalResult(
      tuple('\t'.join(pair) for pair in pairs),
      scores and {name: scores[name] for name in self.scores},
      {'threshold': threshold, 'dev_f1': dev_scores['f1'], 'pairs': len(pairs)},
    )

  def chance(self, examples: DevAndTest) -> float:
    """F1 of a random English sentence for every source sentence; 0 if the pairs are not known."""
    source, english, gold = examples.test
    return 200 * (len(gold) / len(english)) / (len(source) + len(gold)) if gold else 0.0


def _distinct(heap: Heap) -> dict[str, str | None]:
  """Each sentence once, with its id, or None if it has several; in the order of their first occurrence."""
  found: dict[str, str | None] = {}
  for identifier, sentence in heap.items():
    found[sentence] = None if sentence in found else identifier
  return found


def _mine(name: str, split: Split, embeddings: Embeddings, on_progress: Progress) -> dict[tuple[str, str], float]:
  """Pairs of ids with their scores, by falling score."""
  source, english = (list(_distinct(heap).values()) for heap in split[:2])
  found = retrieval.mine(*(embeddings[f'{name}.{side}'] for side in _SIDES), on_progress=on_progress)
  pairs = zip(found.source.tolist(), found.target.tolist(), found.score.tolist(), strict=True)
  return {(source[i], english[j]): score for i, j, score in pairs if source[i] is not None and english[j] is not None}


def _read_heap(path: epath.Path) -> Heap:
  heap: Heap = {}
  for line, where in some_lines(path):
    identifier, tab, text = line.partition('\t')
    if not tab or not identifier:
      raise UsageError('a line is an id, a tab and a sentence', where=where, fix=FETCH)
    if identifier in heap:
      raise UsageError(f'the id {identifier} occurs twice', where=where, fix=FETCH)
    heap[identifier] = _sentence(text, where)
  return heap


def _read_pairs(path: epath.Path, source: Heap, english: Heap) -> Pairs:
  pairs = set()
  for line, where in some_lines(path):
    pair = tuple(line.split('\t'))
    if len(pair) != 2:
      raise UsageError('a line is two ids with a tab between them', where=where, fix=FETCH)
    for identifier, heap in zip(pair, (source, english), strict=True):
      if identifier not in heap:
        raise UsageError(f'there is no sentence {identifier}', where=where, fix='pairs of the same data')
    pairs.add(pair)
  return frozenset(pairs)


# --- both -------------------------------------------------------------------------------------------------------------

RetrievalTask = Tatoeba | Bucc2018
TASKS: dict[str, RetrievalTask] = {task.name: task for task in (Tatoeba(), Bucc2018())}


def files_of_sentences(task: str, language: str) -> tuple[str, ...]:
  """Paths of the files with the sentences of a language, under the root of the data."""
  paths = [path.format(language=language) for split in FILES[task].values() for path in split]
  return tuple(path for path in paths if not path.endswith('.gold'))


def chosen_languages(task: RetrievalTask, folder: XtremeFolder, config: XtremeConfig) -> tuple[str, ...]:
  """Languages to evaluate, in XTREME's order: those asked for, or all that have data.

  UsageError for another split than `test`, for a language that the task does not have, or if none has data.
  """
  if config.split != 'test':
    what = f'{task.name} has no {config.split} split to evaluate'
    raise UsageError(what, where='xtreme.split', fix="xtreme.split = 'test'")
  if unknown := sorted(set(config.languages or ()) - set(task.languages)):
    what = f'{task.name} has no language {", ".join(unknown)}'
    raise UsageError(what, where='xtreme.languages', fix=f'some of {" ".join(task.languages)}')
  has_data = lambda language: all(map(folder.has, files_of_sentences(task.name, language)))
  # Reading reports a missing file of a language that was asked for.
  is_chosen = config.languages.__contains__ if config.languages else has_data
  if languages := tuple(filter(is_chosen, task.languages)):
    return languages
  raise UsageError(
    f'there is nothing of {task.name}',
    where=str(folder.root / task.name),
    fix=f'python -m tasks.xtreme.download --data_dir={folder.root} --tasks={task.name}',
  )


def _sentence(text: str, where: str) -> str:
  if sentence := text.strip():
    return sentence
  raise UsageError('a sentence is empty', where=where, fix=FETCH)
