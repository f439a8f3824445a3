"""The architecture (`RemBertConfig`) and how it is computed (`Execution`)."""

import dataclasses
import math
from typing import Annotated

from rembert.errors import UsageError
from rembert.validation import Count, CountOrZero, FractionBelowOne, NotNegative, OneOf, Positive, Range, check_fields

# As `rembert.model.heads.HEADS`, without importing JAX, for command lines.
HEAD_NAMES = ('mlm', 'classification', 'tagging', 'qa', 'multiple_choice', 'regression')
ACTIVATIONS = ('gelu', 'gelu_tanh')
# Limits beyond any real model, to report mistakes before memory runs out.
Size = Annotated[int, Range(1, 1 << 24)]
Few = Annotated[int, Range(1, 1 << 12)]


@dataclasses.dataclass(frozen=True)
class RemBertConfig:
  """The architecture, with Hugging Face's field names. The defaults are the released RemBERT (paper, Table 14).

  The paper's text gives `output_embedding_size` as 1536; only 1664, the released value, yields its 995M parameters.

  Attributes:
    vocab_size: V, number of tokens of the word embedding and of the output embedding.
    input_embedding_size: I, size of the input embeddings; projected to `hidden_size` if the two differ.
    output_embedding_size: E, size of the output embedding, used in pre-training only.
    hidden_size: H, size of the hidden states.
    num_hidden_layers: L, number of layers.
    num_attention_heads: N, number of heads; must divide `hidden_size`.
    intermediate_size: F, size of the feed-forward layer.
    max_position_embeddings: maximum sequence length.
    type_vocab_size: number of token types (sentence A, sentence B).
    hidden_act: `gelu` (erf; Hugging Face) or `gelu_tanh` (the approximation of the original TensorFlow code).
    hidden_dropout_prob: dropout after the embeddings, the attention output and the feed-forward output.
    attention_probs_dropout_prob: dropout on the attention weights.
    classifier_dropout_prob: dropout before a fine-tuning head.
    initializer_range: standard deviation of the truncated normal (cut at two) of kernels and embedding matrices.
    layer_norm_eps: epsilon of every LayerNorm.
    tie_word_embeddings: share one matrix between input and output, as BERT and ALBERT do; requires I = E.
    always_project_embeddings: have an I → H projection even if I = H, as Hugging Face's RemBERT does;
      ALBERT and this project's models have it only if they differ.
    pad_token_id: id of [PAD].
    bos_token_id: id of [CLS].
    eos_token_id: id of [SEP].
    pad_vocab_to_multiple_of: embedding matrices are stored with V rounded up to a multiple of this, to tile the matrix
      units and split over the `tensor` axis. The extra rows are zero, get no gradient, and do not count as parameters.
  """

  vocab_size: Size = 250_300
  input_embedding_size: Size = 256
  output_embedding_size: Size = 1664
  hidden_size: Size = 1152
  num_hidden_layers: Annotated[int, Range(0, 1 << 12)] = 32
  num_attention_heads: Few = 18
  intermediate_size: Size = 4608
  max_position_embeddings: Size = 512
  type_vocab_size: Few = 2
  hidden_act: Annotated[str, OneOf(ACTIVATIONS)] = 'gelu'
  hidden_dropout_prob: FractionBelowOne = 0.0
  attention_probs_dropout_prob: FractionBelowOne = 0.0
  classifier_dropout_prob: FractionBelowOne = 0.1
  initializer_range: NotNegative = 0.02
  layer_norm_eps: Positive = 1e-12
  tie_word_embeddings: bool = False
  always_project_embeddings: bool = False
  pad_token_id: CountOrZero = 0
  bos_token_id: CountOrZero = 312
  eos_token_id: CountOrZero = 313
  pad_vocab_to_multiple_of: Size = 128

  def __post_init__(self):
    check_fields(self, 'RemBertConfig')
    if self.hidden_size % self.num_attention_heads:
      raise UsageError(
        f'hidden_size {self.hidden_size} is not divisible by {self.num_attention_heads} attention heads',
        where='RemBertConfig.num_attention_heads, RemBertConfig.hidden_size',
        fix=f'use {self._head_counts()} heads, or a hidden size that is a multiple of {self.num_attention_heads}',
      )
    if self.tie_word_embeddings and self.input_embedding_size != self.output_embedding_size:
      raise UsageError(
        f'tied embeddings must have equal sizes, not {self.input_embedding_size} and {self.output_embedding_size}',
        where='RemBertConfig.tie_word_embeddings = True',
        fix='set output_embedding_size = input_embedding_size, or tie_word_embeddings = False',
      )

  def _head_counts(self) -> str:
    near = [n for n in range(1, 2 * self.num_attention_heads + 1) if self.hidden_size % n == 0]
    return ' or '.join(map(str, near[-3:]))

  @property
  def head_dim(self) -> int:
    """D, the size of one attention head."""
    return self.hidden_size // self.num_attention_heads

  @property
  def padded_vocab_size(self) -> int:
    """V rounded up to a multiple of `pad_vocab_to_multiple_of`, as stored."""
    return math.ceil(self.vocab_size / self.pad_vocab_to_multiple_of) * self.pad_vocab_to_multiple_of

  @property
  def gelu_is_approximate(self) -> bool:
    """Whether `hidden_act` is the tanh approximation."""
    return self.hidden_act == 'gelu_tanh'

  @property
  def projects_embeddings(self) -> bool:
    """Whether there is an I → H projection."""
    return self.always_project_embeddings or self.input_embedding_size != self.hidden_size


