"""The probe, compared with loops over targets and tokens; frozen states; what it can and cannot learn."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from random_checkpoints import TINY, random_leaves, save_model

import rembert
from rembert.analysis import edge_probing
from rembert.analysis.config import ProbeConfig
from rembert.analysis.edge_probing import EdgeProbe, ScalarMix, SpanPooling, batch_counts, probe_batch, score_of
from rembert.analysis.spans import EncodedSpans, FrozenStates

TOLERANCE = 1e-5
CONFIG = ProbeConfig(projection=6, hidden=9, learning_rate=1e-2, batch_size=8, epochs=12, patience=12)


def states(seed=0, shape=(3, 10, 4, 5)):
  return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def built(construct):
  """What `construct` makes, compiled as one program."""
  return nnx.jit(construct)()


# --- the parts of the probe ---------------------------------------------------


def test_a_mix_is_the_weighted_sum_of_layers():
  mix, x = ScalarMix(4), np.asarray(states(), np.float64)
  np.testing.assert_allclose(mix(states()), x.mean(2), atol=TOLERANCE)  # at the beginning
  logits, scale = [-3.0, 0.5, 1.0, 2.0], -1.5
  mix.logits[...], mix.scale[...] = jnp.array(logits), jnp.array(scale)
  weights = np.exp(logits) / np.exp(logits).sum()
  expected = scale * sum(weights[layer] * x[:, :, layer] for layer in range(4))
  np.testing.assert_allclose(mix(states()), expected, atol=TOLERANCE)
  np.testing.assert_allclose(mix.weights(), weights, atol=TOLERANCE)


def plain_pooling(pooling, x, begin, end):
  """One span of one sentence, [P, H] to [D]."""
  kernel, bias = (np.asarray(p, np.float64) for p in (pooling.projection.kernel[...], pooling.projection.bias[...]))
  attention = np.asarray(pooling.attention.kernel[...], np.float64)[:, 0], float(pooling.attention.bias[...][0])
  projected = [row @ kernel + bias for row in x[begin:end]]
  weights = [np.exp(row @ attention[0] + attention[1]) for row in projected]
  return sum(weight * row for weight, row in zip(weights, projected, strict=True)) / sum(weights)


def test_spans_are_pooled_by_attention_over_their_own_pieces():
  x = np.asarray(states(shape=(3, 10, 5)), np.float64)
  pooling = built(lambda: SpanPooling(5, 6, rngs=nnx.Rngs(1)))
  pool = nnx.jit(lambda pooling, *arrays, window: pooling(*arrays, window=window), static_argnames='window')
  sentence, spans = np.array([0, 2, 1, 2]), np.array([[0, 3], [7, 10], [4, 5], [2, 10]])
  found = pool(pooling, jnp.asarray(x), jnp.asarray(sentence), jnp.asarray(spans), window=8)
  expected = [plain_pooling(pooling, x[s], *span) for s, span in zip(sentence, spans, strict=True)]
  np.testing.assert_allclose(found, expected, atol=TOLERANCE)
  # What is outside of a span does not count, and a span of one piece is that piece.
  x[:, 5:7] = 99
  again = np.asarray(pool(pooling, jnp.asarray(x), jnp.asarray(sentence), jnp.asarray(spans), window=16))
  np.testing.assert_allclose(again[:3], expected[:3], atol=TOLERANCE)
  np.testing.assert_allclose(again[2], pooling.projection(jnp.asarray(x)[1, 4]), atol=TOLERANCE)


def test_two_spans_have_parameters_of_their_own_and_the_net_two_layers():
  probe, x = built(lambda: EdgeProbe(4, 5, 3, 2, CONFIG)), states()
  spans = np.array([[[0, 2], [5, 6]], [[3, 7], [0, 1]]])
  run = nnx.jit(lambda probe, *arrays: probe(*arrays, 4))
  logits = np.asarray(run(probe, x, jnp.array([1, 2]), jnp.asarray(spans)))
  mixed = np.asarray(x, np.float64).mean(2)
  for number, sentence in enumerate([1, 2]):
    pooled = [
      plain_pooling(pooling, mixed[sentence], *spans[number, place])
      for place, pooling in enumerate((probe.pooling1, probe.pooling2))
    ]
    inner = np.tanh(np.concatenate(pooled) @ np.asarray(probe.hidden.kernel[...]) + np.asarray(probe.hidden.bias[...]))
    normed = (inner - inner.mean()) / np.sqrt(inner.var() + 1e-6)
    np.testing.assert_allclose(logits[number], normed @ np.asarray(probe.output.kernel[...]), atol=1e-4)
  assert nnx.eval_shape(lambda: EdgeProbe(4, 5, 3, 1, CONFIG)).pooling2 is None


# --- scores ---------------------------------------------------------------------


def test_micro_f1_counts_labels_over_all_targets():
  random = np.random.default_rng(5)
  logits = random.standard_normal((30, 4)).astype(np.float32)
  labels = (random.random((30, 4)) < 0.3).astype(np.float32)
  unseen, weight = (random.random(30) < 0.1), (np.arange(30) < 25).astype(np.float32)
  counts = batch_counts(*map(jnp.asarray, (logits, labels, labels.sum(1) + unseen, weight)))
  right = predicted = gold = 0
  for row in range(25):
    said, true = {i for i in range(4) if logits[row, i] >= 0}, {i for i in range(4) if labels[row, i]}
    right, predicted, gold = right + len(said & true), predicted + len(said), gold + len(true) + bool(unseen[row])
  score = score_of({name: float(value) for name, value in counts.items()})
  precision, recall = right / predicted, right / gold
  assert score['micro_f1'] == pytest.approx(100 * 2 * precision * recall / (precision + recall), rel=1e-5)
  assert score['targets'] == 25
  assert score_of({'predicted': 0, 'gold': 0, 'right': 0, 'targets': 0})['micro_f1'] == 0


def example(spans, labels, length=6, ids=None):
  ids = np.full(length, 400, np.int32) if ids is None else np.asarray(ids, np.int32)
  needed = np.arange(1, len(ids) - 1, dtype=np.int32)
  spans = np.array([[span, (0, 0)] for span in spans], np.int32).reshape(-1, 2, 2)
  return EncodedSpans(ids, needed, spans, tuple(labels), 0)


def test_batches_hold_each_target_once_and_labels_never_seen_count_as_missed():
  examples = [
    example([(0, 1), (1, 3)], [('a',), ('b', 'a')]),
    example([], []),
    example([(0, 4)], [('never',)]),
  ]
  batch, window = probe_batch(examples, [2, 1, 0], {'a': 0, 'b': 1})
  assert batch.weight_T.sum() == 3
  assert batch.sentence_T[:3].tolist() == [0, 2, 2]
  assert batch.labels_TxN[:3].tolist() == [[0, 0], [1, 0], [1, 1]]
  assert batch.golds_T[:3].tolist() == [1, 1, 2]
  assert batch.spans_Tx2x2[:3, 0].tolist() == [[0, 4], [0, 1], [1, 3]]
  assert window == 4


def test_the_most_frequent_label_is_a_baseline():
  train = [example([(0, 1)] * 3, [('a',), ('b',), ('b',)])]
  test = [example([(0, 1)] * 4, [('b',), ('a',), ('b', 'a'), ('c',)])]
  assert edge_probing.most_frequent_f1(train, test) == pytest.approx(100 * 2 * 2 / (4 + 5))


# --- with an encoder --------------------------------------------------------------


@pytest.fixture(scope='module')
def model(tmp_path_factory):
  folder, config = tmp_path_factory.mktemp('probed') / 'run', dataclasses.replace(TINY, vocab_size=450)
  save_model(folder, random_leaves(config, None, has_pooler=False), config, None, ())
  return rembert.load(folder)


def sentences(count, seed=0):
  """Words of one piece; a word's label is whether its id is even, that of the span of two words `both` or `not`."""
  random = np.random.default_rng(seed)
  found = []
  for _ in range(count):
    words = random.integers(400, 440, random.integers(2, 9))
    labels = [('even',) if word % 2 == 0 else ('odd',) for word in words]
    found.append(example([(i, i + 1) for i in range(len(words))], labels, ids=[312, *words, 313]))
  return found


