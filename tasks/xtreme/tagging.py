"""Sentences of words with a tag each: what PAN-X and UDPOS have in common.

Files are `TASK/SPLIT-LANGUAGE.tsv`: in train and dev a word TAB its tag a line, in test the word alone; gold tags of
test are in `labels/TASK/test-LANGUAGE.tsv`, one a line. If a test file has a second column, that counts. A blank line
ends a sentence, as in XTREME's `evaluate.py`: two in succession have a sentence of no words between them.

A word may be the empty string: XTREME's preprocessing of PAN-X leaves some, as lines that begin with the TAB.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rembert.errors import UsageError
from tasks.metrics.labels import chunk_scores
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.files import Line, known_label, labels_lines, labels_missing, most_frequent, same_columns, text_lines
from tasks.xtreme.task import IGNORED, Targets, XtremeTask, no_score

Tags = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Sentence:
  """Words and their tags, as many; None is unknown. `where` is `FILE:LINE` of its first word."""

  words: tuple[str, ...]
  tags: Tags | None
  where: str


class Tagging(XtremeTask):
  """A task whose examples are words with a tag each."""

  head = 'tagging'
  scores = ('f1', 'precision', 'recall')

  def read(self, path: epath.Path, split: str, gold_file: epath.Path, needs_labels: bool) -> list[Sentence]:
    """Sentences of a file; UsageError as `examples`, or if sentences do not have as many gold tags as words."""
    blocks = _blocks(text_lines(path))
    table = [(line.text.split('\t'), line.where) for lines, _ in blocks for line in lines]
    if not table:
      raise UsageError('a file without words', where=f'{path}:1', fix='fetch it again')
    has_tags = same_columns(table, (1, 2), 'word, in train and dev TAB tag') == 2
    known = lambda text, where: known_label(text, self.labels, where)
    words = lambda lines: tuple(line.text.partition('\t')[0] for line in lines)
    tags = lambda lines: tuple(known(line.text.partition('\t')[2], line.where) for line in lines)
    sentences = [Sentence(words(lines), tags(lines) if has_tags else None, where) for lines, where in blocks]
    if not needs_labels or has_tags:
      return sentences
    if split != 'test':
      raise labels_missing(table[0][1], 'it takes two columns: word, tag')
    gold = _blocks(labels_lines(gold_file, path))
    for (lines, where), sentence in zip(gold, sentences, strict=False):
      if len(lines) != len(sentence.words):
        raise UsageError(
          f'a sentence of {len(sentence.words)} words with {len(lines)} gold tags',
          where=f'{where}, for {sentence.where}',
          fix=f'a tag in {gold_file} for each word in {path}, blank lines at the same places',
        )
    if len(gold) != len(sentences):
      raise UsageError(
        f'gold tags of {len(gold)} sentences for {len(sentences)}',
        where=f'{gold[-1][1]} and {sentences[-1].where}, where the last ones begin',
        fix=f'blank lines in {gold_file} at the same places as in {path}',
      )
    return [
      dataclasses.replace(sentence, tags=tuple(known(*line) for line in lines))
      for sentence, (lines, _) in zip(sentences, gold, strict=True)
    ]

  def columns(self, examples: Sequence[Sentence]) -> dict[str, Any]:
    """Columns `words` and `tags`, of which each example has as many as there are words."""
    index = {label: number for number, label in enumerate(self.labels)}
    tags = lambda sentence: sentence.tags and [index[tag] for tag in sentence.tags]
    return {
      'words': [sentence.words for sentence in examples],
      'tags': [tags(sentence) or [IGNORED] * len(sentence.words) for sentence in examples],
    }

  def predict(self, targets: Targets, scores: Sequence[np.ndarray], config: XtremeConfig) -> dict[int, Tags]:
    """The tag with the highest score at each word's first token, for each example; scores are [S, labels].

    Sentences without words have no rows, and no entry.
    """
    rows = zip(targets, scores, strict=True)
    tags = [np.argmax(logits[target['first_tokens']], axis=-1) for target, logits in rows]
    return of_sentences(targets, tags, self.labels)

  def score(self, targets: Targets, predictions: Mapping[int, Sequence[str]], language: str) -> dict[str, float]:
    """`f1`, `precision` and `recall` over chunks, 0 to 100."""
    tags = [target['labels'][target['first_tokens']] for target in targets]
    for target, found in zip(targets, tags, strict=True):
      if IGNORED in found:
        raise no_score(target)
    gold = of_sentences(targets, tags, self.labels)
    return chunk_scores(list(gold.values()), [predictions[example] for example in gold])

  def baseline(self, train: Sequence[Sentence], targets: Targets) -> dict[int, Tags]:
    """The most frequent tag of `train` for every word. If that is O, as for PAN-X, there are no chunks: F1 is 0."""
    tag = self.labels.index(most_frequent((tag for sentence in train for tag in sentence.tags or ()), self.labels))
    return of_sentences(targets, [[tag] * len(target['first_tokens']) for target in targets], self.labels)

  def file_text(self, predictions: Mapping[int, Sequence[str]], targets: Targets, count: int) -> str:
    """A tag a line and a blank line between sentences, in the order of the examples."""
    blocks = [''.join(f'{tag}\n' for tag in predictions.get(example, ())) for example in range(count)]
    # A last sentence of no words is there only by the blank line behind it.
    return '\n'.join(blocks) + ('\n' if blocks[-1:] == [''] else '')


def of_sentences(
  targets: Targets, tags_of_rows: Iterable[Sequence[int]], labels: Sequence[str]
) -> dict[int, tuple[str, ...]]:
  """Names of the tags of rows, by example: a long sentence has several rows, one after the other."""
  found = collections.defaultdict(tuple)
  for target, tags in zip(targets, tags_of_rows, strict=True):
    found[int(target['example'])] += tuple(labels[tag] for tag in tags)
  return dict(found)


def word_tokens(word: str, encode: Callable[[str], Sequence[int]], unknown: int) -> list[int]:
  """Ids of a word by itself, or that of [UNK], from the SentencePiece library: what `preprocessors.word_rows` does."""
  return (list(encode(word)) if word.strip() else []) or [unknown]


def _blocks(lines: Sequence[Line]) -> list[tuple[list[Line], str]]:
  """Lines up to a blank one, and where they begin."""
  blocks, block = [], []
  for line in lines:
    if line.text.strip(' \t'):
      block.append(line)
    else:
      blocks.append((block, (block or [line])[0].where))
      block = []
  return blocks + ([(block, block[0].where)] if block else [])
