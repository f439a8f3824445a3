"""XTREME (Hu et al. 2020): nine tasks, fine-tuned in English, evaluated in forty languages.

`benchmark.json` lists the tasks; `XtremeConfig`, `xtreme.*` in a gin file, is what a run sets of them. The root of the
data is a folder in the layout that XTREME's own download script leaves, see `files.py`.
"""

import dataclasses
import json
import pathlib
from typing import Annotated, Any

from rembert.errors import UsageError
from rembert.validation import Count, CountOrZero, OneOf, check_fields

# Kind, languages, labels and files of each task.
BENCHMARK: dict[str, dict[str, Any]] = json.loads(pathlib.Path(__file__).with_name('benchmark.json').read_text('utf-8'))
TASKS = tuple(BENCHMARK)
RETRIEVAL = tuple(name for name, entry in BENCHMARK.items() if entry['kind'] == 'retrieval')  # without training
PAIRS = tuple(name for name, entry in BENCHMARK.items() if entry['kind'] == 'pairs')  # one label per example
# Languages that XTREME evaluates each task in (`TASK2LANGS` of its evaluate.py), retrieval included.
LANGUAGES: dict[str, tuple[str, ...]] = {name: tuple(entry['languages'].split()) for name, entry in BENCHMARK.items()}
# Paths of a split's files under the root of the data, with `{language}`.
FILES: dict[str, dict[str, list[str]]] = {
  name: {split: [files] if isinstance(files, str) else files for split, files in entry['files'].items()}
  for name, entry in BENCHMARK.items()
}


@dataclasses.dataclass(frozen=True)
class XtremeConfig:
  """Task, data, and how texts become rows. The defaults are XTREME's.

  Attributes:
    task: the task to fine-tune on, or, without training, to evaluate: one of `TASKS`.
    evaluate_on: tasks that a fine-tuned model is evaluated on; empty for the task itself. SQuAD is evaluated on XQuAD
      and MLQA.
    data_dir: root of the data, with a folder for each task, in XTREME's `download/` layout.
    labels_dir: gold labels of test files that come without; None is `labels/` under `data_dir`.
    train_language: language of the training examples.
    languages: languages to evaluate; None is all of the task that have data.
    split: which files are evaluated: `test`, or `dev`.
    doc_stride: tokens from the beginning of a window over a long context to the beginning of the next (QA).
    max_query_length: tokens that are kept of a question (QA).
    n_best: spans that are considered for an answer (QA).
    max_answer_length: tokens in an answer at most (QA).
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
  def evaluated(self) -> tuple[str, ...]:
    """Tasks that are evaluated."""
    return self.evaluate_on or (self.task,)

  def __post_init__(self):
    check_fields(self, 'xtreme')
    for name in (self.task, *self.evaluate_on):
      if name not in TASKS:
        raise UsageError(
          f'unknown task {name!r}', where='xtreme.task, xtreme.evaluate_on', fix=f'one of {", ".join(TASKS)}'
        )
