"""The encoder: embeddings, the I → H projection, a stack of post-LN Transformer layers, and an optional pooler."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import Recompute, Saveable

from rembert.model.attention import SelfAttention, Visibility
from rembert.model.config import Execution, RemBertConfig
from rembert.model.embeddings import RemBertEmbeddings
from rembert.model.layers import ATTENTION, PRODUCT, LayerNorm, Linear, Operations, gather_positions, operations
from rembert.model.partitioning import constrain


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class ModelOutput:
  """Output of the encoder and of every model on top of it.

  Attributes:
    last_hidden_state: [B, S, H], or [B, K, H] at `positions`; [B, 1, H] of a pooling head with a trimmed last layer.
    pooler_output: [B, H], from the first position (of `positions`, if given); None without a pooler.
    hidden_states: [L + 1, B, S, H], the projected embeddings first, as in Hugging Face; None unless requested.
    logits: float32, of the head's shape; None for the encoder only.
  """

  last_hidden_state: jax.Array
  pooler_output: jax.Array | None = None
  hidden_states: jax.Array | None = None
  logits: jax.Array | None = None


class FeedForward(nnx.Module):
  """H → F, GELU, F → H."""

  def __init__(self, config: RemBertConfig, dtype: jnp.dtype, ops: Operations, *, rngs: nnx.Rngs):
    hidden, wide = config.hidden_size, config.intermediate_size
    self.up = Linear(config, hidden, wide, axes=('embed', 'mlp'), dtype=dtype, ops=ops, rngs=rngs)
    self.down = Linear(config, wide, hidden, axes=('mlp', 'embed'), dtype=dtype, ops=ops, rngs=rngs)
    self.is_approximate, self.ops = config.gelu_is_approximate, ops

  def __call__(self, x_BxSxH: jax.Array) -> jax.Array:
    """x_BxSxH to x_BxSxH."""
    x_BxSxF = self.ops.gelu(self.up(x_BxSxH), self.is_approximate)
    return self.down(constrain(x_BxSxF, 'batch', None, 'mlp'))


class TransformerLayer(nnx.Module):
  """BERT's layer: LayerNorm after each residual sum (post-LN), dropout on each branch."""

  def __init__(self, config: RemBertConfig, dtype: jnp.dtype, ops: Operations, *, rngs: nnx.Rngs):
    self.attention = SelfAttention(config, dtype, ops, rngs=rngs)
    self.attention_norm = LayerNorm(config, config.hidden_size, dtype=dtype, ops=ops, rngs=rngs)
    self.feed_forward = FeedForward(config, dtype, ops, rngs=rngs)
    self.output_norm = LayerNorm(config, config.hidden_size, dtype=dtype, ops=ops, rngs=rngs)
    self.dropout = nnx.Dropout(config.hidden_dropout_prob)

  def __call__(
    self,
    x_BxSxH: jax.Array,
    visibility: Visibility = Visibility(),
    *,
    positions_BxK: jax.Array | None = None,
    dropout_key: jax.Array | None = None,
  ) -> jax.Array:
    """x_BxSxH to x_BxSxH, or at positions to x_BxKxH; no dropout without a key.

    At positions, keys and values are computed for all S, but queries and everything after them for K.
    """
    keys = [None] * 3 if dropout_key is None else jax.random.split(dropout_key, 3)
    drop = lambda x, key: self.dropout(x, deterministic=key is None, rngs=key)
    with jax.named_scope('attention'):
      attended = self.attention(x_BxSxH, visibility, positions_BxK=positions_BxK, dropout_key=keys[0])
    x = x_BxSxH if positions_BxK is None else gather_positions(x_BxSxH, positions_BxK)
    x = self.attention_norm(x + drop(attended, keys[1]))
    with jax.named_scope('feed_forward'):
      transformed = self.feed_forward(x)
    x = self.output_norm(x + drop(transformed, keys[2]))
    return constrain(x, 'batch', None, None)


def _keep_products_and_attention(primitive, *_, **parameters):
  """A policy of `jax.checkpoint`: saves matmuls and attention outputs, recomputes the rest."""
  is_named = primitive.name == 'name' and parameters['name'] in (PRODUCT, ATTENTION)
  # The outputs of JAX's wrapper of cuDNN's kernel have no names.
  return Saveable if is_named or primitive.name == 'dot_product_attention_fwd_wrapper' else Recompute


_REMAT = {
  'dots': jax.checkpoint_policies.dots_saveable,
  'dots_and_attention': _keep_products_and_attention,
  'full': None,
}


