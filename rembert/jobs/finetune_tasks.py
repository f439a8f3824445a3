"""The SeqIO tasks of a fine-tuning or an evaluation: XTREME's, or those of `finetune.mixture`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from rembert.data.finetune_batches import drawn
from rembert.errors import UsageError
from rembert.jobs.config import FinetuneConfig
from rembert.tracking.console import Console
from tasks.xtreme.benchmark import get_task
from tasks.xtreme.files import MissingFileError, XtremeFolder
from tasks.xtreme.task import XtremeTask


@dataclasses.dataclass(frozen=True)
class EvaluatedTask:
  """A split of a SeqIO task that is evaluated.

  Attributes:
    group: of its results: XTREME's task, or the mixture.
    name: of its results in the group: XTREME's language, or the SeqIO task.
    seqio_name: name of the SeqIO task in the registry.
    split: of it.
    xtreme: what the benchmark adds to it; None for tasks of `finetune.mixture`.
    examples: how many there are; None if that is not known before its rows are read.
  """

  group: str
  name: str
  seqio_name: str
  split: str
  xtreme: XtremeTask | None = None
  examples: int | None = None

  @property
  def predictions(self) -> str:
    """The file of predictions, as seen from the workdir."""
    split = self.split
    return f'predictions/{self.group}/{split}-{self.name}.{self.xtreme.suffix if self.xtreme else "jsonl"}'


@dataclasses.dataclass(frozen=True)
class FinetuneTasks:
  """Everything that a fine-tuning or an evaluation reads.

  Attributes:
    name: XTREME's task, or the mixture.
    head: of the model.
    labels: names of the head's labels by index; () for `qa`.
    train: SeqIO tasks that have a training split, and their rates.
    dev: SeqIO tasks by which checkpoints are chosen, each with its split.
    evaluated: in this order.
    skipped: by group, what is not evaluated and why.
  """

  name: str
  head: str
  labels: tuple[str, ...]
  train: Mapping[str, float]
  dev: Mapping[str, str]
  evaluated: tuple[EvaluatedTask, ...]
  skipped: Mapping[str, Mapping[str, str]]


def show_evaluated(console: Console, tasks: FinetuneTasks) -> None:
  """What is evaluated, by group, and what has no data."""
  for group, missing in tasks.skipped.items():
    found = [each for each in tasks.evaluated if each.group == group]
    count = lambda each: f' {each.examples:,}' if each.examples else ''
    console.say(f'{group}: ' + ', '.join(each.name + count(each) for each in found))
    if missing:
      console.say(f'{group}: no data for {", ".join(missing)}')


def open_tasks(config: FinetuneConfig, *, is_trained: bool = True) -> FinetuneTasks:
  """The tasks that a configuration names, with what is evaluated read once: errors come before a model is trained.

  Args:
    config: of the job.
    is_trained: whether there must be something to train on.

  Raises:
    UsageError: data that are missing or broken; SeqIO tasks that are not registered, or lack what fine-tuning needs.
  """
  mixture, head = config.finetune.mixture, config.finetune.head
  if mixture is not None and head is not None:
    return _mixture_tasks(config, mixture, head, is_trained)
  return _xtreme_tasks(config, is_trained)


def register(config: FinetuneConfig, vocabulary: epath.PathLike) -> None:
  """Registers XTREME's tasks as the configuration describes them; those of a mixture are registered by its module."""
  if config.finetune.mixture is None:
    from tasks.xtreme.registry import add_xtreme

    xtreme = config.xtreme
    names = ('data_dir', 'labels_dir', 'doc_stride', 'max_query_length', 'n_best', 'max_answer_length')
    add_xtreme(vocabulary=vocabulary, **{name: getattr(xtreme, name) for name in names})


def vocabulary_of_tasks(tasks: FinetuneTasks) -> str | None:
  """The SentencePiece model that a mixture's tasks tokenize with; None if they do it in another way, and for XTREME.

  Raises:
    UsageError: a `RembertVocabulary` of a task has no file.
  """
  if tasks.evaluated[0].xtreme is not None:  # they are registered with the vocabulary of the model
    return None
  from tasks.registration import find

  vocabulary = find(tasks.evaluated[0].seqio_name).output_features['input_ids'].vocabulary
  return getattr(vocabulary, 'sentencepiece_model_file', None)


def check_vocabulary_of_tasks(tasks: FinetuneTasks, path: epath.PathLike) -> None:
  """Raises UsageError if a mixture's tasks tokenize with another vocabulary than that of the model, `path`."""
  of_tasks = vocabulary_of_tasks(tasks)
  if of_tasks is not None and epath.Path(of_tasks).read_bytes() != epath.Path(path).read_bytes():
    raise UsageError(
      'the tasks tokenize with another vocabulary than the model has',
      where=f'finetune.mixture = {tasks.name!r}: {of_tasks}; {path}',
      fix=f'register the tasks with the vocabulary of the model: export REMBERT_VOCABULARY={path}',
    )


# --- XTREME -----------------------------------------------------------------------------------------------------------


def open_folder(config: FinetuneConfig) -> XtremeFolder:
  """XTREME's data."""
  return XtremeFolder(config.xtreme.data_dir, config.xtreme.labels_dir)


