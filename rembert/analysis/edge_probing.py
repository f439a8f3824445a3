"""Edge probing with scalar mixing (Tenney et al. 2019, "What do you learn from context?"; paper, section 6.2, Table 9).

The encoder is frozen. A probe mixes the outputs of its layers with learned weights, γ · Σ softmax(s)_l · h_l, projects
them, pools each span by learned self-attention over its pieces (a span of one piece is that piece), and a net of two
layers gives each label a probability of its own (sigmoid, binary cross-entropy). What is above one half is predicted.

As there: micro-F1 over all labels, for every task. Beside it stands the accuracy of the most probable label where every
target has one. Not as there: no dropout in the probe, and the layer weights begin with the embeddings as layer 0 of
L + 1 (theirs too have it; the paper's "12 layers" leaves open whether it has).

`results` of `analysis.json`:

    task            name
    labels          how many
    spans           1 or 2
    layers          [0, 1, …, L]
    targets         {"train": n, "dev": n}
    encoders        `model`, and `random` (the same probe on an encoder with random parameters) or null:
      mix           weight of each layer, sum 1
      scale         γ
      expected_layer     Σ l · weight_l: the centre of gravity
      epochs        passes over the training targets until the best dev score
      dev           {"targets", "micro_f1", "accuracy"}, 0 to 100; accuracy null where targets have lists of labels
      tests         by name: the same
      mean          {"micro_f1", "accuracy"}: unweighted over tests
    most_frequent   by name of the test: micro-F1 of who always says the most frequent label of the training set
    dropped         targets that lay beyond the model's positions, by name of the set
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from rembert.analysis.config import ProbeConfig
from rembert.analysis.frozen_states import FrozenStates, power_of_two
from rembert.analysis.span_examples import EncodedSpans

# --- the probe --------------------------------------------------------------------------------------------------------


class ScalarMix(nnx.Module):
  """γ · Σ softmax(s)_l · h_l over layers; at the beginning their mean."""

  def __init__(self, num_states: int):
    self.logits = nnx.Param(jnp.zeros(num_states))
    self.scale = nnx.Param(jnp.ones(()))

  def __call__(self, x_BxPxLxH: jax.Array) -> jax.Array:
    """x_BxPxLxH to x_BxPxH."""
    return self.scale[...] * jnp.einsum('l,bplh->bph', self.weights(), x_BxPxLxH)

  def weights(self) -> jax.Array:
    """[L + 1], sum 1."""
    return jax.nn.softmax(self.logits[...])


class SpanPooling(nnx.Module):
  """H → D, then the mean of a span's pieces by attention weights that the pieces themselves give."""

  def __init__(self, hidden: int, width: int, *, rngs: nnx.Rngs):
    self.projection = nnx.Linear(hidden, width, rngs=rngs)
    self.attention = nnx.Linear(width, 1, rngs=rngs)

  def __call__(self, x_BxPxH: jax.Array, sentence_T: jax.Array, span_Tx2: jax.Array, window: int) -> jax.Array:
    """Spans of sentences to [T, D].

    Args:
      x_BxPxH: mixed states.
      sentence_T: of each target, the row of its sentence.
      span_Tx2: begin and end in P; an empty span gives its first piece.
      window: no span is longer.
    """
    x_BxPxD = self.projection(x_BxPxH)
    scores_BxP = self.attention(x_BxPxD)[..., 0]
    places_TxW = span_Tx2[:, :1] + jnp.arange(window)
    is_inside_TxW = (places_TxW < span_Tx2[:, 1:]) | (jnp.arange(window) == 0)
    places_TxW = jnp.minimum(places_TxW, x_BxPxH.shape[1] - 1)
    scores_TxW = jnp.where(is_inside_TxW, scores_BxP[sentence_T[:, None], places_TxW], -jnp.inf)
    pieces_TxWxD = x_BxPxD[sentence_T[:, None], places_TxW]
    return jnp.einsum('tw,twd->td', jax.nn.softmax(scores_TxW), pieces_TxWxD)


class EdgeProbe(nnx.Module):
  """Mixed layers → one or two pooled spans → tanh, LayerNorm → a logit for each label."""

  def __init__(self, num_states: int, hidden: int, num_labels: int, spans: int, config: ProbeConfig):
    rngs = nnx.Rngs(config.seed)
    self.mix = ScalarMix(num_states)
    self.pooling1 = SpanPooling(hidden, config.projection, rngs=rngs)
    self.pooling2 = SpanPooling(hidden, config.projection, rngs=rngs) if spans == 2 else nnx.data(None)
    self.hidden = nnx.Linear(spans * config.projection, config.hidden, rngs=rngs)
    self.norm = nnx.LayerNorm(config.hidden, rngs=rngs)
    self.output = nnx.Linear(config.hidden, num_labels, rngs=rngs)

  def __call__(self, x_BxPxLxH: jax.Array, sentence_T: jax.Array, spans_Tx2x2: jax.Array, window: int) -> jax.Array:
    """Logits [T, labels]; see `SpanPooling`."""
    x_BxPxH = self.mix(x_BxPxLxH)
    pooled = [self.pooling1(x_BxPxH, sentence_T, spans_Tx2x2[:, 0], window)]
    if self.pooling2 is not None:
      pooled.append(self.pooling2(x_BxPxH, sentence_T, spans_Tx2x2[:, 1], window))
    return self.output(self.norm(jnp.tanh(self.hidden(jnp.concatenate(pooled, -1)))))