class RemBertEncoder(nnx.Module):
  """The part that fine-tuning keeps (paper, section 3): embeddings, projection, layers, optional pooler.

  The layers' parameters are stacked along a leading axis, for one loop over them.
  """

  def __init__(
    self, config: RemBertConfig, execution: Execution = Execution(), *, add_pooler: bool = True, rngs: nnx.Rngs
  ):
    execution.check_model(config)
    self.config, self.execution, self.ops = config, execution, operations(execution)
    dtype, hidden, ops = jnp.dtype(execution.dtype), config.hidden_size, self.ops
    self.embeddings = RemBertEmbeddings(config, dtype, ops, rngs=rngs)
    self.projection = nnx.data(None)
    if config.projects_embeddings:
      self.projection = Linear(
        config, config.input_embedding_size, hidden, axes=(None, 'embed'), dtype=dtype, ops=ops, rngs=rngs
      )

    @nnx.split_rngs(splits=config.num_hidden_layers)
    @nnx.vmap(in_axes=0, out_axes=0, transform_metadata={nnx.PARTITION_NAME: 'layers'})
    def stacked_layers(rngs: nnx.Rngs) -> TransformerLayer:
      return TransformerLayer(config, dtype, ops, rngs=rngs)

    self.layers = stacked_layers(rngs)
    self.pooler = nnx.data(None)
    if add_pooler:
      self.pooler = Linear(config, hidden, hidden, axes=('embed', None), dtype=dtype, ops=ops, rngs=rngs)

  def __call__(
    self,
    input_ids: jax.Array,
    token_type_ids: jax.Array | None = None,
    attention_mask: jax.Array | None = None,
    *,
    segment_ids: jax.Array | None = None,
    position_ids: jax.Array | None = None,
    positions: jax.Array | None = None,
    num_layers: int | None = None,
    output_hidden_states: bool = False,
    dropout_key: jax.Array | None = None,
  ) -> ModelOutput:
    """Runs the encoder. The arguments have Hugging Face's names; all but `positions` are [B, S], int32.

    Args:
      input_ids: token ids.
      token_type_ids: 0 for the first text and 1 for the second; default 0.
      attention_mask: 1 for tokens, 0 for padding; default all tokens.
      segment_ids: for packed sequences instead of `attention_mask`: the document of a token, from 1; 0 is padding.
        Attention never crosses documents.
      position_ids: default 0…S−1; packed sequences restart them with each document.
      positions: [B, K], where to return the last hidden state; default everywhere. A trimmed last layer runs for these
        only: with 15 % of the positions and F = 4 H that saves seven tenths of it.
      num_layers: run this many layers, from the bottom.
      output_hidden_states: also return the output of every layer.
      dropout_key: random key of dropout; None disables dropout.
    """
    visibility = Visibility.of(attention_mask, segment_ids)
    embedding_key, layers_key = (None, None) if dropout_key is None else jax.random.split(dropout_key)
    with jax.named_scope('embeddings'):
      x = self.embeddings(input_ids, token_type_ids, position_ids, dropout_key=embedding_key)
      x_BxSxH = constrain(x if self.projection is None else self.projection(x), 'batch', None, None)

    count = self.config.num_hidden_layers
    graphdef, stacked = nnx.split(self.layers)
    layers = stacked, None if layers_key is None else jax.random.split(layers_key, count)
    if num_layers is not None:
      count, layers = min(num_layers, count), jax.tree.map(lambda leaf: leaf[:num_layers], layers)
    unroll = self.ops.choose_unroll(self.execution.unroll, count, self.execution.remat in _REMAT)

    def run_layer(x_BxSxH, layer, positions_BxK=None):
      parameters, key = layer
      return nnx.merge(graphdef, parameters)(x_BxSxH, visibility, positions_BxK=positions_BxK, dropout_key=key)

    def layer_step(x_BxSxH, layer):
      y_BxSxH = self._recomputing(run_layer, is_loop=unroll < count)(x_BxSxH, layer)
      return y_BxSxH, y_BxSxH if output_hidden_states else None

    def last_step(x_BxSxH, layer):
      run_last = functools.partial(run_layer, positions_BxK=positions)
      return self._recomputing(run_last, is_loop=unroll < count)(x_BxSxH, layer), None

    trims = positions is not None and self.trims(num_layers, output_hidden_states)
    with jax.named_scope('layers'):
      last, outputs_LxBxSxH = self.ops.run_layers(
        layer_step, x_BxSxH, layers, unroll=unroll, last_step=last_step if trims else None
      )
    if positions is not None and not trims:
      last = gather_positions(last, positions)
    return ModelOutput(
      last_hidden_state=last,
      pooler_output=None if self.pooler is None else jnp.tanh(self.pooler(last[:, 0])),
      hidden_states=jnp.concatenate([x_BxSxH[None], outputs_LxBxSxH]) if output_hidden_states else None,
    )

  def trims(self, num_layers: int | None = None, output_hidden_states: bool = False, **_) -> bool:
    """Whether the last layer runs at `positions` only: not if hidden states or fewer layers are requested."""
    is_last = num_layers is None and not output_hidden_states
    return self.execution.trim_last_layer and is_last and self.config.num_hidden_layers > 0

  def _recomputing(self, run_layer, *, is_loop: bool):
    """`run_layer`, recomputed in the backward pass as `Execution.remat` says."""
    if self.execution.remat not in _REMAT:
      return run_layer
    # Compilers see forward and backward loops as separate programs; without loops they might keep activations that are
    # to be recomputed. The last layer, run separately, starts the backward pass: saving its activations costs nothing.
    return jax.checkpoint(run_layer, policy=_REMAT[self.execution.remat], prevent_cse=not is_loop)
