"""BERT's AdamW (no bias correction, no decay of LayerNorm and biases) and learning-rate schedules."""

import dataclasses
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rembert.validation import CountOrZero, Fraction, FractionBelowOne, NotNegative, OneOf, check_fields

MU_DTYPES = ('float32', 'bfloat16')
# Fraction of the peak that is left after a fraction x of the decay.
_DECAYS = {
  'linear': lambda x: 1 - x,
  'sqrt': lambda x: 1 - jnp.sqrt(x),
  'cosine': lambda x: (1 + jnp.cos(jnp.pi * x)) / 2,
}
SCHEDULES = ('bert', 'wsd', 'cosine', 'constant')


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """AdamW as in RemBERT's pre-training (paper, Table 14; google-research/bert, optimization.py).

  Attributes:
    learning_rate: peak learning rate, reached at the end of the warmup.
    warmup_steps: steps of the linear warmup from zero.
    schedule: learning rate after the warmup: `bert`, linear to zero; `wsd` (warmup, stable, decay; a
      trapezoid), the peak, then a decay to zero at the end; `cosine`, half a cosine to zero; `constant`, the peak. A
      `wsd` run that is stopped before its decay may be resumed with more `train.steps`.
    decay_ratio: fraction of all steps over which `wsd` decays.
    decay_shape: `wsd`'s decay: `linear`, `sqrt` (1 − √x, best in Hägele et al., 2024, arXiv:2405.18392) or `cosine`.
    b1: decay of the first moment.
    b2: decay of the second moment.
    eps: epsilon, added to the root of the second moment.
    weight_decay: decoupled weight decay, scaled by the learning rate; not for LayerNorm and biases.
    clip_norm: maximum global norm of the gradient, to which it is scaled; 0 disables clipping.
    bias_correction: use Adam's bias correction, which BERT's optimizer lacks.
    mu_dtype: dtype of the first moment between steps, `float32` or `bfloat16`, which saves 2 of the 12 bytes per
      parameter. It is computed in float32 either way. The second moment stays float32, as in Optax: with b2 = 0.999 it
      changes by at most 0.1 % per step, below the resolution of bfloat16 (0.4 to 0.8 %), so it would never decay. A run
      may be resumed with the other value.
    freeze_embeddings: do not train the input embeddings and their LayerNorm (paper, footnote 4).
    freeze_layers: do not train this many layers, from the bottom, nor (unless 0) the projection.
  """

  learning_rate: NotNegative = 2e-4
  warmup_steps: CountOrZero = 15_000
  schedule: Annotated[str, OneOf(SCHEDULES)] = 'bert'
  decay_ratio: Fraction = 0.1
  decay_shape: Annotated[str, OneOf(tuple(_DECAYS))] = 'sqrt'
  b1: FractionBelowOne = 0.9
  b2: FractionBelowOne = 0.999
  eps: NotNegative = 1e-6
  weight_decay: NotNegative = 0.01
  clip_norm: NotNegative = 1.0
  bias_correction: bool = False
  mu_dtype: Annotated[str, OneOf(MU_DTYPES)] = 'float32'
  freeze_embeddings: bool = False
  freeze_layers: CountOrZero = 0

  def __post_init__(self):
    check_fields(self, 'optimizer')


def learning_rate_schedule(config: OptimizerConfig, total_steps: int) -> optax.Schedule:
  """Learning rate by step: a linear warmup, then `config.schedule`.

  BERT's decay starts at step 0, so the rate drops to peak · (1 − warmup/total) at the end of the warmup.
  """
  if config.schedule == 'bert':
    decay_begin, decay = 0, _DECAYS['linear']
  elif config.schedule == 'wsd':
    decay_begin, decay = total_steps - _wsd_decay(config, total_steps), _DECAYS[config.decay_shape]
  else:
    decay_begin, decay = min(config.warmup_steps, total_steps), _DECAYS['cosine']
  decay_steps = total_steps - decay_begin

  def schedule(step):
    step = jnp.asarray(step, float)  # JAX's default, float32
    rate = config.learning_rate
    if config.schedule != 'constant' and decay_steps:
      rate *= decay(jnp.clip(step - decay_begin, 0, decay_steps) / decay_steps)
    warming_up = config.learning_rate * step / max(config.warmup_steps, 1)
    return jnp.where(step < config.warmup_steps, warming_up, rate)

  return schedule


def format_schedule(config: OptimizerConfig, total_steps: int) -> str:
  """Formats the schedule: `0.0002, warmup 15,000 steps, linear decay to 0`."""
  words = f'{config.learning_rate:g}, warmup {config.warmup_steps:,} steps'
  if config.warmup_steps >= total_steps:
    return f'{words}, ends at {config.learning_rate * total_steps / max(config.warmup_steps, 1):.3g}'
  return (
    words
    + {
      'bert': ', linear decay to 0',
      'wsd': f', then constant, {config.decay_shape} decay to 0 over the last {_wsd_decay(config, total_steps):,}',
      'cosine': ', cosine decay to 0',
      'constant': ', then constant',
    }[config.schedule]
  )


def _wsd_decay(config: OptimizerConfig, total_steps: int) -> int:
  return round(config.decay_ratio * total_steps)


def mean_and_clip(clip_norm: float) -> optax.GradientTransformationExtraArgs:
  """Divides sums over predictions by their number, `weight=`, and clips the mean to a global norm (0: no clipping).

  Uses one factor: `optax.clip_by_global_norm` after a division would write every gradient twice more on a CPU, where
  XLA does not fuse these operations.
  """

  def update(sums, state, params=None, *, weight=1.0, **_):
    del params
    factor = 1 / weight
    if clip_norm:
      norm = optax.tree.norm(sums) / weight
      factor *= jnp.where(norm < clip_norm, 1, clip_norm / norm)
    return jax.tree.map(lambda leaf: leaf * factor, sums), state

  return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


