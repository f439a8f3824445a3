"""Edge probing with scalar mixing (Tenney et al. 2019, "What do you learn from context?"; paper, section 6.2, Table 9).

The encoder is frozen. A probe mixes the outputs of its layers with learned weights, γ · Σ softmax(s)_l · h_l, projects
them, pools each span by learned self-attention over its tokens, and a two-layer MLP gives the probability of each label
(sigmoid, binary cross-entropy). Labels above 0.5 are predicted.

As there, the score is micro-F1 over all labels, for every task. Differences: the probe has no dropout, and the mix
includes the embeddings as layer 0 of L + 1 (as in their code; the paper's "12 layers" leaves it open).

`results` of `analysis.json`:

    task            name
    labels          number of labels
    spans           spans per target, 1 or 2
    layers          [0, 1, …, L]
    targets         {"train": n, "dev": n}
    encoders        `model`, and `random` (the same probe on an encoder with random parameters) or null:
      mix           weight of each layer, sum 1
      scale         γ
      expected_layer     Σ l · weight_l, the centre of gravity
      epochs        passes over the training targets until the best dev score
      dev           {"targets", "micro_f1"}, 0 to 100
      tests         by name: the same
      mean          {"micro_f1"}: unweighted over tests
    most_frequent   by name of the test: micro-F1 of always predicting the most frequent label of the training set
    dropped         targets beyond the model's positions, by name of the set
"""

import collections
import dataclasses
import functools
import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from etils import epath
from flax import nnx

from rembert.analysis.config import ProbeConfig
from rembert.analysis.context import AnalysisContext, AnalysisResult, Table, format_number, model_facts
from rembert.analysis.spans import (
  EncodedSpans,
  FrozenStates,
  SpanExample,
  Target,
  encode_spans,
  power_of_two,
  read_spans,
  spans_per_target,
)
from rembert.errors import UsageError
from rembert.inference.model import load
from rembert.model.encoder import RemBertEncoder
from rembert.tokenizer import SpecialIds, load_vocabulary
from rembert.tracking.console import Progress
from tasks.tables.files import Example
from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.files import XtremeFolder

Array = np.ndarray | jax.Array  # on the host, or under jit

# --- the probe --------------------------------------------------------------------------------------------------------


class ScalarMix(nnx.Module):
  """γ · Σ softmax(s)_l · h_l over layers; initialised as their mean."""

  def __init__(self, num_states: int):
    self.logits = nnx.Param(jnp.zeros(num_states))
    self.scale = nnx.Param(jnp.ones(()))

  def __call__(self, x_BxPxLxH: jax.Array) -> jax.Array:
    """x_BxPxLxH to x_BxPxH."""
    return self.scale[...] * jnp.einsum('l,bplh->bph', self.weights(), x_BxPxLxH)

  def weights(self) -> jax.Array:
    """Weights of the layers, [L + 1], sum 1."""
    return jax.nn.softmax(self.logits[...])