def frozen(model, examples, cache_bytes=1 << 30):
  return FrozenStates(model.encoder, examples, pad=0, batch_size=8, cache_bytes=cache_bytes)


def test_states_are_those_of_each_sentence_alone_kept_or_computed_again(model):
  examples = sentences(11)
  examples[3] = dataclasses.replace(examples[3], needed=examples[3].needed[::2])
  kept, again = frozen(model, examples), frozen(model, examples, cache_bytes=0)
  assert (kept.is_cached, again.is_cached) == (True, False)
  chosen = [3, 10, 0, 7]
  for place, index in enumerate(chosen):
    ids, needed = examples[index].input_ids, examples[index].needed
    alone, mask = np.zeros((1, 12), int), np.arange(12)[None] < len(ids)  # of one length: compiled once
    alone[0, : len(ids)] = ids
    states = model(alone, attention_mask=mask, output_hidden_states=True).hidden_states
    expected = np.asarray(states)[:, 0, needed]
    for found in (kept.at(chosen), again.at(chosen)):
      assert found.shape == (8, 16, 4, 32)
      np.testing.assert_allclose(
        found[place, : len(needed)], np.moveaxis(expected, 0, 1), atol=TOLERANCE * np.abs(expected).max()
      )


def test_targets_that_fill_up_a_batch_teach_nothing(model, monkeypatch):
  train = frozen(model, sentences(8))
  learn = lambda: edge_probing.train_probe(train, train, dataclasses.replace(CONFIG, epochs=1), spans=1)
  filled_up = learn()
  monkeypatch.setattr(edge_probing, 'power_of_two', lambda count, least: count)
  exact = learn()
  for ours, expected in zip(*map(jax.tree.leaves, (filled_up.parameters, exact.parameters)), strict=True):
    np.testing.assert_allclose(ours, expected, atol=1e-4)


