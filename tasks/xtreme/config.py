"""What a fine-tuning or an evaluation on XTREME is told about its task."""

import dataclasses
from typing import Annotated

from rembert.errors import UsageError
from rembert.validation import Count, CountOrZero, OneOf, check_fields

RETRIEVAL = ('tatoeba', 'bucc2018')  # nothing is learned for them
PAIRS = ('xnli', 'pawsx')  # one label for a row
TASKS = (*PAIRS, 'panx', 'udpos', 'squad', 'xquad', 'mlqa', 'tydiqa', *RETRIEVAL)


@dataclasses.dataclass(frozen=True)
class XtremeConfig:
  """Task, data, and how texts become rows. The defaults are XTREME's.

  Attributes:
    task: what is learned, or, where nothing is learned, judged: one of `TASKS`.
    evaluate_on: tasks that a trained model is judged on; empty for the task itself. SQuAD is judged on XQuAD and MLQA.
    data_dir: root of the data, with a folder for each task, in XTREME's `download/` layout.
    labels_dir: gold labels of test files that come without; None is `labels/` under `data_dir`.
    train_language: the language that is learned in.
    languages: languages to be judged in; None is all of the task that have data.
    split: which files are judged: `test`, or `dev`.
    doc_stride: pieces from the beginning of a window over a long context to the beginning of the next (QA).
    max_query_length: pieces that are kept of a question (QA).
    n_best: spans that are looked at for an answer (QA).
    max_answer_length: pieces in an answer at most (QA).
    layer: whose mean is a sentence's embedding (retrieval); None is XTREME's choice, 7 of 12 layers, 13 of 24, and in
      like proportion elsewhere.
  """

  task: str = 'xnli'
  evaluate_on: tuple[str, ...] = ()
  data_dir: str | None = None
  labels_dir: str | None = None
  train_language: str = 'en'
  languages: tuple[str, ...] | None = None
  split: Annotated[str, OneOf(('test', 'dev'))] = 'test'
  doc_stride: Count = 128
  max_query_length: Count = 64
  n_best: Count = 20
  max_answer_length: Count = 30
  layer: CountOrZero | None = None

  @property
  def judged(self) -> tuple[str, ...]:
    """Tasks that are judged."""
    return self.evaluate_on or (self.task,)

  def __post_init__(self):
    check_fields(self, 'xtreme')
    for name in (self.task, *self.evaluate_on):
      if name not in TASKS:
        raise UsageError(
          f'unknown task {name!r}', where='xtreme.task, xtreme.evaluate_on', fix=f'one of {", ".join(TASKS)}'
        )
