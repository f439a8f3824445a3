"""Evaluates a trained model on XTREME, in every language that has data, or on a mixture, without training.

Fine-tuning ends with the same evaluation, which writes predictions and `results.json` with all scores.
"""

import itertools
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax
from etils import epath

from rembert import configuration
from rembert.checkpoint.initialize import InitialParameters, open_initial
from rembert.checkpoint.load import open_source
from rembert.data.finetune_batches import Features, eval_batches
from rembert.errors import Setting, UsageError
from rembert.files import write_whole
from rembert.inference.model import load, text_encoder
from rembert.jobs import retrieve
from rembert.jobs import workdir as workdirs
from rembert.jobs.config import FinetuneConfig, build_config
from rembert.jobs.finetune_tasks import EvaluatedTask, FinetuneTasks, open_folder, open_tasks, show_evaluated
from rembert.jobs.summary import show_model, show_start
from rembert.jobs.training_run import JobRun, start
from rembert.model.heads import POOLED, build_model
from rembert.runtime.signals import StopSignal
from rembert.tokenizer import SpecialIds
from rembert.tracking.console import Console, Progress
from rembert.train import sharding, state
from rembert.train.state import Trainable
from rembert.train.step import make_logits_step

RESULTS = 'results.json'


def configured() -> FinetuneConfig:
  """Builds the configuration from gin, with the architecture of the evaluated model."""
  return build_config(FinetuneConfig, model_path=configuration.build(configuration.EvaluateConfig).model)


def dry_run(config: FinetuneConfig, workdir: epath.Path) -> int:
  """Opens the model and the data as `run` does, and prints the tasks and languages."""
  path, console = _model_path(config), Console()
  show_model(console, config.model)
  workdirs.check(workdir)
  if config.is_retrieval:
    open_folder(config)
    console.say(f'{path} on {config.xtreme.task}')
  else:
    tasks, _ = _open(config)
    console.say(f'evaluating {path}')
    show_evaluated(console, tasks)
  return 0


