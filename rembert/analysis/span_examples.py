"""Labelled spans of sentences, which edge probing learns: JSON lines as Tenney et al. (2019) and jiant have them.

    {"text": "The dog barks .", "targets": [{"span1": [1, 2], "label": "NOUN"}, {"span1": [0, 2], "span2": [2, 3], …}]}

Spans count words, apart by white space; the second number is that of the first word behind. A label may be a list
(semantic proto-roles have any number of labels). Words become pieces one by one: a span of words is a span of pieces.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
from etils import epath

from rembert.data.masking import SpecialIds
from rembert.errors import UsageError
from tasks.xtreme.files import Line, read_lines

Span = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Target:
  """One or two spans, begin and end in words, and their labels."""

  span1: Span
  span2: Span | None
  labels: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class SpanExample:
  """A sentence and what is to be said of its spans; `where` is `FILE:LINE`."""

  words: tuple[str, ...]
  targets: tuple[Target, ...]
  where: str


@dataclasses.dataclass(frozen=True)
class SpanSet:
  """Examples of one file.

  Attributes:
    name: of the file, or its language.
    examples: those that have targets.
  """

  name: str
  examples: tuple[SpanExample, ...]

  @property
  def has_lists(self) -> bool:
    """Whether a target has another number of labels than one."""
    return any(len(target.labels) != 1 for example in self.examples for target in example.targets)


@dataclasses.dataclass(frozen=True)
class EncodedSpans:
  """A sentence as a model reads it. Positions that no span has are not needed, and spans count the needed ones.

  Attributes:
    input_ids: [S] int32, with [CLS] and [SEP].
    needed: [P] int32, ascending positions in `input_ids` that are in a span.
    spans: [T, 2, 2] int32: target, first or second span, begin and end in `needed`; the second is empty where there is
      none.
    labels: of each target, the labels' names.
    dropped: targets that lie beyond the model's positions.
  """

  input_ids: np.ndarray
  needed: np.ndarray
  spans: np.ndarray
  labels: tuple[tuple[str, ...], ...]
  dropped: int


def read_spans(path: epath.PathLike, name: str | None = None) -> SpanSet:
  """The examples of a file of JSON lines.

  Raises:
    UsageError: no such file, or a line that is not as the head of this file says, with its number.
  """
  path = epath.Path(path)
  if not path.is_file():
    raise UsageError('there is no such file', where=str(path), fix='JSON lines: {"text": …, "targets": […]}')
  examples = [_example(line) for line in read_lines(path) if line.text.strip()]
  kept = tuple(example for example in examples if example.targets)
  if not kept:
    raise UsageError('there is no target in the file', where=str(path), fix='JSON lines: {"text": …, "targets": […]}')
  has_two = [target.span2 is not None for example in kept for target in example.targets]
  if any(has_two) and not all(has_two):
    raise UsageError('targets of one span and of two', where=str(path), fix='a file for each task')
  return SpanSet(name or path.name.partition('.')[0], kept)


def _example(line: Line) -> SpanExample:
  def refuse(what: str) -> NoReturn:
    raise UsageError(what, where=line.where, fix='{"text": "…", "targets": [{"span1": [0, 1], "label": "…"}]}')

  def span_of(target: dict, key: str) -> Span | None:
    span = target.get(key)
    if span is None:
      return None
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
  words = tuple(content['text'].split())
  targets = []
  if not isinstance(content.get('targets', []), list):
    refuse('targets are a list')
  for target in content.get('targets', []):
    if not isinstance(target, dict) or 'label' not in target:
      refuse('a target without span1 or label')
    span1, span2 = span_of(target, 'span1'), span_of(target, 'span2')
    if span1 is None:
      refuse('a target without span1 or label')
    labels = target['label'] if isinstance(target['label'], list) else [target['label']]
    if not all(isinstance(label, str) for label in labels):
      refuse('a label is a string, or a list of them')
    targets.append(Target(span1, span2, tuple(labels)))
  return SpanExample(words, tuple(targets), line.where)


def encode_spans(
  example: SpanExample, pieces_of: Callable[[str], Sequence[int]], *, longest: int, special: SpecialIds
) -> EncodedSpans:
  """`[CLS] words [SEP]`, cut to `longest`; targets that do not fit wholly are dropped.

  Args:
    example: the sentence.
    pieces_of: word to at least one id.
    longest: positions of the model.
    special: ids of special pieces.
  """
  ids, begins = [special.cls], []
  for word in example.words:
    begins.append(len(ids))
    ids += pieces_of(word)
  begins.append(len(ids))
  ids = [*ids[: longest - 1], special.sep]
  kept = []
  for target in example.targets:
    spans = [(begins[span[0]], begins[span[1]]) if span else (0, 0) for span in (target.span1, target.span2)]
    if all(end < len(ids) for _, end in spans):
      kept.append((spans, target.labels))
  needed = sorted({position for spans, _ in kept for begin, end in spans for position in range(begin, end)})
  place = {position: index for index, position in enumerate(needed)}
  # All pieces of a span are needed, so they are neighbours still.
  shown = lambda begin, end: (place[begin], place[end - 1] + 1) if end > begin else (0, 0)
  return EncodedSpans(
    input_ids=np.array(ids, np.int32),
    needed=np.array(needed, np.int32),
    spans=np.array([[shown(*span) for span in spans] for spans, _ in kept], np.int32).reshape(-1, 2, 2),
    labels=tuple(labels for _, labels in kept),
    dropped=len(example.targets) - len(kept),
  )
