"""Pre-training: dumps or TFDS → vocabulary → SeqIO tasks → masked batches → updates → checkpoints."""

import itertools
from collections.abc import Callable
from typing import cast

import jax
from etils import epath

import rembert
from rembert import configuration
from rembert.aot import flops
from rembert.checkpoint.initialize import open_initial
from rembert.checkpoint.load import altered_arrays
from rembert.data.config import DataConfig
from rembert.data.prefetch import prefetch
from rembert.errors import UsageError
from rembert.jobs import summary
from rembert.jobs import workdir as workdirs
from rembert.jobs.config import PretrainConfig
from rembert.jobs.pretrain_data import open_data
from rembert.jobs.training_run import (
  JobRun,
  build_config,
  open_checkpoints,
  refuse_other_run,
  restore_or_init,
  run_loop,
  start,
)
from rembert.runtime.signals import EXIT_STOPPED, StopSignal
from rembert.tracking.console import Console
from rembert.tracking.goodput import Goodput
from rembert.tracking.metric_writers import read_jsonl
from rembert.train import sharding, state
from rembert.train.metrics import evaluate, piece_counts, unigram_entropy
from rembert.train.optimizer import make_optimizer
from rembert.train.state import Trainable
from rembert.train.step import make_eval_step, make_train_step


def make_trainable(config: PretrainConfig, mesh: jax.sharding.Mesh) -> Trainable:
  """Model and optimizer on a mesh; UsageError where batch, devices and attention do not go together."""
  config.check_mesh(mesh)
  optimizer = make_optimizer(config.optimizer, config.train.steps)
  return state.masked_lm(config.model, config.execution, optimizer, mesh)


def make_step(config: PretrainConfig, trainable: Trainable) -> jax.stages.Wrapped:
  """The update of pre-training, to be run under `jax.set_mesh`; also what `--mode=compile` compiles."""
  step = make_train_step(
    trainable, accumulation_steps=config.train.accumulation_steps, dropout_seed=config.dropout_seed
  )
  return cast(jax.stages.Wrapped, step)


def configured() -> PretrainConfig:
  """The configuration that gin has been told."""
  return build_config(PretrainConfig)


def dry_run(config: PretrainConfig, workdir: epath.Path) -> int:
  """Prints model, counts and schedule; looks at the parameters to begin with, and at neither data nor devices."""
  console = Console()
  summary.show_model(console, config.model)
  summary.show_parameters(console, config.model, config.paper)
  show_schedule(console, config)
  workdirs.check(workdir)
  if config.train.init_from is not None:
    open_initial(config.train.init_from, config.train.init_from_parts, config.model)
    console.say(f'the parameters of {config.train.init_from} fit')
  console.say('Not looked at: data and devices (python -m rembert.doctor), memory (--mode=compile).')
  return 0


