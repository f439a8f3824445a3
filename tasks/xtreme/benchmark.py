"""XTREME's tasks with training examples, from `benchmark.json`; `tasks.xtreme.retrieval` has the other two."""

import collections
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rembert.errors import UsageError
from tasks.metrics.question_answering import mlqa
from tasks.tables import HEAD_OF_KIND, DatasetConfig
from tasks.tables.files import Example, read_questions
from tasks.tables.kinds import KINDS, Kind, Targets
from tasks.xtreme import BENCHMARK, LANGUAGES, XtremeConfig, files
from tasks.xtreme.files import MissingFileError, XtremeFolder


@dataclasses.dataclass(frozen=True)
class XtremeTask:
  """A task of XTREME.

  Methods take `targets`, the rows of a split and language as dicts of features with the number of their `example`, and
  predictions by that number.
  """

  name: str  # also the folder of its data
  kind_name: str  # of `tasks.tables.kinds`, by which examples become rows, and logits predictions and scores
  scores: tuple[str, ...]  # names of XTREME's scores, in their order; checkpoints are chosen by the first
  suffix: str  # of files of predictions and gold labels
  read: Callable[[epath.Path, Sequence[str]], list[Example]]  # reads a file, see `tasks.xtreme.files`
  label: Callable[[Sequence[Example], epath.Path, Sequence[str]], list[Example]]  # reads gold labels of a test file
  languages: tuple[str, ...]  # in which XTREME evaluates it
  labels: tuple[str, ...]  # of the head, by index; () for `qa`
  files: Mapping[str, str]  # path of each split under the root of the data, with `{language}`
  absent: Mapping[str, tuple[str, str]]  # why the task does not have a split, and what to do
  trained_on: str | None  # the task whose English training examples are its own; None if it has a training set

  @property
  def head(self) -> str:
    """Of the model."""
    return HEAD_OF_KIND[self.kind_name]

  def kind(self, config: XtremeConfig | None = None) -> Kind:
    """What makes rows of its examples, and predictions of logits; `config` has the limits of answers."""
    return KINDS[self.kind_name](DatasetConfig(), self.labels, config)

  # --- reading -----------------------------------------------------------------

  def file(self, split: str, language: str) -> str:
    """Path of a file under the root of the data; UsageError if the task does not have that split or language."""
    if split not in self.files:
      what, fix = self.absent[split]
      raise UsageError(what, where=f'xtreme.split, task {self.name}', fix=fix)
    if language not in self.languages:
      where, fix = 'xtreme.languages, xtreme.train_language', f'one of {", ".join(self.languages)}'
      raise UsageError(f'{self.name} is not in {language!r}', where=where, fix=fix)
    return self.files[split].format(language=language)

  def examples(self, folder: XtremeFolder, split: str, language: str, *, needs_labels: bool) -> list[Example]:
    """Reads a split of a language, with its gold labels if there are any.

    UsageError for a missing file, a wrong entry (with file and line), or no labels where they are needed.
    """
    path, gold_file = folder.file(self.file(split, language)), folder.labels_file(self.name, language, self.suffix)
    examples = self.read(path, self.labels)
    if examples[0].label is None and split == 'test' and gold_file.is_file():
      examples = self.label(examples, gold_file, self.labels)
    if examples[0].label is None and needs_labels:
      fix = [f'put them into {gold_file}', "or take the dev split: --gin.xtreme.split='dev'"]
      raise UsageError('there are no gold labels', where=str(path), fix=fix if split == 'test' else files.FETCH)
    return examples

  def count(self, folder: XtremeFolder, split: str, language: str) -> tuple[int, int | None]:
    """Examples of a file, and gold labels of a test file, None if there are none; raises as `examples`."""
    examples = self.examples(folder, split, language, needs_labels=split != 'test')
    return len(examples), len(examples) if split == 'test' and examples[0].label is not None else None

  def has_data(self, folder: XtremeFolder, split: str, languages: Sequence[str] | None = None) -> bool:
    """Whether there are files of a split in any of the languages, by default in any of the task's, that can be read."""
    for language in languages or self.languages:
      try:
        return bool(self.examples(folder, split, language, needs_labels=False))
      except MissingFileError:
        continue
    return False

  # --- predictions and scores --------------------------------------------------

  def predict(self, targets: Targets, scores: Sequence[np.ndarray], config: XtremeConfig) -> dict[int, Any]:
    """Predictions from the logits of each row: a label, the tags of a sentence that has words, or an answer."""
    found = self.kind(config).predict(targets, scores)
    return {example: prediction['prediction'] for example, prediction in found.items()}

  def score(self, targets: Targets, predictions: Mapping[int, Any], language: str) -> dict[str, float]:
    """Scores as XTREME's `evaluate.py` defines them, 0 to 100; UsageError for an example without gold labels.

    MLQA has rules for each language; all other questions are scored by SQuAD's, with English articles.
    """
    kind = self.kind()
    try:
      by_example = kind.gold(targets)
    except UsageError as error:
      fix = 'put them into labels/TASK/test-LANGUAGE, see tasks.xtreme.files'
      raise UsageError('there is no score without gold labels', where=error.where, fix=fix) from None
    gold, predicted = [*by_example.values()], [predictions[example] for example in by_example]
    found = mlqa(gold, predicted, language) if self.name == 'mlqa' else kind.score(gold, predicted, 'en')
    return {name: found[name] for name in self.scores}

  def baseline(self, train: Sequence[Example], targets: Targets) -> dict[int, Any]:
    """Predictions from the labels of training examples alone, see `tasks.tables.kinds`."""
    kind, counts = self.kind(), collections.Counter[str]()
    for example in train:
      counts.update(kind.counts(example.label))
    return kind.baseline(counts, len(train), targets)

  def file_text(self, predictions: Mapping[int, Any], targets: Targets, count: int) -> str:
    """The file of predictions for `count` examples that `evaluate.py` expects, in their order.

    A label a line; a tag a line and a blank line between sentences; or one JSON object, `{id: answer}`.
    """
    if self.head == 'classification':
      return ''.join(f'{predictions[example]}\n' for example in range(count))
    if self.head == 'tagging':
      blocks = [''.join(f'{tag}\n' for tag in predictions.get(example, ())) for example in range(count)]
      # A last sentence of no words is there only by the blank line behind it.
      return '\n'.join(blocks) + ('\n' if blocks[-1:] == [''] else '')
    ids = {int(target['example']): target['id'].decode() for target in targets}
    answers = {ids[example]: predictions[example] for example in range(count)}
    if len(answers) < count:
      what = 'questions with the same id cannot be told apart in a file of predictions'
      raise UsageError(what, where=targets[0]['where'].decode(), fix='ids of their own')
    return json.dumps(answers, ensure_ascii=False, indent=1) + '\n'


