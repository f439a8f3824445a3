"""An update is that of the plain loss over all positions, in however many parts, on however many devices it is made."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from rembert.model.config import Execution
from rembert.train.losses import LossSums
from rembert.train.optimizer import OptimizerConfig, make_optimizer, mean_and_clip
from rembert.train.sharding import to_device
from rembert.train.step import make_eval_step, make_train_step

TOLERANCE = 1e-5  # relative to the largest value of the reference; float32, summed in another order
BFLOAT16_TOLERANCE = 2**-5  # of a gradient's norm: it went through a product in each layer, rounded to 2^-9 each time
SGD = optax.chain(mean_and_clip(0.0), optax.sgd(1.0))  # the gradient is then what an update takes away
TRIMMED = Execution(trim_last_layer=True, loss_chunk=5)  # with several chunks
EIGHT = (2, 2, 2)


def assert_close(actual, reference, scale=None):
  reference = np.asarray(reference, np.float64)
  scale = np.abs(reference).max() if scale is None else scale
  np.testing.assert_allclose(np.asarray(actual, np.float64), reference, rtol=0, atol=TOLERANCE * scale)


def assert_trees_close(actual, reference):
  """Leaf by leaf, against the largest value of all: a key's bias has a gradient of exactly zero, but for rounding."""
  scale = max(np.abs(x).max() for x in jax.tree.leaves(reference))
  jax.tree.map(lambda a, r: assert_close(a, r, scale), actual, reference)


def without_key_biases(params):
  """They add one number to all scores of a query, which softmax takes out again: nothing depends on them.

  Their gradient is rounding alone, and Adam makes steps of it as large as of any other. All else is comparable.
  """
  params = jax.device_get(params)
  attention = params['encoder']['layers']['attention']
  qkv = attention['qkv'] | {'bias': attention['qkv']['bias'] * np.array([1, 0, 1], np.float32)[:, None, None]}
  layers = params['encoder']['layers'] | {'attention': attention | {'qkv': qkv}}
  return params | {'encoder': params['encoder'] | {'layers': layers}}


# --- the reference: logits everywhere, targets spread out over the row ----------------------------


@pytest.fixture(scope='module')
def dense(trainable):
  """(parameters, batch) to the mean loss, its gradient, and log-softmax, targets and weights at every position."""
  graphdef = trainable().graphdef

  def mean_loss(params, batch):
    logits_BxSxV = nnx.merge(graphdef, params)(
      batch['input_ids'], segment_ids=batch['segment_ids'], position_ids=batch['position_ids']
    ).logits
    log_softmax_BxSxV = jax.nn.log_softmax(logits_BxSxV)
    losses_BxS = -jnp.take_along_axis(log_softmax_BxSxV, batch['dense_targets'][..., None], axis=-1)[..., 0]
    return jnp.sum(losses_BxS * batch['dense_weights']) / jnp.sum(batch['dense_weights']), log_softmax_BxSxV

  value_and_grad = jax.jit(jax.value_and_grad(mean_loss, has_aux=True))

  def run(params, batch):
    targets, weights = np.zeros_like(batch['input_ids']), np.zeros(batch['input_ids'].shape, np.float32)
    for row, slot in zip(*np.nonzero(batch['weights']), strict=True):
      position = batch['masked_positions'][row, slot]
      assert weights[row, position] == 0
      targets[row, position], weights[row, position] = batch['targets'][row, slot], 1
    spread = {'dense_targets': targets, 'dense_weights': weights}
    (loss, log_softmax), gradient = jax.device_get(value_and_grad(params, batch | spread))
    return loss, gradient, log_softmax, targets, weights

  return run


@pytest.fixture(scope='module')
def params(step):
  """Where the gradients are looked at."""
  return jax.device_get(step().init(0).params)


@pytest.fixture(scope='module')
def at_params(step, eight):
  """Mesh sizes to a state at `params` for `SGD`, which remembers nothing."""
  started = {(1, 1, 1): step(), EIGHT: eight}
  return lambda sizes: dataclasses.replace(started[sizes].init(0), opt_state=SGD.init({}), ema=None)


