"""Configurations of training and evaluation jobs, and derived values: FLOPs, batch shapes, identity."""

import abc
import dataclasses
import math
from typing import Any, ClassVar, TypeVar, get_origin, get_type_hints

import jax
import numpy as np

from rembert import configuration
from rembert.aot import flops
from rembert.checkpoint.load import architecture, config_meta
from rembert.configuration import EvaluateConfig, FinetuneOptions
from rembert.data.batches import batch_shapes
from rembert.data.config import DataConfig, DataRequest, VocabularyConfig
from rembert.data.masking import MaskingConfig
from rembert.data.packing import PackingConfig
from rembert.data.phases import Phase, PhasesConfig, phases_of
from rembert.errors import Setting, UsageError
from rembert.kernels import check_backend, resolve_dtype
from rembert.model.config import Execution, RemBertConfig
from rembert.model.heads import POOLED
from rembert.paper import PaperFigures
from rembert.runtime.distributed import HostsConfig
from rembert.runtime.xla import HardwareConfig
from rembert.tracking.metric_writers import TrackingConfig
from rembert.tracking.profiler import ProfileConfig
from rembert.train import sharding
from rembert.train.anomaly_detection import GuardsConfig
from rembert.train.optimizer import OptimizerConfig
from rembert.train.sharding import MeshConfig
from rembert.train.trainer import TrainConfig
from tasks.tables import DatasetConfig
from tasks.xtreme import PAIRS, RETRIEVAL, XtremeConfig

# The fields that determine the results of a run, in addition to model, masking and packing.
_DATA_FIELDS = ('source', 'languages', 'alpha', 'held_out', 'min_characters', 'shuffle_rows')
_TRAIN_FIELDS = ('seed', 'batch_size', 'sequence_length', 'ema_decay')
_OPTIMIZER_FIELDS = ('freeze_embeddings', 'freeze_layers')

Config = TypeVar('Config')
Job = TypeVar('Job', bound='JobConfig')


def build_config(cls: type[Config], *, model_path: str | None = None) -> Config:
  """Builds a job's configuration from the loaded gin files and bindings.

  The architecture is that of the model at `model_path`, if one is given, except for fields that are bound.
  """
  fields: dict[str, Any] = {}
  if model_path is not None:
    fields['model'] = dataclasses.replace(architecture(model_path), **configuration.bound(RemBertConfig))
  for name, hint in get_type_hints(cls).items():
    if name not in fields and get_origin(hint) is not ClassVar:
      fields[name] = configuration.build(hint)
  return cls(**fields)


