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
  all_layers: bool = False,
  batch_size: int = BATCH_SIZE,
  on_progress: Progress = lambda fraction, note: None,
) -> np.ndarray:
  """The mean of a layer over each sentence's tokens, without [CLS] and [SEP] (paper, A.9): float32 [N, H].

  Sentences are packed, and do not attend to each other; `LoadedModel.embed` gives the same vectors for batches with one
  sentence per sequence.

  Args:
    model: of which the encoder runs.
    sentences: ids with [CLS] and [SEP], no more than the model's positions.
    layer: 0 is the projected embeddings, L the last layer; None is the last.
    all_layers: of every layer instead, projected embeddings first: [L + 1, N, H].
    batch_size: sequences of 64 positions per batch; fewer if they are longer.
    on_progress: gets the fraction that is done, and a note.

  Raises:
    UsageError: no such layer, ids outside the vocabulary, or a sentence is empty or too long.
  """
  config = model.config
  pad, longest = config.pad_token_id, config.max_position_embeddings
  chosen = None if all_layers else chosen_layer(config, layer)
  for number, ids in enumerate(sentences):
    if not 0 < len(ids) <= longest:
      raise UsageError(
        f'sentence {number} has {len(ids)} ids; the model accepts 1 to {longest}',
        where='sentences',
        fix='remove empty sentences, and truncate longer ones',
      )
  graphdef, parameters = nnx.split(model.encoder)
  parameters = _with_kernels_in(model.encoder.execution.dtype, parameters)
  layers = (config.num_hidden_layers + 1,) if all_layers else ()
  vectors = np.zeros((*layers, len(sentences), config.hidden_size), np.float32)

  def compute(batch: SentenceBatch) -> np.ndarray:
    model.check_ids(batch.input_ids)
    return np.asarray(_means(graphdef, chosen, parameters, *batch[1:]))

  done = 0
  for batch, means in _computed(packed_sentences(sentences, pad=pad, batch_size=batch_size, longest=longest), compute):
    for place, row in enumerate(batch.sentences):
      vectors[..., row, :] = means[..., place, : len(row), :]
      done += len(row)
    on_progress(done / len(sentences), f'{done:,} of {len(sentences):,} sentences')
  return vectors


def encode_lines(model: LoadedModel, encoder: TextEncoder, lines: Sequence[str]) -> tuple[list[list[int]], int]:
  """The ids of each line, truncated to the model's positions, and how many lines were truncated."""
  longest = model.config.max_position_embeddings
  encoded = [encoder.encode(line) for line in lines]
  return [cut(ids, longest) for ids in encoded], sum(len(ids) > longest for ids in encoded)


def embed_lines(
  model: LoadedModel,
  encoder: TextEncoder,
  lines: Sequence[str],
  *,
  layer: int | None = None,
  batch_size: int = BATCH_SIZE,
  on_progress: Progress = lambda fraction, note: None,
) -> np.ndarray:
  """One vector per line, float32 [lines, H], in order; truncates long lines with a warning. See `sentence_vectors`."""
  sentences, truncated = encode_lines(model, encoder, lines)
  if truncated:
    longest = model.config.max_position_embeddings
    warnings.warn(f'{truncated:,} of {len(lines):,} lines are truncated to {longest} tokens', stacklevel=2)
  return sentence_vectors(model, sentences, layer=layer, batch_size=batch_size, on_progress=on_progress)


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
