"""Pre-training: dumps or TFDS → vocabulary → SeqIO tasks → masked batches → updates → checkpoints."""

import contextlib
import dataclasses

import jax
from etils import epath

import rembert
from rembert import configuration
from rembert.data.opening import open_data
from rembert.data.prefetch import prefetch
from rembert.jobs import workdir as workdirs
from rembert.jobs.description import (
  PretrainConfig,
  make_step,
  make_trainable,
  show_devices,
  show_model,
  show_parameters,
  show_schedule,
)
from rembert.report.plots import plot_loss
from rembert.training import flops, sharding, xla_flags
from rembert.training.checkpoints import Checkpoints
from rembert.training.console import Console
from rembert.training.cpu_memory import keep_freed_memory_if_small
from rembert.training.evaluation import evaluate, unigram_entropy
from rembert.training.loop import Meter, Stopwatch
from rembert.training.optimizer import learning_rate_schedule
from rembert.training.preemption import EXIT_STOPPED, StopSignal
from rembert.training.step import make_eval_step
from rembert.training.tracking import JsonlTracker, TensorBoardTracker, Trackers, read_jsonl


def configured() -> PretrainConfig:
  """The configuration that gin has been told."""
  return PretrainConfig(**{field.name: configuration.build(field.type) for field in dataclasses.fields(PretrainConfig)})


def dry_run(config: PretrainConfig) -> int:
  """Prints model, counts and schedule; touches neither data nor devices."""
  console = Console()
  show_model(console, config.model)
  show_parameters(console, config.model, config.paper)
  show_schedule(console, config)
  return 0


