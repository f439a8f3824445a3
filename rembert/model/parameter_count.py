"""Exact parameter counts of a configuration, from the shapes of the modules that train; nothing is allocated."""

import dataclasses
import math
from collections.abc import Collection, Mapping

from rembert.model.config import RemBertConfig
from rembert.model.heads import parameter_shapes

HEAD_PARTS = ('MLM transform', 'output embedding', 'output bias')


@dataclasses.dataclass(frozen=True)
class ParameterCounts:
  """Numbers of parameters by part of the model, in the order of the computation, without padding of the vocabulary."""

  by_part: Mapping[str, int]  # in pre-training: encoder, pooler, and the MLM head with its transform and bias
  kept_by_part: Mapping[str, int]  # in fine-tuning, without a task's own head

  @property
  def pre_training(self) -> int:
    """The sum over all parts."""
    return sum(self.by_part.values())

  @property
  def fine_tuning(self) -> int:
    """The sum over all parts that fine-tuning keeps."""
    return sum(self.kept_by_part.values())

  def without(self, parts: Collection[str]) -> 'ParameterCounts':
    """The counts without some parts."""
    rest = lambda by_part: {part: count for part, count in by_part.items() if part not in parts}
    return ParameterCounts(by_part=rest(self.by_part), kept_by_part=rest(self.kept_by_part))


def _count_parts(config: RemBertConfig) -> dict[str, int]:
  shapes = parameter_shapes('mlm', config, add_pooler=True)
  size = lambda *prefixes: sum(math.prod(shape) for path, shape in shapes.items() if path.startswith(prefixes))
  padding, word = config.padded_vocab_size - config.vocab_size, size('encoder/embeddings/word')
  return {
    'word embedding': word - padding * config.input_embedding_size,
    'position and type embeddings': size('encoder/embeddings') - word,
    'embedding projection': size('encoder/projection'),
    'Transformer layers': size('encoder/layers'),
    'pooler': size('encoder/pooler'),
    'MLM transform': size('mlm/transform', 'mlm/norm'),
    'output embedding': 0 if config.tie_word_embeddings else config.vocab_size * config.output_embedding_size,
    'output bias': size('mlm/bias') - padding,
  }


def count_parameters(config: RemBertConfig, *, kept_layers: int | None = None) -> ParameterCounts:
  """Parameter counts of a model; fine-tuning keeps its bottom `kept_layers` (all if None, or too many)."""
  by_part = _count_parts(config)
  kept_by_part = {part: count for part, count in by_part.items() if part not in HEAD_PARTS}
  if kept_layers is not None and kept_layers < config.num_hidden_layers:
    kept_by_part['Transformer layers'] = by_part['Transformer layers'] // config.num_hidden_layers * kept_layers
  return ParameterCounts(by_part=by_part, kept_by_part=kept_by_part)
