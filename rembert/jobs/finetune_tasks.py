"""The SeqIO tasks of a fine-tuning or evaluation job: XTREME's, or those of `finetune.mixture`."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rembert.data.finetune_batches import sample_examples
from rembert.errors import UsageError
from rembert.jobs.config import FinetuneConfig
from rembert.model.heads import FIXED_LABELS
from rembert.tracking.console import Console
from tasks.tables.kinds import Targets
from tasks.xtreme.benchmark import XtremeTask, get_task
from tasks.xtreme.files import MissingFileError, XtremeFolder


@dataclasses.dataclass(frozen=True)
class EvaluatedTask:
  """A split of a SeqIO task that is evaluated."""

  group: str  # of its results: XTREME's task, or the mixture
  name: str  # of its results in the group: XTREME's language, that of a table, or the SeqIO task
  seqio_name: str
  split: str
  examples: int | None = None  # None if their number is unknown before they are read
  suffix: str = 'jsonl'  # of the file of predictions
  # (targets) to the scores of predictions from the labels of training examples alone; None without these.
  baseline: Callable[[Targets], dict[str, float] | None] = lambda targets: None
  # (targets, logits) to the content of the file of predictions; None for a line of JSON per sequence.
  predictions_text: Callable[[Targets, Sequence[np.ndarray]], str] | None = None

  @property
  def predictions(self) -> str:
    """Path of the file of predictions in the workdir."""
    return f'predictions/{self.group}/{self.split}-{self.name}.{self.suffix}'


@dataclasses.dataclass(frozen=True)
class FinetuneTasks:
  """The data of a fine-tuning or evaluation job."""

  name: str  # XTREME's task, or the mixture
  head: str
  labels: tuple[str, ...]  # of the head, by index; () for heads without labels
  train: Mapping[str, float]  # SeqIO tasks that have a training split, and their rates
  dev: Mapping[str, str]  # SeqIO tasks for checkpoint selection, each with its split
  evaluated: tuple[EvaluatedTask, ...]
  skipped: Mapping[str, Mapping[str, str]]  # by group, the languages or tasks that are not evaluated, and why
  # Registers the tasks with the SentencePiece model of the run; UsageError if those of a mixture, which are registered
  # already, have another one.
  register: Callable[[epath.PathLike], None]
  vocabulary: Callable[[], str | None] = lambda: None  # the SentencePiece model of a mixture's tasks, if it is one
  description: str = ''  # labels of tables, in a line


def show_evaluated(console: Console, tasks: FinetuneTasks) -> None:
  """Prints the labels of tables, and by group the evaluated tasks and those without data."""
  if tasks.description:
    console.say(f'{tasks.name}: {tasks.description}')
  for group, missing in tasks.skipped.items():
    names = [
      task.name + (f' {task.examples:,}' if task.examples else '') for task in tasks.evaluated if task.group == group
    ]
    console.say(f'{group}: ' + ', '.join(names))
    if missing:
      console.say(f'{group}: no data for {", ".join(missing)}')


def open_tasks(
  config: FinetuneConfig, *, is_trained: bool = True, labels: Sequence[str] | None = None
) -> FinetuneTasks:
  """Opens the tasks of a configuration, with a training split if `is_trained`; reads the evaluation data.

  `labels` are those of a model that is evaluated on tables; by default those of the training file.

  Raises:
    UsageError: data are missing or malformed; SeqIO tasks are not registered, or lack required features.
  """
  if config.dataset.kind is not None:
    return _table_tasks(config, is_trained, labels)
  if config.finetune.mixture is not None:
    return _mixture_tasks(config, is_trained)
  return _xtreme_tasks(config, is_trained)


# --- XTREME -----------------------------------------------------------------------------------------------------------


def open_folder(config: FinetuneConfig) -> XtremeFolder:
  """Opens the directory of XTREME data."""
  return XtremeFolder(config.xtreme.data_dir, config.xtreme.labels_dir)


def training_examples(config: FinetuneConfig) -> Sequence[Any]:
  """XTREME's training examples, whose label frequencies are the baseline's; MissingFileError without their file."""
  xtreme = config.xtreme
  task = get_task(get_task(xtreme.task).trained_on or xtreme.task)
  return task.examples(open_folder(config), 'train', xtreme.train_language, needs_labels=True)


def _xtreme_tasks(config: FinetuneConfig, is_trained: bool) -> FinetuneTasks:
  xtreme, folder = config.xtreme, open_folder(config)
  task = get_task(xtreme.task if is_trained else xtreme.evaluated[0])
  seqio_name = lambda name, language: f'xtreme.{name}.{language}'

  @functools.cache
  def trained_on() -> Sequence[Any]:
    try:
      return sample_examples(training_examples(config), config.finetune.max_examples if is_trained else None)
    except MissingFileError:
      return ()  # there is no baseline

  def evaluated_task(task: XtremeTask, language: str, count: int) -> EvaluatedTask:
    def baseline(targets: Targets) -> dict[str, float] | None:
      return task.score(targets, task.baseline(trained_on(), targets), language) if trained_on() else None

    predictions_text = lambda targets, logits: task.file_text(task.predict(targets, logits, xtreme), targets, count)
    names = task.name, language, seqio_name(task.name, language)
    return EvaluatedTask(*names, xtreme.split, count, task.suffix, baseline, predictions_text)

  def register(vocabulary: epath.PathLike) -> None:
    from tasks.xtreme.registry import add_xtreme

    names = ('data_dir', 'labels_dir', 'doc_stride', 'max_query_length', 'n_best', 'max_answer_length')
    add_xtreme(vocabulary=vocabulary, **{name: getattr(xtreme, name) for name in names})

  evaluated, skipped = [], {}
  for name in xtreme.evaluated:
    if (get_task(name).head, get_task(name).labels) != (task.head, task.labels):
      raise UsageError(
        f'{task.name} and {name} differ in head or labels',
        where='xtreme.task, xtreme.evaluate_on',
        fix='run one at a time',
      )
    counts, skipped[name] = _languages_with_data(get_task(name), folder, xtreme.split, xtreme.languages)
    evaluated += [evaluated_task(get_task(name), language, count) for language, count in counts.items()]
  if not evaluated:
    raise UsageError(
      f'no {xtreme.split} file of {" or ".join(xtreme.evaluated)} found in any language',
      where=f'xtreme.data_dir = {folder.root}',
      fix='python -m tasks.xtreme.download --help',
    )
  trained = seqio_name(task.name, xtreme.train_language)
  has_dev = is_trained and config.finetune.select == 'best'
  if has_dev:
    task.examples(folder, 'dev', xtreme.train_language, needs_labels=True)
  return FinetuneTasks(
    name=task.name,
    head=task.head,
    labels=task.labels,
    train={trained: 1.0} if is_trained else {},
    dev={trained: 'dev'} if has_dev else {},
    evaluated=tuple(evaluated),
    skipped=skipped,
    register=register,
  )


def _languages_with_data(
  task: XtremeTask, folder: XtremeFolder, split: str, chosen: Sequence[str] | None
) -> tuple[dict[str, int], dict[str, str]]:
  """Numbers of examples by language, and why the others are skipped; UsageError without a chosen language."""
  if unknown := sorted(set(chosen or ()) - set(task.languages)):
    raise UsageError(
      f'{task.name} is not evaluated in {", ".join(unknown)}', where='xtreme.languages', fix=', '.join(task.languages)
    )
  found, missing = {}, {}
  for language in chosen or task.languages:
    try:
      found[language] = len(task.examples(folder, split, language, needs_labels=False))
    except MissingFileError as error:
      if chosen:
        raise
      missing[language] = f'{error.what}: {error.where}'
  return found, missing


# --- mixtures and tables ---------------------------------------------------------------------------------------------


def _mixture_tasks(config: FinetuneConfig, is_trained: bool) -> FinetuneTasks:
  from tasks.registration import find
  from tasks.rows import DEV_SPLITS, label_names, missing_parts, tasks_and_rates

  mixture, head, split = config.finetune.mixture, config.finetune.head, config.xtreme.split
  assert mixture is not None
  assert head is not None  # see `FinetuneOptions`
  if config.dataset.kind is not None and not config.dataset.test:
    split = 'dev'
  rates = tasks_and_rates(mixture)
  tasks = [task for task, _ in rates]

  def first_splits(names: Sequence[str]) -> dict[str, str]:
    """For each task with any of the splits, the first of these."""
    found = {task.name: [name for name in names if name in task.splits] for task in tasks}
    return {task: splits[0] for task, splits in found.items() if splits}

  evaluated_splits = DEV_SPLITS if split == 'dev' else (split,)
  has_dev = is_trained and config.finetune.select == 'best'
  train = {task.name: rate for task, rate in rates if is_trained and 'train' in task.splits and rate > 0}
  dev = first_splits(DEV_SPLITS) if has_dev else {}
  evaluated = first_splits(evaluated_splits)

  # --- report everything that is missing in one error --------------------------
  missing = [
    part for task in tasks for part in missing_parts(task, is_evaluated=task.name in {*dev, *evaluated}, head=head)
  ]
  missing += [
    f'{task.name} has none of the required splits, only {", ".join(task.splits)}'
    for task in tasks
    if task.name not in {*train, *dev, *evaluated} and task.splits  # a task without splits has no data, and is skipped
  ]
  if is_trained and not train:
    missing.append('no task has a train split')
  if has_dev and not dev:
    missing.append("no task has a dev or validation split, which finetune.select='best' requires")
  if not evaluated:
    missing.append(f'no task has a {" or ".join(evaluated_splits)} split (xtreme.split)')
  labels = [] if missing or head in FIXED_LABELS else list(dict.fromkeys(label_names(task) for task in tasks))
  if len(labels) > 1:
    missing.append('the labels of the tasks differ: ' + ' | '.join(', '.join(names) for names in labels))
  if missing:
    raise UsageError(
      'the mixture cannot be used for fine-tuning: ' + '; '.join(missing),
      where=f'finetune.mixture = {mixture!r}',
      fix='docs/guides/own_task.md lists what a task must have',
    )

  def vocabulary_of_tasks() -> str | None:
    vocabulary = find(next(iter(evaluated))).output_features['input_ids'].vocabulary
    return getattr(vocabulary, 'sentencepiece_model_file', None)

  def check_vocabulary(vocabulary: epath.PathLike) -> None:
    own = vocabulary_of_tasks()
    if own and epath.Path(own).read_bytes() != epath.Path(vocabulary).read_bytes():
      raise UsageError(
        "the tasks' vocabulary differs from the model's",
        where=f'finetune.mixture = {mixture!r}: {own}; {vocabulary}',
        fix=f'register the tasks with the vocabulary of the model: export REMBERT_VOCABULARY={vocabulary}',
      )

  return FinetuneTasks(
    name=mixture,
    head=head,
    labels=labels[0] if labels else (),
    train=train,
    dev=dev,
    evaluated=tuple(EvaluatedTask(mixture, task, task, split) for task, split in evaluated.items()),
    skipped={mixture: {task.name: f'no {split} split' for task in tasks if task.name not in evaluated}},
    register=check_vocabulary,
    vocabulary=vocabulary_of_tasks,
  )


def _table_tasks(config: FinetuneConfig, is_trained: bool, labels: Sequence[str] | None) -> FinetuneTasks:
  """The tasks of the mixture that is made of `dataset`; results are named by language."""
  from tasks.registration import valid_name
  from tasks.tables.registry import Tables, add_tables

  needed = ('train', 'dev')[: 2 if config.finetune.select == 'best' else 1] if is_trained else ()
  if missing := [f'dataset.{split}' for split in needed if not config.dataset.files(split)]:
    raise UsageError(
      f'{" and ".join(missing)} must be set',
      where=', '.join(missing),
      fix=[f'--gin.{missing[0]}=FILE', 'without dev data: --gin.finetune.select=last'],
    )
  tables = Tables(config.dataset, xtreme=config.xtreme, labels=labels)
  add_tables(tables)
  tasks = _mixture_tasks(config, is_trained)
  languages = {valid_name(tasks.name, language): language for _, language in tables.examples}
  return dataclasses.replace(
    tasks,
    evaluated=tuple(
      dataclasses.replace(
        each,
        name=(language := languages[each.seqio_name]),
        examples=tables.examples[each.split, language],
        baseline=functools.partial(tables.baseline, language=language),
        predictions_text=tables.prediction_lines,
      )
      for each in tasks.evaluated
    ),
    skipped={tasks.name: {}},
    register=lambda vocabulary: add_tables(tables, vocabulary=vocabulary),
    vocabulary=lambda: None,
    description=tables.describe(),
  )
