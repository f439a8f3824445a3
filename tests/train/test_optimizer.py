"""BERT's AdamW against its transcription to NumPy in float64; the schedule by its values; who decays, name by name."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from rembert.model.heads import RemBertForMaskedLM
from rembert.train.optimizer import (
  MU_DTYPES,
  OptimizerConfig,
  decays,
  format_schedule,
  frozen_parameters,
  learning_rate_schedule,
  make_optimizer,
  mean_and_clip,
)

TOLERANCE = 3e-6  # relative to the largest value of each parameter, after all steps
RATE_TOLERANCE = 1e-7  # relative to the peak: 1 − step/total is rounded where it is 1, not where it is 0
STEPS, TOTAL = 12, 20
CONFIG = OptimizerConfig(learning_rate=0.1, warmup_steps=4, b1=0.8, b2=0.9, weight_decay=0.3, clip_norm=1.0)

SHAPES = {
  'encoder': {
    'embeddings': {'word': {'embedding': (5, 3)}, 'norm': {'scale': (3,), 'bias': (3,)}},
    'layers': {'attention_norm': {'scale': (2, 4), 'bias': (2, 4)}, 'up': {'kernel': (2, 4, 6), 'bias': (2, 6)}},
  },
  'mlm': {'output_embedding': (5, 4), 'bias': (5,)},
}
SPARED = ('norm/scale', 'norm/bias', 'attention_norm/scale', 'attention_norm/bias', 'up/bias', 'mlm/bias')


def random_tree(seed, scale=1.0):
  random = np.random.default_rng(seed)
  draw = lambda shape: (scale * random.standard_normal(shape)).astype(np.float32)
  return jax.tree.map(draw, SHAPES, is_leaf=lambda node: isinstance(node, tuple))


# Every other gradient is far above the norm that it is clipped to, the others far below.
GRADIENTS = [random_tree(100 + step, scale=(3.0, 0.01)[step % 2]) for step in range(STEPS)]


def run(optimizer, gradients=GRADIENTS):
  """Parameters after the updates."""

  @jax.jit
  def step(gradient, state, params):
    updates, state = optimizer.update(gradient, state, params)
    return state, optax.apply_updates(params, updates)

  params = random_tree(0)
  state = optimizer.init(params)
  for gradient in gradients:
    state, params = step(gradient, state, params)
  return jax.device_get(params)


def reference(config, names, gradients=GRADIENTS):
  """google-research/bert, optimization.py: AdamWeightDecayOptimizer.apply_gradients and create_optimizer, by name."""
  params = {name: x.astype(np.float64) for name, x in names(random_tree(0)).items()}
  m = {name: np.zeros_like(x) for name, x in params.items()}
  v = {name: np.zeros_like(x) for name, x in params.items()}
  for step, gradient in enumerate(gradients):
    rate = config.learning_rate * (1 - step / TOTAL)
    if step < config.warmup_steps:
      rate = config.learning_rate * step / config.warmup_steps
    gradient = {name: x.astype(np.float64) for name, x in names(gradient).items()}
    if config.clip_norm:
      norm = np.sqrt(sum((x**2).sum() for x in gradient.values()))
      gradient = {name: x * config.clip_norm / max(norm, config.clip_norm) for name, x in gradient.items()}
    for name, g in gradient.items():
      m[name] = config.b1 * m[name] + (1 - config.b1) * g
      v[name] = config.b2 * v[name] + (1 - config.b2) * g**2
      update = m[name] / (np.sqrt(v[name]) + config.eps)
      if not name.endswith(SPARED):
        update += config.weight_decay * params[name]
      params[name] = params[name] - rate * update
  return params


def assert_close(actual, expected):
  assert actual.keys() == expected.keys()
  for name, x in expected.items():
    np.testing.assert_allclose(actual[name], x, rtol=0, atol=TOLERANCE * np.abs(x).max(), err_msg=name)


@pytest.mark.parametrize(
  'changes',
  [{}, {'clip_norm': 0.0, 'weight_decay': 0.0, 'warmup_steps': 0}, {'eps': 0.1, 'b1': 0.0}],
  ids=lambda changes: ', '.join(f'{name} {value:g}' for name, value in changes.items()) or 'as it is',
)
def test_many_steps_are_those_of_bert(by_name, changes):
  config = dataclasses.replace(CONFIG, **changes)
  assert_close(by_name(run(make_optimizer(config, TOTAL))), reference(config, by_name))


def test_with_bias_correction_it_is_optax_adamw_behind_a_clip(by_name):
  config = dataclasses.replace(CONFIG, bias_correction=True)
  adamw = optax.chain(
    optax.clip_by_global_norm(config.clip_norm),
    optax.adamw(
      learning_rate_schedule(config, TOTAL),
      b1=config.b1,
      b2=config.b2,
      eps=config.eps,
      weight_decay=config.weight_decay,
      mask=lambda params: jax.tree_util.tree_map_with_path(
        lambda path, _: not '/'.join(key.key for key in path).endswith(SPARED), params
      ),
    ),
  )
  corrected = by_name(run(make_optimizer(config, TOTAL)))
  assert_close(corrected, by_name(run(adamw)))
  uncorrected = by_name(run(make_optimizer(CONFIG, TOTAL)))
  assert all(np.abs(corrected[name] - uncorrected[name]).max() > 1000 * TOLERANCE for name in corrected)


def test_the_mean_is_clipped_by_the_norm_of_all_of_it_whatever_the_weight_of_the_sums(by_name):
  means = random_tree(5, scale=7.0)
  norm = np.sqrt(sum((x.astype(np.float64) ** 2).sum() for x in jax.tree.leaves(means)))
  clip = jax.jit(
    lambda clip_norm, sums, weight: mean_and_clip(clip_norm).update(sums, (), weight=weight)[0], static_argnums=0
  )
  for clip_norm, factor in (1.0, 1 / norm), (0.0, 1.0), (float(2 * norm), 1.0):
    expected = {name: x.astype(np.float64) * factor for name, x in by_name(means).items()}
    for weight in 0.25, 48.0:  # a power of two and a multiple of three: the numbers of summed predictions
      sums = jax.tree.map(lambda x, weight=weight: x * np.float32(weight), means)
      assert_close(by_name(clip(clip_norm, sums, weight)), expected)


def test_the_defaults_are_those_of_the_paper():
  assert OptimizerConfig() == OptimizerConfig(
    learning_rate=2e-4, warmup_steps=15_000, b1=0.9, b2=0.999, eps=1e-6, weight_decay=0.01, clip_norm=1.0
  )
  schedule = learning_rate_schedule(OptimizerConfig(), 1_760_000)
  rates = {0: 0.0, 1: 2e-4 / 15_000, 7_500: 1e-4, 14_999: 2e-4 * 14_999 / 15_000}
  rates[15_000] = 2e-4 * (1 - 15_000 / 1_760_000)  # from here on the line that began at step 0
  rates |= {880_000: 1e-4, 1_759_999: 2e-4 / 1_760_000, 1_760_000: 0.0, 2_000_000: 0.0}
  for step, rate in rates.items():
    for number in step, jnp.asarray(step, jnp.int32):
      assert float(schedule(number)) == pytest.approx(rate, rel=0, abs=2e-4 * RATE_TOLERANCE), step


def rates(total_steps=1_000, **options):
  """The learning rate at every step, from a peak of 1 after 100 steps."""
  config = OptimizerConfig(learning_rate=1.0, warmup_steps=100, **options)
  return np.asarray(jax.vmap(learning_rate_schedule(config, total_steps))(jnp.arange(total_steps + 1)))


WARMUP, FRACTION = np.arange(100) / 100, np.arange(201) / 200
TRAPEZOIDS = {'linear': 1 - FRACTION, 'sqrt': 1 - np.sqrt(FRACTION), 'cosine': np.cos(np.pi * FRACTION / 2) ** 2}


def test_a_cosine_falls_from_the_peak_to_zero_and_wsd_in_the_last_part_in_some_shape():
  expected = np.concatenate([WARMUP, np.cos(np.pi * np.arange(901) / 900 / 2) ** 2])
  np.testing.assert_allclose(rates(schedule='cosine'), expected, rtol=0, atol=2 * RATE_TOLERANCE)
  for shape, side in TRAPEZOIDS.items():
    found = rates(schedule='wsd', decay_ratio=0.2, decay_shape=shape)
    expected = np.concatenate([WARMUP, np.ones(700), side])
    np.testing.assert_allclose(found, expected, rtol=0, atol=2 * RATE_TOLERANCE)


def test_a_longer_wsd_run_begins_as_the_shorter_one_and_a_constant_rate_never_decays():
  short, long = (rates(steps, schedule='wsd', decay_ratio=0.1) for steps in (1_000, 2_000))
  np.testing.assert_array_equal(short[:901], long[:901])
  assert short[1_000] == 0
  assert np.all(long[900:1_801] == 1)
  constant = rates(schedule='constant')
  assert np.all(constant[100:] == 1)
  np.testing.assert_array_equal(constant, rates(schedule='wsd', decay_ratio=0.0))


@pytest.mark.parametrize(
  ('options', 'words'),
  [
    ({}, '0.1, warmup 4 steps, linear decay to 0'),
    ({'schedule': 'cosine'}, '0.1, warmup 4 steps, cosine decay to 0'),
    ({'schedule': 'constant'}, '0.1, warmup 4 steps, then constant'),
    ({'schedule': 'wsd', 'decay_ratio': 0.2}, '0.1, warmup 4 steps, then constant, sqrt decay to 0 over the last 4'),
    ({'warmup_steps': 40}, '0.1, warmup 40 steps, ends at 0.05'),
  ],
  ids=lambda part: '' if isinstance(part, str) else ', '.join(map(str, part.values())) or 'bert',
)
def test_a_schedule_in_words(options, words):
  assert format_schedule(dataclasses.replace(CONFIG, **options), TOTAL) == words


def test_layer_norms_and_biases_are_spared_and_nothing_else(tiny, by_name):
  model = nnx.eval_shape(lambda: RemBertForMaskedLM(tiny, add_pooler=True, rngs=nnx.Rngs(0)))
  is_decayed = by_name(decays(nnx.to_pure_dict(nnx.state(model, nnx.Param))))
  spared = {name for name in is_decayed if name.endswith(('norm/bias', 'norm/scale', '/bias'))}
  assert {name for name, decayed in is_decayed.items() if not decayed} == spared
  assert (len(is_decayed), len(spared)) == (27, 16)


@pytest.mark.parametrize('options', [{}, {'bias_correction': True, 'mu_dtype': 'bfloat16'}], ids=['default', 'other'])
def test_an_update_that_is_not_finite_does_not_change_the_state(options):
  optimizer, params = make_optimizer(dataclasses.replace(CONFIG, **options), TOTAL), random_tree(0)
  update = jax.jit(lambda gradient, state, is_finite: optimizer.update(gradient, state, params, is_finite=is_finite)[1])
  used = update(GRADIENTS[0], optimizer.init(params), True)
  broken = jax.tree.map(lambda x: np.full_like(x, np.nan), GRADIENTS[1])
  jax.tree.map(np.testing.assert_array_equal, update(broken, used, False), used)


# --- a first moment in bfloat16 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize('bias_correction', [False, True])
def test_the_first_moment_alone_is_kept_in_bfloat16_and_rounded_once_a_step(by_name, bias_correction):
  config = dataclasses.replace(CONFIG, bias_correction=bias_correction, clip_norm=0.0)
  half, full = (make_optimizer(dataclasses.replace(config, mu_dtype=dtype), TOTAL) for dtype in MU_DTYPES[::-1])
  params, updates = random_tree(0), jax.jit(half.update)
  state = half.init(params)
  assert jax.tree.structure(state) == jax.tree.structure(full.init(params))
  assert {x.dtype for x in jax.tree.leaves(optax.tree.get(state, 'nu'))} == {jnp.dtype('float32')}
  for gradient in GRADIENTS[:3]:
    before = by_name(optax.tree.get(state, 'mu'))
    _, state = updates(gradient, state, params)
    for name, mu in by_name(optax.tree.get(state, 'mu')).items():
      exact = config.b1 * np.asarray(before[name], np.float64) + (1 - config.b1) * by_name(gradient)[name]
      assert mu.dtype == jnp.bfloat16
      # To the nearest: off by at most half the gap between neighbours.
      np.testing.assert_allclose(np.asarray(mu, np.float64), exact, rtol=2**-8, err_msg=name)


# --- freezing ---------------------------------------------------------------------------------------------------------

FROZEN = {
  'the bottom layer': ({'freeze_layers': 1}, lambda name: False),
  'embeddings and all layers': (
    {'freeze_embeddings': True, 'freeze_layers': 2},
    lambda name: name.startswith('encoder/'),
  ),
}


@pytest.mark.parametrize('parts', FROZEN)
def test_frozen_parameters_stay_bitwise_equal_and_the_rest_is_trained_as_if_alone(parts, by_name):
  bindings, is_frozen = FROZEN[parts]
  config = dataclasses.replace(CONFIG, **bindings)

  def frozen_rows(name):
    if is_frozen(name):
      return slice(None)
    return slice(config.freeze_layers if name.startswith('encoder/layers') else 0)

  def without_frozen(tree):
    tree = {name: leaf.copy() for name, leaf in by_name(tree).items()}
    for name, leaf in tree.items():
      leaf[frozen_rows(name)] = 0
    return tree

  before, frozen = by_name(random_tree(0)), by_name(run(make_optimizer(config, TOTAL)))
  trained = reference(CONFIG, by_name, [without_frozen(gradient) for gradient in GRADIENTS])
  for name, leaf in frozen.items():
    rows = frozen_rows(name)
    assert np.array_equal(leaf[rows], before[name][rows]), name
    rest = slice(rows.stop, None) if rows.stop is not None else slice(0)
    assert np.allclose(leaf[rest], trained[name][rest], rtol=0, atol=TOLERANCE * np.abs(trained[name]).max()), name
    assert leaf[rest].size == 0 or not np.array_equal(leaf[rest], before[name][rest]), name


def test_the_projection_is_frozen_with_the_first_layer(tiny):
  params = nnx.to_pure_dict(nnx.state(nnx.eval_shape(lambda: RemBertForMaskedLM(tiny, rngs=nnx.Rngs(0))), nnx.Param))
  is_frozen = frozen_parameters(OptimizerConfig(freeze_layers=1), params)
  assert all(jax.tree.leaves(is_frozen['encoder'].pop('projection')))
  assert not any(jax.tree.leaves(is_frozen))
