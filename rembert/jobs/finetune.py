"""Fine-tunes a pre-trained encoder on SeqIO tasks, and evaluates it by task and language."""

import dataclasses
import functools
import hashlib
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from rembert import configuration
from rembert.checkpoint.initialize import InitialParameters, open_initial
from rembert.checkpoint.load import config_gin
from rembert.checkpoint.manager import Checkpoints
from rembert.data.batches import prefetch
from rembert.data.finetune_batches import Features, IndexedRows, TrainingRows, digest_of, write_rows
from rembert.errors import UsageError
from rembert.files import sha256_of, write_whole
from rembert.jobs import summary
from rembert.jobs import workdir as workdirs
from rembert.jobs.config import FinetuneConfig, build_config
from rembert.jobs.evaluate import Evaluator, Results, evaluate_tasks, format_scores, make_trainable, mean_loss
from rembert.jobs.finetune_tasks import FinetuneTasks, open_tasks, show_evaluated, training_examples
from rembert.jobs.training_run import JobRun, open_checkpoints, refuse_other_run, restore_or_init, run_loop, start
from rembert.runtime.signals import EXIT_STOPPED, StopSignal
from rembert.tokenizer import SpecialIds, check_vocabulary
from rembert.tracking.console import Console, Progress
from rembert.train import sharding
from rembert.train.optimizer import make_optimizer
from rembert.train.state import Trainable
from rembert.train.step import head_sums, make_train_step
from rembert.train.trainer import TrainConfig
from tasks.tables import SPLITS


def make_step(config: FinetuneConfig, head: str, trainable: Trainable) -> jax.stages.Wrapped:
  """The update of fine-tuning, to be run under `jax.set_mesh`; `--mode=compile` compiles the same."""
  return make_train_step(trainable, sums_of=head_sums(head), accumulation_steps=config.train.accumulation_steps)


def configured() -> FinetuneConfig:
  """Builds the configuration from gin, with the architecture of `train.init_from`."""
  return build_config(FinetuneConfig, model_path=configuration.build(TrainConfig).init_from)


def dry_run(config: FinetuneConfig, workdir: epath.Path) -> int:
  """Prints the model, and reads the training and evaluation data; does not use devices."""
  console = Console()
  summary.show_model(console, config.model)
  workdirs.check(workdir)
  tasks = open_tasks(config)
  if config.finetune.mixture is None:
    count = len(training_examples(config))
    most = min(count, config.finetune.max_examples or count)
    console.say(f'{tasks.name}: {most:,} training examples' + (f' of {count:,}' if most < count else ''))
  else:
    console.say(f'{tasks.name}: rates ' + ', '.join(f'{task} {rate:g}' for task, rate in tasks.train.items()))
  show_evaluated(console, tasks)
  return 0


