"""What the jobs that train or evaluate are told, and what that comes to: FLOPs, shapes of batches, identity.

`rembert.configuration` names classes of this file, so this file does not import it.
"""

import abc
import dataclasses
import math
from typing import Annotated

import jax
import numpy as np

from rembert.aot import flops
from rembert.checkpoint.load import config_meta
from rembert.data.config import DataConfig, DataRequest, VocabularyConfig
from rembert.data.masking import MaskingConfig, batch_shapes
from rembert.data.packing import PackingConfig
from rembert.errors import Setting, UsageError
from rembert.kernels import check_backend
from rembert.model.config import Execution, RemBertConfig
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
from rembert.validation import Count, FractionBelowOne, OneOf, Positive, check_fields
from tasks.xtreme.config import PAIRS, RETRIEVAL, XtremeConfig

HEADS = ('classification', 'tagging', 'qa')
# What decides which numbers a run produces, beside model, masks and packing.
_DATA_FIELDS = ('source', 'languages', 'alpha', 'held_out', 'min_characters', 'shuffle_rows')
_TRAIN_FIELDS = ('seed', 'batch_size', 'sequence_length')
_OPTIMIZER_FIELDS = ('freeze_embeddings', 'freeze_layers')


@dataclasses.dataclass(frozen=True)
class JobConfig(abc.ABC):
  """What every job is told that trains, or evaluates what was trained."""

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

  @property
  @abc.abstractmethod
  def train_flops_per_step(self) -> int:
    """Of the whole batch."""

  @abc.abstractmethod
  def abstract_batch(self, mesh: jax.sharding.Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    """The global batch of a step, as shapes with their sharding; labels of fine-tuning are left out."""

  def check_mesh(self, mesh: jax.sharding.Mesh) -> None:
    """Raises UsageError where the batch does not divide over the devices, or they lack the attention that is wanted."""
    self.train.check_divides(sharding.batch_shards(mesh))
    platform = mesh.devices.flat[0].platform
    check_backend(self.execution.attention, platform=platform, sequence_length=self.train.sequence_length)


@dataclasses.dataclass(frozen=True)
class PretrainConfig(JobConfig):
  """Everything that pre-training is told."""

  paper: PaperFigures
  data: DataConfig
  masking: MaskingConfig
  packing: PackingConfig

  def __post_init__(self):
    if self.train.sequence_length > self.model.max_position_embeddings:
      raise UsageError(
        f'rows of {self.train.sequence_length} tokens, but positions for {self.model.max_position_embeddings}',
        where='train.sequence_length, RemBertConfig.max_position_embeddings',
        fix=[Setting('train.sequence_length', self.model.max_position_embeddings), 'or a model with more positions'],
      )
    if self.optimizer.freeze_layers > self.model.num_hidden_layers:
      raise UsageError(
        f'{self.optimizer.freeze_layers} layers are to be frozen, and the model has {self.model.num_hidden_layers}',
        where='optimizer.freeze_layers, RemBertConfig.num_hidden_layers',
        fix=Setting('optimizer.freeze_layers', self.model.num_hidden_layers),
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

  def identity(self) -> dict:
    """What a checkpoint of this run is a checkpoint of, by gin name; JSON. Another value would be another run."""
    return {
      **config_meta('RemBertConfig', self.model),
      **config_meta('masking', self.masking),
      **config_meta('packing', self.packing),
      **config_meta('data', self.data, _DATA_FIELDS),
      **config_meta('optimizer', self.optimizer, _OPTIMIZER_FIELDS),
      **config_meta('train', self.train, _TRAIN_FIELDS),
    }


# --- fine-tuning ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class FinetuneOptions:
  """How a task is learned, beside what `train` and `optimizer` say.

  Attributes:
    mixture: a registered SeqIO task or mixture to learn and to evaluate in place of `xtreme.task`; see `tasks.rows`.
      Rows are drawn at the mixture's rates.
    head: of the model for a mixture: `classification`, `tagging` or `qa`.
    epochs: times that every training example is seen, of a mixture on average; None takes `train.steps`.
    warmup_share: of the steps, for warming up (BERT's fine-tuning: 0.1); None takes `optimizer.warmup_steps`.
    evaluations_per_epoch: on the dev set in the training language; None takes `train.eval_every`.
    max_examples: to learn from, drawn once for all seeds and models; None for all. The paper learns from all.
    max_dev_examples: to choose parameters by, drawn in the same way; what is judged in the end is always whole.
    select: which parameters are judged in the end: the `best` by dev score, the first among equals, or the `last`.
    judge_batch_size: rows of a batch that is judged; the mesh must divide it.
  """

  mixture: str | None = None
  head: Annotated[str, OneOf(HEADS)] | None = None
  epochs: Positive | None = 3
  warmup_share: FractionBelowOne | None = 0.1
  evaluations_per_epoch: Positive | None = 2
  max_examples: Count | None = None
  max_dev_examples: Count | None = None
  select: Annotated[str, OneOf(('best', 'last'))] = 'best'
  judge_batch_size: Count = 64

  def __post_init__(self):
    check_fields(self, 'finetune')
    if (self.mixture is None) != (self.head is None):
      raise UsageError(
        'a mixture needs a head, and a head a mixture: that of an XTREME task is fixed',
        where=f'finetune.mixture = {self.mixture!r}, finetune.head = {self.head!r}',
        fix='--gin.finetune.mixture=NAME --gin.finetune.head=classification, or neither',
      )


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
  """What `--mode=evaluate` looks at.

  Attributes:
    model: a workdir, a checkpoint or a folder of Hugging Face.
  """

  model: str | None = None

  def __post_init__(self):
    check_fields(self, 'evaluate')


@dataclasses.dataclass(frozen=True)
class FinetuneConfig(JobConfig):
  """Everything that fine-tuning and evaluation are told.

  `model` is the architecture of the parameters to begin with, if there are any, but for the fields that are bound.
  """

  xtreme: XtremeConfig
  finetune: FinetuneOptions
  evaluate: EvaluateConfig

  def __post_init__(self):
    # Sentences for retrieval are as long as the model allows.
    has_rows = self.finetune.mixture is not None or self.xtreme.task not in RETRIEVAL
    if has_rows and self.train.sequence_length > self.model.max_position_embeddings:
      raise UsageError(
        f'rows of {self.train.sequence_length} pieces, but positions for {self.model.max_position_embeddings}',
        where='train.sequence_length, RemBertConfig.max_position_embeddings',
        fix=Setting('train.sequence_length', self.model.max_position_embeddings),
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
