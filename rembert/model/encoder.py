"""The encoder: embeddings, the I → H projection, a stack of post-LN Transformer layers, and an optional pooler."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import Offloadable, Recompute, Saveable

from rembert.model.attention import SelfAttention, Visibility
from rembert.model.config import Execution, RemBertConfig
from rembert.model.embeddings import RemBertEmbeddings
from rembert.model.layers import ATTENTION, PRODUCT, LayerNorm, Linear, gather_positions
from rembert.model.operations import Operations, operations
from rembert.model.partitioning import constrain

HOST_MEMORY = 'pinned_host'  # JAX's name for memory of the host that devices read and write by themselves


@functools.partial(jax.tree_util.register_dataclass)
@dataclasses.dataclass
class ModelOutput:
  """What the encoder and every model on top of it return.

  Attributes:
    last_hidden_state: [B, S, H]; of a head that pools and trims the last layer (`Execution`) [B, 1, H], where it pools.
    pooler_output: [B, H], or None without a pooler.
    hidden_states: [L + 1, B, S, H], the projected embeddings first (as Hugging Face counts), or None unless asked for.
    logits: float32, of the shape that the head gives them; None of an encoder alone.
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

    Positions change nothing but what is computed: all of them have a key and a value, but queries, the feed-forward and
    what lies between are made for K of S.
    """
    keys = [None] * 3 if dropout_key is None else jax.random.split(dropout_key, 3)
    drop = lambda x, key: self.dropout(x, deterministic=key is None, rngs=key)
    attended = self.attention(x_BxSxH, visibility, positions_BxK=positions_BxK, dropout_key=keys[0])
    x = x_BxSxH if positions_BxK is None else gather_positions(x_BxSxH, positions_BxK)
    x = self.attention_norm(x + drop(attended, keys[1]))
    x = self.output_norm(x + drop(self.feed_forward(x), keys[2]))
    return constrain(x, 'batch', None, None)


def _keep_products_and_attention(how):
  """A policy of `jax.checkpoint`: what is named so is kept in this way, the rest is recomputed."""

  def policy(primitive, *_, **parameters):
    is_named = primitive.name == 'name' and parameters['name'] in (PRODUCT, ATTENTION)
    # cuDNN's kernel, as JAX wraps it, names nothing.
    return how if is_named or primitive.name == 'dot_product_attention_fwd_wrapper' else Recompute

  return policy


_REMAT = {
  'dots': jax.checkpoint_policies.dots_saveable,
  'dots_and_attention': _keep_products_and_attention(Saveable),
  'full': None,
  'offload': _keep_products_and_attention(Offloadable(src='device', dst=HOST_MEMORY)),
}


class RemBertEncoder(nnx.Module):
  """Everything that fine-tuning keeps (paper, section 3): embeddings, projection, layers, optional pooler.

  The layers' parameters are stacked along a leading axis and walked by one loop, so that compile time and program size
  do not grow with depth.
  """

  def __init__(
    self,
    config: RemBertConfig,
    execution: Execution = Execution(),
    *,
    add_pooler: bool = True,
    rngs: nnx.Rngs,
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
    num_layers: int | None = None,
    output_hidden_states: bool = False,
    dropout_key: jax.Array | None = None,
  ) -> ModelOutput:
    """Runs the encoder. The arguments bear Hugging Face's names; all of them are [B, S], int32.

    Args:
      input_ids: ids of pieces.
      token_type_ids: 0 for the first text and 1 for the second; default 0.
      attention_mask: 1 for tokens, 0 for padding; default all tokens.
      segment_ids: for packed rows instead of `attention_mask`: which document a token belongs to, from 1; 0 is padding.
        Attention never crosses from one to another.
      position_ids: default 0…S−1; packed rows restart them with each document.
      num_layers: run the bottom layers only, this many of them; the rest is not computed.
      output_hidden_states: return the output of every layer too.
      dropout_key: a key to draw dropout from; without one nothing is dropped.
    """
    visibility = Visibility.of(attention_mask, segment_ids)
    x_BxSxH, keys_L = self._embed(input_ids, token_type_ids, position_ids, dropout_key)
    graphdef, layers = self._split_layers(keys_L)
    run_layer = self._recomputing(functools.partial(_run_layer, graphdef, visibility))
    last_BxSxH, hidden_states = self._run(run_layer, x_BxSxH, _bottom(layers, num_layers), output_hidden_states)

    return ModelOutput(
      last_hidden_state=last_BxSxH,
      pooler_output=self._pool(last_BxSxH),
      hidden_states=hidden_states,
    )

  def pooled(
    self,
    input_ids: jax.Array,
    token_type_ids: jax.Array | None = None,
    attention_mask: jax.Array | None = None,
    *,
    num_layers: int | None = None,
    output_hidden_states: bool = False,
    **options,
  ) -> ModelOutput:
    """As above, for who needs `pooler_output` and nothing else.

    With `Execution.trim_last_layer` the last layer is run for the first position alone, and `last_hidden_state` is
    [B, 1, H]; not so for other layers, or all of them.
    """
    inputs = input_ids, token_type_ids, attention_mask
    if num_layers is not None or output_hidden_states or not self._trims:
      return self(*inputs, num_layers=num_layers, output_hidden_states=output_hidden_states, **options)
    first_Bx1 = jnp.zeros((input_ids.shape[0], 1), jnp.int32)
    x_Bx1xH = self.at(first_Bx1, *inputs, **options)
    return ModelOutput(last_hidden_state=x_Bx1xH, pooler_output=self._pool(x_Bx1xH))

  def at(
    self,
    positions: jax.Array,
    input_ids: jax.Array,
    token_type_ids: jax.Array | None = None,
    attention_mask: jax.Array | None = None,
    *,
    segment_ids: jax.Array | None = None,
    position_ids: jax.Array | None = None,
    dropout_key: jax.Array | None = None,
  ) -> jax.Array:
    """x_BxKxH: `last_hidden_state` at `positions` [B, K], int32; the other arguments as above.

    With `Execution.trim_last_layer` the last layer is run for these positions alone: with 15 % of them and F = 4 H that
    saves seven tenths of it.
    """
    if not self._trims:
      everywhere = self(
        input_ids,
        token_type_ids,
        attention_mask,
        segment_ids=segment_ids,
        position_ids=position_ids,
        dropout_key=dropout_key,
      )
      return gather_positions(everywhere.last_hidden_state, positions)
    visibility = Visibility.of(attention_mask, segment_ids)
    x_BxSxH, keys_L = self._embed(input_ids, token_type_ids, position_ids, dropout_key)
    graphdef, layers = self._split_layers(keys_L)
    run_layer = functools.partial(_run_layer, graphdef, visibility)
    x_BxSxH, _ = self._run(self._recomputing(run_layer), x_BxSxH, _bottom(layers, -1))
    run_last = functools.partial(run_layer, positions_BxK=positions)
    return self._recomputing(run_last)(x_BxSxH, _top(layers))

  @property
  def _unroll(self) -> int:
    """Layers in a turn of the loop."""
    recomputes = self.execution.remat in _REMAT
    return self.ops.choose_unroll(self.execution.unroll, self.config.num_hidden_layers, recomputes)

  @property
  def _is_unrolled(self) -> bool:
    """Whether layers are written out one after the other, without a loop."""
    return self._unroll >= self.config.num_hidden_layers

  @property
  def _trims(self) -> bool:
    """Whether there is a last layer to trim, and it shall be."""
    return self.execution.trim_last_layer and self.config.num_hidden_layers > 0

  def _pool(self, x_BxSxH: jax.Array) -> jax.Array | None:
    """[B, H], made of the first position; None without a pooler."""
    return None if self.pooler is None else jnp.tanh(self.pooler(x_BxSxH[:, 0]))

  def _embed(self, input_ids, token_type_ids, position_ids, dropout_key):
    """What the first layer is given, [B, S, H], and the layers' keys of dropout."""
    embedding_key, layers_key = (None, None) if dropout_key is None else jax.random.split(dropout_key)
    x = self.embeddings(input_ids, token_type_ids, position_ids, dropout_key=embedding_key)
    x_BxSxH = x if self.projection is None else self.projection(x)
    keys_L = None if layers_key is None else jax.random.split(layers_key, self.config.num_hidden_layers)
    return constrain(x_BxSxH, 'batch', None, None), keys_L

  def _split_layers(self, keys_L):
    """The layers' graphdef, and parameters and key of dropout of each: a list where they are unrolled, or stacked."""
    graphdef, stacked = nnx.split(self.layers)
    count = self.config.num_hidden_layers
    if not self._is_unrolled:
      return graphdef, (stacked, keys_L)
    keys = [None] * count if keys_L is None else list(keys_L)
    return graphdef, list(zip(self.ops.unstack(stacked, count), keys, strict=True))

  def _run(self, run_layer, x_BxSxH, layers, output_hidden_states=False):
    """The output of the last of some layers, [B, S, H]; if asked for, their input and all outputs, [L + 1, B, S, H]."""
    if isinstance(layers, list):
      run_layer, states = jax.jit(run_layer), [x_BxSxH]  # traced once
      for layer in layers:
        states.append(run_layer(states[-1], layer))
      return states[-1], jnp.stack(states) if output_hidden_states else None

    def step(x_BxSxH, layer):
      y_BxSxH = run_layer(x_BxSxH, layer)
      return y_BxSxH, y_BxSxH if output_hidden_states else None

    last_BxSxH, outputs_LxBxSxH = jax.lax.scan(step, x_BxSxH, layers, unroll=self._unroll)
    return last_BxSxH, jnp.concatenate([x_BxSxH[None], outputs_LxBxSxH]) if output_hidden_states else None

  def _recomputing(self, run_layer):
    """A function of one layer, whose backward pass finds what `Execution.remat` says."""
    if self.execution.remat not in _REMAT:
      return run_layer
    # Forward and backward are two loops, whose operations no compiler takes for the same; without loops one might keep
    # what is to be computed again. The last layer, run by itself, is needed at once: what is kept of it costs nothing.
    return jax.checkpoint(run_layer, policy=_REMAT[self.execution.remat], prevent_cse=self._is_unrolled)


def _run_layer(graphdef, visibility, x_BxSxH, layer, positions_BxK=None):
  """One layer, given its parameters and its key of dropout (or None); at positions, if there are any, to x_BxKxH."""
  parameters, key = layer
  return nnx.merge(graphdef, parameters)(x_BxSxH, visibility, positions_BxK=positions_BxK, dropout_key=key)


def _bottom(layers, count: int | None):
  """The first so many of a list of layers, or of a stack of them, as a slice counts; None is all."""
  if isinstance(layers, list):
    return layers[:count]
  return layers if count is None else jax.tree.map(lambda leaf: leaf[:count], layers)


def _top(layers):
  """The last of a list of layers, or of a stack of them."""
  return layers[-1] if isinstance(layers, list) else jax.tree.map(lambda leaf: leaf[-1], layers)