def run(config: PretrainConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Trains, or goes on where the workdir stands. Returns the exit code: 0 done, 75 stopped and to be repeated."""
  keep_freed_memory_if_small(config.model)  # before JAX looks for devices
  variable, flags = xla_flags.apply(config.hardware, config.mesh.require_platform)  # likewise
  console = Console(is_quiet=jax.process_index() > 0)
  if flags:
    console.say(f'{variable}: {" ".join(flags)}')
  train = config.train
  # --- workdir ---------------------------------------------------------------
  workdirs.prepare(workdir)
  metrics_file = workdir / 'metrics.jsonl'
  checkpoints = Checkpoints(workdir / 'checkpoints', keep=train.keep_checkpoints)
  latest = checkpoints.latest_step()
  if latest is not None:
    meta = checkpoints.restore_meta(latest)
    workdirs.refuse_other_run(meta, workdirs.identity(config), workdir)
    if latest >= train.steps and not meta['is_evaluation_due']:
      console.say(f'{workdir} is complete: {latest} steps')
      show_result(console, workdir, latest)
      return 0
  configuration.save(workdir)

  # --- devices ---------------------------------------------------------------
  mesh = sharding.make_mesh(config.mesh)
  trainable = make_trainable(config, mesh)
  peak = flops.peak_flops_per_device()
  console.say(f'rembert {rembert.__version__} · pre-training in {workdir}')
  show_model(console, config.model)
  show_parameters(console, config.model, config.paper)
  show_devices(console, trainable, config, peak)
  show_schedule(console, config)

  # --- data ------------------------------------------------------------------
  opened = open_data(
    config.data,
    config.vocabulary,
    config.masking,
    config.packing,
    train,
    vocab_size=config.model.vocab_size,
    workdir=workdir,
    console=console,
  )
  source = opened.batches
  identity = workdirs.identity(config) | opened.identity
  with console.task('held-out rows'):
    held_out = list(source.evaluation_batches()) if train.eval_every else []
    entropy = unigram_entropy(held_out, first_piece=source.special.first_piece, vocab_size=config.model.vocab_size)

  # --- restore: this workdir, else from scratch --------------------------------
  stop.defer()
  with jax.set_mesh(mesh), contextlib.ExitStack() as stack:
    if latest is not None:
      workdirs.refuse_other_run(meta, identity, workdir)
      restored = checkpoints.restore(latest, trainable.restore_target())
      start, train_state, data_state, meter = latest, restored.state, restored.data, Meter(restored.meta['interval'])
      is_evaluation_due = restored.meta['is_evaluation_due']
      console.say(f'resuming from step {start}')
    else:
      start, train_state, data_state, meter = 0, trainable.init(train.seed), {}, Meter()
      is_evaluation_due = False

    # --- trackers --------------------------------------------------------------
    trackers = Trackers(
      JsonlTracker(metrics_file, resume_step=start, is_evaluation_due=is_evaluation_due),
      TensorBoardTracker(workdir / 'tensorboard', resume_step=start),
    )
    stack.callback(trackers.close)
    stack.callback(checkpoints.close)

    # --- compile ---------------------------------------------------------------
    on_device = lambda item: (sharding.to_device(item[0], mesh), item[1])
    batches = prefetch(source.batches(start, data_state), on_device)
    stack.callback(batches.close)
    upcoming = next(batches)
    train_step = make_step(config, trainable)
    eval_step = make_eval_step(trainable, len(source.languages))
    with console.task('compiling'):
      train_step = train_step.lower(trainable.restore_target(), upcoming[0]).compile()

    # --- loop ------------------------------------------------------------------
    learning_rate = learning_rate_schedule(config.optimizer, train.steps)
    numbers = {
      'positions_per_step': train.batch_size * train.sequence_length,
      'flops_per_step': config.train_flops_per_step,
      'peak_flops': peak[0] * jax.device_count() if peak else None,
    }

    def run_evaluation(step: int) -> bool:
      """Whether it came to its end."""
      metrics = evaluate(
        eval_step,
        train_state.params,
        (sharding.to_device(batch, mesh) for batch in held_out),
        source.languages,
        is_stopped=lambda: bool(stop.requested),
      )
      if metrics is not None:
        metrics['eval/unigram_entropy'] = entropy
        trackers.log(metrics, step=step)
        progress.evaluation(step, metrics)
        plot_loss(metrics_file, workdir / 'loss.png')
      return metrics is not None

    def save(step: int) -> None:
      checkpoints.save(
        step, train_state, data_state, {**identity, 'interval': meter.saved(), 'is_evaluation_due': is_evaluation_due}
      )

    step, pending, watch = start, None, Stopwatch()
    last_saved = latest
    progress = stack.enter_context(console.training(start, train.steps))
    if is_evaluation_due:
      is_evaluation_due = not run_evaluation(step)
      watch.read()

    while step < train.steps and not stop.requested:
      waiting = Stopwatch()
      batch, next_data_state = upcoming if upcoming is not None else next(batches)
      upcoming, waited = None, waiting.read()
      train_state, metrics = train_step(train_state, batch)
      data_state, step = next_data_state, step + 1

      # The metrics of the step before: by now they are there, and the device is never kept waiting for the host.
      if pending is not None:
        meter.add(*pending)
      pending = (step, metrics)

      is_last = step == train.steps
      is_evaluation_due = bool(held_out) and (is_last or (train.eval_every > 0 and step % train.eval_every == 0))
      is_save_due = is_last or step % train.checkpoint_every == 0
      if step % train.log_every == 0 or is_evaluation_due or is_save_due or stop.requested:
        meter.add(*pending)
        pending = None
      meter.add_time(watch.read(), waited)
      progress.step(step)
      if step % train.log_every == 0:
        row = meter.interval(**numbers) | {'learning_rate': float(learning_rate(step - 1))}
        trackers.log(row, step=step)
        progress.metrics(step, row)
      if is_evaluation_due:
        is_evaluation_due = not run_evaluation(step)
      if is_save_due:
        save(step)
        last_saved = step
      watch.read()

    # --- end -------------------------------------------------------------------
    if pending is not None:
      meter.add(*pending)
    if step != last_saved and step > start:
      save(step)
    checkpoints.wait()
  plot_loss(metrics_file, workdir / 'loss.png')
  if step < train.steps or is_evaluation_due:
    console.say(f'stopped by {stop.requested} at step {step}, all saved. Repeat the command to go on.')
    return EXIT_STOPPED
  show_result(console, workdir, step)
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
