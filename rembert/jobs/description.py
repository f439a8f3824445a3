"""What a run is, in tables: parameters, devices, bytes, FLOPs. Shown at the start, and by `--dry_run`."""

import dataclasses

import jax

from rembert.aot import flops
from rembert.data.config import DataConfig, DataRequest, VocabularyConfig
from rembert.data.masking import MaskingConfig, batch_shapes
from rembert.data.packing import PackingConfig
from rembert.errors import UsageError
from rembert.kernels import check_backend
from rembert.model.config import Execution, RemBertConfig
from rembert.model.parameter_count import count_parameters
from rembert.paper import PaperFigures
from rembert.runtime.consensus import Hosts
from rembert.runtime.distributed import HostsConfig
from rembert.runtime.xla import HardwareConfig
from rembert.tracking.console import Console, human_bytes, human_duration
from rembert.tracking.goodput import Account
from rembert.tracking.metric_writers import TrackingConfig
from rembert.tracking.profiler import ProfileConfig
from rembert.train import sharding, state
from rembert.train.anomaly_detection import GuardsConfig
from rembert.train.optimizer import OptimizerConfig, make_optimizer
from rembert.train.sharding import MeshConfig
from rembert.train.state import Trainable
from rembert.train.step import make_train_step
from rembert.train.trainer import TrainConfig

# The paper rounds, and in its ablation tables the pooler and most of the head do not count: that is 2.7 % at most, of
# Table 13, 3072 out. What is further away is not the model of the row.
_MOST_DEVIATION = 0.03


@dataclasses.dataclass(frozen=True)
class PretrainConfig:
  """Everything that pre-training is told."""

  model: RemBertConfig
  paper: PaperFigures
  execution: Execution
  data: DataConfig
  vocabulary: VocabularyConfig
  masking: MaskingConfig
  packing: PackingConfig
  optimizer: OptimizerConfig
  mesh: MeshConfig
  hardware: HardwareConfig
  hosts: HostsConfig
  train: TrainConfig
  guards: GuardsConfig
  profile: ProfileConfig
  tracking: TrackingConfig

  def __post_init__(self):
    if self.train.sequence_length > self.model.max_position_embeddings:
      raise UsageError(
        f'rows of {self.train.sequence_length} tokens, but positions for {self.model.max_position_embeddings}',
        where='train.sequence_length, RemBertConfig.max_position_embeddings',
        fix=f'--gin.train.sequence_length={self.model.max_position_embeddings}, or more positions',
      )
    if self.optimizer.freeze_layers > self.model.num_hidden_layers:
      raise UsageError(
        f'{self.optimizer.freeze_layers} layers are to be frozen, and the model has {self.model.num_hidden_layers}',
        where='optimizer.freeze_layers, RemBertConfig.num_hidden_layers',
        fix=f'at most --gin.optimizer.freeze_layers={self.model.num_hidden_layers}',
      )
    self.execution.check_model(self.model)

  @property
  def data_request(self) -> DataRequest:
    """What the run asks of its data."""
    return DataRequest(
      data=self.data,
      batch_size=self.train.batch_size,
      sequence_length=self.train.sequence_length,
      vocab_size=self.model.vocab_size,
      evaluation_rows=self.train.eval_rows,
      seed=self.train.seed,
      vocabulary=self.vocabulary,
      masking=self.masking,
      packing=self.packing,
    )

  @property
  def train_flops_per_step(self) -> int:
    """Of the whole batch."""
    slots, trims = self.masking.slots(self.train.sequence_length), self.execution.trims_last_layer
    last_queries = slots if trims else None
    per_row = flops.train_flops_per_row(self.model, self.train.sequence_length, slots, last_queries=last_queries)
    return self.train.batch_size * per_row

  @property
  def dropout_seed(self) -> int | None:
    """None where the model drops nothing."""
    return self.train.seed if self.model.hidden_dropout_prob or self.model.attention_probs_dropout_prob else None

  def abstract_batch(self, mesh: jax.sharding.Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    """The global batch of a step, as shapes with their sharding."""
    train, where = self.train, sharding.batch_sharding(mesh)
    shapes = batch_shapes(train.batch_size, train.sequence_length, self.masking.slots(train.sequence_length))
    return {name: jax.ShapeDtypeStruct(shape, dtype, sharding=where) for name, (shape, dtype) in shapes.items()}


def check_mesh(train: TrainConfig, execution: Execution, mesh: jax.sharding.Mesh) -> None:
  """Raises UsageError where the batch does not divide over the devices, or they lack the attention that is wanted."""
  train.check_divides(sharding.batch_shards(mesh))
  check_backend(execution.attention, platform=mesh.devices.flat[0].platform, sequence_length=train.sequence_length)


def make_trainable(config: PretrainConfig, mesh: jax.sharding.Mesh) -> Trainable:
  """Model and optimizer on a mesh; UsageError where batch, devices and attention do not go together."""
  check_mesh(config.train, config.execution, mesh)
  optimizer = make_optimizer(config.optimizer, config.train.steps)
  return state.masked_lm(config.model, config.execution, optimizer, mesh)


def make_step(config: PretrainConfig, trainable: Trainable) -> jax.stages.Wrapped:
  """The update of pre-training, to be run under `jax.set_mesh`; also what `--mode=compile` compiles."""
  return make_train_step(
    trainable, accumulation_steps=config.train.accumulation_steps, dropout_seed=config.dropout_seed
  )


def show_parameters(console: Console, config: RemBertConfig, paper: PaperFigures) -> None:
  """Counts by part of the model, in pre-training and in fine-tuning; the paper's figures below where it has some."""
  counts = count_parameters(config, kept_layers=paper.kept_layers)
  rows = []
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
      'learning rate': f'{optimizer.learning_rate:g}, warm-up {optimizer.warmup_steps:,} steps, linear decay to 0',
      'compute': f'{config.execution.dtype}, remat {config.execution.remat}, attention {config.execution.attention}, '
      + (f'loss in chunks of {config.execution.loss_chunk:,}' if config.execution.loss_chunk else 'loss of all logits'),
      'FLOPs': f'{config.train_flops_per_step:.3g} a step, {config.train_flops_per_step * train.steps:.3g} in all',
    },
  )


def bytes_per_device(config: PretrainConfig, trainable: Trainable) -> dict[str, int]:
  """What one device holds all through a step: parameters, optimizer state, gradients, its rows of the batch."""
  params = sharding.bytes_per_device(trainable.abstract_state.params, trainable.shardings.params)
  batch = config.abstract_batch(trainable.mesh)
  return {
    'parameters': params,
    'optimizer': sharding.bytes_per_device(trainable.abstract_state.opt_state, trainable.shardings.opt_state),
    'gradients': params,
    'batch': sharding.bytes_per_device(batch, {name: array.sharding for name, array in batch.items()}),
  }


def show_devices(
  console: Console, trainable: Trainable, config: PretrainConfig, peak: tuple[float, str] | None
) -> None:
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


def show_account(console: Console, account: Account) -> None:
  """Where the time of the whole run went, restarts included."""
  parts = account.by_activity | {'between restarts': account.restart, 'steps made again': account.lost}
  rows = [
    (name, human_duration(seconds), f'{seconds / max(account.total, 1e-9):.1%}')
    for name, seconds in parts.items()
    if seconds >= 0.5
  ]
  rows.append((f'all, {account.starts} start(s)', human_duration(account.total), ''))
  console.table('Time', ('', 'time', 'share'), rows)
  console.say(f'{account.productive_share:.1%} of the time went into steps that count.')
