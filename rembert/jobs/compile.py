"""Compiles a training step ahead of time for a target topology: memory, FLOPs, lower bound of the step time.

python -m rembert.main --gin_file=gin/pretrain_large.gin --gin_file=gin/hardware/v5e_64.gin \\
    --mode=compile --topology=v5e:8x8
python -m rembert.main --gin_file=gin/finetune_xnli.gin --mode=compile --topology=v5e:2x4

Of fine-tuning on an XTREME task, a step of the evaluation is compiled too.
"""

import bisect
import dataclasses
import importlib.metadata
import json
import re
import time
from typing import NamedTuple

import jax
from etils import epath

from rembert import configuration
from rembert.aot import flops, topology
from rembert.aot.compile import DoesNotFitError, compile_lowered, measure
from rembert.data.finetune_batches import pad_batch
from rembert.errors import Setting, UsageError
from rembert.files import check_output, write_whole
from rembert.jobs import evaluate, finetune, pretrain
from rembert.jobs.config import FinetuneConfig, PretrainConfig
from rembert.jobs.summary import bytes_per_device, show_model
from rembert.runtime import xla
from rembert.tokenizer import SpecialIds
from rembert.tracking.console import Console, human_bytes
from rembert.train import sharding
from rembert.train.optimizer import make_optimizer
from rembert.train.state import Trainable
from tasks.xtreme.benchmark import get_task

EXIT_DOES_NOT_FIT = 1


def configured() -> PretrainConfig | FinetuneConfig:
  """Builds the configuration of the job that the gin files are for."""
  is_finetuning = configuration.build(configuration.RunConfig).mode == 'finetune'
  return (finetune if is_finetuning else pretrain).configured()


def dry_run(config: PretrainConfig | FinetuneConfig, workdir: epath.Path) -> int:
  """That of the job."""
  if isinstance(config, PretrainConfig):
    return pretrain.dry_run(config, workdir)
  return finetune.dry_run(config, workdir)


def run(
  config: PretrainConfig | FinetuneConfig,
  workdir: epath.Path,
  name: str | None,
  *,
  search_batch: bool = False,
  output: str | None = None,
) -> int:
  """Compiles for the topology `name` (`rembert.aot.topology`), prints the report, and writes it as JSON.

  The file is `output`, by default `compile/TOPOLOGY.json` in the workdir; the text of the compiled program is next to
  it. `search_batch` compiles several times. Returns 0 if the step fits, 1 if it does not.
  """
  console = Console()
  if config.borders:
    at = config.at
    begin = max((0, *sorted(config.borders)), key=lambda step: at(step).train_flops_per_step)
    console.say(f'of the phases, the step of the one that begins at step {begin:,} is compiled: it has the most FLOPs')
    config = config.at(begin)
  # --- devices ---------------------------------------------------------------
  if not name:
    raise UsageError('--topology is not set', where='--mode=compile', fix='--topology=v5e:8x8, or cpu:8 to try it')
  wanted = topology.parse(name)
  file = epath.Path(output) if output else workdir / 'compile' / f'{re.sub(r"[^0-9a-z]+", "_", name)}.json'
  check_output(file, '--output')
  flags = xla.set_flags(config.hardware, config.mesh.require_platform)  # before libtpu is loaded
  mesh = sharding.make_mesh(config.mesh, list(topology.devices(wanted)))
  config = config.on(mesh)
  if flags:
    console.say(flags)
  show_model(console, config.model)

  # --- compile ---------------------------------------------------------------
  report, text = _report(config, mesh, wanted, console)
  rows = report['rows_per_device']
  _show(console, report)
  if evaluation := report.get('evaluation'):
    _show_evaluation(console, evaluation)
  if search_batch:
    report['most_rows_per_part'] = _most_rows(config, mesh, wanted, rows, report['fits'], console)

  # --- report ----------------------------------------------------------------
  write_whole(file, json.dumps(report, indent=2) + '\n')
  console.say(f'report: {file}')
  if text:
    program = file.with_suffix('.hlo.txt')
    write_whole(program, text)
    console.say(f'compiled program: {program}')
  if not report['fits']:
    console.say(_what_to_change(config, rows, search_batch))
    return EXIT_DOES_NOT_FIT
  return 0 if report.get('evaluation', report)['fits'] else EXIT_DOES_NOT_FIT


class _Step(NamedTuple):
  """A function to compile, shapes of its arguments, sequences of its batch, and FLOPs that the model needs for them."""

  function: jax.stages.Wrapped
  arguments: tuple
  sequences: int
  model_flops: float


