"""What fine-tuning and judging are told, and what that comes to: steps, warm-up, architecture."""

import dataclasses
import math
from collections.abc import Callable

import jax
import numpy as np

from rembert import configuration
from rembert.aot import flops
from rembert.checkpoint.load import config_meta
from rembert.convert.importing import architecture
from rembert.data.config import VocabularyConfig
from rembert.errors import UsageError
from rembert.jobs.finetune_options import FinetuneOptions, JudgeConfig
from rembert.model.config import Execution, RemBertConfig
from rembert.runtime.distributed import HostsConfig
from rembert.runtime.xla import HardwareConfig
from rembert.tracking.metric_writers import TrackingConfig
from rembert.tracking.profiler import ProfileConfig
from rembert.train import sharding
from rembert.train.anomaly_detection import GuardsConfig
from rembert.train.optimizer import OptimizerConfig
from rembert.train.sharding import MeshConfig
from rembert.train.trainer import TrainConfig
from tasks.xtreme.config import PAIRS, RETRIEVAL, XtremeConfig


@dataclasses.dataclass(frozen=True)
class FinetuneConfig:
  """Everything that fine-tuning and judging are told.

  `model` is the architecture of the parameters to begin with, if there are any, but for the fields that are bound.
  """

  model: RemBertConfig
  execution: Execution
  xtreme: XtremeConfig
  finetune: FinetuneOptions
  evaluate: JudgeConfig
  vocabulary: VocabularyConfig
  optimizer: OptimizerConfig
  mesh: MeshConfig
  hardware: HardwareConfig
  hosts: HostsConfig
  train: TrainConfig
  guards: GuardsConfig
  profile: ProfileConfig
  tracking: TrackingConfig

  def __post_init__(self):
    # Sentences for retrieval are as long as the model allows.
    has_rows = self.finetune.mixture is not None or self.xtreme.task not in RETRIEVAL
    if has_rows and self.train.sequence_length > self.model.max_position_embeddings:
      raise UsageError(
        f'rows of {self.train.sequence_length} pieces, but positions for {self.model.max_position_embeddings}',
        where='train.sequence_length, RemBertConfig.max_position_embeddings',
        fix=f'--gin.train.sequence_length={self.model.max_position_embeddings}',
      )
    self.execution.check_model(self.model)

  def for_rows(self, rows: int) -> 'FinetuneConfig':
    """With the steps, the warm-up and the evaluations that so many training rows come to."""
    train, optimizer, options = self.train, self.optimizer, self.finetune
    an_epoch = rows / train.batch_size
    if options.epochs is not None:
      train = dataclasses.replace(train, steps=math.ceil(options.epochs * an_epoch))
    if options.evaluations_per_epoch is not None:
      train = dataclasses.replace(train, eval_every=max(1, round(an_epoch / options.evaluations_per_epoch)))
    if options.warmup_share is not None:
      optimizer = dataclasses.replace(optimizer, warmup_steps=round(options.warmup_share * train.steps))
    return dataclasses.replace(self, train=train, optimizer=optimizer)

  @property
  def train_flops_per_step(self) -> int:
    """Of the whole batch; the head's few are left out."""
    is_classified = self.finetune.head == 'classification' if self.finetune.mixture else self.xtreme.task in PAIRS
    last_queries = 1 if self.execution.trim_last_layer and is_classified else None
    per_row = flops.train_flops_per_row(self.model, self.train.sequence_length, 0, last_queries=last_queries)
    return self.train.batch_size * per_row

  @property
  def dropout_seed(self) -> int | None:
    """None where the model drops nothing."""
    model = self.model
    drops = model.hidden_dropout_prob, model.attention_probs_dropout_prob, model.classifier_dropout_prob
    return self.train.seed if any(drops) else None

  def abstract_batch(self, mesh: jax.sharding.Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    """The global batch of a step without its labels, as shapes with their sharding."""
    shape, where = (self.train.batch_size, self.train.sequence_length), sharding.batch_sharding(mesh)
    names = ('input_ids', 'token_type_ids', 'segment_ids')
    return {name: jax.ShapeDtypeStruct(shape, np.int32, sharding=where) for name in names}

  def identity(self) -> dict:
    """What a checkpoint of this run is a checkpoint of, by gin name; JSON. Of the configuration of `for_rows`."""
    return {
      **config_meta('RemBertConfig', self.model),
      **self._data_identity(),
      **config_meta('optimizer', self.optimizer),
      **config_meta('train', self.train, ('steps', 'seed', 'batch_size', 'sequence_length', 'eval_every', 'init_from')),
      **config_meta('finetune', self.finetune, ('select', 'max_dev_examples')),
    }

  def _data_identity(self) -> dict:
    if self.finetune.mixture is not None:
      return config_meta('finetune', self.finetune, ('mixture',))
    return config_meta('xtreme', self.xtreme, ('task', 'train_language', 'doc_stride', 'max_query_length'))


def configured(
  model_path_of: Callable[[TrainConfig, JudgeConfig], str | None] = lambda train, evaluate: train.init_from,
) -> FinetuneConfig:
  """The configuration that gin has been told.

  Args:
    model_path_of: (train, evaluate) to the path of the model whose architecture it is; None for that of the gin files.
  """
  fields = {field.name: field.type for field in dataclasses.fields(FinetuneConfig) if field.name != 'model'}
  built = {name: configuration.build(cls) for name, cls in fields.items()}
  path = model_path_of(built['train'], built['evaluate'])
  if path is None:
    return FinetuneConfig(model=configuration.build(RemBertConfig), **built)
  model = dataclasses.replace(architecture(path), **configuration.bound(RemBertConfig))
  return FinetuneConfig(model=model, **built)
