"""The training state (step, parameters, optimizer state), initialised sharded."""

import dataclasses
from collections.abc import Callable
from typing import Generic, TypeVar

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rembert.model.config import Execution, RemBertConfig
from rembert.model.heads import RemBertForMaskedLM
from rembert.train import sharding

Leaf = TypeVar('Leaf')


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState(Generic[Leaf]):
  """A pytree of everything that training updates: arrays, or their shapes or shardings."""

  step: Leaf  # int32 scalar, number of updates
  params: dict  # nested, of float32 arrays; for pre-training the two trees `encoder` and `mlm`
  opt_state: optax.OptState
  ema: dict | None = None  # exponential moving average of `params`, a tree of the same shapes

  @property
  def model(self) -> dict:
    """The parameters that are evaluated, exported and loaded: the average if there is one."""
    return self.params if self.ema is None else self.ema


@dataclasses.dataclass(frozen=True)
class Trainable:
  """A model and its optimizer on a mesh, split for jit, with shapes, shardings and initialisation of the state."""

  graphdef: nnx.GraphDef  # the static half of the model, which is `nnx.merge(graphdef, params)`
  optimizer: optax.GradientTransformationExtraArgs  # of sums of gradients, see `rembert.train.optimizer.make_optimizer`
  mesh: Mesh
  abstract_state: TrainState[jax.ShapeDtypeStruct]
  shardings: TrainState[NamedSharding]
  init: 'jax.stages.Wrapped'  # (seed) to a sharded `TrainState`; no device holds more than its shard
  ema_decay: float = 0.0  # see `rembert.train.trainer.TrainConfig`

  def restore_target(self) -> TrainState[jax.ShapeDtypeStruct]:
    """Shapes with shardings, the target for restoring a checkpoint."""
    place = lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)
    return jax.tree.map(place, self.abstract_state, self.shardings)


def masked_lm(
  config: RemBertConfig,
  execution: Execution,
  optimizer: optax.GradientTransformationExtraArgs,
  mesh: Mesh,
  *,
  ema_decay: float = 0.0,
) -> Trainable:
  """`trainable` of the pre-training model."""
  build = lambda rngs: RemBertForMaskedLM(config, execution, rngs=rngs)
  return trainable(build, optimizer, mesh, ema_decay=ema_decay)


def trainable(
  build: Callable[[nnx.Rngs], nnx.Module],
  optimizer: optax.GradientTransformationExtraArgs,
  mesh: Mesh,
  *,
  ema_decay: float = 0.0,
) -> Trainable:
  """A model with its optimizer on a mesh, ready to initialise. Allocates nothing.

  If `ema_decay` is above 0, its state has a moving average, which begins as the initial parameters. UsageError if sizes
  are not divisible over the mesh.
  """
  construct = lambda seed: build(nnx.Rngs(jax.random.key(seed)))
  graphdef, variables = nnx.split(nnx.eval_shape(lambda: construct(0)))
  abstract_params = nnx.to_pure_dict(variables)
  axes = nnx.to_pure_dict(nnx.get_partition_spec(variables))

  def begin(params: dict) -> TrainState:
    ema = params if ema_decay else None
    return TrainState(step=jnp.zeros((), jnp.int32), params=params, opt_state=optimizer.init(params), ema=ema)

  abstract_state = jax.eval_shape(begin, abstract_params)
  param_shardings = sharding.parameter_shardings(axes, abstract_params, mesh)
  shardings = TrainState(
    step=NamedSharding(mesh, PartitionSpec()),
    params=param_shardings,
    opt_state=sharding.optimizer_shardings(optimizer, abstract_state.opt_state, param_shardings, mesh),
    ema=param_shardings if ema_decay else None,
  )
  return Trainable(
    graphdef=graphdef,
    optimizer=optimizer,
    mesh=mesh,
    abstract_state=abstract_state,
    shardings=shardings,
    init=jax.jit(lambda seed: begin(nnx.to_pure_dict(nnx.state(construct(seed)))), out_shardings=shardings),
    ema_decay=ema_decay,
  )
