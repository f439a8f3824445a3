"""Parameters of a configuration, to the digit, without allocating one (paper, section A.1)."""

import dataclasses
import functools
import math
from collections.abc import Mapping

import jax
from flax import nnx

from rembert.model.config import RemBertConfig
from rembert.model.heads import RemBertForMaskedLM


@dataclasses.dataclass(frozen=True)
class ParameterCounts:
  """Numbers of parameters, the pooler and the MLM head's transform, LayerNorm and bias included; padding rows not.

  Attributes:
    pre_training: encoder, pooler and MLM head.
    fine_tuning: encoder and pooler; what is left when the head is dropped, before a task's own head.
    by_part: the same by part of the model, in the order of the computation.
  """

  pre_training: int
  fine_tuning: int
  by_part: Mapping[str, int]


def abstract_parameters(config: RemBertConfig, *, add_pooler: bool) -> dict:
  """The parameter tree of pre-training as `jax.ShapeDtypeStruct`s; traces the real modules, allocates nothing."""
  model = nnx.eval_shape(lambda: RemBertForMaskedLM(config, add_pooler=add_pooler, rngs=nnx.Rngs(0)))
  return nnx.to_pure_dict(nnx.state(model, nnx.Param))


@functools.cache  # traces the modules; a run asks several times
def count_parameters(config: RemBertConfig) -> ParameterCounts:
  """Counts from the shapes of the very modules that train."""
  parameters = abstract_parameters(config, add_pooler=True)
  padding = config.padded_vocab_size - config.vocab_size
  size = lambda tree: sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))
  encoder, mlm = parameters['encoder'], parameters['mlm']
  by_part = {
    'word embedding': size(encoder['embeddings']['word']) - padding * config.input_embedding_size,
    'position and type embeddings': size(encoder['embeddings']) - size(encoder['embeddings']['word']),
    'embedding projection': size(encoder.get('projection', {})),
    'Transformer layers': size(encoder['layers']),
    'pooler': size(encoder['pooler']),
    'MLM transform': size(mlm['transform']) + size(mlm['norm']),
    'output embedding': 0 if config.tie_word_embeddings else config.vocab_size * config.output_embedding_size,
    'output bias': size(mlm['bias']) - padding,
  }
  head = sum(by_part[part] for part in ('MLM transform', 'output embedding', 'output bias'))
  total = sum(by_part.values())
  return ParameterCounts(pre_training=total, fine_tuning=total - head, by_part=by_part)
