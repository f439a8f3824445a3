"""What fine-tuning and judging are told beside what training is told in any case."""

import dataclasses
import math

from rembert.errors import UsageError

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
  head: str | None = None
  epochs: float | None = 3
  warmup_share: float | None = 0.1
  evaluations_per_epoch: float | None = 2
  max_examples: int | None = None
  max_dev_examples: int | None = None
  select: str = 'best'
  judge_batch_size: int = 64

  def __post_init__(self):
    if (self.mixture is None) != (self.head is None):
      raise UsageError(
        'a mixture needs a head, and a head a mixture: that of an XTREME task is fixed',
        where=f'finetune.mixture = {self.mixture!r}, finetune.head = {self.head!r}',
        fix='--gin.finetune.mixture=NAME --gin.finetune.head=classification, or neither',
      )
    if self.head not in (None, *HEADS):
      raise UsageError(f'unknown head {self.head!r}', where='finetune.head', fix=f'one of {", ".join(HEADS)}')
    for name in ('epochs', 'evaluations_per_epoch'):
      value = getattr(self, name)
      if value is not None and not 0 < value < math.inf:
        raise UsageError(f'{name} must be above 0', where=f'finetune.{name} = {value!r}', fix='a number, or None')
    for name in ('max_examples', 'max_dev_examples'):
      value = getattr(self, name)
      if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UsageError(
          f'{name} must be a whole number ≥ 1', where=f'finetune.{name} = {value!r}', fix='a number, or None for all'
        )
    if self.warmup_share is not None and not 0 <= self.warmup_share < 1:
      raise UsageError('a share lies in [0, 1)', where=f'finetune.warmup_share = {self.warmup_share!r}', fix='0.1')
    if self.select not in ('best', 'last'):
      raise UsageError(f'which are the {self.select!r}?', where='finetune.select', fix="'best' or 'last'")
    if self.judge_batch_size < 1:
      raise UsageError('a batch has rows', where=f'finetune.judge_batch_size = {self.judge_batch_size}', fix='64')


@dataclasses.dataclass(frozen=True)
class JudgeConfig:
  """What `--mode=evaluate` looks at.

  Attributes:
    model: a workdir, a checkpoint or a folder of Hugging Face.
  """

  model: str | None = None
