"""`edge_probing`: files of labelled spans, or UDPOS, through a frozen encoder to a probe."""

import dataclasses
import statistics
from collections.abc import Callable, Sequence

import numpy as np
from flax import nnx

from rembert.analysis.edge_probing import ProbeScore, TrainedProbe, most_frequent_f1, probe_score, train_probe
from rembert.analysis.frozen_states import FrozenStates
from rembert.analysis.span_examples import EncodedSpans, SpanExample, SpanSet, Target, encode_spans, read_spans
from rembert.data.masking import SpecialIds
from rembert.errors import UsageError
from rembert.inference.model import load
from rembert.jobs.analyses.desk import Analysed, Desk, Table, model_facts, number
from rembert.model.encoder import RemBertEncoder
from tasks.vocabulary import check_vocabulary, load_vocabulary
from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.layout import MissingFileError, XtremeFolder
from tasks.xtreme.words import Sentence, word_tokens


@dataclasses.dataclass(frozen=True)
class _Sets:
  task: str
  train: SpanSet
  dev: SpanSet
  tests: Sequence[SpanSet]


def run(desk: Desk) -> Analysed:
  """See `rembert.analysis.edge_probing`."""
  config, source = desk.config, desk.source()
  probe = config.probe
  sets = _read(desk)
  model = load(config.analyze.model, execution=config.execution)
  file = config.vocabulary.path or model.vocabulary
  if file is None:
    raise UsageError(
      'no vocabulary beside the model', where=source.path, fix='--gin.vocabulary.path=sentencepiece.model'
    )
  check_vocabulary(file, model.config.vocab_size)
  processor, special = load_vocabulary(file), SpecialIds()

  # --- sentences ---------------------------------------------------------------
  train = sets.train.examples
  if probe.max_train is not None and probe.max_train < len(train):
    drawn = np.random.default_rng(probe.seed).permutation(len(train))[: probe.max_train]
    train = [train[index] for index in sorted(drawn)]
  encoded, dropped = {}, {}
  with desk.task('cutting words'):
    for name, examples in (('train', train), ('dev', sets.dev.examples), *((t.name, t.examples) for t in sets.tests)):
      of_set = [
        _encode(example, processor.encode, special, model.config.max_position_embeddings) for example in examples
      ]
      dropped[name] = sum(example.dropped for example in of_set)
      encoded[name] = [example for example in of_set if example.labels]
      if not encoded[name]:
        raise UsageError(f'no target of {name} fits the model', where=source.path, fix='shorter sentences')
  spans = 1 if sets.train.examples[0].targets[0].span2 is None else 2
  has_lists = any(part.has_lists for part in (sets.train, sets.dev, *sets.tests))

  # --- probes ------------------------------------------------------------------
  tests = [part.name for part in sets.tests]
  encoders = {'model': model.encoder, 'random': None}
  if config.analyze.control:
    rngs = nnx.Rngs(probe.seed)
    encoders['random'] = RemBertEncoder(model.config, config.execution, add_pooler=False, rngs=rngs)
  found = {}
  for name, encoder in encoders.items():
    found[name] = encoder and _probe(desk, encoder, encoded, tests, special.pad, spans, has_lists, name)
  labels = {label for example in encoded['train'] for of_target in example.labels for label in of_target}
  results = {
    'task': sets.task,
    'labels': len(labels),
    'spans': spans,
    'layers': list(range(model.config.num_hidden_layers + 1)),
    'targets': {name: sum(len(example.labels) for example in encoded[name]) for name in ('train', 'dev')},
    'encoders': found,
    'most_frequent': {name: most_frequent_f1(encoded['train'], encoded[name]) for name in tests},
    'dropped': dropped,
  }
  beyond = {name: count for name, count in dropped.items() if count}
  remarks = []
  if beyond:
    longest = model.config.max_position_embeddings
    remarks.append(
      f'{sum(beyond.values()):,} target(s) lie beyond {longest} pieces, as far as the model reads, and are left '
      f'out: {", ".join(f"{name} {count:,}" for name, count in beyond.items())}'
    )
  return Analysed(
    results,
    {**model_facts(model.config, source.path), 'probe': dataclasses.asdict(probe)},
    _tables(results),
    remarks,
  )


def _probe(desk: Desk, encoder, encoded, tests, pad: int, spans: int, has_lists: bool, name: str) -> dict:
  """One encoder's part of `results`."""
  probe, what = desk.config.probe, {'model': 'the model', 'random': 'a random encoder'}[name]

  def states(examples: Sequence[EncodedSpans], progress, cache_bytes: float) -> FrozenStates:
    return FrozenStates(
      encoder, examples, pad=pad, batch_size=probe.batch_size, cache_bytes=int(cache_bytes), on_progress=progress
    )

  with desk.task(f'reading with {what}') as progress:
    train, dev = (states(encoded[part], progress, probe.cache_gb * 1e9) for part in ('train', 'dev'))
  with desk.task(f'probing {what}') as progress:
    trained = train_probe(train, dev, probe, spans=spans, has_lists=has_lists, on_progress=progress)
  del train, dev
  with desk.task(f'judging the probe of {what}') as progress:
    scores = {}
    for done, test in enumerate(tests):
      progress(done / len(tests), test)
      scores[test] = probe_score(trained, states(encoded[test], lambda *_: None, 0))  # once: nothing to keep
  return _as_json(trained, scores)


