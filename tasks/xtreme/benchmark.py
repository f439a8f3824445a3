"""The tasks of XTREME that are learned: languages, labels, files, and what the benchmark adds to their SeqIO tasks.

`tasks.xtreme.registry` makes the SeqIO tasks. The two retrieval tasks, for which nothing is learned, are in
`tatoeba.py` and `bucc2018.py`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rembert.errors import UsageError
from tasks.xtreme import pairs, question_answering, words
from tasks.xtreme.config import RETRIEVAL
from tasks.xtreme.layout import MissingFileError, MissingLabelsError, XtremeFolder


class Absent(NamedTuple):
  """Why a task does not have a split, and what to do."""

  what: str
  fix: str


@dataclasses.dataclass(frozen=True)
class XtremeTask:
  """A task of XTREME.

  Functions take `targets`, the rows of a split and language as dicts of features with the number of their `example`,
  and predictions by that number; see the modules that they come from.

  Attributes:
    name: also the folder of its data.
    head: of the model.
    languages: in which XTREME evaluates it.
    labels: of the head, by index; () for `qa`.
    scores: names of the scores; checkpoints are chosen by the first.
    suffix: of its files of predictions and gold labels.
    files: path of each split under the root of the data, with `{language}`.
    read: (path, labels, split=, gold_file=, needs_labels=) → examples.
    columns: (examples, labels) → columns of the SeqIO source, one value or one list for each example.
    predict: (targets, logits of each row, labels, config) → predictions.
    score: (targets, predictions, labels, language) → scores as XTREME's `evaluate.py` defines them, 0 to 100.
    baseline: (training examples, targets, labels) → predictions from the frequencies of labels alone.
    file_text: (predictions, targets, number of examples) → the file of predictions that `evaluate.py` expects.
    absent: the splits that the task does not have.
    trained_on: the task whose English training examples are its own; None if it has a training set.
  """

  name: str
  head: str
  languages: tuple[str, ...]
  labels: tuple[str, ...]
  scores: tuple[str, ...]
  suffix: str
  files: Mapping[str, str]
  read: Callable[..., list[Any]]
  columns: Callable[[Sequence[Any], Sequence[str]], dict[str, Any]]
  predict: Callable[..., dict[int, Any]]
  score: Callable[..., dict[str, float]]
  baseline: Callable[..., dict[int, Any]]
  file_text: Callable[..., str]
  absent: Mapping[str, Absent] = dataclasses.field(default_factory=dict)
  trained_on: str | None = None

  def file(self, split: str, language: str) -> list[str]:
    """Parts of the path of a file under the root of the data.

    Raises:
      UsageError: the task does not have that split or language.
    """
    if split not in self.files:
      raise UsageError(self.absent[split].what, where=f'xtreme.split, task {self.name}', fix=self.absent[split].fix)
    if language not in self.languages:
      raise UsageError(
        f'{self.name} is not in {language!r}',
        where='xtreme.languages, xtreme.train_language',
        fix=f'one of {", ".join(self.languages)}',
      )
    return self.files[split].format(language=language).split('/')

  def examples(self, folder: XtremeFolder, split: str, language: str, *, needs_labels: bool | None) -> list[Any]:
    """Reads a split of a language.

    Args:
      folder: of the data.
      split: `train`, `dev` or `test`.
      language: XTREME's code.
      needs_labels: whether it is an error if there are no gold labels; None reads those that there are.

    Raises:
      UsageError: no such file, an entry that is not as it should be (with file and line), or no labels where they are
        needed.
    """
    if needs_labels is None:
      try:
        return self.examples(folder, split, language, needs_labels=True)
      except MissingLabelsError:
        return self.examples(folder, split, language, needs_labels=False)
    path = folder.file(*self.file(split, language))
    gold_file = folder.labels_file(self.name, language, self.suffix)
    return self.read(path, self.labels, split=split, gold_file=gold_file, needs_labels=needs_labels)

  def has_data(self, folder: XtremeFolder, split: str, languages: Sequence[str] | None = None) -> bool:
    """Whether there are files of a split in any of the languages, by default in any of the task's, that can be read."""
    for language in languages or self.languages:
      try:
        return bool(self.examples(folder, split, language, needs_labels=False))
      except MissingFileError:
        continue
    return False


def get_task(name: str) -> XtremeTask:
  """The task of that name.

  Raises:
    UsageError: another name, or a retrieval task: nothing is learned for those, so they have no labels and no head.
  """
  if name in RETRIEVAL:
    raise UsageError(
      f'{name} is retrieval: nothing is learned for it, it is judged by the embeddings of a trained model',
      where=f'task {name!r}',
      fix=f'to learn something: one of {", ".join(TASKS)}',
    )
  if name not in TASKS:
    raise UsageError(f'unknown task {name!r}', where='xtreme.task', fix=f'one of {", ".join(TASKS)}')
  return TASKS[name]


# --- the table --------------------------------------------------------------------------------------------------------


def _pairs(name: str, languages: str, labels: str) -> XtremeTask:
  return XtremeTask(
    name=name,
    head='classification',
    languages=tuple(languages.split()),
    labels=tuple(labels.split()),
    scores=('accuracy',),
    suffix='tsv',
    files=_three_splits(name),
    read=pairs.read_pairs,
    columns=pairs.pair_columns,
    predict=pairs.predict_labels,
    score=pairs.score_labels,
    baseline=pairs.majority_labels,
    file_text=pairs.labels_text,
  )


