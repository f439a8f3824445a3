"""Input files of analyses; errors name the file and the line.

translations    two files of sentences; line i of one is the translation of line i of the other: FLORES, WMT newstest
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
from tasks.tables.files import Line, read_lines


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
  """Reads the first `max_pairs` pairs, or all, of two files in UTF-8; skips pairs with a blank side.

  Raises:
    UsageError: a file cannot be read, the files differ in length, or there is no pair.
  """
  sides = [list(read_lines(_existing(path, 'a text file with one sentence per line'))) for path in (source, target)]
  if len(sides[0]) != len(sides[1]):
    longer = max(sides, key=len)
    raise UsageError(
      f'{len(sides[0]):,} lines and {len(sides[1]):,} translations',
      where=f'{source}, {target}; {longer[min(map(len, sides))].where} has no counterpart',
      fix='line i must translate line i; for Tatoeba, --gin.xtreme.data_dir=FOLDER also reads the labels',
    )
  pairs = [(a.text.strip(), b.text.strip()) for a, b in zip(*sides, strict=True)]
  kept = [pair for pair in pairs if all(pair)]
  if not kept:
    raise UsageError('no pair of sentences found', where=f'{source}, {target}', fix='write one sentence per line')
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
  """Reads the pairs of a file in UTF-8: `tiger cat 7.35`, separated by tabs or spaces. Skips lines that begin with #.

  Raises:
    UsageError: the file does not exist or is empty, or a line is not two words and a score.
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
    raise UsageError('the file has no word pairs', where=str(path), fix=form)
  return pairs


# --- labelled spans ---------------------------------------------------------------------------------------------------

Span = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Target:
  """One or two spans, begin and end counted in words, and their labels."""

  span1: Span
  span2: Span | None
  labels: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class SpanExample:
  """A sentence, its labelled spans, and its origin, `FILE:LINE`."""

  words: tuple[str, ...]
  targets: tuple[Target, ...]
  where: str


@dataclasses.dataclass(frozen=True)
class SpanSet:
  """The examples of a file, or of a language, that have targets."""

  name: str
  examples: tuple[SpanExample, ...]


def read_spans(path: epath.PathLike) -> SpanSet:
  """Reads the examples of a file of JSON lines.

      {"text": "The dog barks .", "targets": [{"span1": [1, 2], "label": "NOUN"}, …]}
      {"text": "The dog barks .", "targets": [{"span1": [0, 2], "span2": [2, 3], "label": ["a", "b"]}, …]}

  Spans count words, separated by white space; their end is exclusive. A label may be a list (semantic proto-roles have
  any number of labels).

  Raises:
    UsageError: the file does not exist, a line is malformed, or targets are missing or mix one and two spans.
  """
  form = 'JSON lines: {"text": …, "targets": […]}'
  path = _existing(path, form)
  examples = [_span_example(line) for line in read_lines(path) if line.text.strip()]
  kept = tuple(example for example in examples if example.targets)
  if not kept:
    raise UsageError('the file has no targets', where=str(path), fix=form)
  if len({target.span2 is None for example in kept for target in example.targets}) > 1:
    raise UsageError('the file mixes targets of one span and of two', where=str(path), fix='write a file for each task')
  return SpanSet(path.name.partition('.')[0], kept)


def _span_example(line: Line) -> SpanExample:
  def refuse(what: str) -> NoReturn:
    raise UsageError(what, where=line.where, fix='{"text": "…", "targets": [{"span1": [0, 1], "label": "…"}]}')

  def span_of(target: dict, key: str) -> Span:
    span = target[key]
    is_pair = isinstance(span, list) and len(span) == 2 and all(type(end) is int for end in span)
    if not is_pair or not 0 <= span[0] < span[1] <= len(words):
      refuse(f'{key} {span} is not a span of {len(words)} words')
    begin, end = span
    return begin, end

  try:
    content = json.loads(line.text)
  except json.JSONDecodeError as error:
    refuse(f'invalid JSON: {error.msg}')
  except RecursionError:
    refuse('invalid JSON: nested too deeply')
  if not isinstance(content, dict) or not isinstance(content.get('text'), str):
    refuse('`text` is missing')
  if not isinstance(content.get('targets', []), list):
    refuse('`targets` must be a list')
  words, targets = tuple(content['text'].split()), []
  for target in content.get('targets', []):
    if not isinstance(target, dict) or 'label' not in target or target.get('span1') is None:
      refuse('a target lacks `span1` or `label`')
    span1 = span_of(target, 'span1')
    span2 = None if target.get('span2') is None else span_of(target, 'span2')
    labels = target['label'] if isinstance(target['label'], list) else [target['label']]
    if not all(isinstance(label, str) for label in labels):
      refuse('`label` must be a string or a list of strings')
    targets.append(Target(span1, span2, tuple(labels)))
  return SpanExample(words, tuple(targets), line.where)
