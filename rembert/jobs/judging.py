"""Evaluation of a trained model: logits for rows, predictions as files, scores by task and language."""

import dataclasses
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from rembert.data.finetune_batches import Row, judged_batches
from rembert.errors import UsageError
from rembert.files import write_whole
from rembert.jobs.finetune_config import FinetuneConfig
from rembert.jobs.finetune_tasks import EvaluatedTask, FinetuneTasks
from rembert.tracking.console import Console
from rembert.train import sharding
from rembert.train.state import Trainable
from rembert.train.step import make_logits_step

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


# --- all tasks --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Judged:
  """Results of a task.

  Attributes:
    examples: how many; of a task of `finetune.mixture`, rows.
    scores: by name, XTREME's from 0 to 100; None if there are no labels.
    baseline: likewise, of predictions from the frequencies of labels alone; None where that is not known.
    predictions: the file, as seen from the workdir.
    note: why there are no scores.
  """

  examples: int
  scores: dict[str, float] | None
  baseline: dict[str, float] | None
  predictions: str
  note: str = ''


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
    of_name = lambda name: [scores[name] for scores in scored if name in scores]
    self.content['mean'][task] = {name: sum(of_name(name)) / len(of_name(name)) for name in names}
    if self._is_writer:
      write_whole(self._workdir / judged.predictions, text)
      write_whole(self._file, json.dumps(self.content, indent=1, ensure_ascii=False) + '\n')


def judge_tasks(
  judge: Judge,
  params: dict,
  tasks: FinetuneTasks,
  *,
  config: FinetuneConfig,
  train: Sequence[Any],
  report: Report,
  console: Console,
) -> None:
  """Predictions and scores of all evaluated tasks, each as soon as it is there; a table of each group in the end.

  Between two tasks all is written: a signal may end the program anywhere, and the next start resumes from there.

  Args:
    judge: of the model.
    params: of the model.
    tasks: of the job, registered.
    config: of the job.
    train: examples that XTREME's baseline takes frequencies from; without any there is no baseline.
    report: to be filled.
    console: prints progress and scores.
  """
  for group, reasons in tasks.skipped.items():
    report.skipped(group, dict(reasons))
  for number, evaluated in enumerate(tasks.evaluated, 1):
    if report.has(evaluated.group, evaluated.name):
      continue
    with console.task(f'{evaluated.group} {evaluated.name} ({number}/{len(tasks.evaluated)})') as progress:
      outputs = lambda rows, progress=progress: judge.outputs(params, rows, on_progress=progress)
      judged, text = _judge(evaluated, tasks.head, outputs, config, train)
    report.add(evaluated.group, evaluated.name, judged, text)
    scores = in_words(judged.scores, judged.baseline) if judged.scores else f'no score: {judged.note}'
    console.say(f'{evaluated.group} {evaluated.name}: {scores}')
  show_results(console, report.content)


def _judge(
  evaluated: EvaluatedTask,
  head: str,
  outputs: Callable[[Sequence[Row]], list[np.ndarray]],
  config: FinetuneConfig,
  train: Sequence[Any],
) -> tuple[Judged, str]:
  """Results of a task, and its file of predictions."""
  from tasks import rows as task_rows
  from tasks.registration import find

  task, xtreme = find(evaluated.seqio_name), evaluated.xtreme
  rows = task_rows.read_rows(task, evaluated.split, head, max_length=config.train.sequence_length)
  scores = outputs(rows)
  judged = Judged(evaluated.examples or len(rows), None, None, evaluated.predictions)
  try:
    judged.scores = task_rows.metrics(task, rows, scores, head)
  except UsageError as error:  # predictions can be handed in; a score cannot be made up
    judged.note = f'{error.what} ({error.where})'
  if xtreme is None:
    return judged, task_rows.prediction_lines(task, rows, scores, head)
  targets = task_rows.targets(task, rows)
  if train and judged.scores:
    baseline = xtreme.baseline(train, targets)
    judged.baseline = xtreme.score(targets, baseline, evaluated.name)
  predictions = xtreme.predict(targets, scores, config.xtreme)
  return judged, xtreme.file_text(predictions, targets, judged.examples)


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
    in_order = lambda scores, names=names: [f'{scores[name]:.1f}' if name in scores else '–' for name in names]
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
