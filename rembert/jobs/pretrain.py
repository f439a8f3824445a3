"""Pre-trains a model on a token store, dumps, text or SeqIO tasks."""

import dataclasses
import itertools
import json
import os
from collections.abc import Callable
from typing import Any

import jax
from etils import epath

from rembert import configuration
from rembert.checkpoint.initialize import InitialParameters, open_initial
from rembert.checkpoint.integrity import Description
from rembert.checkpoint.load import altered_arrays, open_described
from rembert.data.batches import prefetch
from rembert.data.phases import Phase, PhasesConfig, same_until
from rembert.data.token_store import TokenStore
from rembert.errors import UsageError
from rembert.jobs import summary
from rembert.jobs import workdir as workdirs
from rembert.jobs.config import PretrainConfig, build_config
from rembert.jobs.pretrain_data import copied_vocabulary, known_rates, open_data
from rembert.jobs.training_run import JobRun, open_checkpoints, refuse_other_run, restore_or_init, run_loop, start
from rembert.runtime.signals import EXIT_STOPPED, StopSignal
from rembert.tracking.console import Console
from rembert.tracking.metric_writers import read_jsonl
from rembert.train import sharding, state
from rembert.train.metrics import evaluate, piece_counts, unigram_entropy
from rembert.train.optimizer import make_optimizer
from rembert.train.state import Trainable
from rembert.train.step import make_eval_step, make_train_step
from rembert.train.trainer import TrainConfig


def make_trainable(config: PretrainConfig, mesh: jax.sharding.Mesh) -> Trainable:
  """Model and optimizer on a mesh; UsageError if batch, devices and attention kernel are incompatible."""
  for step in (0, *config.borders):
    config.at(step).check_mesh(mesh)
  optimizer = make_optimizer(config.optimizer, config.train.steps)
  return state.masked_lm(config.model, config.execution, optimizer, mesh, ema_decay=config.train.ema_decay)


def make_step(config: PretrainConfig, trainable: Trainable) -> jax.stages.Wrapped:
  """The pre-training update, to be run under `jax.set_mesh`; `--mode=compile` compiles the same."""
  parts = config.train.accumulation_steps
  return make_train_step(trainable, accumulation_steps=parts)


def configured() -> PretrainConfig:
  """Builds the configuration from gin; for `available` parameters of a model, with that model's architecture."""
  train = configuration.build(TrainConfig)
  return build_config(PretrainConfig, model_path=train.init_from if train.init_from_parts == 'available' else None)


def dry_run(config: PretrainConfig, workdir: epath.Path) -> int:
  """Prints model, counts and schedule; checks the workdir and `train.init_from`, but neither data nor devices."""
  console = Console()
  summary.show_model(console, config.model)
  summary.show_parameters(console, config.model, config.paper)
  _show_training(console, config)
  workdirs.check(workdir)
  try:
    summary.show_schedule(console, config, known_rates(config.data, workdir), workdir)
  except UsageError as error:  # the run itself checks its data
    console.say(f'tokens by language are unknown: {error.what} ({error.where})')
    summary.show_schedule(console, config, None, workdir)
  if config.train.init_from is not None:
    described = open_described(config.train.init_from)
    initial = open_initial(described, config.train.init_from_parts, config.model, any_vocabulary=True)
    console.say(f'the parameters of {config.train.init_from} fit')
    _show_fresh(console, initial)
  console.say('Not checked: data and devices (python -m rembert.doctor), memory (--mode=compile).')
  return 0