def _as_json(trained: TrainedProbe, scores: dict[str, ProbeScore]) -> dict:
  accuracies = [score.accuracy for score in scores.values() if score.accuracy is not None]
  return {
    'mix': list(trained.mix),
    'scale': trained.scale,
    'expected_layer': trained.expected_layer,
    'epochs': trained.epochs,
    'dev': dataclasses.asdict(trained.dev),
    'tests': {name: dataclasses.asdict(score) for name, score in scores.items()},
    'mean': {
      'micro_f1': statistics.fmean(score.micro_f1 for score in scores.values()),
      'accuracy': statistics.fmean(accuracies) if len(accuracies) == len(scores) else None,
    },
  }


def _encode(
  example: SpanExample, encode: Callable[[str], list[int]], special: SpecialIds, longest: int
) -> EncodedSpans:
  tokens = lambda word: word_tokens(word, encode, special.unknown)
  return encode_spans(example, tokens, longest=longest, special=special)


def _tables(results: dict) -> list[Table]:
  there = {name: found for name, found in results['encoders'].items() if found}
  names = {'model': 'the model', 'random': 'random encoder'}
  rows = [
    (
      test,
      *(number(found['tests'][test]['micro_f1']) for found in there.values()),
      number(results['most_frequent'][test]),
    )
    for test in next(iter(there.values()))['tests']
  ]
  rows.append((f'mean of {len(rows)}', *(number(found['mean']['micro_f1']) for found in there.values()), ''))
  scores = Table(f'{results["task"]}: micro-F1', ('', *(names[name] for name in there), 'most frequent label'), rows)
  weights = [
    (f'layer {layer}' if layer else 'embeddings', *(f'{found["mix"][layer]:.3f}' for found in there.values()))
    for layer in results['layers']
  ]
  weights.append(('centre of gravity', *(f'{found["expected_layer"]:.2f}' for found in there.values())))
  return [scores, Table('Weights of the layers', ('', *(names[name] for name in there)), weights)]


# --- data -------------------------------------------------------------------------------------------------------------


def _read(desk: Desk) -> _Sets:
  analyze, xtreme = desk.config.analyze, desk.config.xtreme
  if analyze.train is not None:
    analyze.require('dev', 'test')
    tests = [read_spans(path) for path in analyze.test]
    names = [test.name for test in tests]
    if len({*names, 'train', 'dev'}) < len(names) + 2:  # results are kept by name
      tests = [dataclasses.replace(test, name=str(path)) for test, path in zip(tests, analyze.test, strict=True)]
    train, dev = read_spans(analyze.train), read_spans(analyze.dev)
    kinds = {part.examples[0].targets[0].span2 is None for part in (train, dev, *tests)}
    if len(kinds) > 1:
      raise UsageError(
        'some files have one span, some two', where='analyze.train, analyze.dev, analyze.test', fix='files of one task'
      )
    return _Sets(analyze.task or train.name, train, dev, tests)
  if xtreme.data_dir is None:
    raise UsageError(
      'probing for what?',
      where='analyze.train',
      fix=['--gin.analyze.train=FILE and analyze.dev, analyze.test', '--gin.xtreme.data_dir=FOLDER for UDPOS'],
    )
  udpos, folder = TASKS['udpos'], XtremeFolder(xtreme.data_dir, xtreme.labels_dir)
  language = xtreme.train_language
  spans_of = lambda split, code: SpanSet(
    code,
    tuple(_of_sentence(s) for s in udpos.examples(folder, split, code, needs_labels=True) if s.words),
  )
  tests = []
  for code in xtreme.languages or udpos.languages:
    try:
      tests.append(spans_of(xtreme.split, code))
    except MissingFileError:
      if xtreme.languages:
        raise
  if not tests:
    raise UsageError(
      'there is no test file of udpos', where=str(folder.root), fix='python -m tasks.xtreme.download --help'
    )
  return _Sets('udpos', spans_of('train', language), spans_of('dev', language), tests)


def _of_sentence(sentence: Sentence) -> SpanExample:
  if sentence.tags is None:
    raise ValueError(f'{sentence.where}: a sentence without tags')
  targets = tuple(Target((word, word + 1), None, (tag,)) for word, tag in enumerate(sentence.tags))
  return SpanExample(sentence.words, targets, sentence.where)
