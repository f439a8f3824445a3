"""A trained model judged: outputs for a task's rows, predictions in XTREME's layout, scores language by language."""

import dataclasses
import functools
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from rembert.data.rows import judged_batches
from rembert.errors import UsageError
from rembert.storage import write_whole
from rembert.training import sharding
from rembert.training.console import Console
from rembert.training.state import Trainable
from rembert.training.step import make_logits_step
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.layout import MissingFileError, MissingLabelsError, XtremeFolder
from tasks.xtreme.pieces import Pieces
from tasks.xtreme.task import Row, Task

RESULTS = 'results.json'


class Judge:
  """A model's head over rows, many at a time, on all devices and hosts."""

  def __init__(self, trainable: Trainable, head: str, *, batch_size: int, longest: int, pad: int):
    """
    Args:
      trainable: the model on its mesh.
      head: `classification`, `tagging` or `qa`.
      batch_size: rows of a global batch.
      longest: ids in a row at most.
      pad: id of [PAD].
    """
    self._mesh, self._head = trainable.mesh, head
    self._step = make_logits_step(trainable)
    process = (jax.process_index(), jax.process_count())
    self._options = {'batch_size': batch_size, 'longest': longest, 'pad': pad, 'process': process}
    shards = sharding.batch_shards(self._mesh)
    if batch_size % shards:
      raise UsageError(
        f'a batch of {batch_size} rows does not divide over {shards} device group(s)',
        where='finetune.judge_batch_size, mesh.data × mesh.fsdp',
        fix=f'--gin.finetune.judge_batch_size={-(-batch_size // shards) * shards}',
      )

  def outputs(
    self,
    params: dict,
    rows: Sequence[Row],
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    on_progress: Callable[[float, str], None] = lambda fraction, note: None,
  ) -> list[np.ndarray] | None:
    """Logits of each row, float32, [labels], [S, labels] or [S, 2]; None if stopped midway. Under `jax.set_mesh`."""
    found: list[np.ndarray] = [np.empty(0)] * len(rows)
    done = 0
    for chosen, logits in self._logits(params, rows, is_stopped):
      for place, number in enumerate(chosen):
        end = len(rows[number].input_ids)
        found[number] = logits[place] if self._head == 'classification' else logits[place, :end]
      done += len(chosen)
      on_progress(done / len(rows), f'{done} rows')
    return found if done == len(rows) else None

  def _logits(self, params, rows, is_stopped) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    pending = None
    for chosen, batch in judged_batches(rows, self._head, **self._options):
      if is_stopped():
        return
      logits = self._step(params, sharding.to_device(batch, self._mesh))
      if pending is not None:  # read while the devices are at the next
        yield pending[0], np.asarray(pending[1])
      pending = (chosen, logits)
    if pending is not None:
      yield pending[0], np.asarray(pending[1])


def mean_loss(head: str, rows: Sequence[Row], outputs: Sequence[np.ndarray]) -> float:
  """Cross-entropy in nats of what is to be predicted, as in training; NaN where nothing is."""
  losses = []
  for row, logits in zip(rows, outputs, strict=True):
    scores = logits.astype(np.float64).T if head == 'qa' else np.atleast_2d(logits.astype(np.float64))
    labels = np.atleast_1d(row.labels)
    counted = labels >= 0
    log_normalizer = np.logaddexp.reduce(scores[counted], axis=-1)
    losses.append(log_normalizer - scores[counted, labels[counted]])
  losses = np.concatenate(losses)
  return float(losses.mean()) if losses.size else float('nan')


# --- in every language ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Judged:
  """What is known of a task and language. `examples` are read; the rest comes later, and may not.

  Attributes:
    examples: how many.
    scores: by name, 0 to 100; None where there are no labels.
    baseline: likewise, of somebody who knows the labels' frequencies alone.
    predictions: the file, as seen from the workdir.
    note: why there are no scores.
  """

  examples: int
  scores: dict[str, float] | None
  baseline: dict[str, float] | None
  predictions: str
  note: str = ''