@pytest.fixture(scope='module')
def uneven(packed_batch):
  """Four parts (row r belongs to part r mod 4) with 16, 8, 4 and 1 predictions."""
  batch = packed_batch(5)
  random = np.random.default_rng(5)
  batch['masked_positions'] = np.tile(np.arange(4, dtype=np.int32), (16, 1))  # every row has four tokens or more
  batch['targets'] = random.integers(1, 60, (16, 4)).astype(np.int32)
  batch['weights'][:] = 0
  for part, per_row in enumerate((4, 2, 1)):
    batch['weights'][part::4, :per_row] = 1
  batch['weights'][3, 0] = 1
  assert [batch['weights'][part::4].sum() for part in range(4)] == [16, 8, 4, 1]
  return batch


# --- against the reference ------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('sizes', 'accumulation_steps', 'execution'), [((1, 1, 1), 1, Execution()), (EIGHT, 4, TRIMMED)], ids=['one', 'eight']
)
def test_an_update_is_that_of_the_plain_loss_over_all_positions(
  step, at_params, dense, params, uneven, sizes, accumulation_steps, execution
):
  loss, gradient, log_softmax, targets, weights = dense(params, uneven)
  sgd = step(sizes, optimizer=SGD, accumulation_steps=accumulation_steps, execution=execution)
  state, metrics = sgd(at_params(sizes), uneven)
  taken = jax.tree.map(lambda before, after: before - np.asarray(after), params, state.params)
  assert_trees_close(taken, gradient)
  assert_close(metrics.sums.loss / metrics.sums.weight, loss)
  assert metrics.sums.correct == ((log_softmax.argmax(-1) == targets) * weights).sum()
  assert metrics.sums.weight == 29
  assert metrics.tokens == (uneven['segment_ids'] > 0).sum() < 16 * 12
  squares = sum((np.asarray(g, np.float64) ** 2).sum() for g in jax.tree.leaves(gradient))
  assert_close(metrics.grad_norm, np.sqrt(squares))
  assert int(state.step) == 1


def test_an_update_in_bfloat16_is_that_of_float32_but_for_rounding(step, at_params, dense, params, uneven):
  loss, gradient, *_ = dense(params, uneven)
  execution = Execution('bfloat16', remat='dots', unroll=8, trim_last_layer=True)
  state, metrics = step(EIGHT, optimizer=SGD, execution=execution)(at_params(EIGHT), uneven)
  assert abs(metrics.sums.loss / metrics.sums.weight - loss) < BFLOAT16_TOLERANCE * loss

  def assert_near(before, after, expected):
    assert np.linalg.norm(before - np.asarray(after) - expected) < BFLOAT16_TOLERANCE * np.linalg.norm(expected)

  without_keys = map(without_key_biases, (params, state.params, gradient))
  jax.tree.map(assert_near, *without_keys)


def test_a_batch_without_predictions_moves_nothing_and_is_finite(step, at_params, params, packed_batch):
  batch = packed_batch(0)
  sgd = step((1, 1, 1), optimizer=SGD, accumulation_steps=1, execution=Execution())
  state, metrics = sgd(at_params((1, 1, 1)), batch | {'weights': np.zeros_like(batch['weights'])})
  assert metrics.sums == (0, 0, 0)
  assert metrics.grad_norm == 0
  jax.tree.map(np.testing.assert_array_equal, jax.device_get(state.params), params)