@dataclasses.dataclass(frozen=True)
class JobConfig(abc.ABC):
  """Configuration of a job that trains, or evaluates a trained model."""

  model: RemBertConfig
  execution: Execution
  vocabulary: VocabularyConfig
  optimizer: OptimizerConfig
  mesh: MeshConfig
  hardware: HardwareConfig
  hosts: HostsConfig
  train: TrainConfig
  guards: GuardsConfig
  profile: ProfileConfig
  tracking: TrackingConfig

  _dropouts: ClassVar[tuple[str, ...]] = ('hidden_dropout_prob', 'attention_probs_dropout_prob')

  def __post_init__(self):
    if self.optimizer.freeze_layers > self.model.num_hidden_layers:
      raise UsageError(
        f'cannot freeze {self.optimizer.freeze_layers} of {self.model.num_hidden_layers} layers',
        where='optimizer.freeze_layers, RemBertConfig.num_hidden_layers',
        fix=Setting('optimizer.freeze_layers', self.model.num_hidden_layers),
      )
    self.execution.check_model(self.model)

  def _check_length(self, length: int, name: str) -> None:
    positions = self.model.max_position_embeddings
    if length > positions:
      raise UsageError(
        f"sequences of {length} tokens exceed the model's {positions} positions",
        where=f'{name}, RemBertConfig.max_position_embeddings',
        fix=[Setting('train.sequence_length', positions), 'or use a model with more positions'],
      )

  @property
  def borders(self) -> frozenset[int]:
    """Steps at which a phase of pre-training ends and another begins."""
    return frozenset()

  def at(self: Job, step: int) -> Job:
    """The configuration of a step, counted from 0, as one without phases."""
    del step
    return self

  @property
  @abc.abstractmethod
  def train_flops_per_step(self) -> int:
    """FLOPs of the whole batch."""

  @property
  def dropout_seed(self) -> int | None:
    """None if dropout is disabled."""
    return self.train.seed if any(getattr(self.model, name) for name in self._dropouts) else None

  @abc.abstractmethod
  def abstract_batch(self, mesh: jax.sharding.Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and shardings of the global batch of a step, without the labels of fine-tuning."""

  def on(self: Job, mesh: jax.sharding.Mesh) -> Job:
    """The configuration with the dtype that these devices compute fastest in for `auto`."""
    platform = mesh.devices.flat[0].platform
    return dataclasses.replace(self, execution=resolve_dtype(self.execution, platform))

  def check_mesh(self, mesh: jax.sharding.Mesh) -> None:
    """UsageError if the batch cannot be divided over the devices, or they do not support the attention kernel."""
    self.train.check_divides(sharding.batch_shards(mesh))
    platform = mesh.devices.flat[0].platform
    check_backend(self.execution.attention, platform=platform, sequence_length=self.train.sequence_length)


@dataclasses.dataclass(frozen=True)
class PretrainConfig(JobConfig):
  """Configuration of pre-training."""

  paper: PaperFigures
  data: DataConfig
  masking: MaskingConfig
  packing: PackingConfig
  phases: PhasesConfig

  def __post_init__(self):
    super().__post_init__()
    self._check_length(self.train.sequence_length, 'train.sequence_length')
    for phase in self.schedule():
      self._check_length(phase.sequence_length, 'phases.sequence_length')

  def schedule(self) -> list[Phase]:
    """The phases of the run, in order; just one if none are configured."""
    train = self.train
    return phases_of(
      self.phases,
      steps=train.steps,
      data=self.data,
      masking=self.masking,
      sequence_length=train.sequence_length,
    )

  @property
  def borders(self) -> frozenset[int]:
    """See `JobConfig`; each has one compiled step before it, and another after it."""
    return frozenset(self.phases.steps(self.train.steps)) - {0, self.train.steps}

  def at(self, step: int) -> 'PretrainConfig':
    """See `JobConfig`."""
    phases = self.schedule()
    return self.in_phase(next((phase for phase in phases if step < phase.end), phases[-1]))

  def in_phase(self, phase: Phase) -> 'PretrainConfig':
    """The configuration of a run that is this phase alone; the mask rate is the phase's largest."""
    return dataclasses.replace(
      self,
      train=dataclasses.replace(self.train, sequence_length=phase.sequence_length),
      masking=dataclasses.replace(self.masking, rate=phase.largest_masking_rate),
      data=dataclasses.replace(self.data, store=phase.store),
      phases=PhasesConfig(),
    )

  @property
  def data_request(self) -> DataRequest:
    """The argument of `open_data`."""
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
    """FLOPs of the whole batch."""
    slots = self.masking.slots(self.train.sequence_length)
    last_queries = slots if self.execution.trims_last_layer else None
    per_row = flops.train_flops_per_row(self.model, self.train.sequence_length, slots, last_queries=last_queries)
    return self.train.batch_size * per_row

  def abstract_batch(self, mesh: jax.sharding.Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and shardings of the global batch of a step."""
    train, where = self.train, sharding.batch_sharding(mesh)
    shapes = batch_shapes(train.batch_size, train.sequence_length, self.masking.slots(train.sequence_length))
    return {name: jax.ShapeDtypeStruct(shape, dtype, sharding=where) for name, (shape, dtype) in shapes.items()}

  def identity(self) -> dict[str, Any]:
    """The fields by gin name, as JSON, that a checkpoint must share with the run that resumes from it."""
    return {
      **config_meta('RemBertConfig', self.model),
      **config_meta('masking', self.masking),
      **config_meta('packing', self.packing),
      **config_meta('data', self.data, _DATA_FIELDS),
      **config_meta('optimizer', self.optimizer, _OPTIMIZER_FIELDS),
      **config_meta('train', self.train, _TRAIN_FIELDS),
    }


@dataclasses.dataclass(frozen=True)
class FinetuneConfig(JobConfig):
  """Configuration of fine-tuning and evaluation."""

  xtreme: XtremeConfig
  dataset: DatasetConfig
  finetune: FinetuneOptions
  evaluate: EvaluateConfig

  _dropouts: ClassVar[tuple[str, ...]] = (*JobConfig._dropouts, 'classifier_dropout_prob')

  def __post_init__(self):
    if self.dataset.kind is not None:  # tables are a mixture that the job registers itself
      if self.finetune.mixture not in (None, self.dataset.name):
        raise UsageError('two datasets are set', where='dataset.kind, finetune.mixture', fix='set one of them')
      options = dataclasses.replace(self.finetune, mixture=self.dataset.name, head=self.dataset.head)
      object.__setattr__(self, 'finetune', options)
    super().__post_init__()
    if not self.is_retrieval:  # whose sentences are as long as the model allows
      self._check_length(self.train.sequence_length, 'train.sequence_length')

  @property
  def is_retrieval(self) -> bool:
    """Whether sentence embeddings are evaluated, without a head."""
    return self.finetune.mixture is None and self.xtreme.task in RETRIEVAL

  def for_rows(self, rows: int) -> 'FinetuneConfig':
    """The configuration with steps, warmup and evaluation interval for this number of training sequences."""
    train, optimizer, options = self.train, self.optimizer, self.finetune
    steps_per_epoch = rows / train.batch_size
    if options.epochs is not None:
      train = dataclasses.replace(train, steps=math.ceil(options.epochs * steps_per_epoch))
    if options.evaluations_per_epoch is not None:
      eval_every = max(1, round(steps_per_epoch / options.evaluations_per_epoch))
      train = dataclasses.replace(train, eval_every=eval_every)
    if options.warmup_ratio is not None:
      optimizer = dataclasses.replace(optimizer, warmup_steps=round(options.warmup_ratio * train.steps))
    return dataclasses.replace(self, train=train, optimizer=optimizer)

  @property
  def train_flops_per_step(self) -> int:
    """FLOPs of the whole batch, without the head."""
    is_pooled = self.finetune.head in POOLED if self.finetune.mixture else self.xtreme.task in PAIRS
    last_queries = 1 if self.execution.trim_last_layer and is_pooled else None
    per_row = flops.train_flops_per_row(self.model, self.train.sequence_length, 0, last_queries=last_queries)
    return self.train.batch_size * per_row

  def abstract_batch(self, mesh: jax.sharding.Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and shardings of the global batch of a step, without its labels."""
    shape, where = (self.train.batch_size, self.train.sequence_length), sharding.batch_sharding(mesh)
    names = ('input_ids', 'token_type_ids', 'segment_ids')
    return {name: jax.ShapeDtypeStruct(shape, np.int32, sharding=where) for name in names}

  def identity(self) -> dict[str, Any]:
    """As `PretrainConfig.identity`, of the configuration that `for_rows` returns."""
    if self.finetune.mixture is not None:
      data = config_meta('finetune', self.finetune, ('mixture',))
    else:
      data = config_meta('xtreme', self.xtreme, ('task', 'train_language', 'doc_stride', 'max_query_length'))
    return {
      **config_meta('RemBertConfig', self.model),
      **data,
      **config_meta('optimizer', self.optimizer),
      **config_meta('train', self.train, (*_TRAIN_FIELDS, 'steps', 'eval_every', 'init_from')),
      **config_meta('finetune', self.finetune, ('select', 'max_dev_examples')),
    }