def run(config: PretrainConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Trains, or resumes the run of the workdir. Returns 0 if done, 75 if stopped early."""
  with start(config, workdir, stop) as job:
    return _run(config, job)


def _run(config: PretrainConfig, job: JobRun) -> int:
  train, workdir, hosts, console = config.train, job.workdir, job.hosts, job.console
  # --- state of the workdir ----------------------------------------------------
  checkpoints = open_checkpoints(job, train)
  newest = checkpoints.newest()
  if newest is not None:
    refuse_other_run(newest.meta, config.identity(), workdir)
    is_complete = lambda found: found.step >= train.steps and not found.meta['is_evaluation_due']
    if is_complete(newest):
      with console.task('checking the last checkpoint'):  # since others will load it
        newest = checkpoints.newest_whole(altered_arrays)
    if newest is not None and is_complete(newest):
      console.say(f'{workdir} is complete: {newest.step} steps')
      _show_result(console, workdir, newest.step)
      return 0
  initial = None
  if newest is None and train.init_from is not None:
    initial = open_initial(train.init_from, train.init_from_parts, config.model, any_vocabulary=True)
  if hosts.is_first:
    configuration.save(workdir)

  # --- devices ---------------------------------------------------------------
  mesh = sharding.make_mesh(config.mesh)
  config = config.on(mesh)
  trainable = make_trainable(config, mesh)
  summary.show_start(job, f'pre-training in {workdir}', config, trainable)
  _show_training(console, config)
  if initial is not None:
    _show_fresh(console, initial)

  # --- data: the first host makes a corpus and trains a vocabulary, the others find both in the workdir -----------
  with hosts.first_goes_first('data'):
    request = config.data_request
    if train.init_from is not None and request.vocabulary.path is None:
      path = copied_vocabulary(workdir) if initial is None else initial.source.vocabulary
      of_model = dataclasses.replace(request.vocabulary, path=None if path is None else os.fspath(path))
      request = dataclasses.replace(request, vocabulary=of_model)
    phases = config.schedule() if config.phases.begins is not None else []
    opened = open_data(request, workdir=workdir, console=console, phases=phases)
    if hosts.is_first and phases:
      summary.show_schedule(console, config, opened.rates_in, workdir)
  source = opened.batches
  identity = config.identity() | opened.identity
  with console.task('building the eval set'):
    held_out = list(source.evaluation_batches()) if train.eval_every else []
    counts = hosts.total(piece_counts(held_out, vocab_size=config.model.vocab_size))
    entropy = unigram_entropy(counts, first_piece=source.special.first_piece)

  # --- restore: this workdir → train.init_from → from scratch -------------------
  job.stack.enter_context(jax.set_mesh(mesh))
  if newest is not None:
    refuse_other_run(newest.meta, identity, workdir)
    identity |= _continued_phases(config, newest, identity, console)
  elif config.phases.begins is not None:
    identity['phases'] = _phases_meta(config)
  if initial is not None:
    initial = initial.for_vocabulary(opened.vocabulary)
    summary.show_transfer(console, initial, opened.vocabulary, held_out, source.languages)
  position = restore_or_init(config, job, checkpoints, trainable, initial, is_begun=newest is not None)

  # --- compile ---------------------------------------------------------------
  on_device = lambda item: (sharding.to_device(item[0], mesh), item[1])
  batches = prefetch(source.batches(position.step, position.data), on_device)
  job.stack.callback(batches.close)
  first = next(batches)
  train_step = make_step(config, trainable)
  eval_step = make_eval_step(trainable, len(source.languages))
  with console.task('compiling'), job.goodput.activity('compile'):
    train_step = _compile_phases(config, train_step, trainable, first[0], position.step)
    if held_out:  # now, not at the first evaluation, when a signal could not interrupt the compilation
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
    position,
    itertools.chain([first], batches),
    train_step=train_step,
    evaluate=evaluate_held_out if held_out else None,
    identity=identity,
    checkpoints=checkpoints,
  )
  if not is_done:
    return EXIT_STOPPED
  _show_result(console, workdir, position.step)
  return 0


def _compile_phases(
  config: PretrainConfig, train_step: jax.stages.Wrapped, trainable: Trainable, first: dict[str, jax.Array], step: int
) -> Callable:
  """The update, compiled for `first`, the batch of `step`, and for the shapes of all phases after it.

  All at the start, so that memory that does not suffice is found now, and a border costs no time.
  """
  state_shape, seed = trainable.restore_target(), config.dropout_seed
  shapes = lambda batch: (batch['input_ids'].shape, batch['targets'].shape)
  compiled = {shapes(first): train_step.lower(state_shape, first, seed).compile()}
  for border in sorted(border for border in config.borders if border > step):
    batch = config.at(border).abstract_batch(trainable.mesh)
    if shapes(batch) not in compiled:
      compiled[shapes(batch)] = train_step.lower(state_shape, batch, seed).compile()
  return lambda state, batch: compiled[shapes(batch)](state, batch, seed)


# --- phases -----------------------------------------------------------------------------------------------------------


def _phases_meta(config: PretrainConfig) -> dict[str, Any] | None:
  """The phases as checkpoints keep them: steps for fractions, and the SHA-256 of a store's manifest for its folder."""
  phases = config.phases
  if phases.begins is None:
    return None
  begins = tuple(phases.steps(config.train.steps)[:-1])
  stores = phases.store and tuple(TokenStore(store).manifest_hash for store in phases.store)
  meta = {'steps': config.train.steps, **dataclasses.asdict(dataclasses.replace(phases, begins=begins, store=stores))}
  return json.loads(json.dumps(meta))


def _continued_phases(config: PretrainConfig, newest: Description, identity: dict, console: Console) -> dict[str, Any]:
  """What a checkpoint keeps of the phases of a resumed run, with all changes since its beginning.

  Raises:
    UsageError: they differ from those of the run at a step that is over.
  """
  before, now = newest.meta.get('phases'), _phases_meta(config)
  changes = newest.meta.get('phase_changes', [])

  def schedule_of(meta: dict[str, Any] | None) -> list[Phase]:
    values = dict(meta or {'steps': config.train.steps})
    train = dataclasses.replace(config.train, steps=values.pop('steps'))
    data = dataclasses.replace(config.data, store=identity.get('store'))  # as in `_phases_meta`
    return dataclasses.replace(config, train=train, data=data, phases=PhasesConfig(**values)).schedule()

  if before != now:
    if not same_until(schedule_of(before), schedule_of(now), newest.step):
      old = {name: value for name, value in (before or {'begins': None}).items() if value and name != 'steps'}
      raise UsageError(
        f'the phases differ from those that the run has trained {newest.step} steps with',
        where=f'phases.*; {newest.step} steps are done',
        fix=[
          'restore '
          + (' '.join(f'--gin.phases.{name}={value}' for name, value in old.items()) or 'a run without phases'),
          f'or change only what begins at step {newest.step} or later',
        ],
      )
    console.say(f'the phases change after step {newest.step}: {before} → {now}')
    changes = [*changes, {'step': newest.step, 'before': before}]
  return ({'phases': now} if now else {}) | ({'phase_changes': changes} if changes else {})


# --- on the screen ----------------------------------------------------------------------------------------------------


def _show_training(console: Console, config: PretrainConfig) -> None:
  train, masking, execution = config.train, config.masking, config.execution
  facts = summary.format_training(config)
  facts['batch'] += f', at most {masking.slots(train.sequence_length)} masked positions each'
  tokens = sum((phase.end - phase.begin) * phase.sequence_length for phase in config.schedule()) * train.batch_size
  facts['steps'] += f' ({tokens:.3g} tokens)'
  facts['masking'] = f'{masking.rate:.0%} of the tokens'
  loss = f'loss in chunks of {execution.loss_chunk:,}' if execution.loss_chunk else 'loss of all logits'
  layers = f'remat {execution.remat}, attention {execution.attention}'
  facts['compute'] = f'{execution.dtype} (execution.dtype), {layers}, {loss}'
  total = sum((phase.end - phase.begin) * config.in_phase(phase).train_flops_per_step for phase in config.schedule())
  at_first = ' at first' if config.borders else ''
  facts['FLOPs'] = f'{config.at(0).train_flops_per_step:.3g} per step{at_first}, {total:.3g} in total'
  console.facts('Training', facts)
  summary.show_phases(console, config)


def _show_fresh(console: Console, initial: InitialParameters) -> None:
  """Prints the parameters that the initial model lacks."""
  if initial.fresh:
    console.say(f'{initial.source.path} lacks {", ".join(initial.fresh)}: randomly initialised')


def _show_result(console: Console, workdir: epath.Path, step: int) -> None:
  """Prints the last evaluation by language, the step time, and the files of the workdir."""
  rows = read_jsonl(workdir / 'metrics.jsonl')
  evaluation = next((row for row in reversed(rows) if 'eval/loss' in row), None)
  if evaluation:
    languages = [name.removeprefix('eval/loss/') for name in evaluation if name.startswith('eval/loss/')]
    line = lambda label, key: (
      label,
      f'{evaluation[f"eval/loss{key}"]:.3f}',
      f'{evaluation[f"eval/accuracy{key}"]:.1%}',
    )
    lines = [*(line(language, f'/{language}') for language in languages), line('all', '')]
    lines.append(('unigram baseline', f'{evaluation["eval/unigram_entropy"]:.3f}', ''))
    console.table(f'Evaluation after {evaluation["step"]} steps', ('', 'loss (nats)', 'accuracy'), lines)
  speeds = sorted(row['step_seconds'] for row in rows if 'step_seconds' in row)
  console.facts(
    'Done',
    {
      'steps': f'{step:,}',
      'step time': f'{speeds[len(speeds) // 2]:.3f} s (median)' if speeds else '',
      'metrics': f'{workdir}/metrics.jsonl, {workdir}/tensorboard',
      'plot': f'{workdir}/loss.png',
      'checkpoints': f'{workdir}/checkpoints',
      'vocabulary': f'{workdir}/vocabulary/sentencepiece.model',
    },
  )
  summary.show_account(console, workdir)
