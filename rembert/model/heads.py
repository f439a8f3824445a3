"""Models on top of the encoder: the MLM head with its own output embedding, and the heads of fine-tuning.

B batch · S sequence · K masked positions · C choices · H hidden · E output embedding · V vocabulary · n labels
"""

import dataclasses
import functools
import math
import types
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import nnx
from flax.traverse_util import flatten_dict

from rembert.errors import UsageError
from rembert.model.config import Execution, RemBertConfig
from rembert.model.encoder import ModelOutput, RemBertEncoder
from rembert.model.layers import LayerNorm, Linear, gather_positions, operations, vocabulary_initializer, wide
from rembert.model.partitioning import constrain, with_axes

# --- pre-training -----------------------------------------------------------------------------------------------------


class MlmHead(nnx.Module):
  """H → E, GELU, LayerNorm, then logits with the output embedding [V, E] and a bias.

  Fine-tuning discards the output embedding, so it can be as large as pre-training affords (paper, section 3). With
  `tie_word_embeddings` the word embedding is used instead.
  """

  def __init__(self, config: RemBertConfig, execution: Execution, *, rngs: nnx.Rngs):
    rows, width = config.padded_vocab_size, config.output_embedding_size
    self.vocab_size, self.is_approximate = config.vocab_size, config.gelu_is_approximate
    dtype, ops = jnp.dtype(execution.dtype), operations(execution)
    self.ops = ops
    self.transform = Linear(config, config.hidden_size, width, axes=('embed', None), dtype=dtype, ops=ops, rngs=rngs)
    self.norm = LayerNorm(config, width, dtype=dtype, ops=ops, rngs=rngs)
    self.output_embedding = nnx.data(None)
    if not config.tie_word_embeddings:
      fill = with_axes(vocabulary_initializer(config), 'vocab', 'embed')
      self.output_embedding = nnx.Param(fill(rngs.params(), (rows, width), jnp.float32))
    self.bias = nnx.Param(with_axes(nnx.initializers.zeros, 'vocab')(rngs.params(), (rows,), jnp.float32))

  def __call__(
    self, x_BxSxH: jax.Array, positions_BxK: jax.Array | None = None, *, word_embedding_VxI: jax.Array
  ) -> jax.Array:
    """Logits, float32, [B, K, V] at `positions_BxK` or [B, S, V] everywhere; the padding of V is −∞."""
    table_VxE = self.table(word_embedding_VxI)
    logits_BxKxV = self.ops.logits(self.hidden_for_logits(x_BxSxH, positions_BxK), table_VxE, self.bias[...])
    logits_BxKxV = constrain(logits_BxKxV, 'batch', None, 'vocab')
    if self.vocab_size < table_VxE.shape[0]:
      is_padding_V = jnp.arange(table_VxE.shape[0]) >= self.vocab_size
      logits_BxKxV = jnp.where(is_padding_V, -jnp.inf, logits_BxKxV)
    return logits_BxKxV

  def hidden_for_logits(self, x_BxSxH: jax.Array, positions_BxK: jax.Array | None = None) -> jax.Array:
    """The factor of the output embedding, [B, K, E] at `positions_BxK` or [B, S, E] everywhere.

    The head is most of a small encoder's work; at masked positions only it takes 15 % of that.
    """
    with jax.named_scope('head'):
      if positions_BxK is not None:
        x_BxSxH = gather_positions(x_BxSxH, positions_BxK)
      return self.norm(self.ops.gelu(self.transform(x_BxSxH), self.is_approximate))

  def table(self, word_embedding_VxI: jax.Array) -> jax.Array:
    """The output embedding [V, E], float32; the word embedding if the two are tied."""
    return word_embedding_VxI if self.output_embedding is None else self.output_embedding[...]


