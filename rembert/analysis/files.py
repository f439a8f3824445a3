"""Files that analyses read. Errors name the file and the line.

translations    two files of sentences, line i of one translates line i of the other: FLORES, WMT's newstest
word pairs      two words and a similarity score per line
labelled spans  JSON lines: Tenney et al. (2019), jiant
"""

import dataclasses
import json
import re
from typing import NoReturn

import numpy as np
from etils import epath

from rembert.errors import UsageError
from tasks.xtreme.files import Line, read_lines


def _existing(path: epath.PathLike, fix: str) -> epath.Path:
  path = epath.Path(path)
  if not path.is_file():
    raise UsageError('no such file', where=str(path), fix=fix)
  return path


# --- translations -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class AlignedLines:
  """Sentences and their translations.

  Attributes:
    source: N sentences.
    target: M sentences.
    gold: [N] int64, the index of each source's translation; None if both are in the same order.
    blank: pairs that were skipped because a side has no text.
  """

  source: tuple[str, ...]
  target: tuple[str, ...]
  gold: np.ndarray | None = None
  blank: int = 0


def read_aligned(source: epath.PathLike, target: epath.PathLike, max_pairs: int | None = None) -> AlignedLines:
  """The first `max_pairs` pairs of two files in UTF-8, or all; pairs with a blank side are skipped.

  Raises:
    UsageError: a file cannot be read, the files differ in length, or there is no pair.
  """
  sides = [list(read_lines(_existing(path, 'a text file, one sentence a line'))) for path in (source, target)]
  if len(sides[0]) != len(sides[1]):
    longer = max(sides, key=len)
    raise UsageError(
      f'{len(sides[0]):,} lines and {len(sides[1]):,} translations',
      where=f'{source}, {target}; {longer[min(map(len, sides))].where} has no partner',
      fix='give files of which line i translates line i; for Tatoeba --gin.xtreme.data_dir=FOLDER reads its labels too',
    )
  pairs = [(a.text.strip(), b.text.strip()) for a, b in zip(*sides, strict=True)]
  kept = [pair for pair in pairs if all(pair)]
  if not kept:
    raise UsageError('there is no pair of sentences', where=f'{source}, {target}', fix='a sentence a line')
  texts, translations = zip(*kept[:max_pairs], strict=True)
  return AlignedLines(texts, translations, blank=len(pairs) - len(kept))


# --- word pairs -------------------------------------------------------------------------------------------------------

_WORD_PAIR = re.compile(r'(\S+)\s+(\S+)\s+(-?\d*\.?\d+)')


@dataclasses.dataclass(frozen=True)
class WordPair:
  """Two words, and the human similarity judgement."""

  first: str
  second: str
  score: float


def read_word_pairs(path: epath.PathLike) -> list[WordPair]:
  """The pairs of a file in UTF-8: `tiger cat 7.35`, separated by tabs or spaces. Lines that begin with # are skipped.

  Raises:
    UsageError: no such file, no pair in it, or a line that is not two words and a score.
  """
  form = 'two words and a score per line, separated by tabs or spaces'
  pairs = []
  for line in read_lines(_existing(path, form)):
    text = line.text.strip()
    if not text or text.startswith('#'):
      continue
    if (match := _WORD_PAIR.fullmatch(text)) is None:
      raise UsageError(f'{text!r} is not two words and a score', where=line.where, fix=form)
    first, second, score = match.groups()
    pairs.append(WordPair(first, second, float(score)))
  if not pairs:
    raise UsageError('there is no word pair in the file', where=str(path), fix=form)
  return pairs


# --- labelled spans ---------------------------------------------------------------------------------------------------

Span = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Target:
  """One or two spans, begin and end in words, and their labels."""

  span1: Span
  span2: Span | None
  labels: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class SpanExample:
  """A sentence, its labelled spans, and `FILE:LINE`."""

  words: tuple[str, ...]
  targets: tuple[Target, ...]
  where: str


@dataclasses.dataclass(frozen=True)
class SpanSet:
  """The examples of a file, or of a language, that have targets."""

  name: str
  examples: tuple[SpanExample, ...]


def read_spans(path: epath.PathLike) -> SpanSet:
  """The examples of a file of JSON lines.

      {"text": "The dog barks .", "targets": [{"span1": [1, 2], "label": "NOUN"}, …]}
      {"text": "The dog barks .", "targets": [{"span1": [0, 2], "span2": [2, 3], "label": ["a", "b"]}, …]}

  Spans count words, separated by white space; their end is exclusive. A label may be a list (semantic proto-roles have
  any number of labels).

  Raises:
    UsageError: no such file, another form, no target, or targets of one span and of two.
  """
  form = 'JSON lines: {"text": …, "targets": […]}'
  path = _existing(path, form)
  examples = [_span_example(line) for line in read_lines(path) if line.text.strip()]
  kept = tuple(example for example in examples if example.targets)
  if not kept:
    raise UsageError('there is no target in the file', where=str(path), fix=form)
  if len({target.span2 is None for example in kept for target in example.targets}) > 1:
    raise UsageError('targets of one span and of two', where=str(path), fix='a file for each task')
  return SpanSet(path.name.partition('.')[0], kept)


def _span_example(line: Line) -> SpanExample:
  def refuse(what: str) -> NoReturn:
    raise UsageError(what, where=line.where, fix='{"text": "…", "targets": [{"span1": [0, 1], "label": "…"}]}')

  def span_of(target: dict, key: str) -> Span:
    span = target[key]
    is_pair = isinstance(span, list) and len(span) == 2 and all(type(end) is int for end in span)
    if not is_pair or not 0 <= span[0] < span[1] <= len(words):
      refuse(f'{key} {span} is no span of {len(words)} words')
    begin, end = span
    return begin, end

  try:
    content = json.loads(line.text)
  except json.JSONDecodeError as error:
    refuse(f'not JSON: {error.msg}')
  except RecursionError:
    refuse('not JSON that can be read: nested too deeply')
  if not isinstance(content, dict) or not isinstance(content.get('text'), str):
    refuse('no text')
  if not isinstance(content.get('targets', []), list):
    refuse('targets are a list')
  words, targets = tuple(content['text'].split()), []
  for target in content.get('targets', []):
    if not isinstance(target, dict) or 'label' not in target or target.get('span1') is None:
      refuse('a target without span1 or label')
    span1 = span_of(target, 'span1')
    span2 = None if target.get('span2') is None else span_of(target, 'span2')
    labels = target['label'] if isinstance(target['label'], list) else [target['label']]
    if not all(isinstance(label, str) for label in labels):
      refuse('a label is a string, or a list of them')
    targets.append(Target(span1, span2, tuple(labels)))
  return SpanExample(words, tuple(targets), line.where)