def test_an_update_that_is_not_finite_changes_nothing_but_the_step(step, trainable):
  def norms(graphdef, params, batch, key):
    total = optax.tree.norm(params, squared=True)
    loss = batch['scale'] * total + jnp.sqrt(batch['root'] * total)  # the gradient of a root of 0 is not finite
    return LossSums(loss=loss, correct=jnp.zeros(()), weight=jnp.ones(()))

  config = OptimizerConfig(learning_rate=1e-2, warmup_steps=1, freeze_embeddings=True, freeze_layers=1)
  optimizer = make_optimizer(config, total_steps=8)
  update = make_train_step(trainable(optimizer=optimizer, ema_decay=0.5), sums_of=norms)
  batch = lambda scale, root: {'segment_ids': np.ones((1, 1), np.int32), 'scale': np.float32(scale), 'root': root}
  state = step().init(0)
  state = dataclasses.replace(state, opt_state=optimizer.init(state.params), ema=state.params)
  state = jax.tree.map(jnp.copy, state)  # no two leaves share memory, which is given away
  for scale, root in (1.0, 0.0), (np.inf, 1.0), (1.0, 1.0), (1.0, 0.0), (1.0, 1.0):
    before = jax.device_get(state)
    state, metrics = update(state, batch(scale, np.float32(root)), None)
    after = jax.device_get(state)
    assert after.step == before.step + 1
    assert metrics.is_finite == (np.isfinite(scale) and root > 0)
    assert np.isfinite(metrics.sums.loss) == np.isfinite(scale)
    if metrics.is_finite:
      assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(after))
    else:
      jax.tree.map(np.testing.assert_array_equal, dataclasses.replace(after, step=before.step), before)


def assert_averages(step, batches):
  """The recurrence in float64; returns the last state."""
  state = step.init(0)
  expected = jax.tree.map(np.float64, jax.device_get(state.params))
  jax.tree.map(np.testing.assert_array_equal, state.ema, state.params)
  for number, batch in enumerate(batches):
    state, _ = step(state, batch)
    decay = min(0.2, (1 + number) / (10 + number))  # 0.1, 0.18, and 0.2 from then on
    mixed = lambda old, new, decay=decay: decay * old + (1 - decay) * np.float64(new)
    expected = jax.tree.map(mixed, expected, state.params)
    assert_trees_close(state.ema, expected)
  return state


def test_the_moving_average_is_the_recurrence_and_changes_nothing_else(step, eight, batches, on_one_device):
  state = assert_averages(step(ema_decay=0.2), batches)
  jax.tree.map(np.testing.assert_array_equal, jax.device_get(state.params), on_one_device[0])
  assert state.model is state.ema
  assert dataclasses.replace(state, ema=None).model is state.params
  state = assert_averages(eight, batches[:3])
  for average, leaf in zip(jax.tree.leaves(state.ema), jax.tree.leaves(state.params), strict=True):
    assert average.sharding == leaf.sharding
    assert np.any(np.asarray(average) != np.asarray(leaf))


@pytest.mark.parametrize('ema_decay', [0.0, 0.2])
def test_nothing_of_the_state_is_copied(step, ema_decay):
  # On a CPU XLA does so where new moments are chosen after the update was made of them; a tenth of a step's memory.
  text = step(ema_decay=ema_decay).compiled.as_text()
  assert '%state_opt_state_' in text
  assert not [line for line in text.splitlines() if re.search(r'= f32\[\d.* copy\(%state_', line)]


# --- on many devices ------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def batches(packed_batch):
  return [packed_batch(seed) for seed in range(5)]


@pytest.fixture(scope='module')
def on_one_device(step, batches):
  return step().run(batches)


