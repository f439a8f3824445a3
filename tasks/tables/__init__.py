"""Tables of one's own: files with a column of text, to rows with labels and to SeqIO tasks.

`DatasetConfig`, `dataset.*` in a gin file, has the files of a run and what their columns are called.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated

from rembert.errors import UsageError
from rembert.validation import OneOf, check_fields

# Kind to the model's head.
HEAD_OF_KIND = {
  'classification': 'classification',
  'pair_classification': 'classification',
  'regression': 'regression',
  'tagging': 'tagging',
  'question_answering': 'qa',
  'multiple_choice': 'multiple_choice',
}
SPLITS = ('train', 'dev', 'test')

Files = str | Mapping[str, str] | None


@dataclasses.dataclass(frozen=True)
class DatasetConfig:
  """Tables of one's own. A split is a file (CSV, TSV, JSONL, Parquet; `tasks.tables.kinds`), or a file by language.

  Attributes:
    kind: `classification`, `pair_classification`, `regression`, `tagging`, `question_answering` or `multiple_choice`;
      None for XTREME, or a mixture.
    train: files to train on.
    dev: files by which the checkpoint is chosen.
    test: files that are evaluated; without labels, predictions are written and not scored.
    name: of the results, and of the SeqIO mixture.
    language: of files that are given without one.
    text: column of the text. In CoNLL columns, the number of the words' column, from 1; otherwise the first.
    second_text: column of the second text of a pair; of multiple choice, of the beginning that all choices share.
    label: column of the label, number or tags. In CoNLL columns, the number of the tags' column; otherwise the last.
    question: column of the question; `context` and `answers` are those of the text and of the answers in it.
    context: see `question`.
    answers: see `question`.
    choices: columns of the choices, or one column of lists.
  """

  kind: Annotated[str, OneOf(tuple(HEAD_OF_KIND))] | None = None
  train: Files = None
  dev: Files = None
  test: Files = None
  name: str = 'own'
  language: str = 'all'
  text: str = 'text'
  second_text: str | None = None
  label: str | None = 'label'
  question: str = 'question'
  context: str = 'context'
  answers: str = 'answers'
  choices: tuple[str, ...] = ('choices',)

  def __post_init__(self):
    check_fields(self, 'dataset')
    given = [split for split in SPLITS if self.files(split)]
    if (self.kind is None) == bool(given):
      raise UsageError(
        'files of tables need a kind, and a kind needs files',
        where=f'dataset.kind = {self.kind!r}, dataset.{", dataset.".join(given or SPLITS)}',
        fix=[f'--gin.dataset.kind={"|".join(HEAD_OF_KIND)}', '--gin.dataset.train=FILE --gin.dataset.dev=FILE'],
      )
    if self.kind == 'pair_classification' and self.second_text is None:
      raise UsageError('a pair has two texts', where='dataset.second_text', fix='--gin.dataset.second_text=COLUMN')

  @property
  def head(self) -> str:
    """Of the model."""
    assert self.kind is not None
    return HEAD_OF_KIND[self.kind]

  def files(self, split: str) -> dict[str, str]:
    """The files of a split by language; UsageError if they are neither a file nor files by language."""
    files = getattr(self, split)
    files = {self.language: files} if isinstance(files, str) else dict(files or {})
    if not all(isinstance(part, str) and part for item in files.items() for part in item):
      raise UsageError(
        'neither a file nor files by language', where=f'dataset.{split}', fix="'dev.csv', or {'de': 'dev-de.csv'}"
      )
    return files