class SpanPooling(nnx.Module):
  """Projects H to D, then averages the tokens of a span, weighted by self-attention."""

  def __init__(self, hidden: int, width: int, *, rngs: nnx.Rngs):
    self.projection = nnx.Linear(hidden, width, rngs=rngs)
    self.attention = nnx.Linear(width, 1, rngs=rngs)

  def __call__(self, x_BxPxH: jax.Array, sentence_T: Array, span_Tx2: Array, window: int) -> jax.Array:
    """Pools spans to [T, D]; `sentence_T` are indices into B, and no span is longer than `window`.

    An empty span gives its first token.
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
  """Mixes layers, pools one or two spans, and computes a logit for each label by a two-layer MLP."""

  def __init__(self, num_states: int, hidden: int, num_labels: int, spans: int, config: ProbeConfig):
    rngs = nnx.Rngs(config.seed)
    self.mix = ScalarMix(num_states)
    self.pooling1 = SpanPooling(hidden, config.projection, rngs=rngs)
    self.pooling2 = SpanPooling(hidden, config.projection, rngs=rngs) if spans == 2 else nnx.data(None)
    self.hidden = nnx.Linear(spans * config.projection, config.hidden, rngs=rngs)
    self.norm = nnx.LayerNorm(config.hidden, rngs=rngs)
    self.output = nnx.Linear(config.hidden, num_labels, rngs=rngs)

  def __call__(self, x_BxPxLxH: jax.Array, sentence_T: Array, spans_Tx2x2: Array, window: int) -> jax.Array:
    """Logits [T, labels]; see `SpanPooling`."""
    x_BxPxH = self.mix(x_BxPxLxH)
    pooled = [self.pooling1(x_BxPxH, sentence_T, spans_Tx2x2[:, 0], window)]
    if self.pooling2 is not None:
      pooled.append(self.pooling2(x_BxPxH, sentence_T, spans_Tx2x2[:, 1], window))
    return self.output(self.norm(jnp.tanh(self.hidden(jnp.concatenate(pooled, -1)))))


# --- batches ----------------------------------------------------------------------------------------------------------


class ProbeBatch(NamedTuple):
  """Targets of some sentences, padded to a power of two with targets of weight 0; int32, labels and weights float32."""

  sentence_T: Array  # the index of each target's sentence
  spans_Tx2x2: Array
  labels_TxN: Array  # 1 for a label of the target
  golds_T: Array  # the number of its gold labels, including those that are not in the training set
  weight_T: Array


def probe_batch(
  examples: Sequence[EncodedSpans], chosen: Sequence[int] | np.ndarray, labels: Mapping[str, int]
) -> tuple[ProbeBatch, int]:
  """The targets of the chosen sentences, and their window: the longest span, rounded up to a power of two."""
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
  return ProbeBatch(sentence, spans, multi_hot, golds, weight), window


def _batches(
  states: FrozenStates, order: np.ndarray, batch_size: int, labels: Mapping[str, int]
) -> Iterator[tuple[jax.Array, ProbeBatch, int]]:
  """Hidden states, targets and window of each batch."""
  for start in range(0, len(order), batch_size):
    chosen = order[start : start + batch_size]
    yield states.at(chosen), *probe_batch(states.examples, chosen, labels)


# --- scores -----------------------------------------------------------------------------------------------------------


def batch_counts(logits_TxN: jax.Array, labels_TxN: Array, golds_T: Array, weight_T: Array) -> dict[str, jax.Array]:
  """Sums for `score_of`: numbers of correct, predicted and gold labels, and of targets."""
  predicted = (logits_TxN >= 0) * weight_T[:, None]
  return {
    'right': (predicted * labels_TxN).sum(),
    'predicted': predicted.sum(),
    'gold': (golds_T * weight_T).sum(),
    'targets': weight_T.sum(),
  }


def score_of(counts: Mapping[str, float]) -> dict[str, float]:
  """Number of targets, and micro-F1 (0 to 100), from sums of `batch_counts`."""
  named = counts['predicted'] + counts['gold']
  return {'targets': int(counts['targets']), 'micro_f1': 200 * float(counts['right']) / float(named) if named else 0.0}


def most_frequent_f1(train: Sequence[EncodedSpans], test: Sequence[EncodedSpans]) -> float:
  """Micro-F1, 0 to 100, of predicting the most frequent label of the training set for every target."""
  frequency = collections.Counter(name for example in train for names in example.labels for name in names)
  label = min(frequency, key=lambda name: (-frequency[name], name))
  targets = [names for example in test for names in example.labels]
  named = len(targets) + sum(len(names) for names in targets)
  return 100 * 2 * sum(label in names for names in targets) / named if named else 0.0


# --- training ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TrainedProbe:
  """A probe at its best dev score."""

  graphdef: nnx.GraphDef  # of the `EdgeProbe`
  parameters: nnx.State
  labels: Mapping[str, int]  # the index of each
  epochs: int  # passes over the training set up to this score
  dev: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # the score on the dev set

  @property
  def mix(self) -> ScalarMix:
    """The weights of the layers."""
    return nnx.merge(self.graphdef, self.parameters).mix


def train_probe(
  train: FrozenStates,
  dev: FrozenStates,
  config: ProbeConfig,
  *,
  spans: int,
  on_progress: Progress = lambda fraction, note='': None,
) -> TrainedProbe:
  """Trains a probe with Adam until the dev score has not risen for `config.patience` epochs.

  The labels are those of the training sentences. The probe with the best micro-F1 on dev is returned, the earliest on
  ties. Equal configs give equal probes. `spans` is the number of spans per target, 1 or 2.
  """
  names = sorted({name for example in train.examples for of_target in example.labels for name in of_target})
  labels = {name: number for number, name in enumerate(names)}
  example = train.at([0])
  graphdef, parameters = nnx.split(EdgeProbe(example.shape[2], example.shape[3], len(labels), spans, config))
  optimizer = optax.adam(config.learning_rate)
  state = optimizer.init(parameters)

  @functools.partial(jax.jit, static_argnums=4)
  def step(parameters, state, x_BxPxLxH, batch: ProbeBatch, window: int):
    def loss(parameters):
      logits = nnx.merge(graphdef, parameters)(x_BxPxLxH, batch.sentence_T, batch.spans_Tx2x2, window)
      entropy_T = optax.sigmoid_binary_cross_entropy(logits, batch.labels_TxN).sum(-1)
      return (entropy_T * batch.weight_T).sum() / jnp.maximum(batch.weight_T.sum(), 1)

    updates, state = optimizer.update(jax.grad(loss)(parameters), state, parameters)
    return optax.apply_updates(parameters, updates), state

  best = None
  total = -(-len(train.examples) // config.batch_size)
  for epoch in range(1, config.epochs + 1):
    order = np.random.default_rng((config.seed, epoch)).permutation(len(train.examples))
    reached = '' if best is None else f', dev {best.dev["micro_f1"]:.1f}'
    for number, batch in enumerate(_batches(train, order, config.batch_size, labels), 1):
      parameters, state = step(parameters, state, *batch)
      on_progress(((epoch - 1) * total + number) / (config.epochs * total), f'epoch {epoch}{reached}')
    probe = TrainedProbe(graphdef, parameters, labels, epoch)
    score = probe_score(probe, dev)
    if best is None or score['micro_f1'] > best.dev['micro_f1']:
      best = dataclasses.replace(probe, dev=score)
    elif epoch - best.epochs >= config.patience:
      break
  assert best is not None  # there is one epoch at least
  return best


def probe_score(probe: TrainedProbe, states: FrozenStates) -> dict[str, float]:
  """The score of a probe on some sentences."""
  total = collections.Counter()
  order = np.argsort([len(example.needed) for example in states.examples], kind='stable')
  for batch in _batches(states, order, states.batch_size, probe.labels):
    counts = _counts(probe.graphdef, probe.parameters, *batch)
    total.update({name: float(value) for name, value in counts.items()})
  return score_of(total)


@functools.partial(jax.jit, static_argnums=(0, 4))
def _counts(graphdef, parameters, x_BxPxLxH, batch: ProbeBatch, window: int) -> dict[str, jax.Array]:
  logits = nnx.merge(graphdef, parameters)(x_BxPxLxH, batch.sentence_T, batch.spans_Tx2x2, window)
  return batch_counts(logits, batch.labels_TxN, batch.golds_T, batch.weight_T)


# --- the analysis -----------------------------------------------------------------------------------------------------


def run(context: AnalysisContext) -> AnalysisResult:
  """Probes the model, and an encoder with random parameters; the module docstring has the results."""
  config, source = context.config, context.source()
  probe = config.probe
  task, sets = _read(context)
  model = load(config.analyze.model, execution=config.execution)
  encode, special = load_vocabulary(context.vocabulary(source)).encode, SpecialIds()
  longest = model.config.max_position_embeddings
  spans = spans_per_target(itertools.chain(*sets.values()), 'analyze.train, analyze.dev, analyze.test')

  # --- sentences ---------------------------------------------------------------
  encoded: dict[str, list[EncodedSpans]] = {}  # train, dev and tests
  dropped = {}
  with context.task('tokenizing'):
    for name, examples in sets.items():
      if name == 'train' and probe.max_train is not None and probe.max_train < len(examples):
        drawn = np.random.default_rng(probe.seed).permutation(len(examples))[: probe.max_train]
        examples = [examples[index] for index in sorted(drawn)]
      # As `tasks.xtreme.preprocessors.word_rows` has it: a word by itself, and [UNK] for one without tokens.
      tokens_of = lambda word: (list(encode(word)) if word.strip() else []) or [special.unknown]
      of_set = [encode_spans(example, tokens_of, longest=longest, special=special) for example in examples]
      dropped[name] = sum(example.dropped for example in of_set)
      encoded[name] = [example for example in of_set if example.labels]
      if not encoded[name]:
        raise UsageError(f'all targets of {name} exceed the model', where=source.path, fix='use shorter sentences')
  tests = list(encoded)[2:]

  # --- probes ------------------------------------------------------------------
  encoders = {'model': model.encoder, 'random': None}
  if config.analyze.control:
    rngs = nnx.Rngs(probe.seed)
    encoders['random'] = RemBertEncoder(model.config, model.encoder.execution, add_pooler=False, rngs=rngs)
  names = {'model': 'the model', 'random': 'a random encoder'}
  found = {
    name: encoder and _probe(context, encoder, encoded, names[name], pad=special.pad, spans=spans)
    for name, encoder in encoders.items()
  }
  labels = {label for example in encoded['train'] for of_target in example.labels for label in of_target}
  results = {
    'task': task,
    'labels': len(labels),
    'spans': spans,
    'layers': list(range(model.config.num_hidden_layers + 1)),
    'targets': {name: sum(len(example.labels) for example in encoded[name]) for name in ('train', 'dev')},
    'encoders': found,
    'most_frequent': {name: most_frequent_f1(encoded['train'], encoded[name]) for name in tests},
    'dropped': dropped,
  }
  remarks = []
  if beyond := {name: count for name, count in dropped.items() if count}:
    remarks.append(
      f"{sum(beyond.values()):,} target(s) beyond the model's maximum length of {longest} tokens were "
      f'skipped: {", ".join(f"{name} {count:,}" for name, count in beyond.items())}'
    )
  return AnalysisResult(results, {**model_facts(source), 'probe': dataclasses.asdict(probe)}, _tables(results), remarks)


def _probe(
  context: AnalysisContext,
  encoder: RemBertEncoder,
  encoded: Mapping[str, Sequence[EncodedSpans]],
  name: str,
  *,
  pad: int,
  spans: int,
) -> dict[str, Any]:
  """One encoder's part of `results`."""
  probe, tests = context.config.probe, list(encoded)[2:]
  states = functools.partial(FrozenStates, encoder, pad=pad, batch_size=probe.batch_size)
  cache_bytes = int(probe.cache_gb * 1e9)
  with context.task(f'encoding with {name}') as progress:
    train, dev = (states(encoded[part], cache_bytes=cache_bytes, on_progress=progress) for part in ('train', 'dev'))
  with context.task(f'probing {name}') as progress:
    trained = train_probe(train, dev, probe, spans=spans, on_progress=progress)
  del train, dev
  scores: dict[str, dict[str, float]] = {}
  with context.task(f'evaluating the probe of {name}') as progress:
    for test in tests:
      progress(len(scores) / len(tests), test)
      scores[test] = probe_score(trained, states(encoded[test], cache_bytes=0))  # read once, so not cached
  weights = np.asarray(trained.mix.weights(), np.float64)
  return {
    'mix': weights.tolist(),
    'scale': float(trained.mix.scale[...]),
    'expected_layer': float(weights @ np.arange(len(weights))),
    'epochs': trained.epochs,
    'dev': trained.dev,
    'tests': scores,
    'mean': {'micro_f1': statistics.fmean(score['micro_f1'] for score in scores.values())},
  }