def _words(name: str, languages: str, labels: str) -> XtremeTask:
  return XtremeTask(
    name=name,
    head='tagging',
    languages=tuple(languages.split()),
    labels=tuple(labels.split()),
    scores=('f1', 'precision', 'recall'),
    suffix='tsv',
    files=_three_splits(name),
    read=words.read_sentences,
    columns=words.sentence_columns,
    predict=words.predict_tags,
    score=words.score_tags,
    baseline=words.majority_tags,
    file_text=words.tags_text,
  )


def _three_splits(name: str) -> dict[str, str]:
  return {split: f'{name}/{split}-{{language}}.tsv' for split in ('train', 'dev', 'test')}


def _questions(name: str, languages: str, files: Mapping[str, str], **more) -> XtremeTask:
  return XtremeTask(
    name=name,
    head='qa',
    languages=tuple(languages.split()),
    labels=(),
    scores=('f1', 'exact_match'),
    suffix='json',
    files=files,
    read=question_answering.read_questions_of,
    columns=question_answering.question_columns,
    predict=question_answering.predict_answers,
    baseline=question_answering.first_words,
    file_text=question_answering.answers_text,
    **({'score': question_answering.score_answers} | more),
  )


_FROM_SQUAD = "XQuAD has a test set only: learn from SQuAD and choose by its dev set, --gin.xtreme.task='squad'"

TASKS: dict[str, XtremeTask] = {
  task.name: task
  for task in (
    # Conneau et al. 2018: does the second sentence follow from the first, contradict it, or neither? Trained on
    # MultiNLI. Labels are in the order of XTREME's processor.
    _pairs('xnli', 'ar bg de el en es fr hi ru sw th tr ur vi zh', 'contradiction entailment neutral'),
    # Yang et al. 2019: do two sentences of mostly the same words have the same meaning, 1, or not, 0?
    _pairs('pawsx', 'de en es fr ja ko zh', '0 1'),
    # Also WikiAnn (Pan et al. 2017): names of places, organisations and persons in sentences of Wikipedia.
    _words(
      'panx',
      'ar he vi id jv ms tl eu ml ta te af nl en de el bn hi mr ur fa fr it pt es bg ru ja ka ko th sw yo my zh kk tr '
      'et fi hu',
      'B-LOC B-ORG B-PER I-LOC I-ORG I-PER O',
    ),
    # Parts of speech in the treebanks of Universal Dependencies 2.5. The tags are the seventeen of Universal
    # Dependencies and no others: XTREME's converter drops the lines of empty nodes and gives a fused word (`im`, `du`)
    # the tag of one of its parts, so that no `_` is left. XTREME's own model has one label more, an `O` that its
    # reader adds to every list of tags and that no word has.
    _words(
      'udpos',
      'af ar bg de el en es et eu fa fi fr he hi hu id it ja kk ko mr nl pt ru ta te th tl tr ur vi yo zh',
      'ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X',
    ),
    # SQuAD v1.1 (Rajpurkar et al. 2016): XQuAD and MLQA are learned from it, and, in English, chosen by.
    _questions(
      'squad',
      'en',
      {'train': 'squad/train-v1.1.json', 'dev': 'squad/dev-v1.1.json'},
      absent={
        'test': Absent(
          "SQuAD's test set is not public", "--gin.xtreme.evaluate_on=('xquad', 'mlqa'), or --gin.xtreme.split='dev'"
        )
      },
    ),
    # Artetxe et al. 2020: 1,190 questions of SQuAD's dev set, translated by people into ten languages.
    _questions(
      'xquad',
      'en es de el ru tr ar vi th zh hi',
      {'test': 'xquad/xquad.{language}.json'},
      absent={
        'train': Absent('XQuAD has no training set', _FROM_SQUAD),
        'dev': Absent('XQuAD has no development set', _FROM_SQUAD),
      },
      trained_on='squad',
    ),
    # Lewis et al. 2020: questions on texts of seven Wikipedias, 4,517 to 11,590 a language. XTREME evaluates question
    # and text of one language, seven of the 49 pairs, on the test files. The dev files keep their answers in XTREME's
    # download; nothing in XTREME reads them.
    _questions(
      'mlqa',
      'en es de ar hi vi zh',
      {
        'test': 'mlqa/MLQA_V1/test/test-context-{language}-question-{language}.json',
        'dev': 'mlqa/MLQA_V1/dev/dev-context-{language}-question-{language}.json',
      },
      absent={'train': Absent('MLQA has no training set', "learn from SQuAD, --gin.xtreme.task='squad'")},
      trained_on='squad',
      score=question_answering.score_mlqa,
    ),
    # TyDiQA-GoldP (Clark et al. 2020): learned in English from 3,696 questions, evaluated in nine languages. XTREME
    # evaluates on its development files (the benchmark's own test set is not public), so there is nothing left to
    # choose by. XTREME's preprocessing writes a training file of each language; its recipe reads the English one.
    _questions(
      'tydiqa',
      'en ar bn fi id ko ru sw te',
      {
        'train': 'tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.{language}.train.json',
        'test': 'tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{language}.dev.json',
      },
      absent={
        'dev': Absent(
          "TyDiQA has no development set beside what is judged: XTREME's test files are its dev files",
          "--gin.xtreme.split='test'; take the last checkpoint, or choose by SQuAD's dev set",
        )
      },
    ),
  )
}
