"""Sentences as vectors, one of every layer."""

import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np
from flax import nnx

from rembert.data.text import TextEncoder, cut, padded_rows
from rembert.loading import LoadedModel
from rembert.model.heads import mean_over_text


def layer_means(
  model: LoadedModel,
  encoder: TextEncoder,
  lines: Sequence[str],
  *,
  batch_size: int = 64,
  on_progress: Callable[[float, str], None] = lambda fraction, note: None,
) -> tuple[np.ndarray, int]:
  """The mean of each layer over each line's pieces, without [CLS] and [SEP]: float32 [L + 1, N, H], embeddings first.

  The second value is how many lines were longer than the model has positions, and were cut.
  """
  config = model.config
  graphdef, parameters = nnx.split(model.encoder)
  longest = config.max_position_embeddings
  encoded = [encoder.encode(line) for line in lines]
  rows = [cut(ids, longest) for ids in encoded]
  vectors_LxNxH = np.zeros((config.num_hidden_layers + 1, len(lines), config.hidden_size), np.float32)
  done = 0
  for chosen, ids, mask in padded_rows(rows, pad=encoder.special.pad, batch_size=batch_size, longest=longest):
    vectors_LxNxH[:, chosen] = np.asarray(_means(graphdef, parameters, ids, mask))[:, : len(chosen)]
    done += len(chosen)
    on_progress(done / len(lines), f'{done:,} of {len(lines):,} sentences')
  return vectors_LxNxH, sum(len(ids) > longest for ids in encoded)


# At the top of the module: many calls with one model are compiled once.
@functools.partial(jax.jit, static_argnums=0)
def _means(graphdef: nnx.GraphDef, parameters: nnx.State, ids_BxS: jax.Array, mask_BxS: jax.Array) -> jax.Array:
  encoder = nnx.merge(graphdef, parameters)
  states_LxBxSxH = encoder(ids_BxS, attention_mask=mask_BxS, output_hidden_states=True).hidden_states
  return mean_over_text(states_LxBxSxH, ids_BxS, mask_BxS, encoder.config)