def languages_with_data(
  task: Task, folder: XtremeFolder, split: str, chosen: Sequence[str] | None
) -> tuple[dict[str, list[Any]], dict[str, str]]:
  """Examples by language, with gold labels where there are any; and why the other languages are left out.

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
      found[language] = task.examples(folder, split, language, needs_labels=True)
    except MissingLabelsError:
      found[language] = task.examples(folder, split, language, needs_labels=False)
    except MissingFileError as error:
      if chosen:
        raise
      missing[language] = f'{error.what}: {error.where}'
  return found, missing


def has_data(task: Task, folder: XtremeFolder, split: str, languages: Sequence[str] | None = None) -> bool:
  """Whether there are files of a split in any of the languages; all of the task's by default."""
  for language in languages or task.languages:
    try:
      task.examples(folder, split, language, needs_labels=False)
      return True
    except MissingFileError:
      continue
  return False


def tasks_with_data(
  tasks: Sequence[Task], folder: XtremeFolder, config: XtremeConfig
) -> dict[str, tuple[dict[str, list[Any]], dict[str, str]]]:
  """`languages_with_data` of each task by name; UsageError if there is nothing of any of them."""
  by_task = {task.name: languages_with_data(task, folder, config.split, config.languages) for task in tasks}
  if not any(found for found, _ in by_task.values()):
    raise UsageError(
      f'there is no {config.split} file of {" or ".join(by_task)} in any language',
      where=f'xtreme.data_dir = {folder.root}',
      fix='python -m tasks.xtreme.download --help',
    )
  return by_task


class Report:
  """`results.json` of a workdir, written anew after every language, and read when a run goes on."""

  def __init__(self, workdir: epath.Path, facts: dict, *, is_writer: bool):
    """
    Args:
      workdir: of the run.
      facts: what was judged, JSON; what is there about anything else is begun anew.
      is_writer: one host writes.
    """
    self._workdir, self._file, self._is_writer = workdir, workdir / RESULTS, is_writer
    self.content: dict = {**facts, 'tasks': {}, 'skipped': {}, 'mean': {}}
    if self._file.exists():
      before = json.loads(self._file.read_text())
      if {name: before.get(name) for name in facts} == json.loads(json.dumps(facts)):
        self.content = before

  def has(self, task: str, language: str) -> bool:
    """Whether that has been judged already, and its predictions are there."""
    judged = self.content['tasks'].get(task, {}).get(language)
    return judged is not None and (self._workdir / judged['predictions']).exists()

  def skipped(self, task: str, reasons: dict[str, str]) -> None:
    """Notes languages that are left out."""
    self.content['skipped'][task] = reasons

  def add(self, task: str, language: str, judged: Judged, text: str) -> None:
    """Writes the predictions, then the results with this language's."""
    of_task = self.content['tasks'].setdefault(task, {})
    of_task[language] = dataclasses.asdict(judged)
    scored = [entry['scores'] for entry in of_task.values() if entry['scores']]
    names = scored[0] if scored else ()
    self.content['mean'][task] = {name: sum(scores[name] for scores in scored) / len(scored) for name in names}
    if self._is_writer:
      write_whole(self._workdir / judged.predictions, text)
      write_whole(self._file, json.dumps(self.content, indent=1, ensure_ascii=False) + '\n')


def judge_tasks(
  judge: Judge,
  params: dict,
  tasks: Sequence[Task],
  by_task: Mapping[str, tuple[dict[str, list[Any]], dict[str, str]]],
  read_rows: Callable[[Task, str], list[Row]],
  *,
  train: Sequence[Any],
  config: XtremeConfig,
  report: Report,
  console: Console,
) -> None:
  """Predictions and scores of some tasks, each language as soon as it is there; a table of each in the end.

  Between languages all is written: a signal may end the program anywhere, and the next start goes on from there.

  Args:
    judge: of the model.
    params: of the model.
    tasks: to be judged on.
    by_task: of `tasks_with_data`.
    read_rows: of a task and language, for the model.
    train: examples that the baseline knows; none, no baseline.
    config: of the tasks.
    report: to be filled.
    console: tells.
  """
  for task in tasks:
    by_language, missing = by_task[task.name]
    report.skipped(task.name, missing)
    _judge_languages(
      task,
      by_language,
      functools.partial(read_rows, task),
      functools.partial(judge.outputs, params),
      train=train,
      config=config,
      report=report,
      console=console,
    )
  show_results(console, report.content)