@pytest.mark.slow
def test_a_probe_learns_what_the_states_tell_and_is_the_same_again(model):
  train, dev = frozen(model, sentences(150)), frozen(model, sentences(60, seed=1))
  told, config = [], dataclasses.replace(CONFIG, projection=32, hidden=32)
  learn = lambda cache: edge_probing.train_probe(
    train if cache else frozen(model, sentences(150), 0),
    dev,
    config,
    spans=1,
    on_progress=lambda fraction, note: told.append(fraction),
  )
  trained = learn(True)
  assert trained.dev['micro_f1'] > 75  # chance is 50
  assert np.argmax(trained.mix.weights()) == 0  # which word it is the embeddings say best
  assert trained.labels == {'even': 0, 'odd': 1}
  assert edge_probing.probe_score(trained, dev) == trained.dev
  assert told[-1] <= 1
  assert told == sorted(told)
  again = learn(True)
  np.testing.assert_array_equal(again.mix.weights(), trained.mix.weights())
  assert again.dev == trained.dev
  without_cache = learn(False)
  np.testing.assert_allclose(without_cache.mix.weights(), trained.mix.weights(), atol=1e-3)


def test_a_probe_stops_when_the_dev_score_does_not_rise(model):
  random = np.random.default_rng(0)
  noise = [
    dataclasses.replace(one, labels=tuple((str(random.integers(2)),) for _ in one.labels)) for one in sentences(16)
  ]
  config = dataclasses.replace(CONFIG, epochs=50, patience=1, learning_rate=0.0)
  trained = edge_probing.train_probe(frozen(model, noise), frozen(model, noise[:8]), config, spans=1)
  assert trained.epochs == 1
