"""Evaluation of a trained model on XTREME, in every language that has data, or on a mixture; nothing is learned.

Fine-tuning ends with the same: logits for rows, predictions as files, and `results.json` with all scores.
"""

import dataclasses
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import optax
from etils import epath

import rembert
from rembert import configuration
from rembert.checkpoint.initialize import InitialParameters, open_initial
from rembert.checkpoint.load import Source, open_source
from rembert.data.finetune_batches import Row, judged_batches
from rembert.errors import Setting, UsageError
from rembert.files import write_whole
from rembert.inference.model import load
from rembert.jobs import retrieve
from rembert.jobs import workdir as workdirs
from rembert.jobs.config import EvaluateConfig, FinetuneConfig
from rembert.jobs.finetune_tasks import (
  EvaluatedTask,
  FinetuneTasks,
  baseline_examples,
  check_vocabulary_of_tasks,
  open_folder,
  open_tasks,
  register,
  show_evaluated,
)
from rembert.jobs.predict import text_encoder
from rembert.jobs.summary import show_hosts, show_model
from rembert.jobs.training_run import JobRun, build_config, model_config, start
from rembert.model.heads import build_model
from rembert.runtime.signals import StopSignal
from rembert.tokenizer import SpecialIds
from rembert.tracking.console import Console, Progress
from rembert.train import sharding, state
from rembert.train.state import Trainable
from rembert.train.step import make_logits_step
from tasks.xtreme.benchmark import get_task

RESULTS = 'results.json'


def configured() -> FinetuneConfig:
  """The configuration that gin has been told, for the architecture of the evaluated model."""
  return build_config(FinetuneConfig, model=model_config(configuration.build(EvaluateConfig).model))


def dry_run(config: FinetuneConfig, workdir: epath.Path) -> int:
  """Opens the model and the data as `run` does, and says what would be evaluated."""
  path, console = _model_path(config), Console()
  show_model(console, config.model)
  workdirs.check(workdir)
  if _is_retrieval(config):
    open_folder(config)
    console.say(f'{path} on {config.xtreme.task}')
    return 0
  _, tasks, _ = _open(config)
  console.say(f'evaluating {path}')
  show_evaluated(console, tasks)
  return 0


