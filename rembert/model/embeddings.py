"""Input embeddings: word + position + type at the input embedding size, then LayerNorm."""

import jax
import jax.numpy as jnp
from flax import nnx

from rembert.model.config import RemBertConfig
from rembert.model.layers import LayerNorm, Operations, kernel_initializer, vocabulary_initializer
from rembert.model.partitioning import constrain, with_axes


def _look_up(table: nnx.Embed, ids_BxS: jax.Array, row_axis: str | None = None) -> jax.Array:
  """Looks up ids in an embedding matrix, to x_BxSxI in the dtype of activations.

  Rows are cast, not the matrix, so that their gradients are added in float32: in bfloat16, the 257th of equal gradients
  would change nothing, and GPUs would take hundreds of times as long. A matrix that is sharded along I is
  all-gathered first; otherwise the SPMD partitioner would gather the much larger x_BxSxI.
  """
  return jnp.take(constrain(table.embedding[...], row_axis, None), ids_BxS, axis=0).astype(table.dtype)


class RemBertEmbeddings(nnx.Module):
  """Word, absolute position and token-type embeddings, all of size I; summed, then LayerNorm and dropout.

  I is the paper's small input embedding size (section 3); the encoder projects it to H.
  """

  def __init__(self, config: RemBertConfig, dtype: jnp.dtype, ops: Operations, *, rngs: nnx.Rngs):
    init, width = kernel_initializer(config), config.input_embedding_size
    table = lambda rows, fill, *axes: nnx.Embed(
      rows, width, dtype=dtype, embedding_init=with_axes(fill, *axes), rngs=rngs
    )
    self.word = table(config.padded_vocab_size, vocabulary_initializer(config), 'vocab', 'embed')
    self.position = table(config.max_position_embeddings, init, None, 'embed')
    self.token_type = table(config.type_vocab_size, init, None, 'embed')
    self.norm = LayerNorm(config, width, dtype=dtype, ops=ops, rngs=rngs)
    self.dropout = nnx.Dropout(config.hidden_dropout_prob)

  def __call__(
    self,
    input_ids_BxS: jax.Array,
    token_type_ids_BxS: jax.Array | None = None,
    position_ids_BxS: jax.Array | None = None,
    *,
    dropout_key: jax.Array | None = None,
  ) -> jax.Array:
    """Ids (int32) to x_BxSxI; types default to 0, positions to 0…S−1."""
    if position_ids_BxS is None:
      position_ids_BxS = jnp.arange(input_ids_BxS.shape[1])[None]
    if token_type_ids_BxS is None:
      token_type_ids_BxS = jnp.zeros_like(input_ids_BxS)
    x_BxSxI = (
      _look_up(self.word, input_ids_BxS, 'vocab')
      + _look_up(self.position, position_ids_BxS)
      + _look_up(self.token_type, token_type_ids_BxS)
    )
    x_BxSxI = self.norm(constrain(x_BxSxI, 'batch', None, None))
    return self.dropout(x_BxSxI, deterministic=dropout_key is None, rngs=dropout_key)