FACTORISATIONS = [(data, fsdp, 8 // data // fsdp) for data in (1, 2, 4, 8) for fsdp in (1, 2, 4, 8) if data * fsdp <= 8]
# Four heads do not divide over eight devices.
OTHERS = [sizes for sizes in FACTORISATIONS if sizes != EIGHT and sizes[2] <= 4]


@pytest.mark.parametrize(
  'sizes',
  [EIGHT, *(pytest.param(sizes, marks=pytest.mark.slow) for sizes in OTHERS)],
  ids=lambda sizes: 'x'.join(map(str, sizes)),
)
def test_eight_devices_do_what_one_does(step, eight, batches, on_one_device, sizes):
  params, metrics = (eight if sizes == EIGHT else step(sizes)).run(batches)
  assert_trees_close(without_key_biases(params), without_key_biases(on_one_device[0]))
  for ours, expected, batch in zip(metrics, on_one_device[1], batches, strict=True):
    assert_close(ours.sums.loss, expected.sums.loss)
    assert_close(ours.grad_norm, expected.grad_norm)
    assert ours.sums.correct == expected.sums.correct
    assert ours.sums.weight == batch['weights'].sum()
    assert ours.tokens == (batch['segment_ids'] > 0).sum()


def test_the_old_state_is_given_away_and_the_batch_is_not(eight, packed_batch):
  old, batch = eight.init(0), to_device(packed_batch(0), eight.trainable.mesh)
  new, _ = eight.compiled(old, batch, None)
  assert all(x.is_deleted() for x in jax.tree.leaves(old))
  assert not any(x.is_deleted() for x in jax.tree.leaves((new, batch)))


# --- dropout --------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def draws(trainable, at_params, packed_batch):
  """(dropout seed, step number, micro-batches) to the sum and the sum of squares of a number drawn from each key."""
  described = trainable(optimizer=SGD)

  def draw(graphdef, params, batch, key):
    number = jax.random.uniform(key)
    return LossSums(loss=number + 0 * optax.tree.sum(params), correct=number**2, weight=jnp.ones(()))

  @functools.cache
  def step_of(accumulation_steps):
    return make_train_step(described, sums_of=draw, accumulation_steps=accumulation_steps)

  def run(seed, number, accumulation_steps=1):
    step = step_of(accumulation_steps)
    state = dataclasses.replace(at_params((1, 1, 1)), step=jnp.asarray(number, jnp.int32))
    sums = step(state, packed_batch(0), seed)[1].sums
    return float(sums.loss), float(sums.correct)

  return run


def test_every_step_and_micro_batch_has_its_own_dropout_key_and_the_same_when_repeated(draws):
  where = [(0, 0), (0, 1), (0, 2), (1, 1)]
  numbers = [draws(*each) for each in where]
  assert len(set(numbers)) == 4
  assert [draws(*each) for each in where[1:2]] == numbers[1:2]
  total, squares = draws(0, 0, accumulation_steps=4)
  assert squares - total**2 / 4 > 0.01  # the variance of four equal numbers is 0


def test_random_numbers_are_drawn_only_with_a_seed_and_by_one_program_for_all(trainable, tiny, packed_batch):
  dropping = trainable(config=dataclasses.replace(tiny, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1))

  def program(seed):
    step = make_train_step(dropping, accumulation_steps=2)
    return step.lower(dropping.restore_target(), packed_batch(0), seed).as_text()

  assert 'threefry' in program(0)
  assert 'threefry' not in program(None)
  assert program(0) == program(1)


# --- evaluation -----------------------------------------------------------------------------------


def test_evaluation_sums_are_those_of_each_language(trainable, at_params, dense, params, packed_batch):
  batch = packed_batch(2) | {'language': np.array([0, 2] * 7 + [3, 0], np.int32)}
  _, _, log_softmax, _, _ = dense(params, batch)
  expected = np.zeros((3, 4))
  for row, slot in zip(*np.nonzero(batch['weights']), strict=True):
    scores, target = log_softmax[row, batch['masked_positions'][row, slot]], batch['targets'][row, slot]
    expected[:, batch['language'][row]] += -scores[target], scores.argmax() == target, 1
  mesh = trainable(EIGHT).mesh
  with jax.set_mesh(mesh):
    sums = make_eval_step(trainable(EIGHT), 4)(at_params(EIGHT).params, to_device(batch, mesh))
  assert_close(sums.loss, expected[0])
  np.testing.assert_array_equal(sums.correct, expected[1])
  np.testing.assert_array_equal(sums.weight, expected[2])
  assert expected[2][1] == 0 < expected[2][3]


# --- the first moment in bfloat16 -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_first_moment_in_bfloat16_trains_as_one_in_float32_does(step, packed_batch):
  # Eight batches, 25 times each: 200 steps that memorise them, from 5.0 down to 2.3 nats.
  batches = [packed_batch(seed % 8) for seed in range(200)]

  def losses(mu_dtype):
    config = OptimizerConfig(learning_rate=1e-3, warmup_steps=20, mu_dtype=mu_dtype)
    _, metrics = step(optimizer=make_optimizer(config, len(batches))).run(batches)
    return np.array([of_step.sums.loss / of_step.sums.weight for of_step in metrics])

  full, half = losses('float32'), losses('bfloat16')
  assert full[-8:].mean() < full[:8].mean() / 1.5
  np.testing.assert_allclose(half, full, rtol=1e-3)
  assert np.any(half != full)
