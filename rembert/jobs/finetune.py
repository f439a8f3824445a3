"""Fine-tuning: parameters of a pre-trained encoder, a task in one language → updates → scores in all languages."""

import contextlib
import hashlib
import itertools
import math
from collections.abc import Callable

import jax
from etils import epath

import rembert
from rembert import configuration
from rembert.data.prefetch import prefetch
from rembert.data.rows import TrainingRows
from rembert.errors import UsageError
from rembert.hosts.together import Hosts
from rembert.jobs import finetune_config
from rembert.jobs import workdir as workdirs
from rembert.jobs.description import check_mesh, show_account, show_devices, show_hosts, show_model
from rembert.jobs.finetune_config import FinetuneConfig
from rembert.jobs.initial_parameters import open_initial
from rembert.jobs.judging import (
  Judge,
  Report,
  in_words,
  judge_tasks,
  mean_loss,
  open_folder,
  rows_reader,
  tasks_with_data,
)
from rembert.jobs.training_run import begun, first_position, open_checkpoints, open_workdir, restored_position, run_loop
from rembert.model.heads import build_model
from rembert.saved_models import config_gin
from rembert.storage import write_whole
from rembert.training import flops, sharding, state
from rembert.training.checkpoints import Checkpoints
from rembert.training.console import Console
from rembert.training.goodput import account, read_sessions
from rembert.training.optimizer import make_optimizer
from rembert.training.preemption import EXIT_STOPPED, StopSignal
from rembert.training.state import Trainable
from rembert.training.step import head_sums, make_train_step
from tasks.xtreme.pieces import Pieces
from tasks.xtreme.task import Row, Task
from tasks.xtreme.tasks import get_task


def configured() -> FinetuneConfig:
  """The configuration that gin has been told, for the architecture of the parameters to begin with."""
  return finetune_config.configured(lambda train, evaluate: train.init_from)


def dry_run(config: FinetuneConfig) -> int:
  """Prints the model, and reads what is to be learned and judged; touches no devices."""
  console = Console()
  show_model(console, config.model)
  task, folder = get_task(config.xtreme.task), open_folder(config.xtreme)
  learned = task.examples(folder, 'train', config.xtreme.train_language, needs_labels=True)
  count = min(len(learned), config.finetune.max_examples or len(learned))
  console.say(f'{task.name}: {count:,} examples to learn from' + (f' of {len(learned):,}' * (count < len(learned))))
  judged = [get_task(name) for name in config.xtreme.judged]
  for name, (found, missing) in tasks_with_data(judged, folder, config.xtreme).items():
    console.say(f'{name}: ' + ', '.join(f'{language} {len(examples):,}' for language, examples in found.items()))
    if missing:
      console.say(f'{name}: no data for {", ".join(missing)}')
  return 0


