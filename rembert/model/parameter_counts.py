"""Parameters of a configuration, to the digit, without allocating one; and as the paper counts them (section A.1)."""

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping

import jax
from flax import nnx

from rembert import paper
from rembert.errors import UsageError
from rembert.model.config import RemBertConfig
from rembert.model.heads import RemBertForMaskedLM

HEAD_PARTS = ('MLM transform', 'output embedding', 'output bias')

# Which parts the paper's figures leave out, by rule. Found by fitting its tables: it states no rule but that the head
# does not count in fine-tuning (A.1).
COUNTING_RULES = {
  'everything': (),  # Table 7
  'ablation': ('pooler', 'MLM transform', 'output bias'),  # Tables 2 to 6, 12 and 13
}


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


@dataclasses.dataclass(frozen=True)
class PaperFigures:
  """Which row of the paper a configuration stands for, whose figures are shown beside exact counts.

  It says nothing to the model.

  Attributes:
    table: the number of the row's table; None for a model that is not the paper's.
    row: the row's name in `rembert.paper`, the stem of the model's file.
    scale: of which sizes the model is (gin/scales). Figures are printed for `full` alone.
    kept_layers: how many layers, from the bottom, fine-tuning keeps (Tables 5 and 13); None for all.
    counting: by which of `COUNTING_RULES` the paper counted.
  """

  table: int | None = None
  row: str = ''
  scale: str = 'full'
  kept_layers: int | None = None
  counting: str = 'everything'

  def __post_init__(self):
    kept = self.kept_layers
    if kept is not None and (isinstance(kept, bool) or not isinstance(kept, int) or kept < 1):
      raise UsageError('kept_layers must be a whole number ≥ 1, or None', where=f'paper.kept_layers = {kept!r}')
    if not isinstance(self.scale, str) or not self.scale:
      raise UsageError('a scale has a name', where=f'paper.scale = {self.scale!r}', fix="'full', or that of your own")
    if self.counting not in COUNTING_RULES:
      raise UsageError(
        f'unknown rule {self.counting!r}', where='paper.counting', fix=f'one of {", ".join(COUNTING_RULES)}'
      )
    if self.table is not None:
      paper.row(self.table, self.row)

  @property
  def printed(self) -> paper.PaperRow | None:
    """What the paper prints of the row; None for a model that is not the paper's."""
    return None if self.table is None else paper.row(self.table, self.row)

  @property
  def millions(self) -> tuple[int | None, int | None]:
    """Parameters in pre-training and in fine-tuning as printed; None where they are not, or are of another scale."""
    printed = self.printed
    if printed is None or self.scale != 'full':
      return None, None
    return printed.pre_training_millions, printed.fine_tuning_millions

  def deviations(self, counts: ParameterCounts) -> tuple[float | None, float | None]:
    """By how much counts in pre-training and in fine-tuning exceed what is printed, as a share of it."""
    return tuple(
      None if millions is None else count / (millions * 1_000_000) - 1
      for count, millions in zip((counts.pre_training, counts.fine_tuning), self.millions, strict=True)
    )


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


def count_as_the_paper(config: RemBertConfig, figures: PaperFigures) -> ParameterCounts:
  """Counts by the rule of the paper's row."""
  return count_parameters(config, kept_layers=figures.kept_layers).without(COUNTING_RULES[figures.counting])