class _Moments(NamedTuple):
  mu: optax.Updates
  nu: optax.Updates


def scale_by_adam(
  b1: float, b2: float, eps: float, *, bias_correction: bool, mu_dtype: str = 'float32'
) -> optax.GradientTransformationExtraArgs:
  """m / (√v + ε) of moving averages, raw as in BERT, or corrected for bias as `optax.scale_by_adam`.

  If `is_finite=` is false they keep their values. They are selected before the update is computed from them; if they
  were selected after it, XLA would copy both moments first, on a CPU in every step. The first moment is in `mu_dtype`
  between steps and float32 within them.
  """
  cast_mu = lambda dtype, state: state._replace(mu=optax.tree.cast(state.mu, jnp.dtype(dtype)))
  mu_in = cast_mu if mu_dtype == 'bfloat16' else lambda dtype, state: state

  def init(params):
    zeros = optax.tree.zeros_like(params)
    count = jnp.zeros((), jnp.int32)
    return mu_in(mu_dtype, optax.ScaleByAdamState(count, zeros, zeros) if bias_correction else _Moments(zeros, zeros))

  def update(updates, state, params=None, *, is_finite=True, **_):
    del params
    state = mu_in('float32', state)
    new = state._replace(
      mu=optax.tree.update_moment(updates, state.mu, b1, 1), nu=optax.tree.update_moment(updates, state.nu, b2, 2)
    )
    if bias_correction:
      new = new._replace(count=optax.safe_increment(state.count))
    state = _chosen(is_finite, new, state)
    mu, nu = state.mu, state.nu
    if bias_correction:
      # If the first step is skipped, the count stays zero, and the update is not used.
      mu, nu = (optax.tree.bias_correction(moment, b, state.count) for moment, b in ((mu, b1), (nu, b2)))
    return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu), mu_in(mu_dtype, state)

  return optax.GradientTransformationExtraArgs(init, update)


def only_if_finite(optimizer: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
  """Wraps an optimizer to keep its state if `is_finite=` is false. For small states, since this costs a copy."""

  def update(updates, state, params=None, *, is_finite=True, **_):
    updates, new = optimizer.update(updates, state, params)
    return updates, _chosen(is_finite, new, state)

  return optax.GradientTransformationExtraArgs(optimizer.init, update)


def _chosen(is_finite, new, old):
  return jax.tree.map(lambda n, o: jnp.where(is_finite, n, o), new, old)


def _names(path: tuple) -> list[str]:
  """The path of a parameter: `encoder`, `layers`, …"""
  return jax.tree_util.keystr(path, simple=True, separator='/').split('/')


def decays(params: optax.Params) -> optax.Params:
  """Tree of bools: parameters with weight decay, all but LayerNorms and biases (also the output bias), as in BERT."""

  def is_decayed(path, _):
    names = _names(path)
    return names[-1] != 'bias' and not any('norm' in name for name in names)

  return jax.tree_util.tree_map_with_path(is_decayed, params)


def frozen_parameters(config: OptimizerConfig, params: optax.Params) -> optax.Params:
  """Tree of bools: parameters that are completely frozen; see `freeze` for the bottom layers, which are slices."""

  def is_frozen(path, leaf):
    part = '/'.join(_names(path)[:2])
    if part == 'encoder/embeddings':
      return config.freeze_embeddings
    if part == 'encoder/layers':
      return config.freeze_layers >= leaf.shape[0]
    return part == 'encoder/projection' and config.freeze_layers > 0

  return jax.tree_util.tree_map_with_path(is_frozen, params)


def freeze(optimizer: optax.GradientTransformation, config: OptimizerConfig) -> optax.GradientTransformation:
  """Applies an optimizer to parameters that are not frozen; the rest has no update, and does not count in clipping.

  Completely frozen parameters have no moments. Bottom layers are slices of stacked arrays: their gradients are zeroed
  before the optimizer, and their decay after it.
  """
  if not config.freeze_embeddings and not config.freeze_layers:
    return optimizer

  def zeroed(path, leaf):
    return leaf.at[: config.freeze_layers].set(0) if _names(path)[:2] == ['encoder', 'layers'] else leaf

  # Leaves of the other part of the partition are not arrays here, and not leaves.
  bottom = optax.stateless(lambda updates, params: jax.tree_util.tree_map_with_path(zeroed, updates))
  label = lambda is_frozen: 'frozen' if is_frozen else 'trained'
  trained = optax.chain(bottom, optimizer, bottom)
  return optax.partition(
    {'trained': trained, 'frozen': optax.set_to_zero()},
    lambda params: jax.tree.map(label, frozen_parameters(config, params)),
  )


def make_optimizer(config: OptimizerConfig, total_steps: int) -> optax.GradientTransformationExtraArgs:
  """Mean, clip, Adam, decay, learning rate: param −= lr · (m / (√v + ε) + decay · param), unless frozen.

  Its `update` takes two more arguments than Optax's: `weight` (1), by which gradients that are sums are divided, and
  `is_finite` (True): if false, the state does not change, and the update must not be used.
  """
  optimizer = optax.chain(
    mean_and_clip(config.clip_norm),
    scale_by_adam(config.b1, config.b2, config.eps, bias_correction=config.bias_correction, mu_dtype=config.mu_dtype),
    optax.add_decayed_weights(config.weight_decay, mask=decays),
    only_if_finite(optax.scale_by_learning_rate(learning_rate_schedule(config, total_steps))),
  )
  return freeze(optimizer, config)
