"""Sentences with labelled spans: read from files, tokenized, and a frozen encoder's hidden states at their tokens.

T targets of a sentence · S positions · P needed positions · L layers · H hidden · B sentences of a batch
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import nnx

from rembert.errors import UsageError
from rembert.files import parsed_json
from rembert.model.encoder import RemBertEncoder
from rembert.tokenizer import SpecialIds
from tasks.tables.files import read_lines

_FORM = '{"text": "The dog barks .", "targets": [{"span1": [1, 2], "label": "NOUN"}]}'
_ROUND_TO = 16  # positions are rounded up to this, so that few shapes are compiled

# --- files ------------------------------------------------------------------------------------------------------------

Span = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Target:
  """One or two spans, begin and end counted in words, and their labels."""

  span1: Span
  span2: Span | None
  labels: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class SpanExample:
  """A sentence and its labelled spans."""

  words: tuple[str, ...]
  targets: tuple[Target, ...]


def read_spans(path: epath.PathLike) -> list[SpanExample]:
  """Reads the examples that have targets of a file of JSON lines, the format of jiant (Tenney et al., 2019).

      {"text": "The dog barks .", "targets": [{"span1": [1, 2], "label": "NOUN"}, …]}
      {"text": "The dog barks .", "targets": [{"span1": [0, 2], "span2": [2, 3], "label": ["a", "b"]}, …]}

  Spans count words, separated by white space; their end is exclusive. A label may be a list (semantic proto-roles have
  any number of labels). UsageError if the file does not exist, has no targets, or a line is malformed.
  """
  examples = []
  for text, where in read_lines(epath.Path(path)):
    if not text.strip():
      continue
    content = parsed_json(text, where, fix=_FORM)
    try:
      words = tuple(content['text'].split())
      targets = tuple(_target(target, len(words)) for target in content.get('targets', ()))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
      reason = f'{error} is missing' if isinstance(error, KeyError) else str(error)
      raise UsageError(f'not a sentence with labelled spans: {reason}', where=where, fix=_FORM) from error
    if targets:
      examples.append(SpanExample(words, targets))
  if not examples:
    raise UsageError('the file has no targets', where=str(path), fix=_FORM)
  return examples


def _target(target: dict[str, Any], words: int) -> Target:
  def span_of(span: Any) -> Span:
    is_pair = isinstance(span, list) and len(span) == 2 and all(type(end) is int for end in span)
    if not is_pair or not 0 <= span[0] < span[1] <= words:
      raise ValueError(f'{span} is not a span of {words} words')
    return span[0], span[1]

  labels = target['label'] if isinstance(target['label'], list) else [target['label']]
  if not all(isinstance(label, str) for label in labels):
    raise ValueError(f'the label {target["label"]} is not text')
  second = target.get('span2')
  return Target(span_of(target['span1']), None if second is None else span_of(second), tuple(labels))


def spans_per_target(examples: Iterable[SpanExample], where: str) -> int:
  """1 or 2; UsageError if some targets have one span and others two. `where` names the files, for the error."""
  counts = {1 if target.span2 is None else 2 for example in examples for target in example.targets}
  if len(counts) > 1:
    raise UsageError('targets of one span and of two are mixed', where=where, fix='write files for each task')
  return counts.pop()


# --- tokens -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class EncodedSpans:
  """A tokenized sentence with labelled spans. Only positions in spans are needed; spans are ranges of needed positions.

  `spans`: target, first or second span, begin and end in `needed`; the second is empty if there is none.
  """

  input_ids: np.ndarray  # [S] int32, with [CLS] and [SEP]
  needed: np.ndarray  # [P] int32, ascending positions in `input_ids` that are in a span
  spans: np.ndarray  # [T, 2, 2] int32
  labels: tuple[tuple[str, ...], ...]  # names of the labels of each target
  dropped: int  # targets beyond the model's positions


def encode_spans(
  example: SpanExample, tokens_of: Callable[[str], Sequence[int]], *, longest: int, special: SpecialIds
) -> EncodedSpans:
  """`[CLS] words [SEP]`, truncated to `longest` ids; targets that do not fit completely are dropped.

  Words are tokenized one by one, to at least one id each: a span of words is a span of tokens.
  """
  ids, begins = [special.cls], []
  for word in example.words:
    begins.append(len(ids))
    ids += tokens_of(word)
  begins.append(len(ids))
  ids = [*ids[: longest - 1], special.sep]
  kept = []
  for target in example.targets:
    spans = [(begins[span[0]], begins[span[1]]) if span else (0, 0) for span in (target.span1, target.span2)]
    if all(end < len(ids) for _, end in spans):
      kept.append((spans, target.labels))
  needed = sorted({position for spans, _ in kept for begin, end in spans for position in range(begin, end)})
  place = {position: index for index, position in enumerate(needed)}
  # All tokens of a span are needed, so they stay contiguous.
  among_needed = lambda begin, end: (place[begin], place[end - 1] + 1) if end > begin else (0, 0)
  return EncodedSpans(
    input_ids=np.array(ids, np.int32),
    needed=np.array(needed, np.int32),
    spans=np.array([[among_needed(*span) for span in spans] for spans, _ in kept], np.int32).reshape(-1, 2, 2),
    labels=tuple(labels for _, labels in kept),
    dropped=len(example.targets) - len(kept),
  )


# --- hidden states ----------------------------------------------------------------------------------------------------


class FrozenStates:
  """Hidden states of all layers, float32.

  If all of them take at most `cache_bytes`, they are computed once and kept, else at every call; both give the
  same numbers. Sentences are no longer than the encoder has positions.
  """

  def __init__(
    self,
    encoder: RemBertEncoder,
    examples: Sequence[EncodedSpans],
    *,
    pad: int,
    batch_size: int,
    cache_bytes: int,
    on_progress: Callable[[float, str], None] = lambda fraction, note: None,
  ):
    self.examples, self._pad, self.batch_size = examples, pad, batch_size
    self._graphdef, self._parameters = nnx.split(encoder)
    self._longest = encoder.config.max_position_embeddings
    positions = sum(len(example.needed) for example in examples)
    layers = encoder.config.num_hidden_layers + 1
    self.is_cached = 4 * positions * layers * encoder.config.hidden_size <= cache_bytes
    self._cache: dict[int, np.ndarray] = {}
    if self.is_cached:
      self._fill(on_progress)

  def at(self, chosen: Sequence[int] | np.ndarray) -> jax.Array:
    """States of some sentences, at most a batch: [batch_size, P, L + 1, H]; undefined beyond their needed positions.

    P is a power of two.
    """
    if not self.is_cached:
      return self._compute(chosen)
    some = [self._cache[index] for index in chosen]
    states_BxPxLxH = np.zeros((self.batch_size, self._most_needed(chosen), *some[0].shape[1:]), np.float32)
    for row, states in enumerate(some):
      states_BxPxLxH[row, : len(states)] = states
    return jnp.asarray(states_BxPxLxH)

  def _most_needed(self, chosen: Sequence[int] | np.ndarray) -> int:
    return power_of_two(max(len(self.examples[index].needed) for index in chosen), _ROUND_TO)

  def _compute(self, chosen: Sequence[int] | np.ndarray) -> jax.Array:
    some = [self.examples[index] for index in chosen]
    length = max(len(example.input_ids) for example in some)
    length = min(self._longest, -(-length // _ROUND_TO) * _ROUND_TO)
    ids = np.full((self.batch_size, length), self._pad, np.int32)
    mask = np.zeros((self.batch_size, length), np.int32)
    needed = np.zeros((self.batch_size, self._most_needed(chosen)), np.int32)
    for row, example in enumerate(some):
      ids[row, : len(example.input_ids)] = example.input_ids
      mask[row, : len(example.input_ids)] = 1
      needed[row, : len(example.needed)] = example.needed
    return _states(self._graphdef, self._parameters, ids, mask, needed)

  def _fill(self, on_progress: Callable[[float, str], None]) -> None:
    by_length = sorted(range(len(self.examples)), key=lambda index: len(self.examples[index].input_ids))
    for start in range(0, len(by_length), self.batch_size):
      chosen = by_length[start : start + self.batch_size]
      states = np.asarray(self._compute(chosen))
      for row, index in enumerate(chosen):
        self._cache[index] = states[row, : len(self.examples[index].needed)].copy()
      done = start + len(chosen)
      on_progress(done / len(by_length), f'{done:,} of {len(by_length):,} sentences read')


# At module level, so that many sets of sentences with one model are compiled once.
@functools.partial(jax.jit, static_argnums=0)
def _states(graphdef, parameters, ids_BxS, mask_BxS, needed_BxP) -> jax.Array:
  encoder = nnx.merge(graphdef, parameters)
  hidden_LxBxSxH = encoder(ids_BxS, attention_mask=mask_BxS, output_hidden_states=True).hidden_states
  needed_LxBxPxH = jnp.take_along_axis(hidden_LxBxSxH, needed_BxP[None, :, :, None], axis=2)
  return jnp.moveaxis(needed_LxBxPxH, 0, 2).astype(jnp.float32)


def power_of_two(count: int, least: int) -> int:
  """Rounds a count up to a power of two, at least `least`, so that few shapes are compiled."""
  return max(least, 1 << (max(count, 1) - 1).bit_length())
