"""Fine-tuning: parameters of a pre-trained encoder, SeqIO tasks → updates → scores by task and language."""

import hashlib
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import jax
import numpy as np
from etils import epath

import rembert
from rembert import configuration
from rembert.aot import flops
from rembert.checkpoint.initialize import open_initial
from rembert.checkpoint.load import config_gin
from rembert.checkpoint.manager import Checkpoints
from rembert.data.finetune_batches import Row, TrainingRows
from rembert.data.prefetch import prefetch
from rembert.errors import UsageError
from rembert.files import write_whole
from rembert.jobs import workdir as workdirs
from rembert.jobs.config import FinetuneConfig
from rembert.jobs.evaluate import Evaluator, Results, evaluate_tasks, format_scores, make_trainable, mean_loss
from rembert.jobs.finetune_tasks import (
  FinetuneTasks,
  baseline_examples,
  check_vocabulary_of_tasks,
  open_tasks,
  register,
  show_evaluated,
  vocabulary_of_tasks,
)
from rembert.jobs.summary import format_schedule, show_account, show_devices, show_hosts, show_model
from rembert.jobs.training_run import (
  JobRun,
  build_config,
  model_config,
  open_checkpoints,
  refuse_other_run,
  restore_or_init,
  run_loop,
  start,
)
from rembert.runtime.signals import EXIT_STOPPED, StopSignal
from rembert.tokenizer import SpecialIds
from rembert.tracking.console import Console
from rembert.tracking.goodput import Goodput
from rembert.train import sharding
from rembert.train.optimizer import make_optimizer
from rembert.train.step import head_sums, make_train_step
from rembert.train.trainer import TrainConfig

if TYPE_CHECKING:
  from tasks.rows import Row as ExampleRow


def configured() -> FinetuneConfig:
  """The configuration that gin has been told, for the architecture of the parameters to begin with."""
  return build_config(FinetuneConfig, model=model_config(configuration.build(TrainConfig).init_from))


def dry_run(config: FinetuneConfig, workdir: epath.Path) -> int:
  """Prints the model, and reads what is learned and evaluated; touches no devices."""
  console = Console()
  show_model(console, config.model)
  workdirs.check(workdir)
  tasks = open_tasks(config)
  if config.finetune.mixture is None:
    learned, most = len(baseline_examples(config, is_drawn=False)), config.finetune.max_examples
    count = min(learned, most or learned)
    console.say(f'{tasks.name}: {count:,} examples to learn from' + (f' of {learned:,}' * (count < learned)))
  else:
    console.say(f'{tasks.name}: rates ' + ', '.join(f'{task} {rate:g}' for task, rate in tasks.train.items()))
  show_evaluated(console, tasks)
  return 0


