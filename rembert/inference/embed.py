"""Sentence embeddings: mean hidden states of one layer, or of all layers."""

import collections
import concurrent.futures
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np
from flax import nnx

from rembert.data.packing import BATCH_SIZE, SentenceBatch, most_sentences, packed_sentences
from rembert.errors import UsageError
from rembert.inference.model import LoadedModel
from rembert.kernels import platform
from rembert.model.heads import chosen_layer, means_of_segments
from rembert.tokenizer import TextEncoder, cut

# Batches in flight. With one, cores are idle between matmuls, and the device while results are fetched.
_AT_A_TIME = 3

Progress = Callable[[float, str], None]


def sentence_vectors(
  model: LoadedModel,
  sentences: Sequence[Sequence[int]],
  *,
  layer: int | None = None,
  batch_size: int = BATCH_SIZE,
  on_progress: Progress = lambda fraction, note: None,
) -> np.ndarray:
  """The mean of a layer over each sentence's tokens, without [CLS] and [SEP] (paper, A.9): float32 [N, H].

  Sentences are packed, and do not attend to each other; `LoadedModel.embed` gives the same vectors for batches with one
  sentence per sequence.

  Args:
    model: the model, of which the encoder runs.
    sentences: ids with [CLS] and [SEP], no more than the model's positions.
    layer: 0 is the projected embeddings, L the last layer; None is the last.
    batch_size: sequences of 64 positions per batch; fewer if they are longer.
    on_progress: called with the fraction that is done, and a note.

  Raises:
    UsageError: no such layer, ids outside the vocabulary, or a sentence is empty or too long.
  """
  vectors_NxH = np.zeros((len(sentences), model.config.hidden_size), np.float32)
  return _fill(vectors_NxH, model, sentences, chosen_layer(model.config, layer), batch_size, on_progress)


def embed_lines(
  model: LoadedModel,
  encoder: TextEncoder,
  lines: Sequence[str],
  *,
  layer: int | None = None,
  batch_size: int = BATCH_SIZE,
  on_progress: Progress = lambda fraction, note: None,
) -> np.ndarray:
  """One vector per line, float32 [lines, H], in order; lines beyond the model's positions are truncated with a warning.

  See `sentence_vectors`.
  """
  longest = model.config.max_position_embeddings
  encoded = [encoder.encode(line) for line in lines]
  if too_long := sum(len(ids) > longest for ids in encoded):
    warnings.warn(f'{too_long:,} of {len(lines):,} lines are truncated to {longest} tokens', stacklevel=2)
  sentences = [cut(ids, longest) for ids in encoded]
  return sentence_vectors(model, sentences, layer=layer, batch_size=batch_size, on_progress=on_progress)


def vectors_of_all_layers(
  model: LoadedModel,
  sentences: Sequence[Sequence[int]],
  *,
  batch_size: int = BATCH_SIZE,
  on_progress: Progress = lambda fraction, note: None,
) -> np.ndarray:
  """As `sentence_vectors`, for every layer, projected embeddings first: float32 [L + 1, N, H]."""
  config = model.config
  vectors_LxNxH = np.zeros((config.num_hidden_layers + 1, len(sentences), config.hidden_size), np.float32)
  return _fill(vectors_LxNxH, model, sentences, None, batch_size, on_progress)


def _fill(
  vectors: np.ndarray,
  model: LoadedModel,
  sentences: Sequence[Sequence[int]],
  layer: int | None,
  batch_size: int,
  on_progress: Progress,
) -> np.ndarray:
  """Computes `vectors`, [N, H] or, without a layer, [L + 1, N, H], in place; returns them."""
  _check_lengths(sentences, model.config.max_position_embeddings)
  graphdef, parameters = nnx.split(model.encoder)
  parameters = _with_kernels_in(model.encoder.execution.dtype, parameters)
  pad, longest = model.config.pad_token_id, model.config.max_position_embeddings

  def compute(batch: SentenceBatch) -> np.ndarray:
    model.check_ids(batch.input_ids)
    return np.asarray(_means(graphdef, layer, parameters, *batch[1:]))

  done = 0
  for batch, means in _computed(packed_sentences(sentences, pad=pad, batch_size=batch_size, longest=longest), compute):
    for place, row in enumerate(batch.sentences):
      vectors[..., row, :] = means[..., place, : len(row), :]
      done += len(row)
    on_progress(done / len(sentences), f'{done:,} of {len(sentences):,} sentences')
  return vectors


def _check_lengths(sentences: Sequence[Sequence[int]], longest: int) -> None:
  try:
    lengths = [len(ids) for ids in sentences]
  except TypeError:
    raise UsageError('sentences must be sequences of ids', where='sentences', fix='[[312, 5, 313]]') from None
  if lengths and not 0 < min(lengths) <= max(lengths) <= longest:
    number = next(number for number, length in enumerate(lengths) if not 0 < length <= longest)
    raise UsageError(
      f'sentence {number} has {lengths[number]} ids; the model accepts 1 to {longest}',
      where='sentences',
      fix='remove empty sentences, and truncate longer ones',
    )


def _with_kernels_in(dtype: str, parameters: nnx.State) -> dict:
  """Casts kernels to the dtype of matmuls once instead of for every batch; on a CPU, not at all.

  There XLA would convert a bfloat16 stack to float32 for every batch, to slice layers from it.
  """
  if platform() == 'cpu':
    return nnx.to_pure_dict(parameters)
  cast = lambda path, leaf: leaf.astype(dtype) if path[-1].key == 'kernel' else leaf
  return jax.tree_util.tree_map_with_path(cast, nnx.to_pure_dict(parameters))


def _computed(
  batches: Iterator[SentenceBatch], compute: Callable[[SentenceBatch], np.ndarray]
) -> Iterator[tuple[SentenceBatch, np.ndarray]]:
  """Yields each batch with its result, in order, with several in flight."""
  under_way: collections.deque = collections.deque()
  with concurrent.futures.ThreadPoolExecutor(_AT_A_TIME, 'sentences') as pool:
    for batch in batches:
      under_way.append((batch, pool.submit(compute, batch)))
      if len(under_way) > _AT_A_TIME:
        earliest, result = under_way.popleft()
        yield earliest, result.result()
    for batch, result in under_way:
      yield batch, result.result()


# At module level, so that many calls with one model are compiled once, by one of the threads.
@functools.partial(jax.jit, static_argnums=(0, 1))
def _means(graphdef, layer, parameters, input_ids_BxS, segment_ids_BxS, position_ids_BxS) -> jax.Array:
  encoder = nnx.merge(graphdef, parameters)
  output = encoder(
    input_ids_BxS,
    segment_ids=segment_ids_BxS,
    position_ids=position_ids_BxS,
    num_layers=layer,
    output_hidden_states=layer is None,
  )
  states = output.hidden_states if layer is None else output.last_hidden_state
  count = most_sentences(input_ids_BxS.shape[1])
  return means_of_segments(states, input_ids_BxS, segment_ids_BxS, count, encoder.config)
