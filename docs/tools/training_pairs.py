"""The same training twice, step by step: with the compiled step of the jobs, and with `docs.tools.torch_training`.

Text is the sample corpus and tests/data/xtreme, read as the jobs read it. In float64 this project takes the equations
of `rembert.model` and the loss of all logits; its kernels and chunked loss are float32.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict

from rembert import configuration
from rembert.convert import huggingface
from rembert.convert.tensor_names import ENCODER_PREFIX, slots
from rembert.data.batches import Batch
from rembert.data.finetune_batches import TrainingRows
from rembert.jobs import evaluate, finetune, finetune_tasks, pretrain
from rembert.jobs.config import FinetuneConfig, PretrainConfig, build_config
from rembert.jobs.pretrain_data import open_data
from rembert.model.config import Execution
from rembert.model.heads import POOLED
from rembert.tokenizer import SpecialIds
from rembert.tracking.console import Console
from rembert.train import sharding
from rembert.train.optimizer import make_optimizer
from rembert.train.state import Trainable, TrainState

EXAMPLES = pathlib.Path(__file__).parents[2] / 'tests' / 'data' / 'xtreme'
# The softmax over keys does not depend on it: its gradient is rounding, which Adam turns into steps of full size.
KEY_BIAS = 'attention.self.key.bias'


@dataclasses.dataclass(frozen=True)
class _Float64(Execution):
  """The equations in float64. No run is configured so; fields are not checked."""

  dtype: str = 'float64'
  loss_chunk: int = 0
  kernels: str = 'reference'

  def __post_init__(self):
    pass


@dataclasses.dataclass(frozen=True)
class Training:
  """What both trainers do.

  Attributes:
    config: of the job, without dropout; `train.steps` is where the learning rate reaches zero.
    batches: one per step.
    tasks: of fine-tuning; None for pre-training.
    encoder: initial parameters; None for random ones.
  """

  config: PretrainConfig | FinetuneConfig
  batches: Sequence[Batch]
  tasks: finetune_tasks.FinetuneTasks | None = None
  encoder: Mapping | None = None

  @property
  def head(self) -> str:
    """One of `rembert.model.heads.HEADS`."""
    return self.tasks.head if self.tasks else 'mlm'


class Step(NamedTuple):
  """One step of both.

  Attributes:
    loss: mean over the batch before the update, nats, here.
    difference: torch's loss minus this one.
    distance: ‖θ − θ_torch‖ / ‖θ_torch − θ_0‖ after the update, over all parameters but `KEY_BIAS`; NaN before the first
      update with a learning rate above zero.
  """

  loss: float
  difference: float
  distance: float


def pretraining(workdir: os.PathLike, steps: int, *bindings: str) -> tuple[Training, epath.Path]:
  """The first steps of gin/pretrain_smoke.gin, without dropout, and the vocabulary, which is in `workdir`."""
  configuration.load(['gin/pretrain_smoke.gin'], ['RemBertConfig.classifier_dropout_prob=0.0', *bindings])
  config = pretrain.configured()
  opened = open_data(config.data_request, workdir=epath.Path(workdir), console=Console(is_quiet=True))
  batches = [batch for batch, _ in itertools.islice(opened.batches.batches(0, {}), steps)]
  return Training(config, batches), opened.vocabulary


def finetuning(
  task: str, like: Training, vocabulary: os.PathLike, steps: int, *bindings: str, encoder: Mapping | None = None
) -> Training:
  """The first steps of gin/finetune_TASK.gin with the architecture of `like`."""
  configuration.load([f'gin/finetune_{task}.gin'], [f"xtreme.data_dir='{EXAMPLES}'", *bindings])
  config = dataclasses.replace(build_config(FinetuneConfig), model=like.config.model, execution=like.config.execution)
  tasks = finetune_tasks.open_tasks(config)
  tasks.register(vocabulary)
  from tasks.registration import find
  from tasks.rows import stream_rows

  train, [name] = config.train, tasks.train
  rows = stream_rows(find(name), 'train', tasks.head, max_length=train.sequence_length, keep_examples=False)
  source = TrainingRows(
    [list(rows)],
    [1.0],
    tasks.head,
    batch_size=train.batch_size,
    sequence_length=train.sequence_length,
    pad=SpecialIds().pad,
    seed=train.seed,
  )
  return Training(config, list(itertools.islice(source.batches(0), steps)), tasks, encoder)


def train_twice(training: Training, dtype: str = 'float32') -> tuple[list[Step], dict]:
  """Every step on both sides, and the parameters that training here has led to."""
  from docs.tools import torch_training

  config, head, labels = training.config, training.head, training.tasks.labels if training.tasks else ()
  if dtype == 'float64':
    config = dataclasses.replace(config, execution=_Float64())
  assert config.dropout_seed is None
  model = slots(config.model, head, num_labels=len(labels) or None, has_pooler=head in POOLED)

  def by_name(params: Mapping) -> dict[str, np.ndarray]:
    leaves = flatten_dict(jax.tree.map(np.array, params), sep='/')
    prefix = lambda slot: ENCODER_PREFIX if slot.leaf.startswith('encoder/') else ''
    return {prefix(slot) + slot.hugging_face: slot.take(leaves[slot.leaf], huggingface.FORM) for slot in model}

  mesh, steps = sharding.make_mesh(config.mesh, jax.devices()[:1]), []
  with contextlib.ExitStack() as stack:
    stack.enter_context(jax.enable_x64(dtype == 'float64'))
    trainable, train_step = _compile(training, config, mesh)
    stack.enter_context(jax.set_mesh(mesh))
    state = _initial_state(trainable, config.train.seed, training.encoder, dtype)
    initial = by_name(state.params)
    reference = torch_training.build_model(initial, config.model, head, labels)
    torch_step = torch_training.train_step(reference, head, config.optimizer, config.train.steps)
    for batch in training.batches:
      state, metrics = train_step(state, sharding.to_device(batch, mesh), None)
      loss = float(metrics.sums.loss) / float(metrics.sums.weight)
      difference, weights = torch_step(batch) - loss, torch_training.weights_of(reference)
      steps.append(Step(loss, difference, _distance(by_name(state.params), weights, initial)))
    return steps, jax.tree.map(np.array, state.params)


def _compile(training: Training, config, mesh: jax.sharding.Mesh) -> tuple[Trainable, jax.stages.Wrapped]:
  """As the jobs do."""
  if training.tasks is None:
    trainable = pretrain.make_trainable(config, mesh)
    return trainable, pretrain.make_step(config, trainable)
  optimizer = make_optimizer(config.optimizer, config.train.steps)
  trainable = evaluate.make_trainable(config, training.head, training.tasks.labels, optimizer, mesh)
  return trainable, finetune.make_step(config, training.head, trainable)


def _initial_state(trainable: Trainable, seed: int, encoder: Mapping | None, dtype: str) -> TrainState:
  state = trainable.init(seed)
  params = {**state.params, 'encoder': {**state.params['encoder'], **(encoder or {})}}
  params = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf, dtype), params)
  return TrainState(state.step, params, jax.jit(trainable.optimizer.init)(params))


def _distance(ours: Mapping, theirs: Mapping, initial: Mapping) -> float:
  def norm(a, b):
    compared = (name for name in theirs if not name.endswith(KEY_BIAS))
    return math.sqrt(sum(np.sum(np.square(np.float64(a[name]) - b[name])) for name in compared))

  moved = norm(theirs, initial)
  return norm(ours, theirs) / moved if moved else math.nan
