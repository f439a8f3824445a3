"""What sits on the encoder: the MLM head with an output embedding of its own, the heads of fine-tuning, and none.

B batch · S positions · K masked positions per row · C choices · H hidden · E output embedding · V vocabulary · n labels
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx
from flax.traverse_util import flatten_dict

from rembert.errors import UsageError
from rembert.model.config import Execution, RemBertConfig
from rembert.model.encoder import ModelOutput, RemBertEncoder
from rembert.model.layers import LayerNorm, Linear, gather_positions, vocabulary_initializer
from rembert.model.operations import operations
from rembert.model.partitioning import constrain, with_axes

# --- pre-training -----------------------------------------------------------------------------------------------------


class MlmHead(nnx.Module):
  """H → E, GELU, LayerNorm, then a product with the output embedding [V, E] and a bias.

  The output embedding is what fine-tuning throws away: it can be as large as pre-training affords (paper, section 3).
  With `tie_word_embeddings` there is none, and the word embedding takes its place.
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
    """Logits, float32, [B, K, V] at `positions_BxK` or [B, S, V] everywhere; V includes the padding rows, at −∞."""
    table_VxE = self.table(word_embedding_VxI)
    logits_BxKxV = self.ops.logits(self.hidden_for_logits(x_BxSxH, positions_BxK), table_VxE, self.bias[...])
    logits_BxKxV = constrain(logits_BxKxV, 'batch', None, 'vocab')
    if self.vocab_size < table_VxE.shape[0]:
      is_padding_V = jnp.arange(table_VxE.shape[0]) >= self.vocab_size
      logits_BxKxV = jnp.where(is_padding_V, -jnp.inf, logits_BxKxV)
    return logits_BxKxV

  def hidden_for_logits(self, x_BxSxH: jax.Array, positions_BxK: jax.Array | None = None) -> jax.Array:
    """What the output embedding is multiplied with, [B, K, E] at `positions_BxK` or [B, S, E] everywhere.

    The head is most of a small encoder's work: running it on the 15 % of positions that have a target saves the rest.
    """
    if positions_BxK is not None:
      x_BxSxH = gather_positions(x_BxSxH, positions_BxK)
    return self.norm(self.ops.gelu(self.transform(x_BxSxH), self.is_approximate))

  def table(self, word_embedding_VxI: jax.Array) -> jax.Array:
    """The output embedding [V, E], float32: its own, or the word embedding where the two are tied."""
    return word_embedding_VxI if self.output_embedding is None else self.output_embedding[...]


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
    """`logits` as `MlmHead` gives them, at `masked_positions` [B, K] or everywhere; the rest is the encoder's."""
    output = self.encoder(input_ids, token_type_ids, attention_mask, **encoder_options)
    logits = self.mlm(
      output.last_hidden_state, masked_positions, word_embedding_VxI=self.encoder.embeddings.word.embedding[...]
    )
    return dataclasses.replace(output, logits=logits)

  def hidden_for_logits(
    self, input_ids: jax.Array, *, masked_positions: jax.Array, **encoder_options
  ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """All but the last product, for a loss that never holds all logits: x_BxKxE · table_VxE + bias_V are `logits`.

    The last two are float32, and have rows for padding, which are no pieces.
    """
    states_BxKxH = self.encoder(input_ids, positions=masked_positions, **encoder_options).last_hidden_state
    table_VxE = self.mlm.table(self.encoder.embeddings.word.embedding[...])
    return self.mlm.hidden_for_logits(states_BxKxH), table_VxE, self.mlm.bias[...]


# --- fine-tuning ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TaskHead:
  """What a head of fine-tuning sees and gives.

  Attributes:
    map_name: of its linear map, Hugging Face's.
    pools: whether it sees the pooler's output, rather than every position.
    drops_out: whether it has dropout of its own.
    num_labels: that it fixes itself; None is up to the task.
    has_choices: whether ids are [B, C, S], and there is one logit for each choice.
  """

  map_name: str = 'classifier'
  pools: bool = False
  drops_out: bool = True
  num_labels: int | None = None
  has_choices: bool = False


TASK_HEADS = {
  # Sentence pairs (XNLI, PAWS-X).
  'classification': TaskHead(pools=True),
  # Names and parts of speech.
  'tagging': TaskHead(),
  # How well a span begins at a position, and ends there.
  'qa': TaskHead('qa_outputs', num_labels=2, drops_out=False),
  'multiple_choice': TaskHead(pools=True, num_labels=1, has_choices=True),
}
# The name of a head, as `rembert.load`, `rembert.convert` and checkpoints spell it. None is the encoder alone.
HEADS = ('mlm', *TASK_HEADS)
# Heads that need the encoder's pooler.
POOLED = tuple(name for name, head in TASK_HEADS.items() if head.pools)
# Heads that fix the number of labels themselves.
FIXED_LABELS = {name: head.num_labels for name, head in TASK_HEADS.items() if head.num_labels}


class RemBertForTask(nnx.Module):
  """An encoder with one of `TASK_HEADS`: dropout and one linear map."""

  def __init__(
    self,
    head: TaskHead,
    config: RemBertConfig,
    execution: Execution = Execution(),
    *,
    num_labels: int,
    rngs: nnx.Rngs,
  ):
    self.head, self.encoder = head, RemBertEncoder(config, execution, add_pooler=head.pools, rngs=rngs)
    self.dropout = nnx.Dropout(config.classifier_dropout_prob)
    dtype, ops = jnp.dtype(execution.dtype), self.encoder.ops
    to_labels = Linear(config, config.hidden_size, num_labels, axes=('embed', None), dtype=dtype, ops=ops, rngs=rngs)
    setattr(self, head.map_name, to_labels)

  def __call__(
    self, input_ids, token_type_ids=None, attention_mask=None, *, dropout_key=None, **encoder_options
  ) -> ModelOutput:
    """The encoder's output, with `logits` float32; the arguments are the encoder's.

    `logits` are [B, n] of a head that pools, and [B, S, n] of others. Choices [B, C, S] have [B, C]: the encoder sees,
    and its outputs have, B·C rows.
    """
    encoder_key, head_key = (None, None) if dropout_key is None else jax.random.split(dropout_key)
    in_rows = lambda ids: None if ids is None else ids.reshape(-1, ids.shape[-1])
    inputs = tuple(map(in_rows, (input_ids, token_type_ids, attention_mask)))
    if self.head.pools and self.encoder.trims(**encoder_options):
      encoder_options['positions'] = jnp.zeros((len(inputs[0]), 1), jnp.int32)
    output = self.encoder(*inputs, dropout_key=encoder_key, **encoder_options)
    seen = output.pooler_output if self.head.pools else output.last_hidden_state
    if self.head.drops_out:
      seen = self.dropout(seen, deterministic=head_key is None, rngs=head_key)
    logits = getattr(self, self.head.map_name)(seen).astype(jnp.float32)
    return dataclasses.replace(output, logits=logits.reshape(input_ids.shape[:-1]) if self.head.has_choices else logits)


# --- by name ----------------------------------------------------------------------------------------------------------


def check_head(head: str | None) -> None:
  """Raises UsageError for a name that is none of `HEADS`."""
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
  """A model with random parameters.

  Args:
    head: one of `HEADS`, or None for the encoder alone.
    config: the architecture.
    execution: how it is computed.
    num_labels: for `classification` and `tagging`.
    add_pooler: for the encoder alone and for `mlm`, which do not need one; the other heads know by themselves.
    rngs: of the initialisation.

  Raises:
    UsageError: an unknown head, or one that needs to be told its number of labels.
  """
  if head is None:
    return RemBertEncoder(config, execution, add_pooler=add_pooler, rngs=rngs)
  check_head(head)
  if head == 'mlm':
    return RemBertForMaskedLM(config, execution, add_pooler=add_pooler, rngs=rngs)
  num_labels = FIXED_LABELS.get(head, num_labels)
  if not num_labels:
    raise UsageError(f'the head {head!r} needs a number of labels', where='num_labels', fix='num_labels=3')
  return RemBertForTask(TASK_HEADS[head], config, execution, num_labels=num_labels, rngs=rngs)


def parameter_shapes(
  head: str | None, config: RemBertConfig, *, num_labels: int | None = None, add_pooler: bool
) -> dict[str, tuple[int, ...]]:
  """Shape of every parameter by its path, `encoder/layers/…`; the encoder alone has `encoder/` before its own too."""
  build = lambda: build_model(head, config, num_labels=num_labels, add_pooler=add_pooler, rngs=nnx.Rngs(0))
  tree = nnx.to_pure_dict(nnx.state(nnx.eval_shape(build), nnx.Param))
  paths = flatten_dict(tree if head else {'encoder': tree}, sep='/')
  return {path: leaf.shape for path, leaf in paths.items()}


# --- without training -------------------------------------------------------------------------------------------------


def sentence_embeddings(
  encoder: RemBertEncoder, input_ids: jax.Array, attention_mask: jax.Array, *, layer: int | None = None
) -> jax.Array:
  """Mean of a layer's output over a text's pieces, without [CLS] and [SEP] (paper, A.9), float32.

  Args:
    encoder: of any model; layers above `layer` are not run.
    input_ids: [B, S].
    attention_mask: [B, S], 0 for padding.
    layer: 0 is the projected embeddings, L the last layer; None is the last. The layers around two thirds of the depth
      tell translations best (paper, Figure 2).

  Returns:
    [B, H]; zero for a text without pieces.
  """
  config = encoder.config
  states_BxSxH = encoder(
    input_ids, attention_mask=attention_mask, num_layers=chosen_layer(config, layer)
  ).last_hidden_state
  return means_of_segments(states_BxSxH, input_ids, attention_mask, 1, config)[:, 0]


def chosen_layer(config: RemBertConfig, layer: int | None) -> int:
  """A layer by its number, 0 being the projected embeddings; None is the last. UsageError where there is none."""
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
  """Means of hidden states over the pieces of each text of a row, without [CLS], [SEP] and padding, float32 [B, M, H].

  States of several layers, [L, B, S, H], give [L, B, M, H]. Zero for a text without pieces.

  Args:
    states_BxSxH: hidden states.
    input_ids: [B, S].
    segment_ids: [B, S], 1 to M for the texts of a row, 0 for padding; of one text a row that is its attention mask.
    count: M.
    config: of the model, for its special ids.
  """
  is_text_BxS = (input_ids != config.bos_token_id) & (input_ids != config.eos_token_id)
  is_of_text_BxMxS = segment_ids[:, None, :] == jnp.arange(1, count + 1)[None, :, None]
  weights_BxMxS = (is_of_text_BxMxS & is_text_BxS[:, None, :]).astype(jnp.float32)
  totals_BxMxH = jnp.einsum('bms,...bsh->...bmh', weights_BxMxS, states_BxSxH.astype(jnp.float32))
  return totals_BxMxH / jnp.maximum(weights_BxMxS.sum(-1), 1)[..., None]