class RemBertForMaskedLM(nnx.Module):
  """Encoder and MLM head: two parameter trees, `encoder` (kept) and `mlm` (dropped after pre-training)."""

  def __init__(
    self, config: RemBertConfig, execution: Execution = Execution(), *, add_pooler: bool = False, rngs: nnx.Rngs
  ):
    self.encoder = RemBertEncoder(config, execution, add_pooler=add_pooler, rngs=rngs)
    self.mlm = MlmHead(config, execution, rngs=rngs)

  def __call__(
    self,
    input_ids: jax.Array,
    token_type_ids: jax.Array | None = None,
    attention_mask: jax.Array | None = None,
    *,
    masked_positions: jax.Array | None = None,
    **encoder_options,
  ) -> ModelOutput:
    """The encoder's output with the `logits` of `MlmHead`, at `masked_positions` [B, K] or everywhere."""
    output = self.encoder(input_ids, token_type_ids, attention_mask, **encoder_options)
    logits = self.mlm(
      output.last_hidden_state, masked_positions, word_embedding_VxI=self.encoder.embeddings.word.embedding[...]
    )
    return dataclasses.replace(output, logits=logits)

  def hidden_for_logits(
    self, input_ids: jax.Array, *, masked_positions: jax.Array, **encoder_options
  ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """x_BxKxE, table_VxE and bias_V, for a loss that never computes all `logits` x · tableᵀ + bias at once.

    Table and bias are float32, and include the padding of the vocabulary.
    """
    states_BxKxH = self.encoder(input_ids, positions=masked_positions, **encoder_options).last_hidden_state
    table_VxE = self.mlm.table(self.encoder.embeddings.word.embedding[...])
    return self.mlm.hidden_for_logits(states_BxKxH), table_VxE, self.mlm.bias[...]


# --- fine-tuning ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TaskHead:
  """A fine-tuning head: dropout and one linear map."""

  map_name: str = 'classifier'  # of the linear map, as in Hugging Face
  pools: bool = False  # its input is the pooler's output, rather than every position
  drops_out: bool = True
  num_labels: int | None = None  # None if it depends on the task
  has_choices: bool = False  # ids are [B, C, S], with one logit per choice


TASK_HEADS = {
  # Sentence pairs (XNLI, PAWS-X).
  'classification': TaskHead(pools=True),
  # Named entities, parts of speech.
  'tagging': TaskHead(),
  # Logits of start and end of a span at each position.
  'qa': TaskHead('qa_outputs', num_labels=2, drops_out=False),
  'multiple_choice': TaskHead(pools=True, num_labels=1, has_choices=True),
  # A number per text or pair: the logit itself.
  'regression': TaskHead(pools=True, num_labels=1),
}
# Names of heads in `rembert.load`, `rembert.convert` and checkpoints; None is the encoder only.
HEADS = ('mlm', *TASK_HEADS)
POOLED = tuple(name for name, head in TASK_HEADS.items() if head.pools)
FIXED_LABELS = {name: head.num_labels for name, head in TASK_HEADS.items() if head.num_labels}


class RemBertForTask(nnx.Module):
  """An encoder with one of `TASK_HEADS`."""

  def __init__(
    self, head: TaskHead, config: RemBertConfig, execution: Execution = Execution(), *, num_labels: int, rngs: nnx.Rngs
  ):
    self.head, self.encoder = head, RemBertEncoder(config, execution, add_pooler=head.pools, rngs=rngs)
    self.dropout = nnx.Dropout(config.classifier_dropout_prob)
    dtype, ops = jnp.dtype(execution.dtype), self.encoder.ops
    to_labels = Linear(config, config.hidden_size, num_labels, axes=('embed', None), dtype=dtype, ops=ops, rngs=rngs)
    setattr(self, head.map_name, to_labels)

  def __call__(
    self, input_ids, token_type_ids=None, attention_mask=None, *, dropout_key=None, **encoder_options
  ) -> ModelOutput:
    """The encoder's output with float32 `logits`: [B, n] for a head that pools, else [B, S, n].

    The arguments are the encoder's. Choices [B, C, S] have logits [B, C], and the encoder's output has B·C sequences.
    """
    encoder_key, head_key = (None, None) if dropout_key is None else jax.random.split(dropout_key)
    in_rows = lambda x: None if x is None else x.reshape(-1, input_ids.shape[-1])
    if self.head.pools and self.encoder.trims(**encoder_options):
      encoder_options['positions'] = jnp.zeros((math.prod(input_ids.shape[:-1]), 1), jnp.int32)
    if 'segment_ids' in encoder_options:
      encoder_options['segment_ids'] = in_rows(encoder_options['segment_ids'])
    inputs = input_ids.reshape(-1, input_ids.shape[-1]), in_rows(token_type_ids), in_rows(attention_mask)
    output = self.encoder(*inputs, dropout_key=encoder_key, **encoder_options)
    seen = output.pooler_output if self.head.pools else output.last_hidden_state
    if self.head.drops_out:
      seen = self.dropout(seen, deterministic=head_key is None, rngs=head_key)
    logits = getattr(self, self.head.map_name)(seen)
    logits = logits.astype(wide(logits.dtype))
    return dataclasses.replace(output, logits=logits.reshape(input_ids.shape[:-1]) if self.head.has_choices else logits)


# --- by name ----------------------------------------------------------------------------------------------------------


def check_head(head: str | None) -> None:
  """Raises UsageError for an unknown name."""
  if head is not None and head not in HEADS:
    raise UsageError(f'unknown head {head!r}', where='head', fix=f'one of {", ".join(HEADS)}, or None')


def build_model(
  head: str | None,
  config: RemBertConfig,
  execution: Execution = Execution(),
  *,
  num_labels: int | None = None,
  add_pooler: bool = True,
  rngs: nnx.Rngs,
) -> nnx.Module:
  """Builds a randomly initialised model with one of `HEADS`, or None for the encoder only.

  `classification` and `tagging` need `num_labels` (UsageError without). `add_pooler` is for the encoder only and for
  `mlm`; the other heads have a pooler if they need one.
  """
  if head is None:
    return RemBertEncoder(config, execution, add_pooler=add_pooler, rngs=rngs)
  check_head(head)
  if head == 'mlm':
    return RemBertForMaskedLM(config, execution, add_pooler=add_pooler, rngs=rngs)
  num_labels = FIXED_LABELS.get(head, num_labels)
  if not num_labels:
    raise UsageError(f'the head {head!r} requires num_labels', where='num_labels', fix='num_labels=3')
  return RemBertForTask(TASK_HEADS[head], config, execution, num_labels=num_labels, rngs=rngs)


@functools.cache  # tracing the modules takes a while
def parameter_shapes(
  head: str | None, config: RemBertConfig, *, num_labels: int | None = None, add_pooler: bool
) -> Mapping[str, tuple[int, ...]]:
  """Shape of every parameter by its path, `encoder/layers/…`, also for the encoder only."""
  build = lambda: build_model(head, config, num_labels=num_labels, add_pooler=add_pooler, rngs=nnx.Rngs(0))
  tree = nnx.to_pure_dict(nnx.state(nnx.eval_shape(build), nnx.Param))
  paths = flatten_dict(tree if head else {'encoder': tree}, sep='/')
  return types.MappingProxyType({path: leaf.shape for path, leaf in paths.items()})


# --- sentence embeddings ----------------------------------------------------------------------------------------------


def sentence_embeddings(
  encoder: RemBertEncoder, input_ids: jax.Array, attention_mask: jax.Array, *, layer: int | None = None
) -> jax.Array:
  """Means of a layer's output over a text's tokens, without [CLS] and [SEP] (paper, A.9), float32 [B, H].

  `layer` is 0 for the projected embeddings, up to L or None for the last layer; layers above are not run. Layers around
  two thirds of the depth retrieve translations best (paper, Figure 2). A text without tokens gives zero.
  """
  config = encoder.config
  states_BxSxH = encoder(
    input_ids, attention_mask=attention_mask, num_layers=chosen_layer(config, layer)
  ).last_hidden_state
  return means_of_segments(states_BxSxH, input_ids, attention_mask, 1, config)[:, 0]


def chosen_layer(config: RemBertConfig, layer: int | None) -> int:
  """The number of a layer: 0 for the projected embeddings, None for the last. UsageError if it does not exist."""
  if layer is None:
    return config.num_hidden_layers
  if not 0 <= layer <= config.num_hidden_layers:
    raise UsageError(
      f'the model has no layer {layer}', where='layer', fix=f'0 (embeddings) to {config.num_hidden_layers} (last)'
    )
  return layer


def means_of_segments(
  states_BxSxH: jax.Array, input_ids: jax.Array, segment_ids: jax.Array, count: int, config: RemBertConfig
) -> jax.Array:
  """Means of hidden states over the tokens of each packed text, without [CLS], [SEP] and padding: float32 [B, M, H].

  `segment_ids` are 1 to M = `count` for the texts of a sequence, 0 for padding; for a single text, the attention mask.
  States of several layers, [L, B, S, H], give [L, B, M, H]. A text without tokens gives zero.
  """
  is_text_BxS = (input_ids != config.bos_token_id) & (input_ids != config.eos_token_id)
  is_of_text_BxMxS = segment_ids[:, None, :] == jnp.arange(1, count + 1)[None, :, None]
  weights_BxMxS = (is_of_text_BxMxS & is_text_BxS[:, None, :]).astype(jnp.float32)
  totals_BxMxH = jnp.einsum('bms,...bsh->...bmh', weights_BxMxS, states_BxSxH.astype(jnp.float32))
  return totals_BxMxH / jnp.maximum(weights_BxMxS.sum(-1), 1)[..., None]