# By the kind of `benchmark.json`: `kind_name`, `scores`, `suffix`, `read` and `label`.
_KINDS = {
  'pairs': ('pair_classification', ('accuracy',), 'tsv', files.read_pairs, files.label_pairs),
  'tagging': ('tagging', ('f1', 'precision', 'recall'), 'tsv', files.read_sentences, files.label_sentences),
  'questions': (
    'question_answering',
    ('f1', 'exact_match'),
    'json',
    lambda path, labels: read_questions(path),
    files.label_questions,
  ),
}
TASKS: dict[str, XtremeTask] = {
  name: XtremeTask(
    name,
    *_KINDS[entry['kind']],
    languages=LANGUAGES[name],
    labels=tuple(entry.get('labels', '').split()),
    files=entry['files'],
    absent=entry.get('absent', {}),
    trained_on=entry.get('trained_on'),
  )
  for name, entry in BENCHMARK.items()
  if entry['kind'] in _KINDS
}


def get_task(name: str) -> XtremeTask:
  """The task of that name; UsageError for another name, and for a retrieval task, which has no head."""
  if name in TASKS:
    return TASKS[name]
  what = f'unknown task {name!r}'
  if name in LANGUAGES:
    what = f'{name} is retrieval: it has no training, the embeddings of a trained model are evaluated'
  raise UsageError(what, where='xtreme.task', fix=f'for fine-tuning: one of {", ".join(TASKS)}')