def run(config: FinetuneConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Trains, or goes on where the workdir stands, and judges. Exit code: 0 done, 75 stopped and to be repeated."""
  with begun(config) as (hosts, console, stack):
    return _run(config, workdir, stop, hosts, console, stack)


def _run(
  config: FinetuneConfig,
  workdir: epath.Path,
  stop: StopSignal,
  hosts: Hosts,
  console: Console,
  stack: contextlib.ExitStack,
) -> int:
  xtreme = config.xtreme
  # --- workdir ---------------------------------------------------------------
  goodput = open_workdir(workdir, hosts, console, stack)

  # --- data: all of it is read before anything is trained ----------------------
  task, folder = get_task(xtreme.task), open_folder(xtreme)
  judged_tasks = [get_task(name) for name in xtreme.judged]
  with console.task('reading examples'):
    by_task = tasks_with_data(judged_tasks, folder, xtreme)
  initial = None
  if config.train.init_from is not None:
    initial = open_initial(
      config.train.init_from, 'encoder', config.model, head=task.head, num_labels=len(task.labels), drops_layers=True
    )
  vocabulary = _vocabulary(config, initial, workdir, is_writer=hosts.is_first)
  hosts.wait_for_all('vocabulary')
  pieces = Pieces(vocabulary)
  with console.task('examples to rows'):
    train_examples, train_rows = _read(task, folder, 'train', pieces, config)
    dev_examples, dev_rows = (
      _read(task, folder, 'dev', pieces, config) if config.finetune.select == 'best' else ([], [])
    )
  config = config.for_rows(len(train_rows))
  train = config.train
  identity = config.identity() | {'training rows': _digest(train_rows), 'head': task.head, 'labels': list(task.labels)}

  # --- where the workdir stands ------------------------------------------------
  checkpoints = open_checkpoints(workdir, train, console, stack)
  best = Checkpoints(workdir / 'best' / 'checkpoints', keep=1, say=console.say)
  stack.callback(best.close)
  newest = checkpoints.newest()
  if newest is not None:
    workdirs.refuse_other_run(newest.meta, identity, workdir)
  if hosts.is_first:
    configuration.save(workdir)
    if dev_rows:
      write_whole(workdir / 'best' / 'config.gin', config_gin(config.model))

  # --- devices ---------------------------------------------------------------
  mesh = sharding.make_mesh(config.mesh)
  trainable = make_trainable(config, task, mesh)
  console.say(f'rembert {rembert.__version__} · fine-tuning on {task.name} in {workdir}')
  show_model(console, config.model)
  peak = flops.peak_flops_per_device()
  show_devices(console, trainable, config, peak)
  show_hosts(console, hosts)
  _show_schedule(console, config, task, len(train_examples), len(train_rows), len(dev_examples))

  # --- restore: this workdir → train.init_from → from scratch -------------------
  stack.enter_context(jax.set_mesh(mesh))
  if newest is not None:
    position = restored_position(checkpoints, trainable, config.guards, console)
  else:
    position = first_position(trainable.init(train.seed), config.guards)
    if initial is None:
      console.say('train.init_from names no parameters: the encoder begins untrained')
    else:
      with console.task(f'parameters from {train.init_from}') as progress:
        position.state = initial.put_into(position.state, progress)

  judge = Judge(
    trainable,
    task.head,
    batch_size=config.finetune.judge_batch_size,
    longest=train.sequence_length,
    pad=pieces.special.pad,
  )
  if position.step < train.steps or position.is_evaluation_due:
    # --- compile ---------------------------------------------------------------
    source = TrainingRows(
      train_rows,
      task.head,
      batch_size=train.batch_size,
      sequence_length=train.sequence_length,
      pad=pieces.special.pad,
      seed=train.seed,
      process=(jax.process_index(), jax.process_count()),
    )
    batches = prefetch(source.batches(position.step), lambda batch: (sharding.to_device(batch, mesh), {}))
    stack.callback(batches.close)
    first = next(batches)
    train_step = make_train_step(
      trainable,
      sums_of=head_sums(task.head),
      accumulation_steps=train.accumulation_steps,
      dropout_seed=config.dropout_seed,
    )
    with console.task('compiling'), goodput.activity('compile'):
      train_step = train_step.lower(trainable.restore_target(), first[0]).compile()
      if dev_rows:  # now, and not at the first evaluation: a signal ends a compilation where nothing can be lost
        judge.outputs(position.state.params, dev_rows[:1])

    # --- loop ------------------------------------------------------------------
    found = best.newest()
    best_score = -math.inf if found is None else found.meta['dev'][task.scores[0]]

    def evaluate_dev(params: dict, is_stopped: Callable[[], bool]) -> dict[str, float] | None:
      nonlocal best_score
      outputs = judge.outputs(params, dev_rows, is_stopped=is_stopped)
      if outputs is None:
        return None
      predictions = task.predictions(dev_examples, dev_rows, outputs, config=xtreme)
      scores = task.score(dev_examples, predictions, xtreme.train_language)
      if scores[task.scores[0]] > best_score:  # the first among equals, also when a run goes on before it
        best_score = scores[task.scores[0]]
        best.save(position.step, position.state, {}, identity | {'dev': scores})
        best.wait()  # before any checkpoint says that this evaluation has been made
      return {'eval/loss': mean_loss(task.head, dev_rows, outputs)} | {
        f'eval/dev/{name}': value for name, value in scores.items()
      }

    is_done = run_loop(
      config,
      position,
      itertools.chain([first], batches),
      train_step=train_step,
      evaluate=evaluate_dev if dev_rows else None,
      identity=identity,
      checkpoints=checkpoints,
      workdir=workdir,
      hosts=hosts,
      console=console,
      goodput=goodput,
      peak=peak,
      stop=stop,
    )
    if not is_done:
      return EXIT_STOPPED

  # --- judge: the best parameters, or the last, in every language ----------------
  params, judged_step, dev = position.state.params, position.step, None
  if dev_rows:
    chosen = best.restore_newest(trainable.restore_target())
    params, judged_step, dev = chosen.state.params, chosen.step, chosen.meta['dev']
    console.say(f'judging the parameters of step {judged_step}: {in_words(dev)} on dev')
  facts = {
    'task': task.name,
    'step': judged_step,
    'seed': train.seed,
    'learning_rate': config.optimizer.learning_rate,
    'init_from': train.init_from,
    'train_language': xtreme.train_language,
    'split': xtreme.split,
    'dev': dev,
    'training rows': identity['training rows'],
  }
  report = Report(workdir, facts, is_writer=hosts.is_first)
  with goodput.activity('evaluation'):
    judge_tasks(
      judge,
      params,
      judged_tasks,
      by_task,
      rows_reader(folder, pieces, max_length=train.sequence_length, config=xtreme),
      train=train_examples,
      config=xtreme,
      report=report,
      console=console,
    )
  goodput.write()
  _show_end(console, workdir, judged_step)
  return 0


def make_trainable(config: FinetuneConfig, task: Task, mesh: jax.sharding.Mesh) -> Trainable:
  """Model with the task's head, and optimizer, on a mesh; UsageError where they do not go together."""
  check_mesh(config.train, config.execution, mesh)
  build = lambda rngs: build_model(
    task.head, config.model, config.execution, num_labels=len(task.labels) or None, rngs=rngs
  )
  return state.trainable(build, config.execution, make_optimizer(config.optimizer, config.train.steps), mesh)


def _vocabulary(config: FinetuneConfig, initial, workdir: epath.Path, *, is_writer: bool) -> epath.Path:
  """The workdir's copy of the vocabulary: that of `vocabulary.path`, or of the parameters to begin with."""
  path = config.vocabulary.path or (initial and initial.source.vocabulary)
  if path is None:
    raise UsageError(
      'there is no vocabulary: nothing tells which pieces the model knows',
      where='vocabulary.path, train.init_from',
      fix=['--gin.train.init_from=MODEL with its vocabulary beside it', '--gin.vocabulary.path=sentencepiece.model'],
    )
  file = workdir / 'vocabulary' / 'sentencepiece.model'
  content = epath.Path(path).read_bytes()
  if is_writer:
    from tasks.vocabulary import check_vocabulary

    check_vocabulary(path, config.model.vocab_size)
    # `best` is to be loaded and exported as any workdir.
    for folder in (workdir, *((workdir / 'best',) if config.finetune.select == 'best' else ())):
      write_whole(folder / 'vocabulary' / 'sentencepiece.model', content)
  if initial is not None:
    initial.check_vocabulary(path)
  return file


def _read(task: Task, folder, split: str, pieces: Pieces, config: FinetuneConfig) -> tuple[list, list[Row]]:
  from tasks.xtreme.seqio_tasks import read_rows

  return read_rows(
    task,
    folder,
    split,
    config.xtreme.train_language,
    pieces,
    max_length=config.train.sequence_length,
    config=config.xtreme,
    needs_labels=True,
    max_examples={'train': config.finetune.max_examples, 'dev': config.finetune.max_dev_examples}[split],
  )


def _digest(rows: list[Row]) -> str:
  """Of what is trained on: another file, or another vocabulary, is another run."""
  digest = hashlib.sha256()
  for row in rows:
    digest.update(row.input_ids.tobytes() + b'|' + row.labels.tobytes() + b'\n')
  return digest.hexdigest()


def _show_schedule(
  console: Console, config: FinetuneConfig, task: Task, train_examples: int, train_rows: int, dev_examples: int
) -> None:
  train, optimizer = config.train, config.optimizer
  select = f'the best by dev {task.scores[0]}, at every {train.eval_every} steps' if dev_examples else 'the last'
  console.facts(
    'Fine-tuning',
    {
      'task': f'{task.name}, learned in {config.xtreme.train_language}'
      + (f', judged on {", ".join(config.xtreme.evaluate_on)}' if config.xtreme.evaluate_on else ''),
      'examples': f'{train_examples:,} in {train_rows:,} rows, {dev_examples:,} for dev',
      'batch': f'{train.batch_size} rows × {train.sequence_length} pieces'
      + (f', in {train.accumulation_steps} parts' if train.accumulation_steps > 1 else ''),
      'steps': f'{train.steps:,}, {train.steps * train.batch_size / train_rows:.3g} epochs',
      'learning rate': f'{optimizer.learning_rate:g}, warm-up {optimizer.warmup_steps:,} steps, linear decay to 0',
      'judged': f'{select}, in every language that has data',
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
  if sessions := read_sessions(workdir / 'goodput.json'):
    show_account(console, account(sessions))
