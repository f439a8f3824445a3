"""What a run is and has taken, in tables: parameters, devices, bytes, hosts, time."""

import jax
from etils import epath

from rembert.jobs.config import JobConfig
from rembert.model.config import RemBertConfig
from rembert.model.parameter_count import count_parameters
from rembert.paper import PaperFigures
from rembert.runtime.consensus import Hosts
from rembert.tracking.console import Console, human_bytes, human_duration
from rembert.tracking.goodput import account, read_sessions
from rembert.train import sharding
from rembert.train.optimizer import OptimizerConfig
from rembert.train.state import Trainable

# The paper rounds, and in its ablation tables the pooler and most of the head do not count: that is 2.7 % at most, of
# Table 13, 3072 out. What is further away is not the model of the row.
_MOST_DEVIATION = 0.03


def show_parameters(console: Console, config: RemBertConfig, paper: PaperFigures) -> None:
  """Counts by part of the model, in pre-training and in fine-tuning; the paper's figures below where it has some."""
  counts = count_parameters(config, kept_layers=paper.kept_layers)
  rows: list[tuple[str, ...]] = []
  for part, count in counts.by_part.items():
    kept = counts.kept_by_part.get(part)
    is_cut = kept is not None and kept != count
    label = f'{part}, {paper.kept_layers} of {config.num_hidden_layers} kept' if is_cut else part
    if count:
      rows.append((label, f'{count:,}', '' if kept is None else f'{kept:,}'))
  rows.append(('all', f'{counts.pre_training:,}', f'{counts.fine_tuning:,}'))
  if paper.printed is None:
    console.table('Parameters', ('', 'pre-training', 'fine-tuning'), rows)
    return
  by_rule = counts.without(paper.uncounted_parts)
  rows.append(('as the paper counts', f'{by_rule.pre_training:,}', f'{by_rule.fine_tuning:,}'))
  if paper.scale != 'full':
    console.table('Parameters', ('', 'pre-training', 'fine-tuning'), rows)
    console.say(f"{paper.printed.title}, at the scale {paper.scale}: the paper's figures are those of the full one.\n")
    return
  deviations = paper.deviations(counts.pre_training, counts.fine_tuning)
  rows += [
    (
      f'the paper says ({paper.printed.title})',
      *('' if millions is None else f'{millions}M' for millions in paper.millions),
    ),
    ('all, against the paper', *('' if deviation is None else f'{deviation:+.2%}' for deviation in deviations)),
  ]
  console.table('Parameters', ('', 'pre-training', 'fine-tuning'), rows)
  if any(abs(deviation or 0) > _MOST_DEVIATION for deviation in deviations):
    console.say(f"More than {_MOST_DEVIATION:.0%} off: the paper's figures are of another model.\n")


def format_schedule(optimizer: OptimizerConfig, steps: int) -> str:
  """The learning rate in a line, which says so where a run ends before its warm-up does."""
  warmup = f'{optimizer.learning_rate:g}, warm-up {optimizer.warmup_steps:,} steps'
  if optimizer.warmup_steps < steps:
    return f'{warmup}, linear decay to 0'
  return f'{warmup}, beyond the end at {optimizer.learning_rate * steps / optimizer.warmup_steps:.3g}'


def show_model(console: Console, config: RemBertConfig) -> None:
  """Shapes in one line each."""
  tied = ' (tied)' if config.tie_word_embeddings else ''
  padding = ''
  if config.padded_vocab_size != config.vocab_size:
    padding = f', stored as {config.padded_vocab_size:,} rows'
  console.facts(
    'Model',
    {
      'vocabulary': f'{config.vocab_size:,}{padding}',
      'embeddings': f'{config.input_embedding_size} in, {config.output_embedding_size} out{tied}',
      'layers': f'{config.num_hidden_layers} × (hidden {config.hidden_size}, {config.num_attention_heads} heads of '
      f'{config.head_dim}, feed-forward {config.intermediate_size}, {config.hidden_act})',
    },
  )


def bytes_per_device(config: JobConfig, trainable: Trainable) -> dict[str, int]:
  """What one device holds all through a step: parameters, optimizer state, gradients, its rows of the batch."""
  params = sharding.bytes_per_device(trainable.abstract_state.params, trainable.shardings.params)
  batch = config.abstract_batch(trainable.mesh)
  return {
    'parameters': params,
    'optimizer': sharding.bytes_per_device(trainable.abstract_state.opt_state, trainable.shardings.opt_state),
    'gradients': params,
    'batch': sharding.bytes_per_device(batch, {name: array.sharding for name, array in batch.items()}),
  }


def show_devices(console: Console, trainable: Trainable, config: JobConfig, peak: tuple[float, str] | None) -> None:
  """Devices, mesh, and what each device holds."""
  mesh = trainable.mesh
  devices = mesh.devices.flatten()
  rows, parts = config.train.batch_size // sharding.batch_shards(mesh), config.train.accumulation_steps
  held = bytes_per_device(config, trainable)
  console.facts(
    'Devices',
    {
      'devices': f'{len(devices)} × {devices[0].device_kind} ({devices[0].platform}), '
      f'{len({device.process_index for device in devices})} process(es), jax {jax.__version__}',
      'mesh': sharding.mesh_text(mesh),
      'peak': f'{peak[0] / 1e12:.3g} TFLOP/s a device ({peak[1]})' if peak else 'unknown device: no MFU',
      'bytes per device': ', '.join(f'{name} {human_bytes(count)}' for name, count in held.items()),
      'rows per device': f'{rows}' + (f', in {parts} parts of {rows // parts}' if parts > 1 else ''),
    },
  )


def show_hosts(console: Console, hosts: Hosts) -> None:
  """Who takes part: JAX's own messages about a lost process give its number alone."""
  if len(hosts.names) > 1:
    console.say(f'{len(hosts.names)} hosts: {", ".join(hosts.names)}')


def show_account(console: Console, workdir: epath.Path) -> None:
  """Where the time of the whole run went, restarts included."""
  sessions = read_sessions(workdir / 'goodput.json')
  if not sessions:
    return
  spent = account(sessions)
  parts = spent.by_activity | {'between restarts': spent.restart, 'steps made again': spent.lost}
  rows = [
    (name, human_duration(seconds), f'{seconds / max(spent.total, 1e-9):.1%}')
    for name, seconds in parts.items()
    if seconds >= 0.5
  ]
  rows.append((f'all, {spent.starts} start(s)', human_duration(spent.total), ''))
  console.table('Time', ('', 'time', 'share'), rows)
  console.say(f'{spent.productive_share:.1%} of the time went into steps that count.')