def _steps(config: PretrainConfig | FinetuneConfig, mesh: jax.sharding.Mesh) -> tuple[Trainable, _Step, _Step | None]:
  """The step of training, and that of the evaluation after fine-tuning."""
  if isinstance(config, PretrainConfig):
    trainable = pretrain.make_trainable(config, mesh)
    arguments = trainable.restore_target(), config.abstract_batch(mesh), config.dropout_seed
    step = pretrain.make_step(config, trainable)
    return trainable, _Step(step, arguments, config.train.batch_size, config.train_flops_per_step), None
  if config.finetune.mixture is not None or config.is_retrieval:
    raise UsageError(
      'only fine-tuning on a task of XTREME can be compiled ahead of time',
      where='finetune.mixture, dataset.kind, xtreme.task',
      fix='compile a task with the same head: gin/finetune_xnli.gin, gin/finetune_udpos.gin or gin/finetune_squad.gin',
    )
  config.check_mesh(mesh)
  task, train, evaluated = get_task(config.xtreme.task), config.train, config.finetune.eval_batch_size
  optimizer = make_optimizer(config.optimizer, train.steps)
  trainable = evaluate.make_trainable(config, task.head, task.labels, optimizer, mesh)
  step = finetune.make_step(config, task.head, trainable)

  def batch(rows: int) -> dict[str, jax.ShapeDtypeStruct]:
    arrays = pad_batch([], task.head, size=rows, length=train.sequence_length, pad=SpecialIds().pad)
    where = sharding.batch_sharding(mesh)
    return {name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=where) for name, array in arrays.items()}

  state, logits = trainable.restore_target(), evaluate.Evaluator(trainable, task.head, config).step
  forward_flops = config.train_flops_per_step / flops.PASSES_OF_TRAINING / train.batch_size * evaluated
  return (
    trainable,
    _Step(step, (state, batch(train.batch_size), config.dropout_seed), train.batch_size, config.train_flops_per_step),
    _Step(logits, (state.params, batch(evaluated)), evaluated, forward_flops),
  )


def _report(
  config: PretrainConfig | FinetuneConfig,
  mesh: jax.sharding.Mesh,
  wanted: topology.Topology,
  console: Console,
  *,
  is_evaluated: bool = True,
) -> tuple[dict, str | None]:
  """The report as JSON, without the evaluation if not `is_evaluated`, and the text of the training program if any."""
  devices, kind = mesh.devices.size, mesh.devices.flat[0].device_kind
  rows = config.train.batch_size // sharding.batch_shards(mesh)
  trainable, training, evaluation = _steps(config, mesh)
  report = {
    'topology': wanted.name,
    'device_kind': kind,
    'devices': devices,
    'mesh': dict(mesh.shape),
    'slices': wanted.slices,
    'batch_size': training.sequences,
    'rows_per_device': rows,
    'parts': config.train.accumulation_steps,
    'rows_per_part': rows // config.train.accumulation_steps,
    'execution': dataclasses.asdict(config.execution),
    'held_bytes': bytes_per_device(config, trainable),
    'versions': {
      'jax': jax.__version__,
      'libtpu': importlib.metadata.version('libtpu') if wanted.family != 'cpu' else None,
    },
  }

  def compiled(step: _Step, what: str) -> tuple[dict, str | None]:
    start = time.monotonic()
    with jax.set_mesh(mesh), console.task(f'compiling for {devices} × {kind}, {what}') as progress:
      traced = step.function.trace(*step.arguments)
      try:
        program = compile_lowered(traced.lower(), progress)
      except DoesNotFitError as error:
        return {'fits': False, 'out_of_memory': error.sizes}, None
    seconds = round(time.monotonic() - start, 1)
    costs, text = measure(traced, program, mesh, slices=wanted.slices, model_flops=step.model_flops)
    return {'compile_seconds': seconds} | costs, text

  costs, text = compiled(training, f'{report["rows_per_part"]} sequences per device')
  report |= costs
  if evaluation is not None and is_evaluated:
    costs, _ = compiled(evaluation, f'evaluation of {evaluation.sequences} sequences')
    report['evaluation'] = {'batch_size': evaluation.sequences} | costs
  return report, text


# --- the largest batch that fits --------------------------------------------------------------------------------------


