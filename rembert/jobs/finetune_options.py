"""What fine-tuning and judging are told beside what training is told in any case."""

import dataclasses
from typing import Annotated

from rembert.errors import UsageError
from rembert.validation import Count, FractionBelowOne, OneOf, Positive, check_fields

HEADS = ('classification', 'tagging', 'qa')


@dataclasses.dataclass(frozen=True)
class FinetuneOptions:
  """How a task is learned, beside what `train` and `optimizer` say.

  Attributes:
    mixture: a registered SeqIO task or mixture to learn and to evaluate in place of `xtreme.task`; see `tasks.rows`.
      Rows are drawn at the mixture's rates.
    head: of the model for a mixture: `classification`, `tagging` or `qa`.
    epochs: times that every training example is seen, of a mixture on average; None takes `train.steps`.
    warmup_share: of the steps, for warming up (BERT's fine-tuning: 0.1); None takes `optimizer.warmup_steps`.
    evaluations_per_epoch: on the dev set in the training language; None takes `train.eval_every`.
    max_examples: to learn from, drawn once for all seeds and models; None for all. The paper learns from all.
    max_dev_examples: to choose parameters by, drawn in the same way; what is judged in the end is always whole.
    select: which parameters are judged in the end: the `best` by dev score, the first among equals, or the `last`.
    judge_batch_size: rows of a batch that is judged; the mesh must divide it.
  """

  mixture: str | None = None
  head: Annotated[str, OneOf(HEADS)] | None = None
  epochs: Positive | None = 3
  warmup_share: FractionBelowOne | None = 0.1
  evaluations_per_epoch: Positive | None = 2
  max_examples: Count | None = None
  max_dev_examples: Count | None = None
  select: Annotated[str, OneOf(('best', 'last'))] = 'best'
  judge_batch_size: Count = 64

  def __post_init__(self):
    check_fields(self, 'finetune')
    if (self.mixture is None) != (self.head is None):
      raise UsageError(
        'a mixture needs a head, and a head a mixture: that of an XTREME task is fixed',
        where=f'finetune.mixture = {self.mixture!r}, finetune.head = {self.head!r}',
        fix='--gin.finetune.mixture=NAME --gin.finetune.head=classification, or neither',
      )


@dataclasses.dataclass(frozen=True)
class JudgeConfig:
  """What `--mode=evaluate` looks at.

  Attributes:
    model: a workdir, a checkpoint or a folder of Hugging Face.
  """

  model: str | None = None

  def __post_init__(self):
    check_fields(self, 'evaluate')
