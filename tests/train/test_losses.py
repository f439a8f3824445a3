"""The sums of the loss against NumPy in float64, one slot at a time; its gradient against softmax − one-hot."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rembert.train.losses import LossSums, label_sums, mlm_row_sums, span_sums, value_sums

TOLERANCE = 2e-6  # relative to the largest value of the reference
B, K, V = 5, 7, 30
row_sums = jax.jit(mlm_row_sums)
loss_gradient = jax.jit(jax.grad(lambda *slots: mlm_row_sums(*slots).loss.sum()))


def assert_close(actual, reference):
  np.testing.assert_allclose(actual, reference, rtol=0, atol=TOLERANCE * np.abs(reference).max())


def slots(seed=0, scale=1.0):
  """Logits, targets and weights; row 0 counts everywhere, row 1 nowhere. A third of the targets is the best piece."""
  random = np.random.default_rng(seed)
  logits = (scale * random.standard_normal((B, K, V))).astype(np.float32)
  targets = np.where(random.random((B, K)) < 1 / 3, logits.argmax(-1), random.integers(0, V, (B, K))).astype(np.int32)
  weights = (random.random((B, K)) < 0.6).astype(np.float32)
  weights[0], weights[1] = 1, 0
  return logits, targets, weights


def log_softmax(x):
  x = np.asarray(x, np.float64)
  return x - x.max() - np.log(np.exp(x - x.max()).sum())


def reference_sums(logits, targets, weights):
  sums = LossSums(np.zeros(B), np.zeros(B), np.zeros(B))
  for row in range(B):
    for slot in range(K):
      if weights[row, slot]:
        x, target = logits[row, slot], targets[row, slot]
        sums.loss[row] -= log_softmax(x)[target]
        sums.correct[row] += np.argmax(x) == target
        sums.weight[row] += 1
  return sums


def gradient(logits, targets, weights):
  return np.asarray(loss_gradient(logits, targets, weights))


@pytest.mark.parametrize('scale', [1.0, 30.0, 1e4])
def test_sums_are_those_of_numpy_and_the_gradient_is_softmax_minus_one_hot_times_weight(scale):
  logits, targets, weights = slots(scale=scale)
  sums, expected = row_sums(logits, targets, weights), reference_sums(logits, targets, weights)
  assert_close(sums.loss, expected.loss)
  np.testing.assert_array_equal(sums.correct, expected.correct)
  np.testing.assert_array_equal(sums.weight, expected.weight)
  assert {x.dtype for x in sums} == {jnp.dtype('float32')}
  assert 0 < expected.correct.sum() < expected.weight.sum()
  exponentials = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
  softmax = exponentials / exponentials.sum(-1, keepdims=True)
  assert_close(gradient(logits, targets, weights), (softmax - np.eye(V)[targets]) * weights[..., None])


def test_slots_of_weight_zero_do_not_change_a_bit():
  logits, targets, weights = slots()
  others = slots(seed=1, scale=50.0)
  counts = weights.astype(bool)
  mixed = np.where(counts[..., None], logits, others[0]), np.where(counts, targets, others[1]), weights
  jax.tree.map(np.testing.assert_array_equal, row_sums(*mixed), row_sums(logits, targets, weights))
  assert not np.any(gradient(*mixed)[~counts])


def test_padding_rows_of_the_vocabulary_are_not_felt_and_get_no_gradient():
  logits, targets, weights = slots()
  padded = np.concatenate([logits, np.full((B, K, 6), -np.inf, np.float32)], axis=-1)
  jax.tree.map(assert_close, row_sums(padded, targets, weights), row_sums(logits, targets, weights))
  slope = gradient(padded, targets, weights)
  assert_close(slope[..., :V], gradient(logits, targets, weights))
  assert np.all(slope[..., V:] == 0)  # NaN would not be


# --- heads that are fine-tuned --------------------------------------------------------------------


@pytest.mark.parametrize('shape', [(6,), (2, 5)], ids=['of a row', 'of a position'])
def test_a_label_is_one_prediction(shape):
  random = np.random.default_rng(1)
  logits, labels = random.standard_normal((*shape, 4)).astype(np.float32), random.integers(-1, 4, shape)
  labels.flat[0], labels.flat[1] = -1, logits.reshape(-1, 4)[1].argmax()
  sums, chosen = jax.jit(label_sums)(logits, labels), [index for index in np.ndindex(shape) if labels[index] >= 0]
  assert_close(sums.loss, -sum(log_softmax(logits[index])[labels[index]] for index in chosen))
  assert sums.correct == sum(logits[index].argmax() == labels[index] for index in chosen)
  assert sums.weight == len(chosen) < labels.size


def test_a_span_is_two_halves_of_a_prediction_and_padding_is_no_candidate():
  random = np.random.default_rng(3)
  logits = random.standard_normal((4, 6, 2)).astype(np.float32)
  lengths = np.array([6, 4, 5, 0])
  is_text = np.arange(6) < lengths[:, None]
  logits[~is_text] = 100  # would take all probability
  spans = np.array([[1, 3], [0, 0], [-1, -1], [-1, -1]], np.int32)
  sums = jax.jit(span_sums)(logits, spans, is_text)
  loss = correct = 0.0
  for row in (0, 1):
    for side in (0, 1):
      scores = logits[row, : lengths[row], side]
      loss -= log_softmax(scores)[spans[row, side]] / 2
      correct += (scores.argmax() == spans[row, side]) / 2
  assert_close(sums.loss, loss)
  assert (sums.correct, sums.weight) == (correct, 2)
  gradient = np.asarray(jax.jit(jax.grad(lambda logits: span_sums(logits, spans, is_text).loss))(logits))
  assert np.isfinite(gradient).all()
  assert not gradient[~is_text].any()
  assert gradient[0].any()


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_squared_errors_are_summed_over_the_rows_that_have_a_number():
  values, targets = np.array([[1.5], [-2.0], [7.0]], np.float32), np.array([1.0, 2.0, np.nan], np.float32)
  sums, gradient = jax.jit(jax.value_and_grad(lambda x: value_sums(x, targets).loss))(values)
  assert sums == 0.25 + 16
  np.testing.assert_array_equal(gradient, [[1.0], [-8.0], [0.0]])
  assert value_sums(values, targets).weight == 2
  assert np.isnan(value_sums(values, targets).correct)