def _most_rows(
  config: PretrainConfig | FinetuneConfig,
  mesh: jax.sharding.Mesh,
  wanted: topology.Topology,
  rows: int,
  fits: bool,
  console: Console,
) -> int:
  """The largest micro-batch per device that fits, among the divisors of a device's `rows`; 0 if 1 does not fit."""
  sizes = [size for size in range(1, rows + 1) if rows % size == 0]
  own = sizes.index(rows // config.train.accumulation_steps)

  def does_not_fit(size: int) -> bool:
    train = dataclasses.replace(config.train, accumulation_steps=rows // size)
    smaller = dataclasses.replace(config, train=train)
    return not _report(smaller, mesh, wanted, console, is_evaluated=False)[0]['fits']

  low, high = (own + 1, len(sizes)) if fits else (0, own)
  count = bisect.bisect_left(sizes, True, low, high, key=does_not_fit)
  most = sizes[count - 1] if count else 0
  console.say(
    f'largest micro-batch per device that fits: {most}'
    + (f' (--gin.train.accumulation_steps={rows // most})' if most else '')
    + (', the whole batch' if most == rows else '')
  )
  return most


def _what_to_change(config: PretrainConfig | FinetuneConfig, rows: int, was_searched: bool) -> str:
  parts = config.train.accumulation_steps
  smaller = next((rows // size for size in range(rows // parts - 1, 0, -1) if rows % size == 0), None)
  fixes: list[str] = [Setting('train.accumulation_steps', smaller)] if smaller else []
  fixes += ['--gin.execution.remat=full'] if config.execution.remat != 'full' else []
  fixes += ['a larger --gin.mesh.fsdp, if the state takes much of the memory']
  fixes += [] if was_searched else ['--search_batch finds the largest batch that fits']
  return 'It does not fit.\n' + '\n'.join(f'  fix    {fix}' for fix in fixes)


# --- console output ---------------------------------------------------------------------------------------------------


def _show(console: Console, report: dict) -> None:
  facts = {
    'devices': f'{report["devices"]} × {report["device_kind"]}'
    + (f' in {report["slices"]} slices' if report['slices'] > 1 else ''),
    'mesh': ' · '.join(f'{axis} {size}' for axis, size in report['mesh'].items()),
    'batch': f'{report["batch_size"]} sequences, {report["rows_per_device"]} per device, '
    f'{report["parts"]} micro-batch(es) of {report["rows_per_part"]}',
    'state per chip': ', '.join(f'{name} {human_bytes(count)}' for name, count in report['held_bytes'].items()),
  }
  if not report['fits']:
    console.facts('Does not fit', facts | {'compiler': '\n'.join(report['out_of_memory'])})
    return
  memory, flops = report['memory'], report['flops_per_chip']
  facts['FLOPs per chip'] = f'{flops["model"]:.4g} of the model, {flops["executed"]:.4g} executed'
  if report['hbm_traffic_bytes'] is not None:
    facts['HBM traffic per chip'] = human_bytes(report['hbm_traffic_bytes'])
  console.facts('Step', facts)

  if by_part := report['hbm_traffic_by_part']:
    shares = [(part, human_bytes(count), count / report['hbm_traffic_bytes']) for part, count in by_part.items()]
    rows = [(part, size, f'{share:.0%}') for part, size, share in shares if share >= 0.02]
    console.table('HBM traffic by part of the step', ('', 'bytes', 'of all'), rows)

  size = memory['hbm']
  names = ('arguments', 'outputs', 'aliased', 'temporaries', 'code', 'peak')
  rows = [(name, human_bytes(memory[name]), f'{memory[name] / size:.1%}' if size else '') for name in names]
  rows += [('HBM capacity', human_bytes(size), '')] if size else []
  console.table('Memory per chip', ('', 'bytes', 'of HBM'), rows)

  if report['collectives'] is None:
    console.say(f'Collectives and memory traffic are unknown; cannot read the compiled text: {report["unreadable"]}\n')
  else:
    name = lambda row: f'{row["kind"]} of {row["group"]} {"slices" if row["network"] == "DCN" else "chips"}'
    rows = [(name(row), f'{row["count"]:,}', human_bytes(row['bytes'])) for row in report['collectives']]
    console.table('Collectives per chip and step', ('', 'executions', 'bytes sent'), rows or [('none', '', '')])

  bound = report['roofline']
  if bound is None:
    console.say('No roofline: no data sheet for this device.\n')
    return
  networks = ('compute', 'memory', 'ici', 'dcn') if report['slices'] > 1 else ('compute', 'memory', 'ici')
  facts = {name: 'unknown' if bound[name] is None else f'{bound[name]:.3f} s' for name in networks}
  is_partial = bound['memory'] is None
  facts['step'] = f'{"more than" if is_partial else "at least"} {bound["step_seconds"]:.3f} s ({bound["bound_by"]})'
  facts['MFU'] = f'at most {bound["mfu"]:.1%}'
  if not is_partial:
    facts['without overlap'] = f'{bound["unhidden_seconds"]:.3f} s, MFU {bound["unhidden_mfu"]:.1%}'
  facts['throughput'] = f'at most {report["batch_size"] / bound["step_seconds"]:,.0f} sequences/s'
  facts['assumptions'] = bound['assumptions']
  console.facts('Roofline', facts)


def _show_evaluation(console: Console, evaluation: dict) -> None:
  facts = {'compiler': '\n'.join(evaluation.get('out_of_memory', ()))}
  if evaluation['fits']:
    memory, bound = evaluation['memory'], evaluation['roofline']
    facts = {'memory per chip': human_bytes(memory['peak'])}
    facts['FLOPs per chip'] = f'{evaluation["flops_per_chip"]["model"]:.4g} of the model'
    facts['step'] = f'at least {bound["step_seconds"]:.3g} s ({bound["bound_by"]})' if bound else ''
  title = '' if evaluation['fits'] else ' does not fit'
  console.facts(f'Evaluation of {evaluation["batch_size"]} sequences{title}', facts)