def run(config: PretrainConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Trains, or goes on where the workdir stands. Returns the exit code: 0 done, 75 stopped and to be repeated."""
  with start(config, workdir) as job:
    return _run(config, job, stop)


def _run(config: PretrainConfig, job: JobRun, stop: StopSignal) -> int:
  train, workdir, hosts, console, stack = config.train, job.workdir, job.hosts, job.console, job.stack
  # --- where the workdir stands ------------------------------------------------
  goodput = Goodput(workdir / 'goodput.json', is_writer=hosts.is_first)
  checkpoints = open_checkpoints(job, train)
  newest = checkpoints.newest()
  if newest is not None:
    refuse_other_run(newest.meta, config.identity(), workdir)
    refuse_old_stream(newest.meta, config.data, workdir)
    is_complete = lambda found: found.step >= train.steps and not found.meta['is_evaluation_due']
    if is_complete(newest):
      with console.task('checking the last checkpoint'):  # it is what others will load
        newest = checkpoints.newest_whole(altered_arrays)
    if newest is not None and is_complete(newest):
      console.say(f'{workdir} is complete: {newest.step} steps')
      show_result(console, workdir, newest.step)
      return 0
  initial = None
  if newest is None and train.init_from is not None:
    initial = open_initial(train.init_from, train.init_from_parts, config.model)
  if hosts.is_first:
    configuration.save(workdir)

  # --- devices ---------------------------------------------------------------
  mesh = sharding.make_mesh(config.mesh)
  trainable = make_trainable(config, mesh)
  peak = flops.peak_flops_per_device()
  console.say(f'rembert {rembert.__version__} · pre-training in {workdir}')
  summary.show_model(console, config.model)
  summary.show_parameters(console, config.model, config.paper)
  summary.show_devices(console, trainable, config, peak)
  summary.show_hosts(console, hosts)
  show_schedule(console, config)

  # --- data: a corpus is made, and a vocabulary trained, by the first host; the others find it in the workdir ---
  with hosts.first_goes_first('data'):
    opened = open_data(config.data_request, workdir=workdir, console=console)
  source = opened.batches
  identity = config.identity() | opened.identity
  with console.task('held-out rows'):
    held_out = list(source.evaluation_batches()) if train.eval_every else []
    counts = hosts.total(piece_counts(held_out, vocab_size=config.model.vocab_size))
    entropy = unigram_entropy(counts, first_piece=source.special.first_piece)

  # --- restore: this workdir → train.init_from → from scratch -------------------
  stack.enter_context(jax.set_mesh(mesh))
  if newest is not None:
    refuse_other_run(newest.meta, identity, workdir)
  if initial is not None:
    initial.check_vocabulary(opened.vocabulary)
  position = restore_or_init(config, job, checkpoints, trainable, initial, is_begun=newest is not None)

  # --- compile ---------------------------------------------------------------
  on_device = lambda item: (sharding.to_device(item[0], mesh), item[1])
  batches = prefetch(source.batches(position.step, position.data), on_device)
  stack.callback(batches.close)
  first = next(batches)
  train_step = make_step(config, trainable)
  eval_step = cast(jax.stages.Wrapped, make_eval_step(trainable, len(source.languages)))
  with console.task('compiling'), goodput.activity('compile'):
    train_step = train_step.lower(trainable.restore_target(), first[0]).compile()
    if held_out:  # now, not at the first evaluation: a signal ends a compilation only where nothing can be lost
      eval_batch = sharding.to_device(held_out[0], mesh)
      eval_step = eval_step.lower(trainable.restore_target().params, eval_batch).compile()

  # --- loop ------------------------------------------------------------------
  def evaluate_held_out(params: dict, is_stopped: Callable[[], bool]) -> dict[str, float] | None:
    on_devices = (sharding.to_device(batch, mesh) for batch in held_out)
    metrics = evaluate(eval_step, params, on_devices, source.languages, is_stopped=is_stopped)
    return metrics and metrics | {'eval/unigram_entropy': entropy}

  is_done = run_loop(
    config,
    job,
    stop,
    position,
    itertools.chain([first], batches),
    train_step=train_step,
    evaluate=evaluate_held_out if held_out else None,
    identity=identity,
    checkpoints=checkpoints,
    goodput=goodput,
    peak=peak,
  )
  if not is_done:
    return EXIT_STOPPED
  show_result(console, workdir, position.step)
  return 0


def refuse_old_stream(before: dict, data: DataConfig, workdir: epath.Path) -> None:
  """Raises UsageError if a run streamed text before there were corpora: its documents came in another order."""
  if data.source != 'store' and not {'corpus', 'store', 'tasks'} & set(before):
    raise UsageError(
      'the run in the workdir streamed documents in the order of the dumps; they are now streamed in that of a corpus',
      where=f'{workdir}; data.source = {data.source}',
      fix=[
        'start a new run in another directory: --workdir=DIR',
        f'it can begin with these parameters: --gin.train.init_from={workdir}',
        'or continue with the version that began the run',
      ],
    )


# --- on the screen ----------------------------------------------------------------------------------------------------


def show_schedule(console: Console, config: PretrainConfig) -> None:
  """Batch, steps, learning rate, FLOPs."""
  train, optimizer = config.train, config.optimizer
  tokens = train.steps * train.batch_size * train.sequence_length
  console.facts(
    'Training',
    {
      'batch': f'{train.batch_size} rows × {train.sequence_length} tokens, '
      f'{config.masking.slots(train.sequence_length)} predictions a row'
      + (f', in {train.accumulation_steps} parts' if train.accumulation_steps > 1 else ''),
      'masking': f'{config.masking.rate:.0%} of the pieces, {config.masking.manner}',
      'steps': f'{train.steps:,} ({tokens:.3g} tokens)',
      'learning rate': summary.format_schedule(optimizer, train.steps),
      'compute': f'{config.execution.dtype}, remat {config.execution.remat}, attention {config.execution.attention}, '
      + (f'loss in chunks of {config.execution.loss_chunk:,}' if config.execution.loss_chunk else 'loss of all logits'),
      'FLOPs': f'{config.train_flops_per_step:.3g} a step, {config.train_flops_per_step * train.steps:.3g} in all',
    },
  )


def show_result(console: Console, workdir: epath.Path, step: int) -> None:
  """The closing table: the last evaluation, language by language, and where things lie."""
  rows = read_jsonl(workdir / 'metrics.jsonl')
  evaluation = next((row for row in reversed(rows) if 'eval/loss' in row), None)
  if evaluation:
    prefix = 'eval/loss/'
    lines = [
      (name.removeprefix(prefix), f'{loss:.3f}', f'{evaluation[f"eval/accuracy/{name.removeprefix(prefix)}"]:.1%}')
      for name, loss in evaluation.items()
      if name.startswith(prefix)
    ]
    lines.append(('all', f'{evaluation["eval/loss"]:.3f}', f'{evaluation["eval/accuracy"]:.1%}'))
    lines.append(('frequency alone', f'{evaluation["eval/unigram_entropy"]:.3f}', ''))
    console.table(f'Held-out text after {evaluation["step"]} steps', ('', 'loss (nats)', 'accuracy'), lines)
  speeds = sorted(row['step_seconds'] for row in rows if 'step_seconds' in row)
  console.facts(
    'Done',
    {
      'steps': f'{step:,}',
      'step time': f'{speeds[len(speeds) // 2]:.3f} s (median)' if speeds else '',
      'metrics': f'{workdir}/metrics.jsonl, {workdir}/tensorboard',
      'picture': f'{workdir}/loss.png',
      'checkpoints': f'{workdir}/checkpoints',
      'vocabulary': f'{workdir}/vocabulary/sentencepiece.model',
    },
  )
  summary.show_account(console, workdir)
