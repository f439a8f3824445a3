"""Outputs of all layers of a frozen encoder, at the positions that are asked for: kept in memory, or computed again."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from rembert.analysis.span_examples import EncodedSpans
from rembert.model.config import RemBertConfig
from rembert.model.encoder import RemBertEncoder

_ROUND_TO = 16  # positions are rounded up to this, so that few shapes are compiled


class FrozenStates:
  """Hidden states of some sentences, float32. Both ways of having them give the same numbers.

  Attributes:
    examples: the sentences.
    batch_size: rows of what `at` gives.
    is_cached: whether they are all in memory.
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
    """
    Args:
      encoder: with its parameters.
      examples: sentences, no longer than the encoder has positions.
      pad: id of [PAD].
      batch_size: sentences at a time.
      cache_bytes: if all states take no more, they are computed now and kept; else whenever they are asked for.
      on_progress: told while they are computed.
    """
    self.examples, self._pad, self.batch_size = examples, pad, batch_size
    self._graphdef, self._parameters = nnx.split(encoder)
    config: RemBertConfig = encoder.config
    self._longest = config.max_position_embeddings
    positions = sum(len(example.needed) for example in examples)
    self.is_cached = 4 * positions * (config.num_hidden_layers + 1) * config.hidden_size <= cache_bytes
    self._cache: list[np.ndarray] = []
    if self.is_cached:
      self._fill(on_progress)

  def at(self, chosen: Sequence[int] | np.ndarray) -> jax.Array:
    """States of some sentences, at most a batch: [batch_size, P, L + 1, H], zeros or anything beyond the needed."""
    if not self.is_cached:
      return self._compute(chosen)
    some = [self._cache[index] for index in chosen]
    states_BxPxLxH = np.zeros((self.batch_size, self.positions(chosen), *some[0].shape[1:]), np.float32)
    for place, states in enumerate(some):
      states_BxPxLxH[place, : len(states)] = states
    return jnp.asarray(states_BxPxLxH)

  def positions(self, chosen: Sequence[int] | np.ndarray) -> int:
    """P of `at`: room for the needed positions of these sentences, a power of two."""
    return power_of_two(max(len(self.examples[index].needed) for index in chosen), _ROUND_TO)

  def _compute(self, chosen: Sequence[int] | np.ndarray) -> jax.Array:
    some = [self.examples[index] for index in chosen]
    length = max(len(example.input_ids) for example in some)
    length = min(self._longest, -(-length // _ROUND_TO) * _ROUND_TO)
    ids = np.full((self.batch_size, length), self._pad, np.int32)
    mask = np.zeros((self.batch_size, length), np.int32)
    needed = np.zeros((self.batch_size, self.positions(chosen)), np.int32)
    for place, example in enumerate(some):
      ids[place, : len(example.input_ids)] = example.input_ids
      mask[place, : len(example.input_ids)] = 1
      needed[place, : len(example.needed)] = example.needed
    return _states(self._graphdef, self._parameters, ids, mask, needed)

  def _fill(self, on_progress: Callable[[float, str], None]) -> None:
    self._cache = [np.empty(0)] * len(self.examples)
    by_length = sorted(range(len(self.examples)), key=lambda index: len(self.examples[index].input_ids))
    for start in range(0, len(by_length), self.batch_size):
      chosen = by_length[start : start + self.batch_size]
      states = np.asarray(self._compute(chosen))
      for place, index in enumerate(chosen):
        self._cache[index] = states[place, : len(self.examples[index].needed)].copy()
      done = start + len(chosen)
      on_progress(done / len(by_length), f'{done:,} of {len(by_length):,} sentences read')


# At the top of the module: many sets of sentences with one model are compiled once.
@functools.partial(jax.jit, static_argnums=0)
def _states(graphdef, parameters, ids_BxS, mask_BxS, needed_BxP) -> jax.Array:
  encoder = nnx.merge(graphdef, parameters)
  hidden_LxBxSxH = encoder(ids_BxS, attention_mask=mask_BxS, output_hidden_states=True).hidden_states
  needed_LxBxPxH = jnp.take_along_axis(hidden_LxBxSxH, needed_BxP[None, :, :, None], axis=2)
  return jnp.moveaxis(needed_LxBxPxH, 0, 2).astype(jnp.float32)


def power_of_two(count: int, least: int) -> int:
  """The power of two at or above a count, `least` at least: few shapes are compiled."""
  return max(least, 1 << (max(count, 1) - 1).bit_length())