def baseline_examples(config: FinetuneConfig, *, is_required: bool = True, is_drawn: bool = True) -> Sequence[Any]:
  """Training examples of XTREME that the baseline takes its frequencies from; () for a mixture, which has no baseline.

  Args:
    config: of the job.
    is_required: whether it is an error if there is no file; otherwise () as well.
    is_drawn: whether only those that `finetune.max_examples` leaves.
  """
  if config.finetune.mixture is not None:
    return ()
  xtreme = config.xtreme
  task = get_task(get_task(xtreme.task).trained_on or xtreme.task)
  try:
    examples = task.examples(open_folder(config), 'train', xtreme.train_language, needs_labels=True)
  except MissingFileError:
    if is_required:
      raise
    return ()
  return drawn(examples, config.finetune.max_examples if is_drawn else None)


def _xtreme_tasks(config: FinetuneConfig, is_trained: bool) -> FinetuneTasks:
  xtreme, folder = config.xtreme, open_folder(config)
  task = get_task(xtreme.task if is_trained else xtreme.judged[0])
  evaluated, skipped = [], {}
  for name in xtreme.judged:
    if (get_task(name).head, get_task(name).labels) != (task.head, task.labels):
      raise UsageError(
        f'{task.name} and {name} differ in head or labels', where='xtreme.task, xtreme.evaluate_on', fix='one at a time'
      )
    counts, skipped[name] = languages_with_data(get_task(name), folder, xtreme.split, xtreme.languages)
    evaluated += [
      EvaluatedTask(name, language, _seqio_name(name, language), xtreme.split, get_task(name), count)
      for language, count in counts.items()
    ]
  if not evaluated:
    raise UsageError(
      f'there is no {xtreme.split} file of {" or ".join(xtreme.judged)} in any language',
      where=f'xtreme.data_dir = {folder.root}',
      fix='python -m tasks.xtreme.download --help',
    )
  learned = _seqio_name(task.name, xtreme.train_language)
  has_dev = is_trained and config.finetune.select == 'best'
  if has_dev:
    task.examples(folder, 'dev', xtreme.train_language, needs_labels=True)
  return FinetuneTasks(
    name=task.name,
    head=task.head,
    labels=task.labels,
    train={learned: 1.0} if is_trained else {},
    dev={learned: 'dev'} if has_dev else {},
    evaluated=tuple(evaluated),
    skipped=skipped,
  )


def _seqio_name(task: str, language: str) -> str:
  return f'xtreme.{task}.{language}'


def languages_with_data(
  task: XtremeTask, folder: XtremeFolder, split: str, chosen: Sequence[str] | None
) -> tuple[dict[str, int], dict[str, str]]:
  """Numbers of examples by language, and why the other languages are left out.

  Raises:
    UsageError: a language was asked for that the task or the data lack, or a file is broken.
  """
  if unknown := sorted(set(chosen or ()) - set(task.languages)):
    raise UsageError(
      f'{task.name} is not judged in {", ".join(unknown)}', where='xtreme.languages', fix=', '.join(task.languages)
    )
  found, missing = {}, {}
  for language in chosen or task.languages:
    try:
      found[language] = len(task.examples(folder, split, language, needs_labels=None))
    except MissingFileError as error:
      if chosen:
        raise
      missing[language] = f'{error.what}: {error.where}'
  return found, missing


# --- a mixture --------------------------------------------------------------------------------------------------------


def _mixture_tasks(config: FinetuneConfig, mixture: str, head: str, is_trained: bool) -> FinetuneTasks:
  from tasks.rows import DEV_SPLITS, label_names, missing_parts, tasks_and_rates

  rates = tasks_and_rates(mixture)
  tasks = [task for task, _ in rates]
  evaluated_splits = DEV_SPLITS if config.xtreme.split == 'dev' else (config.xtreme.split,)
  has_dev = is_trained and config.finetune.select == 'best'
  train = {task.name: rate for task, rate in rates if is_trained and 'train' in task.splits and rate > 0}
  dev = _first_splits(tasks, DEV_SPLITS) if has_dev else {}
  evaluated = _first_splits(tasks, evaluated_splits)

  # --- everything that is missing, at once -------------------------------------
  missing = [part for task in tasks for part in missing_parts(task, is_evaluated=task.name in {*dev, *evaluated})]
  is_used = {*train, *dev, *evaluated}
  missing += [
    f'{task.name} has no split that is read, only {", ".join(task.splits)}'
    for task in tasks
    if task.name not in is_used and task.splits  # without any it has no data, as a language of XTREME may
  ]
  if is_trained and not train:
    missing.append('no task has a split train')
  if has_dev and not dev:
    missing.append("no task has a split dev or validation, which finetune.select='best' needs")
  if not evaluated:
    missing.append(f'no task has a split {" or ".join(evaluated_splits)}, see xtreme.split')
  labels = [] if missing or head == 'qa' else list(dict.fromkeys(label_names(task) for task in tasks))
  if len(labels) > 1:
    missing.append('the labels of the tasks differ: ' + ' | '.join(', '.join(names) for names in labels))
  if missing:
    raise UsageError(
      'not a mixture for fine-tuning: ' + '; '.join(missing),
      where=f'finetune.mixture = {mixture!r}',
      fix='docs/guides/own_task.md lists what a task must have',
    )
  return FinetuneTasks(
    name=mixture,
    head=head,
    labels=labels[0] if labels else (),
    train=train,
    dev=dev,
    evaluated=tuple(EvaluatedTask(mixture, task, task, split) for task, split in evaluated.items()),
    skipped={mixture: {task.name: f'no split {config.xtreme.split}' for task in tasks if task.name not in evaluated}},
  )


def _first_splits(tasks: Sequence[Any], splits: Sequence[str]) -> dict[str, str]:
  """For each task that has any of some splits, the first of them."""
  found = {task.name: [split for split in splits if split in task.splits] for task in tasks}
  return {name: of_task[0] for name, of_task in found.items() if of_task}
