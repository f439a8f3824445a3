"""The SeqIO tasks of a fine-tuning or evaluation job: XTREME's, or those of `finetune.mixture`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etils import epath

from rembert.errors import UsageError
from rembert.jobs.config import FinetuneConfig
from rembert.model.heads import FIXED_LABELS
from rembert.tracking.console import Console
from tasks.xtreme.benchmark import XtremeTask, get_task
from tasks.xtreme.files import MissingFileError, XtremeFolder

if TYPE_CHECKING:
  from tasks.tables.registry import Tables


@dataclasses.dataclass(frozen=True)
class EvaluatedTask:
  """A split of a SeqIO task that is evaluated.

  Attributes:
    group: group of its results: XTREME's task, or the mixture.
    name: name of its results in the group: XTREME's language, or the SeqIO task.
    seqio_name: name of the SeqIO task in the registry.
    split: split of the SeqIO task.
    xtreme: XTREME's task; None for tasks of `finetune.mixture`.
    examples: number of examples; None if it is unknown before they are read.
  """

  group: str
  name: str
  seqio_name: str
  split: str
  xtreme: XtremeTask | None = None
  examples: int | None = None

  @property
  def predictions(self) -> str:
    """Path of the file of predictions in the workdir."""
    suffix = self.xtreme.suffix if self.xtreme else 'jsonl'
    return f'predictions/{self.group}/{self.split}-{self.name}.{suffix}'


@dataclasses.dataclass(frozen=True)
class FinetuneTasks:
  """The data of a fine-tuning or evaluation job.

  Attributes:
    name: XTREME's task, or the mixture.
    head: head of the model.
    labels: names of the head's labels by index; () for heads without labels.
    train: SeqIO tasks that have a training split, and their rates.
    dev: SeqIO tasks for checkpoint selection, each with its split.
    evaluated: splits to evaluate, in order.
    skipped: by group, the languages or tasks that are not evaluated, and why.
    tables: tables of `dataset`; None for other data.
  """

  name: str
  head: str
  labels: tuple[str, ...]
  train: Mapping[str, float]
  dev: Mapping[str, str]
  evaluated: tuple[EvaluatedTask, ...]
  skipped: Mapping[str, Mapping[str, str]]
  tables: 'Tables | None' = None

  @property
  def is_xtreme(self) -> bool:
    """Whether these are XTREME's tasks rather than a mixture's."""
    return self.evaluated[0].xtreme is not None


def show_evaluated(console: Console, tasks: FinetuneTasks) -> None:
  """Prints the labels of tables, and by group the evaluated tasks and those without data."""
  if tasks.tables is not None:
    console.say(f'{tasks.name}: {tasks.tables.describe()}')
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
  """Opens the tasks of a configuration. Also reads the evaluation data, so that errors appear before training.

  Args:
    config: of the job.
    is_trained: whether a training split is required.
    labels: labels of a model that is evaluated on tables; by default those of the training file.

  Raises:
    UsageError: data are missing or malformed; SeqIO tasks are not registered, or lack required features.
  """
  if config.dataset.kind is not None:
    return _table_tasks(config, is_trained, labels)
  if config.finetune.mixture is not None:
    return _mixture_tasks(config, is_trained)
  return _xtreme_tasks(config, is_trained)


def vocabulary_of_tasks(tasks: FinetuneTasks) -> str | None:
  """The SentencePiece model of a mixture's tasks; None for other vocabularies, and for data that use the model's."""
  if tasks.is_xtreme or tasks.tables is not None:
    return None
  from tasks.registration import find

  vocabulary = find(tasks.evaluated[0].seqio_name).output_features['input_ids'].vocabulary
  return getattr(vocabulary, 'sentencepiece_model_file', None)


def register(config: FinetuneConfig, tasks: FinetuneTasks, vocabulary: epath.PathLike) -> None:
  """Registers tasks with the model's vocabulary; a mixture's are registered, and UsageError if they have another."""
  if tasks.tables is not None:
    from tasks.tables.registry import add_tables

    add_tables(tasks.tables, vocabulary=vocabulary)
  elif tasks.is_xtreme:
    from tasks.xtreme.registry import add_xtreme

    names = ('data_dir', 'labels_dir', 'doc_stride', 'max_query_length', 'n_best', 'max_answer_length')
    add_xtreme(vocabulary=vocabulary, **{name: getattr(config.xtreme, name) for name in names})
  elif (own := vocabulary_of_tasks(tasks)) and epath.Path(own).read_bytes() != epath.Path(vocabulary).read_bytes():
    raise UsageError(
      "the tasks' vocabulary differs from the model's",
      where=f'finetune.mixture = {tasks.name!r}: {own}; {vocabulary}',
      fix=f'register the tasks with the vocabulary of the model: export REMBERT_VOCABULARY={vocabulary}',
    )


# --- XTREME -----------------------------------------------------------------------------------------------------------


def open_folder(config: FinetuneConfig) -> XtremeFolder:
  """Opens the directory of XTREME data."""
  return XtremeFolder(config.xtreme.data_dir, config.xtreme.labels_dir)


def training_examples(config: FinetuneConfig) -> Sequence[Any]:
  """XTREME's training examples, whose label frequencies are the baseline's; () for a mixture.

  Raises:
    MissingFileError: there is no training file.
  """
  if config.finetune.mixture is not None:
    return ()
  xtreme = config.xtreme
  task = get_task(get_task(xtreme.task).trained_on or xtreme.task)
  return task.examples(open_folder(config), 'train', xtreme.train_language, needs_labels=True)


def _xtreme_tasks(config: FinetuneConfig, is_trained: bool) -> FinetuneTasks:
  xtreme, folder = config.xtreme, open_folder(config)
  task = get_task(xtreme.task if is_trained else xtreme.evaluated[0])
  seqio_name = lambda name, language: f'xtreme.{name}.{language}'
  evaluated, skipped = [], {}
  for name in xtreme.evaluated:
    if (get_task(name).head, get_task(name).labels) != (task.head, task.labels):
      raise UsageError(
        f'{task.name} and {name} differ in head or labels',
        where='xtreme.task, xtreme.evaluate_on',
        fix='run one at a time',
      )
    counts, skipped[name] = _languages_with_data(get_task(name), folder, xtreme.split, xtreme.languages)
    evaluated += [
      EvaluatedTask(name, language, seqio_name(name, language), xtreme.split, get_task(name), count)
      for language, count in counts.items()
    ]
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
  )


def _languages_with_data(
  task: XtremeTask, folder: XtremeFolder, split: str, chosen: Sequence[str] | None
) -> tuple[dict[str, int], dict[str, str]]:
  """Numbers of examples by language, and why the other languages are skipped.

  Raises:
    UsageError: the task or the data lack a chosen language, or a file is malformed.
  """
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
  return FinetuneTasks(
    name=mixture,
    head=head,
    labels=labels[0] if labels else (),
    train=train,
    dev=dev,
    evaluated=tuple(EvaluatedTask(mixture, task, task, split) for task, split in evaluated.items()),
    skipped={mixture: {task.name: f'no {split} split' for task in tasks if task.name not in evaluated}},
  )


def _table_tasks(config: FinetuneConfig, is_trained: bool, labels: Sequence[str] | None) -> FinetuneTasks:
  """The tasks of the mixture that is made of `dataset`; results are named by language."""
  from tasks.registration import find
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
  tasks, evaluated = _mixture_tasks(config, is_trained), []
  for each in tasks.evaluated:
    language = find(each.seqio_name).language
    evaluated.append(dataclasses.replace(each, name=language, examples=tables.examples[each.split, language]))
  return dataclasses.replace(tasks, evaluated=tuple(evaluated), skipped={tasks.name: {}}, tables=tables)