def run(config: FinetuneConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Evaluates. Each language is written as soon as it is there; a repeated command resumes with the next."""
  _model_path(config)
  if _is_retrieval(config):
    return _retrieve(config, workdir, stop)
  with start(config, workdir) as job:
    return _run(config, job)


def _run(config: FinetuneConfig, job: JobRun) -> int:
  console = job.console
  # --- model and data ----------------------------------------------------------
  source, tasks, initial = _open(config)

  # --- devices ---------------------------------------------------------------
  mesh = sharding.make_mesh(config.mesh)
  trainable = make_trainable(config, tasks, optax.identity(), mesh)
  console.say(f'rembert {rembert.__version__} · evaluating {config.evaluate.model}')
  show_model(console, config.model)
  show_hosts(console, job.hosts)
  job.stack.enter_context(jax.set_mesh(mesh))
  with console.task('reading parameters') as progress:
    params = initial.put_into(trainable.init(0), progress).params
  if job.hosts.is_first:
    configuration.save(job.workdir)

  # --- evaluation --------------------------------------------------------------
  evaluate_tasks(
    Evaluator(trainable, tasks.head, config),
    params,
    tasks,
    train=baseline_examples(config, is_required=False, is_drawn=False),  # without it there is no baseline
    results=Results(job.workdir, {'model': source.path, 'split': config.xtreme.split}, is_writer=job.hosts.is_first),
    console=console,
  )
  console.facts('Done', {'results': f'{job.workdir}/results.json', 'predictions': f'{job.workdir}/predictions'})
  return 0


def _model_path(config: FinetuneConfig) -> str:
  if config.evaluate.model is None:
    raise UsageError(
      'which model?', where='evaluate.model', fix='--gin.evaluate.model=WORKDIR, or a folder of Hugging Face'
    )
  return config.evaluate.model


def _is_retrieval(config: FinetuneConfig) -> bool:
  return config.finetune.mixture is None and config.xtreme.task in retrieve.TASKS


def _open(config: FinetuneConfig) -> tuple[Source, FinetuneTasks, InitialParameters]:
  """The model, the tasks that it is evaluated on, and its parameters; UsageError if they do not go together."""
  path = _model_path(config)
  source = open_source(path)
  is_mixture = config.finetune.mixture is not None
  tasks = open_tasks(config, is_trained=False) if is_mixture else None
  for task in (tasks,) if tasks else map(get_task, config.xtreme.judged):
    if (source.head, tuple(source.labels)) != (task.head, task.labels):
      raise UsageError(
        f'the model has {_format_head(source.head, source.labels)}, and {task.name} needs '
        f'{_format_head(task.head, task.labels)}',
        where=f'evaluate.model = {path}',
        fix='name a model that was fine-tuned for the task: gin/finetune_*.gin',
      )
  tasks = tasks or open_tasks(config, is_trained=False)
  vocabulary = config.vocabulary.path or source.vocabulary
  if vocabulary is None:
    raise UsageError('no vocabulary beside the model', where=str(path), fix='--gin.vocabulary.path=sentencepiece.model')
  check_vocabulary_of_tasks(tasks, vocabulary)
  register(config, vocabulary)
  initial = open_initial(path, 'all', config.model, head=tasks.head, num_labels=len(tasks.labels) or None)
  return source, tasks, initial


def _retrieve(config: FinetuneConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Sentences find their translations by the embeddings of the model, on one device."""
  workdirs.prepare(workdir)
  console = Console()
  with workdirs.locked(workdir, console.say):
    folder, model = open_folder(config), load(config.evaluate.model)
    configuration.save(workdir)
    encoder = text_encoder(model, config.vocabulary.path)
    retrieve.run(
      model, encoder, folder, config.xtreme, workdir, console, stop, batch_size=config.finetune.judge_batch_size
    )
  return 0


def _format_head(head: str | None, labels) -> str:
  name = 'no head' if head is None else f'a head for {head}'
  return f'{name} of {len(labels)} labels' if labels else name


# --- the model -------------------------------------------------------------------------------------------------------


def make_trainable(
  config: FinetuneConfig, tasks: FinetuneTasks, optimizer: optax.GradientTransformation, mesh: jax.sharding.Mesh
) -> Trainable:
  """The model with the tasks' head on a mesh."""
  build = lambda rngs: build_model(
    tasks.head, config.model, config.execution, num_labels=len(tasks.labels) or None, rngs=rngs
  )
  return state.trainable(build, config.execution, optimizer, mesh)


class Evaluator:
  """A model's head over rows, many at a time, on all devices and hosts.

  UsageError if the mesh does not divide `finetune.judge_batch_size`.
  """

  def __init__(self, trainable: Trainable, head: str, config: FinetuneConfig):
    self._mesh, self.head, self.config = trainable.mesh, head, config
    self._step = make_logits_step(trainable)
    batch_size, shards = config.finetune.judge_batch_size, sharding.batch_shards(self._mesh)
    if batch_size % shards:
      raise UsageError(
        f'a batch of {batch_size} rows does not divide over {shards} device group(s)',
        where='finetune.judge_batch_size, mesh.data × mesh.fsdp',
        fix=Setting('finetune.judge_batch_size', -(-batch_size // shards) * shards),
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
        found[number] = logits[place] if self.head == 'classification' else logits[place, :end]
      done += len(chosen)
      on_progress(done / len(rows), f'{done} rows')
    return found if done == len(rows) else None

  def _logits(self, params, rows, is_stopped) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    pending = None
    batches = judged_batches(
      rows,
      self.head,
      batch_size=self.config.finetune.judge_batch_size,
      longest=self.config.train.sequence_length,
      pad=SpecialIds().pad,
      process=(jax.process_index(), jax.process_count()),
    )
    for chosen, batch in batches:
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
class LanguageResult:
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


class Results:
  """`results.json` of a workdir, written anew after every language, and read when a run goes on.

  Args:
    workdir: of the run.
    facts: what is evaluated, JSON; what is there about anything else is begun anew.
    is_writer: one host writes.
  """

  def __init__(self, workdir: epath.Path, facts: dict, *, is_writer: bool):
    self._workdir, self._file, self._is_writer = workdir, workdir / RESULTS, is_writer
    self.content: dict = {**facts, 'tasks': {}, 'skipped': {}, 'mean': {}}
    if self._file.exists():
      before = json.loads(self._file.read_text())
      if {name: before.get(name) for name in facts} == json.loads(json.dumps(facts)):
        self.content = before

  def has(self, task: str, language: str) -> bool:
    """Whether that has been evaluated already, and its predictions are there."""
    entry = self.content['tasks'].get(task, {}).get(language)
    return entry is not None and (self._workdir / entry['predictions']).exists()

  def add(self, task: str, language: str, result: LanguageResult, text: str) -> None:
    """Writes the predictions, then the results with this language's."""
    of_task = self.content['tasks'].setdefault(task, {})
    of_task[language] = dataclasses.asdict(result)
    scored = [entry['scores'] for entry in of_task.values() if entry['scores']]
    names = scored[0] if scored else ()
    of_name = lambda name: [scores[name] for scores in scored if name in scores]
    self.content['mean'][task] = {name: sum(of_name(name)) / len(of_name(name)) for name in names}
    if self._is_writer:
      write_whole(self._workdir / result.predictions, text)
      write_whole(self._file, json.dumps(self.content, indent=1, ensure_ascii=False) + '\n')


def evaluate_tasks(
  evaluator: Evaluator,
  params: dict,
  tasks: FinetuneTasks,
  *,
  train: Sequence[Any],
  results: Results,
  console: Console,
) -> None:
  """Predictions and scores of all evaluated tasks, each as soon as it is there; a table of each group in the end.

  Between two tasks all is written: a signal may end the program anywhere, and the next start resumes from there.
  XTREME's baseline takes its frequencies from the examples `train`; without any there is no baseline.
  """
  for group, reasons in tasks.skipped.items():
    results.content['skipped'][group] = dict(reasons)
  for number, evaluated in enumerate(tasks.evaluated, 1):
    if results.has(evaluated.group, evaluated.name):
      continue
    with console.task(f'{evaluated.group} {evaluated.name} ({number}/{len(tasks.evaluated)})') as progress:
      result, text = _evaluate(evaluated, evaluator, params, train, progress)
    results.add(evaluated.group, evaluated.name, result, text)
    scores = format_scores(result.scores, result.baseline) if result.scores else f'no score: {result.note}'
    console.say(f'{evaluated.group} {evaluated.name}: {scores}')
  show_results(console, results.content)


def _evaluate(
  evaluated: EvaluatedTask, evaluator: Evaluator, params: dict, train: Sequence[Any], progress: Progress
) -> tuple[LanguageResult, str]:
  """Results of a task, and its file of predictions."""
  from tasks import rows as task_rows
  from tasks.registration import find

  task, xtreme, head, config = find(evaluated.seqio_name), evaluated.xtreme, evaluator.head, evaluator.config
  rows = task_rows.read_rows(task, evaluated.split, head, max_length=config.train.sequence_length)
  outputs = evaluator.outputs(params, rows, on_progress=progress)
  assert outputs is not None  # nothing stops it midway
  result = LanguageResult(evaluated.examples or len(rows), None, None, evaluated.predictions)
  try:
    result.scores = task_rows.metrics(task, rows, outputs, head)
  except UsageError as error:  # predictions can be handed in; a score cannot be made up
    result.note = f'{error.what} ({error.where})'
  if xtreme is None:
    return result, task_rows.prediction_lines(task, rows, outputs, head)
  targets = task_rows.targets(task, rows)
  if train and result.scores:
    baseline = xtreme.baseline(train, targets)
    result.baseline = xtreme.score(targets, baseline, evaluated.name)
  predictions = xtreme.predict(targets, outputs, config.xtreme)
  return result, xtreme.file_text(predictions, targets, result.examples)


def format_scores(scores: dict[str, float], baseline: dict[str, float] | None = None) -> str:
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