def _tables(results: dict[str, Any]) -> list[Table]:
  encoders = [encoder for encoder in results['encoders'].values() if encoder]
  names = ['the model', 'random encoder'][: len(encoders)]
  scores = [
    (test, *(format_number(encoder['tests'][test]['micro_f1']) for encoder in encoders), format_number(floor))
    for test, floor in results['most_frequent'].items()
  ]
  means = (format_number(encoder['mean']['micro_f1']) for encoder in encoders)
  scores.append((f'average ({len(scores)} test sets)', *means, ''))
  weights = [
    (f'layer {layer}' if layer else 'embeddings', *(f'{encoder["mix"][layer]:.3f}' for encoder in encoders))
    for layer in results['layers']
  ]
  weights.append(('centre of gravity', *(f'{encoder["expected_layer"]:.2f}' for encoder in encoders)))
  return [
    Table(f'{results["task"]}: micro-F1', ('', *names, 'most frequent label'), scores),
    Table('Layer weights', ('', *names), weights),
  ]


def _read(context: AnalysisContext) -> tuple[str, dict[str, list[SpanExample]]]:
  """The name of the task, and the examples of its sets by name: `train`, `dev`, and tests."""
  analyze, xtreme = context.config.analyze, context.config.xtreme
  if analyze.train is not None:
    analyze.require('dev', 'test')
    names = [_name(path) for path in analyze.test]
    if len({*names, 'train', 'dev'}) < len(names) + 2:  # results are kept by name
      names = list(analyze.test)
    paths = {'train': analyze.train, 'dev': analyze.dev, **dict(zip(names, analyze.test, strict=True))}
    return analyze.task or _name(analyze.train), {name: read_spans(path) for name, path in paths.items()}
  if xtreme.data_dir is None:
    raise UsageError(
      'no probing data',
      where='analyze.train',
      fix=['--gin.analyze.train=FILE and analyze.dev, analyze.test', '--gin.xtreme.data_dir=FOLDER for UDPOS'],
    )
  udpos, folder = TASKS['udpos'], XtremeFolder(xtreme.data_dir, xtreme.labels_dir)

  has_tests = lambda language: folder.has(udpos.file(xtreme.split, language))
  languages = xtreme.languages or tuple(filter(has_tests, udpos.languages))
  if not languages:
    raise UsageError(
      'no test file of udpos found', where=str(folder.root), fix='python -m tasks.xtreme.download --help'
    )
  parts = [(split, split, xtreme.train_language) for split in ('train', 'dev')]
  parts += [(language, xtreme.split, language) for language in languages]
  read = functools.partial(udpos.examples, folder, needs_labels=True)
  tagged = lambda sentences: [_tagged_words(sentence) for sentence in sentences if sentence.features['words']]
  return 'udpos', {name: tagged(read(split, language)) for name, split, language in parts}


def _name(path: str) -> str:
  return epath.Path(path).name.partition('.')[0]


def _tagged_words(sentence: Example) -> SpanExample:
  targets = tuple(Target((word, word + 1), None, (tag,)) for word, tag in enumerate(sentence.label))
  return SpanExample(sentence.features['words'], targets)