def run(config: FinetuneConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Trains, or goes on where the workdir stands, and evaluates. Exit code: 0 done, 75 stopped and to be repeated."""
  with start(config, workdir) as job:
    return _run(config, job, stop)


def _run(config: FinetuneConfig, job: JobRun, stop: StopSignal) -> int:
  workdir, hosts, console, stack = job.workdir, job.hosts, job.console, job.stack
  goodput = Goodput(workdir / 'goodput.json', is_writer=hosts.is_first)

  # --- data: all of it is read before anything is trained ----------------------
  with console.task('reading examples'):
    tasks = open_tasks(config)
  initial = None
  if config.train.init_from is not None:
    initial = open_initial(
      config.train.init_from, 'encoder', config.model, head=tasks.head, num_labels=len(tasks.labels), drops_layers=True
    )
  vocabulary = _vocabulary(config, tasks, initial, workdir, is_writer=hosts.is_first)
  hosts.wait_for_all('vocabulary')
  register(config, vocabulary)
  with console.task('examples to rows'):
    train_rows = _read_rows(config, tasks, dict.fromkeys(tasks.train, 'train'), config.finetune.max_examples)
    dev_rows = _read_rows(config, tasks, tasks.dev, config.finetune.max_dev_examples, keep_examples=True)
  all_train_rows, all_dev_rows = (list(itertools.chain(*rows.values())) for rows in (train_rows, dev_rows))
  config = config.for_rows(len(all_train_rows))
  train = config.train
  identity = config.identity() | {
    'training rows': _digest(all_train_rows),
    'head': tasks.head,
    'labels': list(tasks.labels),
  }

  # --- where the workdir stands ------------------------------------------------
  checkpoints = open_checkpoints(job, train)
  best = Checkpoints(workdir / 'best' / 'checkpoints', keep=1, say=console.say)
  stack.callback(best.close)
  newest = checkpoints.newest()
  if newest is not None:
    refuse_other_run(newest.meta, identity, workdir)
  if hosts.is_first:
    configuration.save(workdir)
    if all_dev_rows:
      write_whole(workdir / 'best' / 'config.gin', config_gin(config.model))

  # --- devices ---------------------------------------------------------------
  mesh = sharding.make_mesh(config.mesh)
  config.check_mesh(mesh)
  trainable = make_trainable(config, tasks, make_optimizer(config.optimizer, train.steps), mesh)
  console.say(f'rembert {rembert.__version__} · fine-tuning on {tasks.name} in {workdir}')
  show_model(console, config.model)
  peak = flops.peak_flops_per_device()
  show_devices(console, trainable, config, peak)
  show_hosts(console, hosts)
  _show_schedule(console, config, tasks, len(all_train_rows), len(all_dev_rows))

  # --- restore: this workdir → train.init_from → from scratch -------------------
  stack.enter_context(jax.set_mesh(mesh))
  if newest is None and initial is None:
    console.say('train.init_from names no parameters: the encoder begins untrained')
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
    stack.callback(batches.close)
    first = next(batches)
    step = make_train_step(
      trainable,
      sums_of=head_sums(tasks.head),
      accumulation_steps=train.accumulation_steps,
      dropout_seed=config.dropout_seed,
    )
    with console.task('compiling'), goodput.activity('compile'):
      train_step = cast(jax.stages.Wrapped, step).lower(trainable.restore_target(), first[0]).compile()
      if all_dev_rows:  # now, and not at the first evaluation: a signal ends a compilation where nothing can be lost
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
      if _first(scores) > best_score:  # the first among equals, also when a run resumes before it
        best_score = _first(scores)
        best.save(position.step, position.state, {}, identity | {'dev': scores})
        best.wait()  # before any checkpoint says that this evaluation has been made
      return {'eval/loss': mean_loss(tasks.head, all_dev_rows, outputs)} | {
        f'eval/dev/{name}': value for name, value in scores.items()
      }

    is_done = run_loop(
      config,
      job,
      stop,
      position,
      itertools.chain([first], batches),
      train_step=train_step,
      evaluate=evaluate_dev if all_dev_rows else None,
      identity=identity,
      checkpoints=checkpoints,
      goodput=goodput,
      peak=peak,
    )
    if not is_done:
      return EXIT_STOPPED

  # --- evaluation: the best parameters, or the last, of every task and language --
  params, evaluated_step, dev = position.state.params, position.step, None
  if all_dev_rows:
    chosen = best.restore_newest(trainable.restore_target())
    assert chosen is not None  # an evaluation has been made by now
    params, evaluated_step, dev = chosen.state.params, chosen.step, chosen.meta['dev']
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
  results = Results(workdir, facts, is_writer=hosts.is_first)
  with goodput.activity('evaluation'):
    evaluate_tasks(evaluator, params, tasks, train=baseline_examples(config), results=results, console=console)
  goodput.write()
  _show_end(console, workdir, evaluated_step)
  return 0


def _vocabulary(
  config: FinetuneConfig, tasks: FinetuneTasks, initial, workdir: epath.Path, *, is_writer: bool
) -> epath.Path:
  """The workdir's copy of the vocabulary: `vocabulary.path`, else that of `train.init_from` or of the tasks."""
  path = config.vocabulary.path or (initial and initial.source.vocabulary) or vocabulary_of_tasks(tasks)
  if path is None:
    raise UsageError(
      'there is no vocabulary: nothing tells which pieces the model knows',
      where='vocabulary.path, train.init_from',
      fix=['--gin.train.init_from=MODEL with its vocabulary beside it', '--gin.vocabulary.path=sentencepiece.model'],
    )
  file = workdir / 'vocabulary' / 'sentencepiece.model'
  content = epath.Path(path).read_bytes()
  check_vocabulary_of_tasks(tasks, path)
  if is_writer:
    from rembert.tokenizer import check_vocabulary

    check_vocabulary(path, config.model.vocab_size)
    # `best` is to be loaded and exported as any workdir.
    for folder in (workdir, *((workdir / 'best',) if config.finetune.select == 'best' else ())):
      write_whole(folder / 'vocabulary' / 'sentencepiece.model', content)
  if initial is not None:
    initial.check_vocabulary(path)
  return file


def _read_rows(
  config: FinetuneConfig,
  tasks: FinetuneTasks,
  splits: Mapping[str, str],
  max_examples: int | None,
  *,
  keep_examples: bool = False,
) -> dict[str, Sequence['ExampleRow']]:
  """Rows of a split of each SeqIO task."""
  from tasks.registration import find
  from tasks.rows import read_rows

  found: dict[str, Sequence[ExampleRow]] = {
    name: read_rows(
      find(name),
      split,
      tasks.head,
      max_length=config.train.sequence_length,
      max_examples=max_examples,
      keep_examples=keep_examples,
    )
    for name, split in splits.items()
  }
  for name, rows in found.items():
    largest = max(int(row.input_ids.max()) for row in rows)
    if largest >= config.model.vocab_size:
      raise UsageError(
        f'id {largest} is beyond the {config.model.vocab_size} tokens of the model',
        where=f'task {name}, split {splits[name]}',
        fix='tasks with the vocabulary of the model',
      )
  return found


def _dev_scores(
  tasks: FinetuneTasks, dev_rows: Mapping[str, Sequence['ExampleRow']], outputs: Sequence[np.ndarray]
) -> dict[str, float]:
  """Scores of all dev splits, each the mean over the tasks that have it."""
  from tasks.registration import find
  from tasks.rows import metrics

  outputs = iter(outputs)
  scores = [
    metrics(find(name), rows, list(itertools.islice(outputs, len(rows))), tasks.head) for name, rows in dev_rows.items()
  ]
  names = dict.fromkeys(name for of_task in scores for name in of_task)
  return {name: statistics.fmean(of_task[name] for of_task in scores if name in of_task) for name in names}


def _first(scores: Mapping[str, float]) -> float:
  """The score that parameters are chosen by."""
  return next(iter(scores.values()))


def _digest(rows: Sequence[Row]) -> str:
  """Of what is trained on: another file, or another vocabulary, is another run."""
  digest = hashlib.sha256()
  for row in rows:
    digest.update(row.input_ids.tobytes() + b'|' + row.labels.tobytes() + b'\n')
  return digest.hexdigest()


def _show_schedule(
  console: Console, config: FinetuneConfig, tasks: FinetuneTasks, train_rows: int, dev_rows: int
) -> None:
  train, optimizer, xtreme = config.train, config.optimizer, config.xtreme
  select = f'the best on dev, at every {train.eval_every} steps' if dev_rows else 'the last'
  learned = f'{tasks.name}, learned in {xtreme.train_language}'
  learned += f', evaluated on {", ".join(xtreme.evaluate_on)}' if xtreme.evaluate_on else ''
  if config.finetune.mixture:
    learned = f'{tasks.name}: ' + ', '.join(f'{name} at {rate:g}' for name, rate in tasks.train.items())
  console.facts(
    'Fine-tuning',
    {
      'task': learned,
      'rows': f'{train_rows:,} to learn from, {dev_rows:,} for dev',
      'batch': f'{train.batch_size} rows × {train.sequence_length} tokens'
      + (f', in {train.accumulation_steps} parts' if train.accumulation_steps > 1 else ''),
      'steps': f'{train.steps:,}, {train.steps * train.batch_size / train_rows:.3g} epochs',
      'learning rate': format_schedule(optimizer, train.steps),
      'evaluated': f'{select}, in every language that has data',
      'begins with': train.init_from or 'nothing: untrained',
    },
  )


def _show_end(console: Console, workdir: epath.Path, step: int) -> None:
  console.facts(
    'Done',
    {
      'results': f'{workdir}/results.json',
      'predictions': f'{workdir}/predictions',
      'parameters': f'{workdir}/best' if (workdir / 'best' / 'checkpoints' / str(step)).exists() else f'{workdir}',
      'picture': f'{workdir}/loss.png',
    },
  )
  show_account(console, workdir)
