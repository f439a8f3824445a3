"""Parameters of a configuration, to the digit, without allocating one."""

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping

import jax
from flax import nnx

from rembert.model.config import RemBertConfig
from rembert.model.heads import RemBertForMaskedLM

HEAD_PARTS = ('MLM transform', 'output embedding', 'output bias')


@dataclasses.dataclass(frozen=True)
class ParameterCounts:
  """Numbers of parameters by part of the model, in the order of the computation; padding rows do not count.

  Attributes:
    by_part: in pre-training: encoder, pooler, and the MLM head with its transform, LayerNorm and bias.
    kept_by_part: what fine-tuning keeps of it, before a task's own head.
  """

  by_part: Mapping[str, int]
  kept_by_part: Mapping[str, int]

  @property
  def pre_training(self) -> int:
    """All parts together."""
    return sum(self.by_part.values())

  @property
  def fine_tuning(self) -> int:
    """All parts together that are kept."""
    return sum(self.kept_by_part.values())

  def without(self, parts: Collection[str]) -> 'ParameterCounts':
    """The counts with some parts left out."""
    rest = lambda by_part: {part: count for part, count in by_part.items() if part not in parts}
    return ParameterCounts(by_part=rest(self.by_part), kept_by_part=rest(self.kept_by_part))


def abstract_parameters(config: RemBertConfig, *, add_pooler: bool) -> dict:
  """The parameter tree of pre-training as `jax.ShapeDtypeStruct`s; traces the real modules, allocates nothing."""
  model = nnx.eval_shape(lambda: RemBertForMaskedLM(config, add_pooler=add_pooler, rngs=nnx.Rngs(0)))
  return nnx.to_pure_dict(nnx.state(model, nnx.Param))


@functools.cache  # traces the modules; a run asks several times
def _count_parts(config: RemBertConfig) -> Mapping[str, int]:
  parameters = abstract_parameters(config, add_pooler=True)
  padding = config.padded_vocab_size - config.vocab_size
  size = lambda tree: sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))
  encoder, mlm = parameters['encoder'], parameters['mlm']
  return {
    'word embedding': size(encoder['embeddings']['word']) - padding * config.input_embedding_size,
    'position and type embeddings': size(encoder['embeddings']) - size(encoder['embeddings']['word']),
    'embedding projection': size(encoder.get('projection', {})),
    'Transformer layers': size(encoder['layers']),
    'pooler': size(encoder['pooler']),
    'MLM transform': size(mlm['transform']) + size(mlm['norm']),
    'output embedding': 0 if config.tie_word_embeddings else config.vocab_size * config.output_embedding_size,
    'output bias': size(mlm['bias']) - padding,
  }


def count_parameters(config: RemBertConfig, *, kept_layers: int | None = None) -> ParameterCounts:
  """Counts from the shapes of the very modules that train.

  Args:
    config: the model that is pre-trained.
    kept_layers: how many of its layers, from the bottom, are fine-tuned; None, or more than there are, for all.
  """
  by_part = _count_parts(config)
  kept_by_part = {part: count for part, count in by_part.items() if part not in HEAD_PARTS}
  if kept_layers is not None and kept_layers < config.num_hidden_layers:
    kept_by_part['Transformer layers'] = by_part['Transformer layers'] // config.num_hidden_layers * kept_layers
  return ParameterCounts(by_part=by_part, kept_by_part=kept_by_part)
