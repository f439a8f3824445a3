"""Pre-training: dumps or TFDS → vocabulary → SeqIO tasks → masked batches → updates → checkpoints."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable

import jax
from etils import epath

import rembert
from rembert import configuration
from rembert.aot import flops
from rembert.data.prefetch import prefetch
from rembert.jobs import workdir as workdirs
from rembert.jobs.description import (
  PretrainConfig,
  make_step,
  make_trainable,
  show_account,
  show_devices,
  show_hosts,
  show_model,
  show_parameters,
  show_schedule,
)
from rembert.jobs.initial_parameters import open_initial
from rembert.jobs.pretrain_data import open_data
from rembert.jobs.training_run import begun, first_position, open_checkpoints, open_workdir, restored_position, run_loop
from rembert.runtime.consensus import Hosts
from rembert.runtime.signals import EXIT_STOPPED, StopSignal
from rembert.tracking.console import Console
from rembert.tracking.goodput import account, read_sessions
from rembert.tracking.metric_writers import read_jsonl
from rembert.train import sharding
from rembert.train.metrics import evaluate, piece_counts, unigram_entropy
from rembert.train.step import make_eval_step


def configured() -> PretrainConfig:
  """The configuration that gin has been told."""
  return PretrainConfig(**{field.name: configuration.build(field.type) for field in dataclasses.fields(PretrainConfig)})


def dry_run(config: PretrainConfig, workdir: epath.Path) -> int:
  """Prints model, counts and schedule; looks at the parameters to begin with, and at neither data nor devices."""
  console = Console()
  show_model(console, config.model)
  show_parameters(console, config.model, config.paper)
  show_schedule(console, config)
  workdirs.check(workdir)
  if config.train.init_from is not None:
    open_initial(config.train.init_from, config.train.init_from_parts, config.model)
    console.say(f'the parameters of {config.train.init_from} fit')
  console.say('Not looked at: data and devices (python -m rembert.doctor), memory (--mode=compile).')
  return 0


def run(config: PretrainConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Trains, or goes on where the workdir stands. Returns the exit code: 0 done, 75 stopped and to be repeated."""
  with begun(config) as (hosts, console, stack):
    return _run(config, workdir, stop, hosts, console, stack)


def _run(
  config: PretrainConfig,
  workdir: epath.Path,
  stop: StopSignal,
  hosts: Hosts,
  console: Console,
  stack: contextlib.ExitStack,
) -> int:
  train = config.train
  # --- workdir ---------------------------------------------------------------
  goodput = open_workdir(workdir, hosts, console, stack)
  checkpoints = open_checkpoints(workdir, train, console, stack)
  newest = checkpoints.newest()
  if newest is not None:
    workdirs.refuse_other_run(newest.meta, workdirs.identity(config), workdir)
    workdirs.refuse_old_stream(newest.meta, config.data, workdir)
    if newest.step >= train.steps and not newest.meta['is_evaluation_due']:
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
  show_model(console, config.model)
  show_parameters(console, config.model, config.paper)
  show_devices(console, trainable, config, peak)
  show_hosts(console, hosts)
  show_schedule(console, config)

  # --- data: a corpus is made, and a vocabulary trained, by the first host; the others find it in the workdir ---
  with hosts.first_goes_first('data'):
    opened = open_data(config.data_request, workdir=workdir, console=console)
  source = opened.batches
  identity = workdirs.identity(config) | opened.identity
  with console.task('held-out rows'):
    held_out = list(source.evaluation_batches()) if train.eval_every else []
    counts = hosts.total(piece_counts(held_out, vocab_size=config.model.vocab_size))
    entropy = unigram_entropy(counts, first_piece=source.special.first_piece)

  # --- restore: this workdir → train.init_from → from scratch -------------------
  stack.enter_context(jax.set_mesh(mesh))
  if newest is not None:
    workdirs.refuse_other_run(newest.meta, identity, workdir)
    position = restored_position(checkpoints, trainable, config.guards, console)
  else:
    position = first_position(trainable.init(train.seed), config.guards)
    if initial is not None:
      initial.check_vocabulary(opened.vocabulary)
      with console.task(f'parameters from {train.init_from}') as progress:
        position.state = initial.put_into(position.state, progress)

  # --- compile ---------------------------------------------------------------
  on_device = lambda item: (sharding.to_device(item[0], mesh), item[1])
  batches = prefetch(source.batches(position.step, position.data), on_device)
  stack.callback(batches.close)
  first = next(batches)
  train_step = make_step(config, trainable)
  eval_step = make_eval_step(trainable, len(source.languages))
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
    position,
    itertools.chain([first], batches),
    train_step=train_step,
    evaluate=evaluate_held_out if held_out else None,
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
  show_result(console, workdir, position.step)
  return 0


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
  if sessions := read_sessions(workdir / 'goodput.json'):
    show_account(console, account(sessions))