# --- batches ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ProbeBatch:
  """Targets of some sentences, filled up to a power of two with targets of weight 0.

  Attributes:
    chosen: numbers of the sentences.
    sentence_T: int32, the row of each target's sentence.
    spans_Tx2x2: int32.
    labels_TxN: float32, 1 for a label of the target.
    golds_T: float32, how many labels it has, those that training has never seen included.
    weight_T: float32, 0 for what only fills up.
    window: no span is longer; a power of two.
  """

  chosen: np.ndarray
  sentence_T: np.ndarray
  spans_Tx2x2: np.ndarray
  labels_TxN: np.ndarray
  golds_T: np.ndarray
  weight_T: np.ndarray
  window: int

  @property
  def arrays(self) -> dict[str, np.ndarray]:
    """What goes to the device."""
    names = ('sentence_T', 'spans_Tx2x2', 'labels_TxN', 'golds_T', 'weight_T')
    return {name: getattr(self, name) for name in names}


def probe_batch(
  examples: Sequence[EncodedSpans], chosen: Sequence[int] | np.ndarray, labels: Mapping[str, int]
) -> ProbeBatch:
  """The targets of the chosen sentences."""
  counts = [len(examples[index].labels) for index in chosen]
  total = sum(counts)
  size = power_of_two(total, 64)
  sentence, golds, weight = np.zeros(size, np.int32), np.zeros(size, np.float32), np.zeros(size, np.float32)
  spans, multi_hot = np.zeros((size, 2, 2), np.int32), np.zeros((size, len(labels)), np.float32)
  sentence[:total] = np.repeat(np.arange(len(chosen)), counts)
  spans[:total] = np.concatenate([examples[index].spans for index in chosen])
  weight[:total] = 1
  for row, names in enumerate(names for index in chosen for names in examples[index].labels):
    golds[row] = len(names)
    multi_hot[row, [labels[name] for name in names if name in labels]] = 1
  window = power_of_two(int((spans[..., 1] - spans[..., 0]).max(initial=1)), 4)
  return ProbeBatch(np.asarray(chosen), sentence, spans, multi_hot, golds, weight, window)


def _batches(
  examples: Sequence[EncodedSpans], order: np.ndarray, batch_size: int, labels: Mapping[str, int]
) -> Iterator[ProbeBatch]:
  for start in range(0, len(order), batch_size):
    yield probe_batch(examples, order[start : start + batch_size], labels)


# --- scores -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ProbeScore:
  """Of some targets, 0 to 100; accuracy is None where targets have lists of labels."""

  targets: int
  micro_f1: float
  accuracy: float | None


def batch_counts(
  logits_TxN: jax.Array, labels_TxN: jax.Array, golds_T: jax.Array, weight_T: jax.Array
) -> dict[str, jax.Array]:
  """Sums that scores are made of: labels right, predicted and there, and targets whose best label is one of theirs."""
  predicted = (logits_TxN >= 0) * weight_T[:, None]
  best_T = jnp.take_along_axis(labels_TxN, jnp.argmax(logits_TxN, -1)[:, None], -1)[:, 0]
  return {
    'right': (predicted * labels_TxN).sum(),
    'predicted': predicted.sum(),
    'gold': (golds_T * weight_T).sum(),
    'best': (best_T * weight_T).sum(),
    'targets': weight_T.sum(),
  }


def score_of(counts: Mapping[str, float], *, has_lists: bool) -> ProbeScore:
  """Micro-F1 and accuracy of sums of `batch_counts`."""
  named = counts['predicted'] + counts['gold']
  return ProbeScore(
    targets=int(counts['targets']),
    micro_f1=100 * 2 * float(counts['right']) / float(named) if named else 0.0,
    accuracy=None if has_lists else 100 * float(counts['best']) / max(float(counts['targets']), 1.0),
  )


def most_frequent_f1(train: Sequence[EncodedSpans], test: Sequence[EncodedSpans]) -> float:
  """Micro-F1, 0 to 100, of who says the most frequent label of the training set of every target."""
  frequency = collections.Counter(name for example in train for names in example.labels for name in names)
  label = min(frequency, key=lambda name: (-frequency[name], name))
  targets = [names for example in test for names in example.labels]
  named = len(targets) + sum(len(names) for names in targets)
  return 100 * 2 * sum(label in names for names in targets) / named if named else 0.0