def _judge_languages(task, by_language, read_rows, outputs, *, train, config, report, console) -> None:
  for number, (language, examples) in enumerate(by_language.items(), 1):
    if report.has(task.name, language):
      continue
    with console.task(f'{task.name} {language} ({number}/{len(by_language)})') as progress:
      rows = read_rows(language)
      found = outputs(rows, on_progress=progress)
    predictions = task.predictions(examples, rows, found, config=config)
    scores = baseline = None
    note = ''
    try:
      scores = task.score(examples, predictions, language)
      baseline = task.score(examples, task.baseline(train, examples), language) if train else None
    except UsageError as error:  # predictions can be handed in; a score cannot be made up
      note = f'{error.what} ({error.where})'
    file = f'predictions/{task.name}/{config.split}-{language}.{task.suffix}'
    judged = Judged(len(examples), scores, baseline, file, note)
    report.add(task.name, language, judged, task.file_text(examples, predictions))
    console.say(f'{task.name} {language}: {in_words(scores, baseline) if scores else f"no score: {note}"}')


def in_words(scores: dict[str, float], baseline: dict[str, float] | None = None) -> str:
  """`f1 71.2 (frequencies alone 33.3) · exact_match 60.1 (5.0)`."""
  beside = lambda name: f' (without reading {baseline[name]:.1f})' if baseline else ''
  return ' · '.join(f'{name} {value:.1f}{beside(name)}' for name, value in scores.items())


def show_results(console: Console, content: dict) -> None:
  """A table for every task: language by language, the mean, and what was left out."""
  for task, skipped in content['skipped'].items():
    if skipped:
      console.say(f'{task}: no data for {", ".join(skipped)}')
  for task, by_language in content['tasks'].items():
    scored = {language: entry for language, entry in by_language.items() if entry['scores']}
    if not scored:
      console.say(f'{task}: predictions for {len(by_language)} language(s), and no gold labels to score them by')
      continue
    names = list(next(iter(scored.values()))['scores'])
    columns = ['', 'examples', *names]
    in_order = lambda scores, names=names: [f'{scores[name]:.1f}' for name in names]
    rows = [[language, f'{entry["examples"]:,}', *in_order(entry['scores'])] for language, entry in scored.items()]
    rows.append([f'mean of {len(scored)}', '', *in_order(content['mean'][task])])
    others = [language for language in scored if language != 'en']
    if 'en' in scored and others:
      gap = lambda name, scored=scored, others=others: (
        scored['en']['scores'][name] - statistics.fmean(scored[language]['scores'][name] for language in others)
      )
      rows.append(['en less the others', '', *in_order({name: gap(name) for name in names})])
    if all(entry['baseline'] for entry in scored.values()):
      counts = 'f1' if 'f1' in names else names[0]
      columns.append(f'{counts} without reading')
      for row, entry in zip(rows, scored.values(), strict=False):
        row.append(f'{entry["baseline"][counts]:.1f}')
    console.table(task, columns, rows)


def open_folder(config: XtremeConfig) -> XtremeFolder:
  """The data that `config` names."""
  return XtremeFolder(config.data_dir, config.labels_dir)


def rows_reader(
  folder: XtremeFolder, pieces: Pieces, *, max_length: int, config: XtremeConfig
) -> Callable[[Task, str], list[Row]]:
  """(task, language) to rows of what is judged, by way of the SeqIO task."""
  from tasks.xtreme.seqio_tasks import read_rows

  return lambda task, language: read_rows(
    task, folder, config.split, language, pieces, max_length=max_length, config=config, needs_labels=False
  )[1]