def run(config: FinetuneConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Evaluates, and writes the results after each language; the same command resumes with the next language."""
  _model_path(config)
  if config.is_retrieval:
    return _retrieve(config, workdir, stop)
  with start(config, workdir, stop) as job:
    return _run(config, job)


def _run(config: FinetuneConfig, job: JobRun) -> int:
  # --- model and data ----------------------------------------------------------
  tasks, initial = _open(config)

  # --- devices ---------------------------------------------------------------
  mesh = sharding.make_mesh(config.mesh)
  config = config.on(mesh)
  trainable = make_trainable(config, tasks.head, tasks.labels, optax.identity(), mesh)
  show_start(job, f'evaluating {config.evaluate.model}', config)
  job.stack.enter_context(jax.set_mesh(mesh))
  with job.console.task('loading parameters') as progress:
    params = initial.put_into(trainable.init(0), progress).params
  if job.hosts.is_first:
    configuration.save(job.workdir)

  # --- evaluation --------------------------------------------------------------
  evaluator = Evaluator(trainable, tasks.head, config)
  results = Results(job.workdir, {'model': initial.source.path, 'split': config.xtreme.split}, job.hosts.is_first)
  evaluate_tasks(evaluator, params, tasks, results=results, console=job.console)
  job.console.facts('Done', {'results': f'{job.workdir}/{RESULTS}', 'predictions': f'{job.workdir}/predictions'})
  return 0


def _model_path(config: FinetuneConfig) -> str:
  if config.evaluate.model is None:
    raise UsageError(
      'evaluate.model is not set',
      where='evaluate.model',
      fix='--gin.evaluate.model=WORKDIR, or a Hugging Face model directory or Hub id',
    )
  return config.evaluate.model


def _open(config: FinetuneConfig) -> tuple[FinetuneTasks, InitialParameters]:
  """The tasks to evaluate, and the model's parameters; UsageError if its head does not match the task."""
  source = open_source(_model_path(config))
  tasks = open_tasks(config, is_trained=False, labels=source.labels)
  if (source.head, tuple(source.labels)) != (tasks.head, tasks.labels):
    raise UsageError(
      f'the model has {_format_head(source.head, source.labels)}; {tasks.name} requires '
      f'{_format_head(tasks.head, tasks.labels)}',
      where=f'evaluate.model = {config.evaluate.model}',
      fix='name a model that was fine-tuned for the task: gin/finetune_*.gin',
    )
  vocabulary = config.vocabulary.path or source.vocabulary
  if vocabulary is None:
    what = 'no vocabulary next to the model'
    raise UsageError(what, where=str(config.evaluate.model), fix='--gin.vocabulary.path=sentencepiece.model')
  tasks.register(vocabulary)
  return tasks, open_initial(source, 'all', config.model, head=tasks.head, num_labels=len(tasks.labels) or None)


def _format_head(head: str | None, labels: Sequence[str]) -> str:
  name = 'no head' if head is None else f'a head for {head}'
  return f'{name} of {len(labels)} labels' if labels else name


def _retrieve(config: FinetuneConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Evaluates a retrieval task with the model's sentence embeddings, on one device."""
  console = Console()
  with workdirs.locked(workdir, console.say):
    folder, model = open_folder(config), load(config.evaluate.model)
    configuration.save(workdir)
    encoder, batch_size = text_encoder(model, config.vocabulary.path), config.finetune.eval_batch_size
    retrieve.run(model, encoder, folder, config.xtreme, workdir, console, stop, batch_size=batch_size)
  return 0


# --- the model -------------------------------------------------------------------------------------------------------


def make_trainable(
  config: FinetuneConfig,
  head: str,
  labels: Sequence[str],
  optimizer: optax.GradientTransformation,
  mesh: jax.sharding.Mesh,
) -> Trainable:
  """The model with a head and its labels, on a mesh."""
  build = lambda rngs: build_model(head, config.model, config.execution, num_labels=len(labels) or None, rngs=rngs)
  return state.trainable(build, optimizer, mesh, ema_decay=config.train.ema_decay)


class Evaluator:
  """Computes logits of a model in batches, on all devices and hosts.

  `step` is the jitted forward pass. UsageError if the mesh does not divide `finetune.eval_batch_size`.
  """

  def __init__(self, trainable: Trainable, head: str, config: FinetuneConfig):
    self._mesh, self.head, self.config = trainable.mesh, head, config
    self.step = make_logits_step(trainable)
    batch_size, shards = config.finetune.eval_batch_size, sharding.batch_shards(self._mesh)
    if batch_size % shards:
      raise UsageError(
        f'a batch of {batch_size} examples cannot be divided over {shards} device group(s)',
        where='finetune.eval_batch_size, mesh.data × mesh.fsdp',
        fix=Setting('finetune.eval_batch_size', -(-batch_size // shards) * shards),
      )

  def outputs(
    self,
    params: dict,
    rows: Sequence[Features],
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    on_progress: Callable[[float, str], None] = lambda fraction, note: None,
  ) -> list[np.ndarray] | None:
    """Logits of each row, float32, [labels], [S, labels] or [S, 2]; None if stopped midway. Under `jax.set_mesh`."""
    batches = eval_batches(
      rows,
      self.head,
      batch_size=self.config.finetune.eval_batch_size,
      longest=self.config.train.sequence_length,
      pad=SpecialIds().pad,
      process=(jax.process_index(), jax.process_count()),
    )

    def computed() -> Iterator[tuple[np.ndarray, jax.Array]]:
      for chosen, batch in batches:
        if is_stopped():
          return
        yield chosen, self.step(params, sharding.to_device(batch, self._mesh))

    outputs: list[np.ndarray] = [np.empty(0)] * len(rows)
    done = 0
    # Logits are fetched while the devices compute the next batch.
    for (chosen, logits), _ in itertools.pairwise(itertools.chain(computed(), [(np.empty(0), None)])):
      for logits_of_row, number in zip(np.asarray(logits), chosen, strict=False):  # the rest of the batch is padding
        outputs[number] = logits_of_row if self.head in POOLED else logits_of_row[: len(rows[number].input_ids)]
      done += len(chosen)
      on_progress(done / len(rows), f'{done:,} of {len(rows):,}')
    return outputs if done == len(rows) else None


def mean_loss(head: str, rows: Sequence[Features], outputs: Sequence[np.ndarray]) -> float:
  """The mean training loss over all labels; NaN if there are none."""
  if head == 'regression':
    errors = [logits[0] - np.float64(row.labels) for row, logits in zip(rows, outputs, strict=True)]
    return float(np.nanmean(np.square(errors)))
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


class Results:
  """`results.json` of a workdir, rewritten after every language, and read when the job resumes.

  `content['tasks'][task][language]` has the number of `examples` (sequences, for a mixture), `scores` by name
  (None without labels, with a `note` why), the scores of the `baseline` (or None), and the path of its `predictions`.
  Results with other `facts` (the evaluated model and data; JSON) are discarded. Only one host `is_writer`.
  """

  def __init__(self, workdir: epath.Path, facts: dict, is_writer: bool):
    self._workdir, self._file, self._is_writer = workdir, workdir / RESULTS, is_writer
    self.content: dict = {**facts, 'tasks': {}, 'skipped': {}, 'mean': {}}
    if self._file.exists():
      before = json.loads(self._file.read_text())
      if {name: before.get(name) for name in facts} == json.loads(json.dumps(facts)):
        self.content = before

  def has(self, task: str, language: str) -> bool:
    """Whether the language has been evaluated, and its predictions exist."""
    entry = self.content['tasks'].get(task, {}).get(language)
    return entry is not None and (self._workdir / entry['predictions']).exists()

  def add(self, task: str, language: str, result: dict[str, Any], predictions: str) -> None:
    """Writes the predictions, then the results that include this language."""
    of_task = self.content['tasks'].setdefault(task, {})
    of_task[language] = result
    scored = [entry['scores'] for entry in of_task.values() if entry['scores']]
    names = scored[0] if scored else ()
    values = lambda name: [scores[name] for scores in scored if name in scores]
    self.content['mean'][task] = {name: sum(values(name)) / len(values(name)) for name in names}
    if self._is_writer:
      write_whole(self._workdir / result['predictions'], predictions)
      write_whole(self._file, json.dumps(self.content, indent=1, ensure_ascii=False) + '\n')


def evaluate_tasks(
  evaluator: Evaluator, params: dict, tasks: FinetuneTasks, *, results: Results, console: Console
) -> None:
  """Writes predictions and scores after each evaluated task, and prints a table of each group at the end.

  If a signal ends the program, the next start resumes with the interrupted task.
  """
  for group, reasons in tasks.skipped.items():
    results.content['skipped'][group] = dict(reasons)
  for number, evaluated in enumerate(tasks.evaluated, 1):
    if results.has(evaluated.group, evaluated.name):
      continue
    with console.task(f'{evaluated.group} {evaluated.name} ({number}/{len(tasks.evaluated)})') as progress:
      result, predictions = _evaluate(evaluated, evaluator, params, progress)
    results.add(evaluated.group, evaluated.name, result, predictions)
    has_scores = result['scores'] is not None
    scores = format_scores(result['scores'], result['baseline']) if has_scores else f'no score: {result["note"]}'
    console.say(f'{evaluated.group} {evaluated.name}: {scores}')
  show_results(console, results.content)


def _evaluate(
  evaluated: EvaluatedTask, evaluator: Evaluator, params: dict, progress: Progress
) -> tuple[dict[str, Any], str]:
  """Evaluates a task; returns an entry of `Results`, and the text of the predictions file."""
  from tasks import rows as task_rows
  from tasks.registration import find

  task, head, length = find(evaluated.seqio_name), evaluator.head, evaluator.config.train.sequence_length
  rows = list(task_rows.stream_rows(task, evaluated.split, head, max_length=length))
  outputs = evaluator.outputs(params, rows, on_progress=progress)
  assert outputs is not None  # it is never stopped midway
  result: dict[str, Any] = {'examples': evaluated.examples or len(rows), 'scores': None, 'baseline': None}
  result |= {'predictions': evaluated.predictions, 'note': ''}
  try:
    result['scores'] = task_rows.metrics(task, rows, outputs, head)
  except UsageError as error:  # predictions can be submitted without labels
    result['note'] = f'{error.what} ({error.where})'
  if evaluated.predictions_text is None:
    return result, task_rows.prediction_lines(task, rows, outputs, head)
  targets = task_rows.targets(task, rows)
  if result['scores']:
    result['baseline'] = evaluated.baseline(targets)
  return result, evaluated.predictions_text(targets, outputs)


def format_scores(scores: dict[str, float], baseline: dict[str, float] | None = None) -> str:
  """Scores in the form `f1 71.2 (baseline 33.3) · exact_match 60.1 (baseline 5.0)`."""
  of_baseline = lambda name: f' (baseline {baseline[name]:.1f})' if baseline else ''
  return ' · '.join(f'{name} {value:.1f}{of_baseline(name)}' for name, value in scores.items())


def show_results(console: Console, content: dict) -> None:
  """Prints a table per task with each language, the average and the transfer gap; and the skipped languages."""
  for task, skipped in content['skipped'].items():
    if skipped:
      console.say(f'{task}: no data for {", ".join(skipped)}')
  for task, by_language in content['tasks'].items():
    if any(entry['scores'] for entry in by_language.values()):
      _show_scores(console, task, by_language, content['mean'][task])
    else:
      console.say(f'{task}: no gold labels; predictions for {len(by_language)} language(s) written, not scored')


def _show_scores(console: Console, task: str, by_language: Mapping[str, dict], mean: Mapping[str, float]) -> None:
  scored = {language: entry for language, entry in by_language.items() if entry['scores']}
  scores = {language: entry['scores'] for language, entry in scored.items()}
  names = list(next(iter(scores.values())))
  main = 'f1' if 'f1' in names else names[0]
  has_baselines = all(entry['baseline'] for entry in scored.values())
  numbers = lambda values: [f'{values[name]:.1f}' if name in values else '–' for name in names]
  rows = []
  for language, entry in scored.items():
    baseline = [f'{entry["baseline"][main]:.1f}'] if has_baselines else []
    rows.append([language, f'{entry["examples"]:,}', *numbers(entry['scores']), *baseline])
  rows.append([f'average ({len(scores)} languages)', '', *numbers(mean)])
  others = [values for language, values in scores.items() if language != 'en']
  if 'en' in scores and others:
    gap = {name: scores['en'][name] - statistics.fmean(other[name] for other in others) for name in names}
    rows.append(['transfer gap (en − others)', '', *numbers(gap)])
  console.table(task, ['', 'examples', *names, *[f'{main} baseline'] * has_baselines], rows)