# --- learning ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TrainedProbe:
  """A probe at its best dev score.

  Attributes:
    graphdef: static half of the `EdgeProbe`.
    parameters: the other.
    labels: by name, their numbers.
    epochs: passes over the training set until there.
    dev: its score.
    has_lists: whether targets have any number of labels.
    mix: weight of each layer.
    scale: γ.
  """

  graphdef: nnx.GraphDef
  parameters: nnx.State
  labels: Mapping[str, int]
  epochs: int
  dev: ProbeScore
  has_lists: bool
  mix: tuple[float, ...]
  scale: float

  @property
  def expected_layer(self) -> float:
    """Σ l · weight_l."""
    return float(np.dot(self.mix, np.arange(len(self.mix))))


def train_probe(
  train: FrozenStates,
  dev: FrozenStates,
  config: ProbeConfig,
  *,
  spans: int,
  has_lists: bool,
  on_progress: Callable[[float, str], None] = lambda fraction, note: None,
) -> TrainedProbe:
  """Learns a probe with Adam until the dev score has not risen for `config.patience` epochs.

  Args:
    train: sentences to learn from; their labels are those of the probe.
    dev: sentences to choose by: the best micro-F1, the first among equals.
    config: sizes, rate, epochs, seed; the same give the same probe.
    spans: of a target, 1 or 2.
    has_lists: whether targets have any number of labels.
    on_progress: told after every batch.
  """
  names = sorted({name for example in train.examples for of_target in example.labels for name in of_target})
  labels = {name: number for number, name in enumerate(names)}
  example = train.at([0])
  graphdef, parameters = nnx.split(EdgeProbe(example.shape[2], example.shape[3], len(labels), spans, config))
  optimizer = optax.adam(config.learning_rate)
  state = optimizer.init(parameters)

  @functools.partial(jax.jit, static_argnums=4)
  def step(parameters, state, x_BxPxLxH, batch, window):
    def loss(parameters):
      logits = nnx.merge(graphdef, parameters)(x_BxPxLxH, batch['sentence_T'], batch['spans_Tx2x2'], window)
      entropy_T = optax.sigmoid_binary_cross_entropy(logits, batch['labels_TxN']).sum(-1)
      return (entropy_T * batch['weight_T']).sum() / jnp.maximum(batch['weight_T'].sum(), 1)

    updates, state = optimizer.update(jax.grad(loss)(parameters), state, parameters)
    return optax.apply_updates(parameters, updates), state

  best = None
  total = -(-len(train.examples) // config.batch_size)
  for epoch in range(1, config.epochs + 1):
    order = np.random.default_rng((config.seed, epoch)).permutation(len(train.examples))
    for number, batch in enumerate(_batches(train.examples, order, config.batch_size, labels), 1):
      parameters, state = step(parameters, state, train.at(batch.chosen), batch.arrays, batch.window)
      reached = '' if best is None else f', dev {best.dev.micro_f1:.1f}'
      on_progress(((epoch - 1) * total + number) / (config.epochs * total), f'epoch {epoch}{reached}')
    module = nnx.merge(graphdef, parameters)
    mix, scale = tuple(np.asarray(module.mix.weights(), np.float64).tolist()), float(module.mix.scale[...])
    now = TrainedProbe(graphdef, parameters, labels, epoch, ProbeScore(0, 0.0, None), has_lists, mix, scale)
    now = dataclasses.replace(now, dev=probe_score(now, dev))
    if best is None or now.dev.micro_f1 > best.dev.micro_f1:
      best = now
    elif epoch - best.epochs >= config.patience:
      break
  if best is None:
    raise ValueError('a probe learns for one epoch at least')
  return best


def probe_score(probe: TrainedProbe, states: FrozenStates) -> ProbeScore:
  """The score of a probe on some sentences."""
  total = collections.Counter()
  order = np.argsort([len(example.needed) for example in states.examples], kind='stable')
  for batch in _batches(states.examples, order, states.batch_size, probe.labels):
    counts = _counts(probe.graphdef, probe.parameters, states.at(batch.chosen), batch.arrays, batch.window)
    total.update({name: float(value) for name, value in counts.items()})
  return score_of(total, has_lists=probe.has_lists)


@functools.partial(jax.jit, static_argnums=(0, 4))
def _counts(graphdef, parameters, x_BxPxLxH, batch, window):
  logits = nnx.merge(graphdef, parameters)(x_BxPxLxH, batch['sentence_T'], batch['spans_Tx2x2'], window)
  return batch_counts(logits, batch['labels_TxN'], batch['golds_T'], batch['weight_T'])
