"""What sits on the encoder: the masked-language-model head, with an output embedding of its own."""

import jax
import jax.numpy as jnp
from flax import nnx

from rembert.model.building_blocks import (
  activation,
  add_bias,
  dot_general_of_rows,
  layer_norm,
  linear,
  vocabulary_initializer,
)
from rembert.model.config import Execution, RemBertConfig
from rembert.model.encoder import RemBertEncoder
from rembert.model.partitioning import constrain, with_axes


class MlmHead(nnx.Module):
  """H → E, GELU, LayerNorm, then a product with the output embedding [V, E] and a bias.

  The output embedding is what fine-tuning throws away: it can be as large as pre-training affords (paper, section 3).
  With `tie_word_embeddings` there is none, and the word embedding takes its place.
  """

  def __init__(self, config: RemBertConfig, dtype: jnp.dtype, *, rngs: nnx.Rngs):
    self.vocab_size, rows = config.vocab_size, config.padded_vocab_size
    self.transform = linear(
      config, config.hidden_size, config.output_embedding_size, axes=('embed', None), dtype=dtype, rngs=rngs
    )
    self.activation = activation(config.hidden_act)
    self.norm = layer_norm(config, config.output_embedding_size, dtype, rngs)
    self.output_embedding = nnx.data(None)
    if not config.tie_word_embeddings:
      fill = with_axes(vocabulary_initializer(config), 'vocab', 'embed')
      self.output_embedding = nnx.Param(fill(rngs.params(), (rows, config.output_embedding_size), jnp.float32))
    self.bias = nnx.Param(with_axes(nnx.initializers.zeros, 'vocab')(rngs.params(), (rows,), jnp.float32))

  def __call__(
    self, x_BxSxH: jax.Array, positions_BxK: jax.Array | None = None, *, word_embedding_VxI: jax.Array
  ) -> jax.Array:
    """Logits, float32, [B, K, V] at `positions_BxK` or [B, S, V] everywhere; V includes the padding rows, at −∞.

    The head is most of a small encoder's work: running it on the 15 % of positions that have a target saves the rest.
    """
    if positions_BxK is not None:
      x_BxSxH = jnp.take_along_axis(x_BxSxH, positions_BxK[..., None], axis=1)
    x_BxKxE = self.norm(self.activation(self.transform(x_BxSxH)))
    table_VxE = word_embedding_VxI if self.output_embedding is None else self.output_embedding[...]
    logits_BxKxV = dot_general_of_rows(
      x_BxKxE, table_VxE.astype(x_BxKxE.dtype), (((2,), (1,)), ((), ())), preferred_element_type=jnp.float32
    )
    logits_BxKxV = constrain(add_bias(logits_BxKxV, self.bias[...]), 'batch', None, 'vocab')
    if self.vocab_size < table_VxE.shape[0]:
      is_padding_V = jnp.arange(table_VxE.shape[0]) >= self.vocab_size
      logits_BxKxV = jnp.where(is_padding_V, -jnp.inf, logits_BxKxV)
    return logits_BxKxV


class RemBertForMaskedLM(nnx.Module):
  """Encoder and MLM head: two parameter trees, `encoder` (kept) and `mlm` (dropped after pre-training)."""

  def __init__(
    self,
    config: RemBertConfig,
    execution: Execution = Execution(),
    *,
    add_pooler: bool = False,
    rngs: nnx.Rngs,
  ):
    self.encoder = RemBertEncoder(config, execution, add_pooler=add_pooler, rngs=rngs)
    self.mlm = MlmHead(config, jnp.dtype(execution.dtype), rngs=rngs)

  def __call__(
    self,
    input_ids_BxS: jax.Array,
    token_type_ids_BxS: jax.Array | None = None,
    attention_mask_BxS: jax.Array | None = None,
    *,
    masked_positions_BxK: jax.Array | None = None,
    **encoder_options,
  ) -> jax.Array:
    """Logits as `MlmHead` gives them; the other arguments are the encoder's."""
    output = self.encoder(input_ids_BxS, token_type_ids_BxS, attention_mask_BxS, **encoder_options)
    return self.mlm(
      output.last_hidden_state, masked_positions_BxK, word_embedding_VxI=self.encoder.embeddings.word.embedding[...]
    )
