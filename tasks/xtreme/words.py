"""Sentences of words with a tag each: what PAN-X and UDPOS have in common.

Files are `TASK/SPLIT-LANGUAGE.tsv`: in train and dev a word TAB its tag a line, in test the word alone; gold tags of
test are in `labels/TASK/test-LANGUAGE.tsv`, one a line. If a test file has a second column, that counts. A blank line
ends a sentence, as in XTREME's `evaluate.py`: two in succession have a sentence of no words between them.

A word may be the empty string: XTREME's preprocessing of PAN-X leaves some, as lines that begin with the TAB.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rembert.errors import UsageError
from tasks.metrics.chunks import chunk_scores
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.gold_labels import IGNORED, known_label, labels_lines, labels_missing, most_frequent, no_score
from tasks.xtreme.layout import Line
from tasks.xtreme.text_lines import same_columns, text_lines


@dataclasses.dataclass(frozen=True)
class Sentence:
  """Words and their tags, as many; None is unknown. `where` is `FILE:LINE` of its first word."""

  words: tuple[str, ...]
  tags: tuple[str, ...] | None
  where: str


def read_sentences(
  path: epath.Path, labels: Sequence[str], *, split: str, gold_file: epath.Path, needs_labels: bool
) -> list[Sentence]:
  """Reads a file.

  Args:
    path: of the words.
    labels: the tags that there are.
    split: that the file holds.
    gold_file: where the tags of a test file are.
    needs_labels: otherwise gold tags are those that the file itself has.

  Raises:
    UsageError: a line that is not a word, an unknown tag, no tags where they are needed, or sentences that do not have
      as many tags as words.
  """
  sentences = list(_sentences(path, labels))
  if not needs_labels or sentences[0].tags is not None:
    return sentences
  if split != 'test':
    raise labels_missing(next(sentence for sentence in sentences if sentence.words).where, 'two columns: word, tag')
  gold = list(_blocks(labels_lines(gold_file, path)))
  _check_counts(gold, gold_file, sentences, path)
  return [
    dataclasses.replace(sentence, tags=tuple(known_label(line.text, labels, line.where) for line in block.lines))
    for sentence, block in zip(sentences, gold, strict=True)
  ]


def sentence_columns(examples: Sequence[Sentence], labels: Sequence[str]) -> dict[str, Any]:
  """Columns `words` and `tags`, of which each example has as many as there are words."""
  index = {label: number for number, label in enumerate(labels)}
  tags = lambda sentence: sentence.tags and [index[tag] for tag in sentence.tags]
  return {
    'words': [sentence.words for sentence in examples],
    'tags': [tags(sentence) or [IGNORED] * len(sentence.words) for sentence in examples],
  }


def predict_tags(
  targets: Sequence[Mapping[str, Any]], scores: Sequence[np.ndarray], labels: Sequence[str], config: XtremeConfig
) -> dict[int, tuple[str, ...]]:
  """The tag with the highest score at each word's first token, for each example; scores are [S, labels].

  Sentences without words have no rows, and no entry.
  """
  del config
  tags = lambda target, logits: [labels[tag] for tag in np.argmax(logits[target['first_tokens']], axis=-1)]
  return _of_sentences(targets, [tags(target, logits) for target, logits in zip(targets, scores, strict=True)])


def score_tags(
  targets: Sequence[Mapping[str, Any]],
  predictions: Mapping[int, Sequence[str]],
  labels: Sequence[str],
  language: str,
) -> dict[str, float]:
  """`f1`, `precision` and `recall` over chunks, 0 to 100. UsageError if a sentence has no tags."""
  del language
  for target in targets:
    if IGNORED in target['labels'][target['first_tokens']]:
      raise no_score(target)
  tags = lambda target: [labels[tag] for tag in target['labels'][target['first_tokens']]]
  gold = _of_sentences(targets, [tags(target) for target in targets])
  return chunk_scores(list(gold.values()), [predictions[example] for example in gold])


def majority_tags(
  train: Sequence[Sentence], targets: Sequence[Mapping[str, Any]], labels: Sequence[str]
) -> dict[int, tuple[str, ...]]:
  """The most frequent tag of `train` for every word. If that is O, as for PAN-X, there are no chunks: F1 is 0."""
  tag = most_frequent((tag for sentence in train for tag in sentence.tags), labels)
  return _of_sentences(targets, [[tag] * len(target['first_tokens']) for target in targets])


def tags_text(predictions: Mapping[int, Sequence[str]], targets: Sequence[Mapping[str, Any]], count: int) -> str:
  """A tag a line and a blank line between sentences, in the order of the examples."""
  del targets
  blocks = [''.join(f'{tag}\n' for tag in predictions.get(example, ())) for example in range(count)]
  # A last sentence of no words is there only by the blank line behind it.
  return '\n'.join(blocks) + ('\n' if blocks[-1:] == [''] else '')


def word_tokens(word: str, encode: Callable[[str], Sequence[int]], unknown: int) -> list[int]:
  """Ids of a word by itself, at least one, from the SentencePiece library: what `preprocessors.word_rows` does.

  Args:
    word: a word.
    encode: text to ids.
    unknown: id of [UNK].
  """
  return (list(encode(word)) if word.strip() else []) or [unknown]


def _of_sentences(
  targets: Sequence[Mapping[str, Any]], tags_of_rows: Sequence[Sequence[str]]
) -> dict[int, tuple[str, ...]]:
  """Tags of rows to tags of examples: a long sentence has several rows, one after the other."""
  found = collections.defaultdict(tuple)
  for target, tags in zip(targets, tags_of_rows, strict=True):
    found[int(target['example'])] += tuple(tags)
  return dict(found)


# --- files ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Block:
  """Lines up to a blank one, and where they begin."""

  lines: tuple[Line, ...]
  where: str


def read_blocks(path: epath.Path) -> list[Block]:
  """Blocks of a file; UsageError if it is empty or broken."""
  return list(_blocks(text_lines(path)))


def _blocks(lines: Sequence[Line]) -> Iterator[Block]:
  block: list[Line] = []
  for line in lines:
    if line.text.strip(' \t'):
      block.append(line)
    else:
      yield Block(tuple(block), (block or [line])[0].where)
      block = []
  if block:
    yield Block(tuple(block), block[0].where)


def _sentences(path: epath.Path, labels: Sequence[str]) -> Iterator[Sentence]:
  """Sentences of a file whose lines all have one column, or all two."""
  blocks = read_blocks(path)
  table = [(line.text.split('\t'), line.where) for block in blocks for line in block.lines]
  if not table:
    raise UsageError('a file without words', where=f'{path}:1', fix='fetch it again')
  columns = same_columns(table, (1, 2), 'word, in train and dev TAB tag')
  rows = iter(table)
  for block in blocks:
    words = list(itertools.islice(rows, len(block.lines)))
    tags = tuple(known_label(row[1], labels, where) for row, where in words) if columns == 2 else None
    yield Sentence(tuple(row[0] for row, _ in words), tags, block.where)


def _check_counts(gold: Sequence[Block], gold_file: epath.Path, sentences: Sequence[Sentence], path: epath.Path):
  for block, sentence in zip(gold, sentences, strict=False):
    if len(block.lines) != len(sentence.words):
      raise UsageError(
        f'a sentence of {len(sentence.words)} words with {len(block.lines)} gold tags',
        where=f'{block.where}, for {sentence.where}',
        fix=f'a tag in {gold_file} for each word in {path}, blank lines at the same places',
      )
  if len(gold) != len(sentences):
    raise UsageError(
      f'gold tags of {len(gold)} sentences for {len(sentences)}',
      where=f'{gold[-1].where} and {sentences[-1].where}, where the last ones begin',
      fix=f'blank lines in {gold_file} at the same places as in {path}',
    )