REMAT_POLICIES = ('none', 'dots', 'dots_and_attention', 'full')
DTYPES = ('float32', 'bfloat16', 'auto')
ATTENTION_BACKENDS = ('einsum', 'cudnn', 'splash')
KERNELS = ('auto', 'reference')


@dataclasses.dataclass(frozen=True)
class Execution:
  """How the model is computed. Results do not depend on it, so a run may be resumed with other values.

  Attributes:
    dtype: dtype of activations and matmuls: `float32`; `bfloat16`; or `auto`, which is bfloat16 on TPUs, GPUs and CPUs
      with instructions for it (AMX, AVX512_BF16), float32 elsewhere. Parameters, LayerNorm statistics, softmax,
      loss, and accumulation within matmuls are always float32.
    remat: activations that each layer saves for the backward pass; the rest is recomputed, with the same result. From
      the most memory to the least: `none` saves everything; `dots` all matmuls, including the [S, S] scores;
      `dots_and_attention` matmuls with parameters and the output of attention, so that scores are not saved and a
      fused kernel does not run twice; `full` the layer's input only.
    unroll: number of layers per iteration of the layer loop. 1 compiles fastest; more can run faster. All of them (no
      loop) means 1 on a CPU if `remat` is not `none`, since XLA's CPU backend recomputes in loops only.
    trim_last_layer: compute the last layer's queries and feed-forward only at the positions that the head uses: masked
      positions in pre-training (not with `loss_chunk` 0), the first position for heads that pool. The result is the
      same; a loop (`unroll` below the number of layers) costs a copy of the other layers.
    attention: `einsum` (plain matmuls, everywhere), or a fused kernel that never writes the [S, S] weights to memory:
      `cudnn` (NVIDIA GPUs; bfloat16) or `splash` (TPUs; sequences of a multiple of 128 tokens). The kernels do not
      support attention dropout.
    loss_chunk: maximum number of masked positions per device whose logits are in memory at a time, 4 · V bytes each (V
      over `mesh.tensor`): 1 GB for 1024 of RemBERT's. More positions are processed in several chunks, with the same
      result and no more work. Smaller chunks save memory but make matmuls smaller. 0 computes all logits and derives
      the gradients with JAX, which needs several times their size: the reference.
    kernels: implementation of everything but fused attention: `auto`, the fastest for the devices (`rembert.kernels`);
      `reference`, the equations of `rembert.model`, differentiated by JAX.
  """

  dtype: Annotated[str, OneOf(DTYPES)] = 'float32'
  remat: Annotated[str, OneOf(REMAT_POLICIES)] = 'none'
  unroll: Count = 1
  trim_last_layer: bool = False
  attention: Annotated[str, OneOf(ATTENTION_BACKENDS)] = 'einsum'
  loss_chunk: CountOrZero = 1024
  kernels: Annotated[str, OneOf(KERNELS)] = 'auto'

  def __post_init__(self):
    check_fields(self, 'execution')
    if self.attention == 'cudnn' and self.dtype == 'float32':
      raise UsageError(
        f'cudnn attention computes in bfloat16, not {self.dtype}',
        where="execution.attention = 'cudnn', execution.dtype",
        fix='--gin.execution.dtype=bfloat16, or --gin.execution.attention=einsum',
      )

  @property
  def trims_last_layer(self) -> bool:
    """Whether pre-training trims the last layer."""
    return self.trim_last_layer and self.loss_chunk > 0

  def check_model(self, model: RemBertConfig) -> None:
    """UsageError if `attention` does not support the model."""
    if self.attention != 'einsum' and model.attention_probs_dropout_prob:
      raise UsageError(
        f'{self.attention} attention does not support attention dropout',
        where=f'RemBertConfig.attention_probs_dropout_prob = {model.attention_probs_dropout_prob}',
        fix='--gin.execution.attention=einsum, or --gin.RemBertConfig.attention_probs_dropout_prob=0.0',
      )
    if self.attention == 'cudnn' and model.head_dim % 8:
      raise UsageError(
        f'cudnn attention requires a head size that is a multiple of 8, not {model.head_dim}',
        where='RemBertConfig.hidden_size, RemBertConfig.num_attention_heads',
        fix='--gin.execution.attention=einsum, or use another number of heads',
      )