def run(config: FinetuneConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Trains or resumes the run of the workdir, then evaluates. Returns 0 if done, 75 if stopped early."""
  with start(config, workdir, stop) as job:
    return _run(config, job)


def _run(config: FinetuneConfig, job: JobRun) -> int:
  workdir, hosts, console, goodput = job.workdir, job.hosts, job.console, job.goodput
  # --- data: all of it is read before training ---------------------------------
  with console.task('loading examples'):
    tasks = open_tasks(config)
  initial = None
  if config.train.init_from is not None:
    initial = open_initial(
      config.train.init_from, 'encoder', config.model, head=tasks.head, num_labels=len(tasks.labels), drops_layers=True
    )
  vocabulary = _find_vocabulary(config, tasks, initial)
  tasks.register(vocabulary)
  if hosts.is_first:
    # `best` is loaded and exported as any workdir.
    for folder in [workdir, workdir / 'best'] if config.finetune.select == 'best' else [workdir]:
      write_whole(folder / 'vocabulary/sentencepiece.model', vocabulary.read_bytes())
  hosts.wait_for_all('vocabulary')
  with console.task('tokenizing examples') as progress:
    if config.dataset.kind is not None:
      train_rows, digest = _indexed_rows(config, tasks, job, vocabulary, progress)
    else:
      splits, most = dict.fromkeys(tasks.train, 'train'), config.finetune.max_examples
      train_rows = _read_rows(config, tasks, splits, most, keep_examples=False)
      digest = digest_of(itertools.chain(*train_rows.values()))
    dev_rows = _read_rows(config, tasks, tasks.dev, config.finetune.max_dev_examples, keep_examples=True)
  all_dev_rows, train_count = list(itertools.chain(*dev_rows.values())), sum(map(len, train_rows.values()))
  config = config.for_rows(train_count)
  train = config.train
  identity = config.identity() | {'training rows': digest, 'head': tasks.head, 'labels': list(tasks.labels)}

  # --- state of the workdir ----------------------------------------------------
  checkpoints = open_checkpoints(job, train)
  best = Checkpoints(workdir / 'best' / 'checkpoints', keep=1, say=console.say)
  job.stack.callback(best.close)
  newest = checkpoints.newest()
  if newest is not None:
    refuse_other_run(newest.meta, identity, workdir)
  if hosts.is_first:
    configuration.save(workdir)
    if all_dev_rows:
      write_whole(workdir / 'best' / 'config.gin', config_gin(config.model))

  # --- devices ---------------------------------------------------------------
  mesh = sharding.make_mesh(config.mesh)
  config = config.on(mesh)
  config.check_mesh(mesh)
  optimizer = make_optimizer(config.optimizer, train.steps)
  trainable = make_trainable(config, tasks.head, tasks.labels, optimizer, mesh)
  summary.show_start(job, f'fine-tuning on {tasks.name} in {workdir}', config, trainable)
  _show_training(console, config, tasks, train_count, len(all_dev_rows))
  if tasks.description:
    console.say(f'{tasks.name}: {tasks.description}')

  # --- restore: this workdir → train.init_from → from scratch -------------------
  job.stack.enter_context(jax.set_mesh(mesh))
  if newest is None and initial is None:
    console.say('train.init_from is not set: the encoder is randomly initialised')
  position = restore_or_init(config, job, checkpoints, trainable, initial, is_begun=newest is not None)

  evaluator = Evaluator(trainable, tasks.head, config)
  if position.step < train.steps or position.is_evaluation_due:
    # --- compile ---------------------------------------------------------------
    source = TrainingRows(
      list(train_rows.values()),
      list(tasks.train.values()),
      tasks.head,
      batch_size=train.batch_size,
      sequence_length=train.sequence_length,
      pad=SpecialIds().pad,
      seed=train.seed,
      process=(jax.process_index(), jax.process_count()),
    )
    batches = prefetch(source.batches(position.step), lambda batch: (sharding.to_device(batch, mesh), {}))
    job.stack.callback(batches.close)
    first = next(batches)
    step = make_step(config, tasks.head, trainable)
    with console.task('compiling'), goodput.activity('compile'):
      compiled = step.lower(trainable.restore_target(), first[0], config.dropout_seed).compile()
      if all_dev_rows:  # now, not at the first evaluation, when a signal could not interrupt the compilation
        evaluator.outputs(position.state.params, all_dev_rows[:1])

    # --- loop ------------------------------------------------------------------
    found = best.newest()
    best_score = -math.inf if found is None else _first(found.meta['dev'])

    def evaluate_dev(params: dict, is_stopped: Callable[[], bool]) -> dict[str, float] | None:
      nonlocal best_score
      outputs = evaluator.outputs(params, all_dev_rows, is_stopped=is_stopped)
      if outputs is None:
        return None
      scores = _dev_scores(tasks, dev_rows, outputs)
      if _first(scores) > best_score:  # the earliest on ties, also if a run resumes before it
        best_score = _first(scores)
        best.save(position.step, position.state, {}, identity | {'dev': scores})
        best.wait()  # before any checkpoint records this evaluation as done
      return {'eval/loss': mean_loss(tasks.head, all_dev_rows, outputs)} | {
        f'eval/dev/{name}': value for name, value in scores.items()
      }

    is_done = run_loop(
      config,
      job,
      position,
      itertools.chain([first], batches),
      train_step=lambda state, batch: compiled(state, batch, config.dropout_seed),
      evaluate=evaluate_dev if all_dev_rows else None,
      identity=identity,
      checkpoints=checkpoints,
      choices=math.prod(next(iter(train_rows.values()))[0].input_ids.shape[:-1]),
    )
    if not is_done:
      return EXIT_STOPPED

  # --- evaluation: the best parameters, or the last, on every task and language --
  params, evaluated_step, dev = position.state.model, position.step, None
  if all_dev_rows:
    chosen = best.restore_newest(trainable.restore_target())
    assert chosen is not None  # the loop has evaluated at least once
    params, evaluated_step, dev = chosen.state.model, chosen.step, chosen.meta['dev']
    console.say(f'evaluating the parameters of step {evaluated_step}: {format_scores(dev)} on dev')
  facts = {
    'task': tasks.name,
    'step': evaluated_step,
    'seed': train.seed,
    'learning_rate': config.optimizer.learning_rate,
    'init_from': train.init_from,
    'train_language': None if config.finetune.mixture else config.xtreme.train_language,
    'split': config.xtreme.split,
    'dev': dev,
    'training rows': identity['training rows'],
  }
  results = Results(workdir, facts, hosts.is_first)
  with goodput.activity('evaluation'):
    evaluate_tasks(evaluator, params, tasks, results=results, console=console)
  goodput.write()
  is_best = (workdir / 'best' / 'checkpoints' / str(evaluated_step)).exists()
  console.facts(
    'Done',
    {
      'results': f'{workdir}/results.json',
      'predictions': f'{workdir}/predictions',
      'parameters': f'{workdir}/best' if is_best else f'{workdir}',
      'plot': f'{workdir}/loss.png',
    },
  )
  summary.show_account(console, workdir)
  return 0


def _find_vocabulary(config: FinetuneConfig, tasks: FinetuneTasks, initial: InitialParameters | None) -> epath.Path:
  """`vocabulary.path`, else that of `train.init_from` or of the tasks; UsageError if it does not fit the model."""
  path = config.vocabulary.path or (initial and initial.source.vocabulary) or tasks.vocabulary()
  if path is None:
    raise UsageError(
      'no vocabulary: the model has none and vocabulary.path is not set',
      where='vocabulary.path, train.init_from',
      fix=['--gin.train.init_from=MODEL with its vocabulary next to it', '--gin.vocabulary.path=sentencepiece.model'],
    )
  check_vocabulary(path, config.model.vocab_size)
  if initial is not None:
    initial.check_vocabulary(path)
  return epath.Path(path)


def _read_rows(
  config: FinetuneConfig, tasks: FinetuneTasks, splits: Mapping[str, str], most: int | None, *, keep_examples: bool
) -> dict[str, Sequence[Features]]:
  """Sequences of a split of each SeqIO task, from at most `most` examples."""
  from tasks.registration import find
  from tasks.rows import stream_rows

  found: dict[str, Sequence[Features]] = {}
  for name, split in splits.items():
    length = config.train.sequence_length
    found[name] = list(
      stream_rows(find(name), split, tasks.head, max_length=length, max_examples=most, keep_examples=keep_examples)
    )
    _check_ids(config, max(int(row.input_ids.max()) for row in found[name]), f'task {name}, split {split}')
  return found


def _check_ids(config: FinetuneConfig, largest: int, where: str) -> None:
  if largest >= config.model.vocab_size:
    raise UsageError(
      f"id {largest} exceeds the model's {config.model.vocab_size} tokens",
      where=where,
      fix='use tasks with the vocabulary of the model',
    )


def _indexed_rows(
  config: FinetuneConfig, tasks: FinetuneTasks, job: JobRun, vocabulary: epath.Path, progress: Progress
) -> tuple[dict[str, Sequence[Features]], str]:
  """Training sequences of tables, converted once into files of the workdir that are read by index; and their digest."""
  import fsspec

  from tasks.registration import find
  from tasks.rows import stream_rows

  found: dict[str, Sequence[Features]] = {}
  digests, most = [], config.finetune.max_examples
  options: dict[str, Any] = {'max_length': config.train.sequence_length, 'max_examples': most, 'keep_examples': False}
  columns = {name: value for name, value in dataclasses.asdict(config.dataset).items() if name not in SPLITS}
  origin = {**columns, **dataclasses.asdict(config.xtreme), **options, 'labels': list(tasks.labels)}
  for name in tasks.train:
    folder, task = job.workdir / 'rows' / name, find(name)
    if job.hosts.is_first:
      examples = min(task.num_input_examples('train'), most or sys.maxsize)
      table = fsspec.open(task.source.list_shards('train')[0], 'rb')
      files = {'table': sha256_of(table), 'vocabulary': sha256_of(vocabulary)}
      show = functools.partial(_show_rows, progress, examples)
      write_rows(folder, functools.partial(stream_rows, task, 'train', tasks.head, **options), origin | files, show)
    job.hosts.wait_for_all(f'rows {name}')
    found[name] = indexed = IndexedRows(folder, tasks.head)
    _check_ids(config, indexed.facts['largest_id'], f'task {name}, split train')
    digests.append(indexed.facts['digest'])
  return found, digests[0] if len(digests) == 1 else hashlib.sha256(''.join(digests).encode()).hexdigest()


def _show_rows(progress: Progress, examples: int, rows: int) -> None:
  if rows % 1000 == 0:
    progress(min(rows / examples, 1), f'{rows:,} sequences')


def _dev_scores(
  tasks: FinetuneTasks, dev_rows: Mapping[str, Sequence[Features]], outputs: Sequence[np.ndarray]
) -> dict[str, float]:
  """Scores on all dev splits, each the mean over the tasks that have it."""
  from tasks.registration import find
  from tasks.rows import metrics

  outputs = iter(outputs)
  scores = [
    metrics(find(name), rows, list(itertools.islice(outputs, len(rows))), tasks.head) for name, rows in dev_rows.items()
  ]
  names = dict.fromkeys(name for of_task in scores for name in of_task)
  return {name: statistics.fmean(of_task[name] for of_task in scores if name in of_task) for name in names}


def _first(scores: Mapping[str, float]) -> float:
  """The score for checkpoint selection."""
  return next(iter(scores.values()))


def _show_training(
  console: Console, config: FinetuneConfig, tasks: FinetuneTasks, train_rows: int, dev_rows: int
) -> None:
  train, xtreme = config.train, config.xtreme
  if config.finetune.mixture:
    task = f'{tasks.name}: ' + ', '.join(f'{name} at {rate:g}' for name, rate in tasks.train.items())
  else:
    task = f'{tasks.name}, trained on {xtreme.train_language}'
    task += f', evaluated on {", ".join(xtreme.evaluate_on)}' if xtreme.evaluate_on else ''
  facts = {'task': task, 'examples': f'{train_rows:,} training, {dev_rows:,} dev', **summary.format_training(config)}
  facts['steps'] += f', {train.steps * train.batch_size / train_rows:.3g} epochs'
  facts['checkpoint selection'] = f'best dev score, every {train.eval_every} steps' if dev_rows else 'last step'
  facts['initialised from'] = train.init_from or 'random parameters'
  console.facts('Fine-tuning', facts)
